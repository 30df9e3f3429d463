//! Tests of the printed lines: right for existing topics, and safe for made-up ones.

use std::collections::BTreeSet;

use proptest::prelude::{prop_assert, prop_assert_eq, proptest};
use resourcesync::uri::{Hub, Topic, Uri};

use crate::cli::snippet::{
    PassedPaths, RequestPath, apache, caddy, exact_pattern, nginx, nginx_quoted,
    passed_front_pages, passed_paths,
};
use crate::config::text::Address;

const ESCAPED_SLASH: &str = "web servers do not agree what an escaped slash means";

fn passed(topics: &[&str], home: Option<&str>, hub: Option<&str>) -> PassedPaths {
    let topics: BTreeSet<Topic> = topics.iter().map(|topic| Topic::new(*topic)).collect();
    let home = home.map(|home| Uri::parse(home).unwrap());
    passed_paths(&topics, home.as_ref(), hub.map(Hub::new).as_ref())
}

#[test]
fn each_site_is_told_what_is_its_own() {
    let passing = passed(
        &[
            "http://a.example:8080/t",
            "https://a.example/p/topics/main/x/",
            "https://a.example/p/x/topics/?b=c",
            "https://a.example/p/x/topics/?b=d",
            "https://A.example/%7ey/",
            "https://b.example?a/b",
        ],
        Some("https://a.example/p/"),
        Some("https://a.example/p/hub"),
    );
    let sites = passing.sites.iter().map(|(origin, site)| {
        let raw = |paths: &[RequestPath]| {
            let paths = paths.iter().map(|path| path.raw.as_str());
            paths.collect::<Vec<_>>().join(" ")
        };
        let (below, exactly) = (raw(&site.below), raw(&site.exactly));
        format!("{origin} | {below} | {exactly}")
    });
    let want = [
        "http://a.example:8080 |  | /t",
        "https://a.example | /p/topics/ /p/changes/ | /p/hub /%7ey/ /p/x/topics/",
        "https://b.example |  | /",
    ];
    assert_eq!(Vec::from_iter(sites), want);
    assert_eq!(passing.refused, []);
}

#[test]
fn what_no_server_would_read_as_it_is_meant_is_refused() {
    let shortened = "web servers shorten a path with empty segments or dots";
    for (path, reason) in [
        ("a/é", "it has characters that clients escape"),
        ("a%2Fb", ESCAPED_SLASH),
        ("a%ff", "its percent-escapes are not UTF-8"),
        ("a%0ab", "its percent-escapes contain control characters"),
        ("a%C2%85", "its percent-escapes contain control characters"),
        ("a//b", shortened),
        ("a/%2e%2E/b", shortened),
        ("./a", shortened),
    ] {
        let topic = format!("https://e.org/{path}");
        let passing = passed(&[&topic], None, None);
        assert_eq!(passing.refused, [(topic.to_owned(), reason)]);
        assert!(passing.sites.is_empty());
    }
}

#[test]
fn a_hub_and_new_topics_are_refused_for_the_same_reasons() {
    let escaped = "https://e.org/a%2Fb/";
    let passing = passed(&[], Some(escaped), Some(&format!("{escaped}hub")));
    let refused = |name| (format!("{escaped}{name}"), ESCAPED_SLASH);
    assert_eq!(passing.refused, ["topics/", "changes/", "hub"].map(refused));
    assert!(passing.sites.is_empty());
}

#[test]
fn a_topic_that_only_its_query_tells_from_the_front_page_takes_that_away() {
    for (topic, takes) in [
        ("https://e.org/?set=a", true),
        ("https://e.org/a?set=a", false),
    ] {
        let passing = passed(&[topic], None, None);
        assert_eq!(
            passed_front_pages(&passing).count(),
            usize::from(takes),
            "{topic}"
        );
    }
}

#[test]
fn each_web_server_is_told_in_its_own_words() {
    let (topic, escaped) = (
        "https://e.org/a%20b.c/%24%7BX%7D",
        "https://e.org/%61%20b.c/%24%7BX%7D",
    );
    let passing = passed(&[topic, escaped], Some("https://e.org/"), None);
    let site = &passing.sites["https://e.org"];
    let tcp = &Address::Tcp("[::1]:8400".parse().unwrap());
    let unix = &Address::Unix("/run/a.sock".into());
    let lines = nginx(site, unix);
    let begin = lines.find("{\n").unwrap();
    let end = lines.find("}\n").unwrap() + 2;
    let (first, others) = lines.split_at(end);
    // Each location has the same lines.
    let others = others.replace(&lines[begin..end], "{ … }\n");
    insta::assert_snapshot!(first.to_owned() + &others, @r#"
    # proxy_pass has no path, so that path and query are passed on as they came.
    location ^~ "/topics/" {
        proxy_pass http://unix:/run/a.sock;
        proxy_set_header Host $http_host;
        proxy_set_header Forwarded "";
        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        proxy_cache off;
        charset off;
        gzip off;
    }
    location ^~ "/changes/" { … }
    location = "/a b.c/${X}" { … }
    "#);
    insta::assert_snapshot!(apache(site, tcp), @r##"
    # a2enmod headers proxy proxy_http rewrite
    RewriteEngine On
    RewriteCond "%{THE_REQUEST}" "^[A-Z]+ (/topics/[^? ]*)[? ]" [OR]
    RewriteCond "%{THE_REQUEST}" "^[A-Z]+ (/changes/[^? ]*)[? ]" [OR]
    RewriteCond "%{THE_REQUEST}" "^[A-Z]+ (/%61%20b[.]c/%24%7BX%7D)[? ]" [OR]
    RewriteCond "%{THE_REQUEST}" "^[A-Z]+ (/a%20b[.]c/%24%7BX%7D)[? ]"
    RewriteRule "^" "http://[::1]:8400%1" [P,NE,E=rsnotify:1]
    ProxyPreserveHost On
    RequestHeader unset Forwarded env=rsnotify
    "##);
    insta::assert_snapshot!(caddy(site, unix), @r"
    @rsnotify path_regexp `^(?:/topics/|/changes/|/a\x20b[.]c/\x24\x7bX\x7d$|/a\x20b[.]c/\x24\x7bX\x7d$)`
    handle @rsnotify {
        reverse_proxy unix//run/a.sock {
            header_up -Forwarded
        }
    }
    ");
    assert!(nginx(site, tcp).contains("proxy_pass http://[::1]:8400;"));
    assert!(apache(site, unix).contains("\"unix:/run/a.sock|http://localhost%1\""));
    assert!(caddy(site, tcp).contains("reverse_proxy [::1]:8400 {"));
}

proptest! {
    #[test]
    fn nothing_in_a_topic_has_a_meaning_of_its_own(path in "/\\PC{0,30}") {
        // Only letters, digits, escapes, and characters that have no special meaning anywhere are left.
        let mut pattern = exact_pattern(&path);
        for part in ["[.]", "\\x{", "}"] {
            pattern = pattern.replace(part, "");
        }
        let mut left = pattern.replace("\\x", "");
        left.retain(|c| !c.is_alphanumeric() && !"/-_~%".contains(c));
        prop_assert_eq!(left, "");

        let quoted = nginx_quoted(&path);
        let inside = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap();
        let mut read = String::new();
        let mut characters = inside.chars();
        while let Some(c) = characters.next() {
            prop_assert!(c != '"');
            read.extend(if c == '\\' { characters.next() } else { Some(c) });
        }
        prop_assert_eq!(read, path);
    }
}
