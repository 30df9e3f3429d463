//! Tests of `[embedded_hub]`.

use resourcesync::uri::Hub;
use websub::hub::admission::{HubLimits, Quota};
use websub::hub::request::CallbackPolicy;

use crate::config::Config;
use crate::config::environment::Overrides;
use crate::config::tests::{SOURCE, environment, flags, load_in, read};

#[test]
fn loopback_is_called_back_without_asking_only_in_a_trial_on_this_machine() {
    let loopback = |config: &Config| {
        let hub = config.embedded_hub.as_ref().unwrap();
        let callbacks = hub.settings(Hub::new("http://h.example/")).policy;
        let is_taken = callbacks.accept("http://127.0.0.1:40000/").is_ok();
        assert_eq!(is_taken, callbacks.accept("http://[::1]:40000/").is_ok());
        assert!(callbacks.accept("http://10.0.0.1/").is_err());
        is_taken
    };
    let tree = [("root", "a"), ("url", "http://e.org/")];
    let localhost = ("public_url", "http://localhost/");
    for (more, want) in [
        (&[][..], true),
        (
            &[("listen", "[::1]:0"), ("admin_listen", "127.0.0.2:0")],
            true,
        ),
        (&[("public_url", "http://localhost:8400")], true),
        (&[("public_url", "http://127.0.0.1:8400/")], true),
        (&[("public_url", "https://example.org/")], false),
        (&[("public_url", "http://127.0.0.1.example.org/")], false),
        (&[("listen", "192.0.2.1:8400")], false),
        (&[("listen", "0.0.0.0:1"), localhost], false),
        (&[("admin_listen", "0.0.0.0:8401")], false),
        (&[("listen", "unix:s"), localhost], false),
    ] {
        let overrides = flags(&[&tree, more].concat());
        let config = load_in(&environment(), None, &overrides).unwrap();
        assert_eq!(loopback(&config), want, "{more:?}");
        let config = read("", &overrides).unwrap();
        assert!(!loopback(&config), "{more:?} with a file");
    }
    let hub = "[embedded_hub]\nallow_callback_networks = [\"127.0.0.0/8\", \"::1\"]\n";
    let config = read(&format!("{SOURCE}{hub}"), &Overrides::default());
    assert!(loopback(&config.unwrap()));
}

#[test]
fn proxies_on_loopback_are_trusted_where_it_listens_there_unless_the_file_names_others() {
    for (server, hub, want) in [
        ("", "", &["127.0.0.0/8", "::1/128"][..]),
        ("listen = \"[::1]:0\"", "", &["127.0.0.0/8", "::1/128"]),
        ("listen = \"0.0.0.0:8400\"", "", &[]),
        ("listen = \"unix:s\"", "", &[]),
        ("", "trusted_proxies = []", &[]),
        ("", "trusted_proxies = [\"10.0.0.7\"]", &["10.0.0.7/32"]),
    ] {
        let server = format!("[server]\npublic_url = \"https://e.org/\"\n{server}\n");
        let text = format!("{server}{SOURCE}[embedded_hub]\n{hub}\n");
        let config = read(&text, &Overrides::default()).unwrap();
        let trusted = config.embedded_hub.unwrap().trusted_proxies;
        let trusted: Vec<String> = trusted.iter().map(|net| net.0.to_string()).collect();
        assert_eq!(trusted, want, "{server}{hub}");
    }
}

#[test]
fn the_embedded_hub_s_keys_have_effect() {
    let text = format!(
        "{SOURCE}[embedded_hub]\nhttps_callbacks_only = true\ncallback_ports = [\"7\", \"8-9\"]\n\
         trusted_proxies = [\"10.0.0.0/8\"]\nmax_subscriptions = 1\nmax_subscriptions_per_host = 2\n\
         max_subscriptions_per_address = 3\nmax_requests_per_minute = 4\n"
    );
    let hub = read(&text, &Overrides::default()).unwrap().embedded_hub;
    let hub = hub.unwrap();
    let settings = hub.settings(Hub::new("http://h.example/"));
    let (callbacks, limits) = (settings.policy, settings.limits);
    assert!(callbacks.https_only);
    assert_eq!(callbacks.ports, [7..=7, 8..=9]);
    assert_eq!(hub.trusted_proxies[0].0.to_string(), "10.0.0.0/8");
    let want = Quota {
        in_all: 1,
        per_host: 2,
        per_address: 3,
    };
    assert_eq!(limits.subscriptions, want);
    assert_eq!(limits.requests_per_minute, 4);
}

#[test]
fn the_embedded_hub_s_defaults_are_those_of_a_hub() {
    let hub = read(SOURCE, &Overrides::default()).unwrap().embedded_hub;
    let hub = hub.unwrap();
    let settings = hub.settings(Hub::new("http://h.example/"));
    assert_eq!(settings.policy, CallbackPolicy::default());
    assert_eq!(settings.limits, HubLimits::default());
}
