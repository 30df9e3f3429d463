//! Tests of equal addresses, refused addresses, and paths.

use super::{Uri, normal_resource, rest_below};

#[test]
fn equal_uris_become_equal_strings() {
    let table = r"
    HTTP://Example.ORG:80/a = http://example.org/a
    https://example.org:443 = https://example.org/
    https://example.org:8443/ = https://example.org:8443/
    http://e.org/%7ea/%2f%c3%a9 = http://e.org/~a/%2F%C3%A9
    http://e.org/é = http://e.org/%C3%A9
    http://e.org/a/./b/../c/.. = http://e.org/a/
    http://e.org/../.well-known/x = http://e.org/.well-known/x
    http://e.org/100% = http://e.org/100%25
    http://e.org?% = http://e.org/?%25
    http://e.org?q=%41 = http://e.org/?q=A
    http://e.org/a#b = http://e.org/a
    http://e.org/a #b = http://e.org/a
    http://[2001:DB8::1]:80/ = http://[2001:db8::1]/
    http://[::1]:8080 = http://[::1]:8080/
    http://me:80@e.org:/ = http://me:80@e.org/
    http://e.org/%4g%4%41 = http://e.org/%254g%254A
    http://e.org/a%20b = http://e.org/a%20b
    http://e.org/[1]?a[]={2} = http://e.org/%5B1%5D?a%5B%5D=%7B2%7D
    http://e.org/a\b^c`d| = http://e.org/a%5Cb%5Ec%60d%7C
    http://%41:%5B@e.org/ = http://%41:%5B@e.org/
    ";
    for row in table.trim().lines() {
        let (written, normal) = row.trim().split_once(" = ").unwrap();
        let uri = Uri::parse(written).map(|uri| uri.to_string());
        assert_eq!(uri, Ok(normal.into()));
    }
    // As Python's `quote` writes a path; in a query, a delimiter may mean something else.
    let quoted = Uri::parse(" http://e.org/a%3Ab%2B%28c%29%40%2f%3f%23%25?q=%3A%2B%26\n").unwrap();
    assert_eq!(
        quoted.as_str(),
        "http://e.org/a:b+(c)@%2F%3F%23%25?q=%3A%2B%26"
    );
}

#[test]
fn other_texts_are_no_uris() {
    let others = " a/b.xml /a ://e.org http:// urn:x http:///a http://[::# http://a::/ http://a:80:/ \
         http://:80/ http://me@/ http://a:b:c/ http://[::1/ http://[]/ http://[::1]]/ \
         http://[@e.org/ http://me@you@e.org/ http://e.org:8o/ http://[::1]:-1/ http://100%.org/ \
         http://100%@e.org/";
    for bad in others.split(' ') {
        assert!(Uri::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn resources_may_have_uris_without_an_authority() {
    for (written, expected) in [
        ("HTTP://E.org", "http://e.org/"),
        (" URN:isbn:0-12 ", "urn:isbn:0-12"),
        ("info:doi/10.1%2f2#part", "info:doi/10.1%2F2"),
    ] {
        assert_eq!(normal_resource(written).unwrap(), expected);
    }
    for other in ["urn:", "C:\\a.txt", "http:a", "ftp://", "a/b:c", "1.txt"] {
        assert!(normal_resource(other).is_err(), "{other}");
    }
}

#[test]
fn a_path_of_any_bytes_has_a_uri_that_is_normal() {
    let prefix = Uri::parse("https://e.org/x/").unwrap();
    for byte in 1..=u8::MAX {
        let escaped = Uri::parse(&format!("https://e.org/x/a%{byte:02x}")).unwrap();
        assert_eq!(Uri::below(&prefix, &[b'a', byte]) == escaped, byte != b'/');
    }
    let uri = Uri::below(&prefix, b"a b/\xff%\"'\n~+.xml");
    assert_eq!(uri.as_str(), "https://e.org/x/a%20b/%FF%25%22'%0A~+.xml");
    assert_eq!(Uri::parse(uri.as_str()).as_ref(), Ok(&uri));
}

#[test]
fn a_uri_that_would_break_a_header_is_not_clean() {
    let is_clean = |rest| {
        let uri = Uri::parse(&format!("http://e.org/{rest}")).unwrap();
        super::has_valid_chars(uri.as_str())
    };
    assert!(is_clean("a?b=c&d"));
    for rest in ["a b", "a\u{7}", "a>", "a?\""] {
        assert!(!is_clean(rest), "{rest}");
    }
}

#[test]
fn a_resource_lies_below_whole_segments() {
    for (loc, under, want) in [
        ("https://e.org/a/1", "https://e.org/a/", Some("1")),
        ("https://e.org/a/1", "https://e.org/a", Some("/1")),
        ("https://e.org/a", "https://e.org/a", Some("")),
        ("https://e.org/a?v=1", "https://e.org/a", Some("?v=1")),
        ("https://e.org/ab", "https://e.org/a", None),
        ("https://e.org/a", "https://e.org/a/", None),
        ("http://e.org/a/1", "https://e.org/a/", None),
        ("https://E.org:443/a/1", "https://e.org/a/", Some("1")),
        ("relative/1", "https://e.org/", None),
    ] {
        assert_eq!(rest_below(loc, under).as_deref(), want, "{loc} {under}");
    }
}
