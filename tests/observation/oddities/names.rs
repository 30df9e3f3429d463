//! Unusual names: each document is announced with the percent-encoded URI of its bytes.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use rstest::rstest;

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::support::documents::{capability_list, list};

const NAMES: [(&[u8], &str); 10] = [
    (b"with space.xml", "with%20space.xml"),
    (b"quote'and\".xml", "quote'and%22.xml"),
    (b"new\nline.xml", "new%0Aline.xml"),
    (b"per%20cent.xml", "per%2520cent.xml"),
    (b"hash#mark.xml", "hash%23mark.xml"),
    (b"question?.xml", "question%3F.xml"),
    (b"a&b.xml", "a&b.xml"),
    ("compos\u{e9}.xml".as_bytes(), "compos%C3%A9.xml"),
    ("decompose\u{301}.xml".as_bytes(), "decompose%CC%81.xml"),
    (b"no-utf8-\xff.xml", "no-utf8-%FF.xml"),
];

#[rstest]
fn are_percent_encoded(#[values(Inotify, Notify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    let long = format!("{}.xml", "n".repeat(251));
    let mut names = NAMES.to_vec();
    names.push((long.as_bytes(), &long));
    let write = |story: &Story, content: &str| {
        for (name, _) in &names {
            let path = story.site.path("a").join(OsStr::from_bytes(name));
            fs::write(path, list("a", "changelist", content)).unwrap();
        }
    };
    let changes = |kind: &str| -> Vec<String> {
        let change = |(_, uri): &(&[u8], &str)| format!("{kind} changelist a/{uri}");
        names.iter().map(change).collect()
    };
    write(&story, "1");
    let entries: String = names
        .iter()
        .map(|(_, uri)| {
            let loc = format!("https://source.example/a/{}", uri.replace('&', "&amp;"));
            format!("<url><loc>{loc}</loc><rs:md capability=\"changelist\"/></url>\n")
        })
        .collect();
    let lists = capability_list("a", &["resourcelist", "changelist"]);
    let lists = lists.replace("</urlset>", &format!("{entries}</urlset>"));
    story.site.write("a/capabilitylist.xml", &lists);
    let mut wanted = changes("created");
    wanted.push("updated capabilitylist a/capabilitylist.xml".to_owned());
    story.hears(&wanted);

    write(&story, "2");
    story.ends_hearing(&changes("updated"));
}
