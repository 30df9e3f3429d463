//! Tests of the difference between two configurations, in words.

use std::fs;

use crate::config::environment::Overrides;
use crate::config::tests::HUB;
use crate::config::{Config, ReloadableConfig};

/// A source for each name, and more keys.
fn configured(sources: &str, more: &str) -> Config {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("c.toml");
    let source = |name| {
        format!(
            "[[source]]\nname = \"{name}\"\nmount = [{{ path = \"/{name}\", url = \"https://{name}.org/\" }}]\n"
        )
    };
    let sources: String = sources.split(' ').map(source).collect();
    fs::write(&path, format!("{sources}{more}")).unwrap();
    Config::load(Some(&path), &Overrides::default()).unwrap()
}

#[test]
fn what_came_went_and_changed_is_named() {
    let window = format!("{HUB}[window]\nquiet = \"1s\"");
    let token = format!("{HUB}headers = {{ X-Key = \"secret\" }}");
    let channels = ["framework", "change"].map(|kind| {
        format!(
            "[[channel]]\ncapability_list = \"https://a.org/c.xml\"\nkind = \"{kind}\"\n\
             topic = \"https://a.org/{kind}/\"\nhubs = [\"https://h.example/\"]\n"
        )
    });
    let both = format!("{HUB}{}", channels.concat());
    let one = format!("{HUB}{}", channels[0]);
    let (window, token, both, one) = (&*window, &*token, &*both, &*one);
    let none = "hub https://h.example/ removed; embedded hub /hub added";
    for (sources, more, sources_after, more_after, want) in [
        ("a", HUB, "a", HUB, ""),
        ("b", HUB, "a b", HUB, "source a added"),
        ("a b", HUB, "b", window, "source a removed; window changed"),
        ("a", HUB, "a", token, "hub https://h.example/ changed"),
        ("a", HUB, "a", "", none),
        ("a", HUB, "a b c d e", HUB, "4 sources added"),
        ("a", both, "a", both, ""),
        (
            "a",
            both,
            "a",
            one,
            "channel https://a.org/c.xml (change) removed",
        ),
    ] {
        let before = configured(sources, more);
        let after = configured(sources_after, more_after);
        assert_eq!(before.changes_in_words(&after).join("; "), want);
    }
}
