//! Capability Lists as generators write them, and the additions to each.

use std::collections::BTreeSet;

use encoding_rs::{Encoding, UTF_16LE};
use proptest::prelude::*;
use rstest::rstest;

use crate::advertise::{self, Unpatchable, entry};
use crate::capability::ChannelKind;
use crate::document::{Advertisement, Document};
use crate::parse::parse;
use crate::tag::{RS, SITEMAP};
use crate::uri::{Hub, Topic};

fn wanted(topic: &str, hubs: &[&str]) -> Advertisement {
    Advertisement {
        kind: ChannelKind::Framework,
        topic: Topic::new(topic),
        hubs: hubs.iter().map(|hub| Hub::new(*hub)).collect(),
    }
}

fn usual() -> Advertisement {
    wanted("http://e.org/t/", &["http://h.example/"])
}

/// Advertises with no hub that was configured formerly.
fn advertise(list: &[u8], wanted: &Advertisement) -> Result<Option<Vec<u8>>, Unpatchable> {
    advertise::advertise(list, wanted, &BTreeSet::new())
}

fn document(list: &[u8]) -> Document {
    match parse(list).unwrap() {
        Ok(document) => document,
        other => panic!("{other:?}"),
    }
}

/// Returns true if a list advertises a channel with at least these hubs.
fn says(list: &Document, wanted: &Advertisement) -> bool {
    let mut channels = list.channels.iter();
    let has_hubs = |channel: &Advertisement| {
        let mut hubs = wanted.hubs.iter();
        hubs.all(|hub| channel.hubs.contains(hub))
    };
    channels.any(|channel| channel.topic == wanted.topic && has_hubs(channel))
}

/// Returns `list` with its additions, which must advertise the channel and lack nothing.
fn completed(list: &[u8], wanted: &Advertisement) -> Vec<u8> {
    let text = String::from_utf8_lossy(list);
    let after = advertise(list, wanted).unwrap_or_else(|error| panic!("{error}: {text}"));
    let after = after.unwrap_or_else(|| panic!("it lacks nothing: {text}"));
    assert!(says(&document(&after), wanted), "{text}");
    assert_eq!(advertise(&after, wanted).unwrap(), None, "{text}");
    after
}

/// Compares a list with and without its addition, whose place is marked by `@`.
#[track_caller]
fn adds(marked: &str, added: &str) {
    let before = marked.replace('@', "");
    let after = completed(before.as_bytes(), &usual());
    let after = String::from_utf8(after).unwrap();
    assert_eq!(after, marked.replace('@', added));
}

/// A Capability List whose root declares both namespaces, around `content`.
fn list(content: &str) -> String {
    format!(
        "<urlset xmlns=\"{SITEMAP}\" xmlns:rs=\"{RS}\"><rs:md capability=\"capabilitylist\"/>{content}</urlset>"
    )
}

const COMPACT: &str = "<url><loc>http://e.org/t/</loc><rs:ln rel=\"hub\" href=\"http://h.example/\"/>\
                       <rs:md capability=\"framework-notification\"/></url>";

#[test]
fn the_bare_entry_is_as_section_5_has_it() {
    let two = wanted(
        "http://e.org/t/?a=1&b=2",
        &["http://h.example/", "http://g.example/"],
    );
    insta::assert_snapshot!(entry(&two), @r#"
    <url>
      <loc>http://e.org/t/?a=1&amp;b=2</loc>
      <rs:ln rel="hub" href="http://h.example/"/>
      <rs:ln rel="hub" href="http://g.example/"/>
      <rs:md capability="framework-notification"/>
    </url>
    "#);
}

#[test]
fn an_entry_is_added_as_the_last_one_is_indented() {
    for (indent, line_end) in [
        ("  ", "\n"),
        ("\t", "\n"),
        ("", "\n"),
        ("    ", "\r\n"),
        (" ", "\r"),
    ] {
        // Of `~` each stands for a depth of indentation on a line of its own.
        let written = |text: &str| {
            let depth = |depth| line_end.to_owned() + &indent.repeat(depth);
            text.replace("~~", &depth(2)).replace('~', &depth(1))
        };
        let entry = written(
            "~<url>~~<loc>http://e.org/rl.xml</loc>~~<rs:md capability=\"resourcelist\"/>~</url>",
        );
        let new = written(
            "~<url>~~<loc>http://e.org/t/</loc>~~<rs:ln rel=\"hub\" href=\"http://h.example/\"/>\
             ~~<rs:md capability=\"framework-notification\"/>~</url>",
        );
        for end in ["", line_end] {
            adds(&(list(&format!("{entry}@{line_end}")) + end), &new);
        }
    }
}

#[rstest]
#[case::resync_writes_one_long_line(&list("<url><loc>http://e.org/rl.xml</loc><rs:md capability=\"resourcelist\"/></url>@"), COMPACT)]
#[case::an_entry_to_a_line(
    &list("\n<url><loc>http://e.org/rl.xml</loc><rs:md capability=\"resourcelist\"/></url>@\n"),
    &format!("\n{COMPACT}")
)]
#[case::nothing_but_its_description(&list("@"), COMPACT)]
#[case::after_the_entries_although_the_description_follows_them(
    &format!("<urlset xmlns=\"{SITEMAP}\" xmlns:rs=\"{RS}\">\n <url><loc>http://e.org/a</loc></url>@\n \
              <rs:md capability=\"capabilitylist\"/>\n</urlset>"),
    &format!("\n {COMPACT}")
)]
#[case::an_entry_that_is_commented_out_is_none(&list(&format!("@<!-- {COMPACT} -->")), COMPACT)]
#[case::a_stylesheet_and_no_declaration(&format!("<?xml-stylesheet href='a'?>{}", list("@")), COMPACT)]
#[case::a_byte_order_mark(&format!("\u{feff}{}", list("@")), COMPACT)]
#[case::a_change_notification_channel_is_another(
    &list("<url><loc>http://e.org/c/</loc><rs:md capability=\"changelist-notification\"/></url>@"), COMPACT
)]
#[case::a_resource_at_the_topic_s_uri_is_no_entry_of_it(
    &list("<url><loc>http://e.org/t/</loc><rs:md capability=\"resourcelist\"/></url>@"), COMPACT
)]
#[case::java_tools_prefix_the_sitemap_namespace(
    &format!("<sm:urlset xmlns:sm=\"{SITEMAP}\" xmlns=\"{RS}\"><md capability=\"capabilitylist\"/>@</sm:urlset>"),
    "<sm:url><sm:loc>http://e.org/t/</sm:loc><ln rel=\"hub\" href=\"http://h.example/\"/>\
     <md capability=\"framework-notification\"/></sm:url>"
)]
#[case::another_prefix(
    &format!("<urlset xmlns=\"{SITEMAP}\" xmlns:r='{RS}'><r:md capability='capabilitylist'/>@</urlset>"),
    "<url><loc>http://e.org/t/</loc><r:ln rel=\"hub\" href=\"http://h.example/\"/>\
     <r:md capability=\"framework-notification\"/></url>"
)]
#[case::a_namespace_that_only_the_description_declares(
    &format!("<urlset xmlns=\"{SITEMAP}\"><x:md xmlns:x=\"{RS}\" capability=\"capabilitylist\"/>@</urlset>"),
    &COMPACT.replace("<url>", &format!("<url xmlns:rs=\"{RS}\">"))
)]
#[case::a_prefix_that_stands_for_something_else(
    &format!("<urlset xmlns=\"{SITEMAP}\" xmlns:rs=\"urn:x\"><x:md xmlns:x=\"{RS}\" capability=\"capabilitylist\"/>@</urlset>"),
    &COMPACT.replace("<url>", &format!("<url xmlns:rs=\"{RS}\">"))
)]
#[case::indentation_and_no_blank_line(
    &list("\n\n <url>\n\n  <loc>http://e.org/a</loc> </url>@\n\n"),
    &format!("\n {}", COMPACT.replace("><loc", ">\n  <loc").replace("><rs", ">\n  <rs").replace("></", ">\n </"))
)]
#[case::no_entry_yet_but_indentation(
    &format!("<urlset xmlns=\"{SITEMAP}\" xmlns:rs=\"{RS}\">\r\n\r\n\t<rs:md capability=\"capabilitylist\"/>@\r\n</urlset>"),
    "\r\n\t<url>\r\n\t\t<loc>http://e.org/t/</loc>\r\n\t\t<rs:ln rel=\"hub\" href=\"http://h.example/\"/>\
     \r\n\t\t<rs:md capability=\"framework-notification\"/>\r\n\t</url>"
)]
fn an_entry_is_added_with_the_indentation_and_prefixes_of_the_list(
    #[case] marked: &str,
    #[case] added: &str,
) {
    adds(marked, added);
}

#[rstest]
#[case::the_hub(
    "\n <url>\n  <loc>http://e.org/t/</loc>@\n  <rs:md capability=\"framework-notification\"/>\n </url>",
    "\n  <rs:ln rel=\"hub\" href=\"http://h.example/\"/>"
)]
#[case::the_hub_without_the_blank_line(
    "<url>\r\n  <loc>http://e.org/t/</loc>\r\n \r\n  @<rs:md capability=\"framework-notification\"/>\r\n</url>",
    "<rs:ln rel=\"hub\" href=\"http://h.example/\"/>\r\n  "
)]
#[case::a_second_hub(
    "<url><loc>http://e.org/t/</loc> <rs:ln rel='HUB' href='http://x/'/>@ <rs:md capability=\"framework-notification\"/></url>",
    "<rs:ln rel=\"hub\" href=\"http://h.example/\"/>"
)]
#[case::what_it_is(
    "<url> <loc>\n http://e.org/t/\n</loc> <rs:ln rel=\"hub\" href=\"http://h.example/\"/>@ </url>",
    "<rs:md capability=\"framework-notification\"/>"
)]
#[case::all_but_the_topic(
    "<url>\n<loc>http://e.org/t/</loc>@\n</url>",
    "\n<rs:ln rel=\"hub\" href=\"http://h.example/\"/>\n<rs:md capability=\"framework-notification\"/>"
)]
#[case::the_topic(
    "<url>\t@<rs:ln rel=\"hub\" href=\"http://h.example/\"/>\t<rs:md capability=\"framework-notification\"/></url>",
    "<loc>http://e.org/t/</loc>"
)]
fn an_entry_gets_what_it_lacks(#[case] entry: &str, #[case] added: &str) {
    let other = "<url><loc>http://e.org/a</loc></url>";
    adds(&list(&format!("{other}{entry}{other}")), added);
}

#[test]
fn another_topic_is_corrected() {
    let with = |loc: &str| {
        list(&format!(
            "<url>{loc}<rs:ln rel=\"hub\" href=\"http://h.example/\"/><rs:md capability=\"framework-notification\"/></url>"
        ))
    };
    for before in [
        "<loc>http://e.org/old/?a&amp;b</loc>",
        "<loc>\r\n\t http://e.org/old/ \n</loc>",
        "<loc> <![CDATA[http://e.org/]]>old </loc>",
        "<loc>/t/</loc>",
        "<loc/>",
        "<loc><!-- later --></loc>",
    ] {
        let corrected = completed(with(before).as_bytes(), &usual());
        let corrected = String::from_utf8(corrected).unwrap();
        assert_eq!(corrected, with("<loc>http://e.org/t/</loc>"), "{before}");
    }
}

#[test]
fn the_first_of_several_entries_is_corrected_unless_another_is_right() {
    let entry = |topic: &str| COMPACT.replace("http://e.org/t/", topic);
    let before = list(&(entry("http://e.org/1/") + &entry("http://e.org/2/")));
    let after = completed(before.as_bytes(), &usual());
    let corrected = list(&(entry("http://e.org/t/") + &entry("http://e.org/2/")));
    assert_eq!(String::from_utf8(after).unwrap(), corrected);
    // The one that is right lacks a hub only.
    let hub = "<rs:ln rel=\"hub\" href=\"http://h.example/\"/>";
    let lacking = entry("http://e.org/1/") + &COMPACT.replace(hub, "@");
    adds(&list(&lacking), hub);
    let right = list(&(entry("http://e.org/1/") + COMPACT));
    assert_eq!(advertise(right.as_bytes(), &usual()).unwrap(), None);
}

#[test]
fn uris_are_escaped_and_read_back_the_same() {
    let odd = wanted(
        "http://e.org/?a='1'&b=é\u{10000}]]>",
        &["http://h.example/?x=\"&amp;"],
    );
    for quote in ['"', '\''] {
        let before = list("<url><loc>http://e.org/a</loc></url>").replace('"', &quote.to_string());
        completed(before.as_bytes(), &odd);
    }
    // A namespace may be escaped too.
    let escaped = list("").replace("rs/terms/\"", "rs&#47;terms/\"");
    completed(escaped.as_bytes(), &odd);
}

#[rstest]
#[case("iso-8859-1", "ü", "é&#35486;")]
#[case("ANSI_X3.4-1968", "ü", "é&#35486;")]
#[case("windows-1251", "Ж", "&#233;&#35486;")]
#[case("shift_jis", "表", "&#233;語")]
#[case("gb18030", "表", "é語")]
fn a_list_in_another_encoding_stays_in_it(
    #[case] label: &str,
    #[case] known: &str,
    #[case] written: &str,
) {
    let encoding = Encoding::for_label(label.as_bytes()).unwrap();
    let before = format!(
        "<?xml version='1.0' encoding='{label}'?><!--{known}-->{}",
        list("@")
    );
    let (bytes, _, is_lossy) = encoding.encode(&before);
    assert!(!is_lossy, "{label}");
    let at = bytes.iter().position(|&byte| byte == b'@').unwrap();
    let (head, tail) = (&bytes[..at], &bytes[at + 1..]);
    let topic = wanted("http://e.org/é語/", &["http://h.example/語"]);
    let after = completed(&[head, tail].concat(), &topic);
    let added = after
        .strip_prefix(head)
        .unwrap()
        .strip_suffix(tail)
        .unwrap();
    let added = encoding.decode_without_bom_handling(added).0;
    assert!(added.contains(written), "{added}");
}

fn utf16(text: &str) -> Vec<u8> {
    let text = format!("\u{feff}{text}");
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

#[test]
fn what_cannot_be_patched_says_why() {
    let refusal = |list: &[u8]| advertise(list, &usual()).unwrap_err();
    let encoding = refusal(&utf16(&list("")));
    let is_named = matches!(encoding, Unpatchable::Encoding(name) if name == UTF_16LE.name());
    assert!(is_named, "{encoding}");
    // One that lacks nothing needs no patch.
    let complete = utf16(&list(COMPACT));
    assert_eq!(advertise(&complete, &usual()).unwrap(), None);
    let cut = refusal(list("").strip_suffix('>').unwrap().as_bytes());
    assert!(matches!(cut, Unpatchable::Unreadable(_)), "{cut}");
    let other = list("").replace("capabilitylist", "changelist");
    assert!(matches!(refusal(other.as_bytes()), Unpatchable::Other));
    // A character that Shift_JIS has twice.
    let twice: &[u8] = b"<?xml version='1.0' encoding='shift_jis'?><!--\xed\x40-->";
    let recoded = refusal(&[twice, list("").as_bytes()].concat());
    let is_named = matches!(recoded, Unpatchable::Recoded("Shift_JIS"));
    assert!(is_named, "{recoded}");
}

/// Returns true if `before` is `after` without some of its parts, white space aside.
fn is_subsequence(before: &[u8], after: &[u8]) -> bool {
    let mut rest = after.iter();
    let mut written = before.iter().filter(|byte| !byte.is_ascii_whitespace());
    written.all(|byte| rest.any(|other| other == byte))
}

#[test]
fn a_hub_that_was_ours_makes_room() {
    let list = |hubs: &[&str]| {
        let link =
            |hub: &&str| format!("<rs:ln rel=\"hub\" href=\"http://{hub}.example/\"/>\n    ");
        let hubs: String = hubs.iter().map(link).collect();
        format!(
            "<urlset xmlns=\"{SITEMAP}\" xmlns:rs=\"{RS}\">\n  <rs:md capability=\"capabilitylist\"/>\n  <url>\n    \
             <loc>http://e.org/t/</loc>\n    {hubs}<rs:md capability=\"framework-notification\"/>\n  </url>\n</urlset>\n"
        )
    };
    let former = BTreeSet::from([Hub::new("http://old.example/")]);
    let advertise = |list: &str| {
        let changed = advertise::advertise(list.as_bytes(), &usual(), &former).unwrap();
        changed.map(|list| String::from_utf8(list).unwrap())
    };
    for (before, after) in [
        (&["old"][..], &["h"][..]),
        (&["other", "old"], &["other", "h"]),
        (&["h", "old"], &["h"]),
        (&["old", "h"], &["h"]),
    ] {
        let after = list(after);
        assert_eq!(advertise(&list(before)).as_ref(), Some(&after));
        assert_eq!(advertise(&after), None);
    }
}

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

prop_compose! {
    /// A Capability List such as any generator might write.
    fn any_list()(
        (sitemap, rs) in prop::sample::select(vec![("", "rs:"), ("", "r:"), ("sm:", "rs:"), ("sm:", "")]),
        entries in prop::collection::vec(any_entry(), 0..5),
        (space, end, is_described_first) in (any_space(), any_space(), any::<bool>()),
    ) -> String {
        let mut content = entries.concat();
        let description = format!("{space}<Rmd capability=\"capabilitylist\"/>");
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
    }
}

proptest! {
    #[test]
    fn any_list_can_be_completed_and_nothing_else_changes(
        list in any_list(),
        topic in "http://e\\.org/[t-vé&'語]{1,4}/",
        hubs in prop::collection::btree_set("http://[gh]\\.example/[&\"é]{0,2}", 0..3),
    ) {
        let hubs: Vec<&str> = hubs.iter().map(String::as_str).collect();
        let wanted = wanted(&topic, &hubs);
        let before = document(list.as_bytes());
        let Some(bytes) = advertise(list.as_bytes(), &wanted).unwrap() else {
            prop_assert!(says(&before, &wanted));
            return Ok(());
        };
        let after = document(&bytes);
        prop_assert!(says(&after, &wanted));
        prop_assert_eq!(advertise(&bytes, &wanted).unwrap(), None);
        // A topic is corrected in the only entry that could be it; otherwise things are only added.
        let is_other = |channel: &Advertisement| channel.topic != wanted.topic;
        let is_corrected = !before.channels.is_empty() && before.channels.iter().all(is_other);
        prop_assert!(is_corrected || is_subsequence(list.as_bytes(), &bytes));
        let is_new = !is_corrected && before.channels.iter().all(is_other);
        prop_assert_eq!(after.channels.len(), before.channels.len() + usize::from(is_new));
    }

    #[test]
    fn what_is_patched_is_right_whatever_the_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..8),
        pieces in prop::collection::vec(prop::sample::select(vec!["<", "</", "url", ">", "/>", "<!--", "-->", "]]>", "<loc>", " x='"]), 0..4),
        at in 0..500_usize,
    ) {
        let mut list = list(COMPACT).replace("/t/", "/u/").into_bytes();
        let at = at.min(list.len());
        list.splice(at..at, bytes.into_iter().chain(pieces.concat().into_bytes()));
        if let Ok(Some(after)) = advertise(&list, &usual()) {
            prop_assert!(says(&document(&after), &usual()));
        }
    }
}
