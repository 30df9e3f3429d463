//! Capability Lists as any generator might write them.

use proptest::prelude::*;

use crate::tag::{RS, SITEMAP};

/// White space and comments as generators put them between elements.
fn any_space() -> impl Strategy<Value = &'static str> {
    let comment = "\n<!-- </url> <url> -->\n ";
    prop::sample::select(vec![
        "", "", "\n", "\n  ", "\r\n\t", " ", "\n\n    ", comment,
    ])
}

/// An entry, with `S` and `R` for the two prefixes: of a document, or one that advertises a channel more or less.
fn any_entry() -> impl Strategy<Value = String> {
    let notification = "<Rmd capability='framework-notification'/>";
    let contents = vec![
        format!("<Sloc>http://e.org/t/</Sloc>~{notification}"),
        format!(
            "<Sloc>http://e.org/o/</Sloc>~<Rln href=\"http://h.example/\" rel=\"hub\"></Rln>~{notification}"
        ),
        format!("<Sloc> </Sloc>~<Rln rel='up hub' href='http://g.example/'/>~{notification}"),
        format!("{notification}~<Sloc>http&#58;//e.org/o/</Sloc>"),
        notification.to_owned(),
        "<Rmd capability=\"\"/>~<Sloc><![CDATA[http://e.org/t/]]></Sloc>".to_owned(),
        "<Sloc>http://e.org/t/</Sloc>".to_owned(),
        "<Sloc>\n http://e.org/cl?a&amp;b</Sloc>~<Rmd capability=\"changelist\"></Rmd>".to_owned(),
        "<Sloc>http://e.org/rl</Sloc>~<Slastmod>2026</Slastmod>~<Rmd capability='resourcelist'/>"
            .to_owned(),
        String::new(),
    ];
    let spaces = (any_space(), any_space(), any_space());
    (spaces, prop::sample::select(contents)).prop_map(|((before, child, close), content)| {
        format!(
            "{before}<Surl>{child}{}{close}</Surl>",
            content.replace('~', child)
        )
    })
}

/// A Capability List such as any generator might write.
pub(super) fn any_list() -> impl Strategy<Value = String> {
    let prefixes = prop::sample::select(vec![("", "rs:"), ("", "r:"), ("sm:", "rs:"), ("sm:", "")]);
    let entries = prop::collection::vec(any_entry(), 0..5);
    let description =
        any_space().prop_map(|space| space.to_owned() + "<Rmd capability=\"capabilitylist\"/>");
    (prefixes, entries, description, any_space(), any::<bool>()).prop_map(
        |((sitemap, rs), entries, description, end, is_described_first)| {
            let mut content = entries.concat();
            content.insert_str(if is_described_first { 0 } else { content.len() }, &description);
            for (letter, prefix) in [('S', sitemap), ('R', rs)] {
                content = content.replace(&format!("<{letter}"), &format!("<{prefix}"));
                content = content.replace(&format!("</{letter}"), &format!("</{prefix}"));
            }
            let declared = |prefix: &str, uri| match prefix.strip_suffix(':') {
                Some(prefix) => format!("xmlns:{prefix}=\"{uri}\""),
                None => format!("xmlns='{uri}'"),
            };
            let (sitemaps, terms) = (declared(sitemap, SITEMAP), declared(rs, RS));
            format!("<?xml version=\"1.0\"?>\n<{sitemap}urlset {sitemaps} {terms}>{content}{end}</{sitemap}urlset>\n")
        },
    )
}
