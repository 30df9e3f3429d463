//! Change Lists as generators treat them: released and packed.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::changes::story::{LIST, Story};
use crate::support::changes::change_list;
use crate::support::documents::capability_list;

const FIRST: &str = "updated before.txt 09:00:00";

/// Makes a release of the tree: a directory that `current` points to.
fn release(root: &Path, number: usize, list: &str) {
    let directory = root.join(format!("../releases-{number}"));
    let from = root.join("a");
    fs::create_dir_all(&directory).unwrap();
    for file in fs::read_dir(&from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), directory.join(file.file_name())).unwrap();
    }
    fs::write(directory.join("changelist.xml"), list).unwrap();
    let new = root.join(".a.new");
    symlink(&directory, &new).unwrap();
    if !from.is_symlink() {
        fs::rename(&from, root.join("../a.before")).unwrap();
    }
    fs::rename(&new, &from).unwrap();
}

#[test]
fn a_list_in_a_release_directory_that_is_swapped_tells_what_is_new() {
    let mut story = Story::new("");
    let below = tempfile::TempDir::new().unwrap();
    let root = below.path().join("root");
    fs::create_dir(&root).unwrap();
    for name in ["a", ".well-known"] {
        fs::rename(story.site.path(name), root.join(name)).unwrap();
    }
    release(&root, 0, &story.list());
    let before = story.site.root.path().display().to_string();
    story.setup.config = story
        .setup
        .config
        .replace(&before, &root.display().to_string());
    story.resume();
    story.await_learned(1);
    let mut entries = vec![FIRST.to_owned()];
    for minute in 1..4 {
        entries.push(format!("updated 1.txt 10:0{minute}:00"));
        release(&root, minute, &change_list("a", &entries));
        story.hears(&["updated 1.txt"]);
    }
    assert_eq!(story.heard.gaps, 0);
}

#[test]
fn a_packed_list_tells_what_is_new() {
    let mut story = Story::new("");
    let packed = |story: &Story| {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(story.list().as_bytes()).unwrap();
        let path = story.site.path("a/changelist.xml.gz");
        let new = path.with_extension("new");
        fs::write(&new, gzip.finish().unwrap()).unwrap();
        fs::rename(&new, &path).unwrap();
    };
    story.site.remove(LIST);
    let config = &mut story.setup.config;
    let include = "include = [\"**/*.xml\", \"**/.well-known/resourcesync\", \"**/*.xml.gz\"]";
    *config = config.replacen("settle =", &format!("{include}\nsettle ="), 1);
    let list = capability_list("a", &["resourcelist", "changelist"]);
    let list = list.replace("changelist.xml", "changelist.xml.gz");
    story.site.write("a/capabilitylist.xml", &list);
    packed(&story);
    story.resume();
    story.await_learned(1);
    story.set_entries(&[FIRST, "created 1.txt 10:00:00"]);
    packed(&story);
    story.hears(&["created 1.txt"]);
    story.set_entries(&[FIRST, "created 1.txt 10:00:00", "deleted 1.txt"]);
    packed(&story);
    story.hears(&["deleted 1.txt"]);
}
