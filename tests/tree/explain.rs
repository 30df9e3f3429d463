//! Explanations for a missing document at a path; compressed files.

use std::fs;
use std::io::Write;

use announce::candidates::CandidateGlobs;
use announce::observation::{Found, Incomplete};
use announce::plan::DEFAULT_INCLUDE;
use flate2::Compression;
use flate2::write::GzEncoder;
use resourcesync::document::Malformed;
use rsnotify::tree::WatchMode::{self, Inotify, Notify, Poll};
use rsnotify::tree::explain;
use rstest::rstest;
use tempfile::TempDir;

use crate::harness::{Watched, document, excluding, path, place, put, settings};

fn packed(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_path_without_a_document_is_explained() {
    let root = TempDir::new().unwrap();
    let write = |name: &str, text: &str| {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let whole = document(1);
    let plain = whole.replace("capability", "cap");
    write("whole.xml", &whole);
    write("empty.xml", "");
    write("half.xml", &whole[..whole.len() - 20]);
    write("plain.xml", &plain);
    write(
        "https.xml",
        &whole.replace("http://www.sitemaps", "https://www.sitemaps"),
    );
    write("page.xml", "<html/>");
    write("resource.txt", "In winter it carries ice.\n");
    write("list.XML", &whole);
    write("list.xml.gz", &whole);
    write("private/list.xml", &whole);
    write(".hidden/list.xml", &whole);
    write("list.xml~", &whole);
    fs::create_dir(root.path().join("directory.xml")).unwrap();
    let mut settings = settings(root.path(), Poll);
    settings.candidates = excluding(&["private/**"]);
    let why = |name: &str| explain(&settings, &path(name)).map(|why| why.to_string());
    let hidden = "the file there has the name of a hidden or temporary one, and those are never read: rename it";
    let foreign = "the file there is no document: it is a resource or another file, without a root element urlset or \
                   sitemapindex of the sitemap namespace";
    for (name, expected) in [
        ("whole.xml", None),
        ("absent.xml", Some("no file is there")),
        ("no/such/directory.xml", Some("no file is there")),
        ("whole.xml/x", Some("no file is there")),
        (
            "list.xml",
            Some("only list.XML is there, whose name differs in case"),
        ),
        ("empty.xml", Some("the file there is broken: it is empty")),
        (
            "half.xml",
            Some("the file there is broken: it ends in the middle of an element, at line 4"),
        ),
        (
            "plain.xml",
            Some(
                "the file there is no document: it has no root-level rs:md with a capability: add one, such as \
                 <rs:md capability=\"changelist\"/>",
            ),
        ),
        (
            "https.xml",
            Some(
                "the file there is no document: its root element urlset is in the namespace \
                 \"https://www.sitemaps.org/schemas/sitemap/0.9\": write \
                 xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\"",
            ),
        ),
        ("page.xml", Some(foreign)),
        // R1: no glob would make a document of a resource.
        ("resource.txt", Some(foreign)),
        (
            "list.XML",
            Some(
                r#"`include` does not match the file there: write include = ["**/*.xml", "**/.well-known/resourcesync", "**/*.XML"]"#,
            ),
        ),
        (
            "list.xml.gz",
            Some(
                r#"`include` does not match the file there: write include = ["**/*.xml", "**/.well-known/resourcesync", "**/*.xml.gz"]"#,
            ),
        ),
        (
            "private/list.xml",
            Some(r#"`exclude` has "private/**", which matches the file there"#),
        ),
        (".hidden/list.xml", Some(hidden)),
        ("list.xml~", Some(hidden)),
        ("directory.xml", Some("what is there is no regular file")),
    ] {
        assert_eq!(why(name).as_deref(), expected, "{name}");
    }
    drop(root);
    let of_absent_mount = explain(&settings, &path("absent.xml"));
    assert_eq!(of_absent_mount, None, "nothing is known");
}

#[rstest]
fn what_is_asked_of_a_watched_tree_is_explained(#[values(Inotify, Notify, Poll)] watch: WatchMode) {
    let mut it = Watched::start_on(watch, |root| {
        put(root.join("list.XML"), 1);
        put(root.join("sentinel.xml"), 1);
    });
    it.wait_for("sentinel.xml", 1);
    it.tree()
        .request_explanations(["absent.xml", "list.XML", "sentinel.xml"].map(path).into());
    it.wait("two answers", |it| it.explained.len() == 2);
    let why = |name: &str| it.explained[name.as_bytes()].to_string();
    assert_eq!(why("absent.xml"), "no file is there");
    assert!(why("list.XML").contains("**/*.XML"));
}

/// R1: only where it is included, and no further than a document can be.
#[rstest]
fn a_compressed_document_is_read_if_it_is_included(#[values(Inotify, Poll)] watch: WatchMode) {
    let (place, root) = place();
    let spaces = " ".repeat(4 << 20);
    let bomb = document(1).replace("</urlset>", &format!("{spaces}</urlset>"));
    fs::write(root.join("list.xml.gz"), packed(&document(1))).unwrap();
    fs::write(root.join("bomb.xml.gz"), packed(&bomb)).unwrap();
    fs::write(root.join("other.gz"), packed(&document(1))).unwrap();
    let mut settings = settings(&root, watch);
    let include = DEFAULT_INCLUDE.iter().chain(&["**/*.xml.gz"]);
    let include = include.map(|glob| (*glob).to_owned()).collect();
    settings.candidates = CandidateGlobs::new(include, Vec::new()).unwrap();
    let mut it = Watched::start_with(place, settings);
    it.wait_for("list.xml.gz", 1);
    fs::write(root.join("list.xml.gz"), packed(&document(2))).unwrap();
    it.wait_for("list.xml.gz", 2);
    it.wait_for_look("bomb.xml.gz", |look| {
        use Incomplete::Malformed as Broken;
        matches!(look, Found::Incomplete(Broken(Malformed::Bomb { .. })))
    });
    assert!(it.looks_at("other.gz").is_empty());
}
