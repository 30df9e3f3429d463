//! Defaults of keys, read as their values are, are those of the parts that they configure.

use websub::hub::callback::CallbackPolicy;
use websub::hub::limits::HubLimits;

use crate::announce::plan::DEFAULT_INCLUDE;
use crate::config::KEYS;
use crate::config::definition::{Definition, Fallback};
use crate::config::overrides::Overrides;
use crate::config::tests::{SOURCE, read};

#[test]
fn the_parts_have_the_same_defaults() {
    let config = read(SOURCE, &Overrides::default()).unwrap();
    assert_eq!(
        config.sources[0].plan.candidates.include(),
        DEFAULT_INCLUDE.map(str::to_owned)
    );
    let hub = config.embedded_hub.unwrap();
    assert_eq!(hub.callbacks, CallbackPolicy::default());
    assert_eq!(hub.limits, HubLimits::default());
}

fn with_defaults(keys: &[&'static Definition], found: &mut Vec<String>) {
    for key in keys {
        if let Fallback::Default(text) = key.fallback {
            found.push(format!("{} = {text}", key.path()));
        }
        with_defaults(key.keys(), found);
    }
}

/// Written out, defaults change nothing; so each of them is a value of its key.
#[test]
fn defaults_that_are_written_change_nothing() {
    let required = "[[source]]\nname = \"main\"\n";
    let mount = "path = \"www\", url = \"https://example.org\"";
    let hub = "[[hub]]\nurl = \"https://h.example/\"\n";
    let channel = "[[channel]]\ncapability_list = \"https://example.org/c\"\n\
                   topic = \"https://example.org/t\"\n";
    let file = |defaults: &[String]| {
        let of = |table: &str| -> Vec<String> {
            let below = defaults.iter().filter_map(|line| {
                let (path, value) = line.split_once(" = ")?;
                let name = path.strip_prefix(table)?.strip_prefix('.')?;
                (!name.contains('.')).then(|| format!("{name} = {value}"))
            });
            below.collect()
        };
        let lines = |table: &str| of(table).join("\n");
        let mounts: String = of("source.mount")
            .iter()
            .map(|pair| format!(", {pair}"))
            .collect();
        format!(
            "{required}mount = [{{ {mount}{mounts} }}]\n{}\n{hub}{}\n{channel}{}\n\
             [server]\n{}\n[window]\n{}\n[embedded_hub]\n{}\n",
            lines("source"),
            lines("hub"),
            lines("channel"),
            lines("server"),
            lines("window"),
            lines("embedded_hub"),
        )
    };
    let mut defaults = Vec::new();
    with_defaults(&KEYS, &mut defaults);
    assert!(defaults.len() > 30, "{defaults:?}");
    let written = file(&defaults);
    let read = |text: &str| read(text, &Overrides::default()).unwrap();
    assert_eq!(read(&written), read(&file(&[])), "{written}");
}
