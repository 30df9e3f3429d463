//! Change Lists as generators treat them: truncated, rotated, moved, packed, cut off.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::changes::story::{LIST, Story};
use crate::support::changes::change_list;
use crate::support::documents::{capability_list, component, index};

const FIRST: &str = "updated before.txt 09:00:00";

#[test]
fn a_list_that_is_truncated_and_written_anew_tells_what_is_new() {
    let mut story = Story::start();
    for minute in 0..4 {
        let entry = format!("updated {minute}.txt 10:0{minute}:00");
        let path = story.site.path(LIST);
        // In steps, as through a small buffer.
        let mut file = fs::File::create(path).unwrap();
        story.set_entries(&[]);
        let entries: Vec<String> = (0..=minute)
            .map(|minute| format!("updated {minute}.txt 10:0{minute}:00"))
            .collect();
        let mut all = vec![FIRST];
        all.extend(entries.iter().map(String::as_str));
        story.set_entries(&all);
        for part in story.list().as_bytes().chunks(100) {
            file.write_all(part).unwrap();
            file.sync_data().unwrap();
        }
        drop(file);
        let (change, _) = entry.rsplit_once(' ').unwrap();
        story.hears(&[change]);
    }
    story.ends();
}

#[test]
fn a_list_that_is_emptied_and_filled_again_tells_nothing_twice() {
    let mut story = Story::start();
    story.add(&["created 1.txt 10:00:00", "created 2.txt"]);
    story.hears(&["created 1.txt", "created 2.txt"]);
    let before = story.list();
    let none: [&str; 0] = [];
    story.site.write_in_place(LIST, &change_list("a", &none));
    story.await_count("SELECT count(*) FROM change_list WHERE listed = 0", 1);
    story.site.write_in_place(LIST, &before);
    story.add(&["created 3.txt 10:05:00"]);
    story.hears(&["created 3.txt"]);
    assert_eq!(story.heard.gaps, 0);
    story.ends();
}

#[test]
fn a_list_that_is_renamed_and_a_new_one_tell_what_is_new() {
    let mut story = Story::start();
    for run in 0..3 {
        story.add(&[&format!("created {run}.txt 1{run}:00:00")]);
        story.hears(&[&format!("created {run}.txt")]);
        let closed = format!("a/changelist-{run}.xml");
        fs::rename(story.site.path(LIST), story.site.path(&closed)).unwrap();
        let names: Vec<String> = (0..=run).map(|run| format!("changelist-{run}")).collect();
        let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
        names.extend(["changelist", "resourcelist"]);
        story.set_entries(&[]);
        story.add(&[&format!("updated {run}.txt 1{run}:30:00")]);
        let list = capability_list("a", &names);
        story.site.write("a/capabilitylist.xml", &list);
        story.hears(&[&format!("updated {run}.txt")]);
    }
    assert_eq!(story.heard.gaps, 0);
    story.ends();
}

#[test]
fn a_list_that_becomes_an_index_tells_what_its_parts_have_besides() {
    let mut story = Story::start();
    story.add(&["created 1.txt 10:00:00"]);
    story.hears(&["created 1.txt"]);
    let part = |entries: &[&str]| {
        let up = component("a", "changelist", LIST, "");
        let (_, link) = up.split_once("\"/>\n<rs:ln rel=\"index\"").unwrap();
        let link = link.lines().next().unwrap();
        change_list("a", entries).replacen(
            "<rs:md",
            &format!("<rs:ln rel=\"index\"{link}\n<rs:md"),
            1,
        )
    };
    let parts = ["a/changelist00000.xml", "a/changelist00001.xml"];
    story
        .site
        .write(parts[0], &part(&[FIRST, "created 1.txt 10:00:00"]));
    story
        .site
        .write(parts[1], &part(&["created 2.txt 10:05:00"]));
    let index = index("a", "changelist", &parts.map(str::to_owned));
    story.site.write(LIST, &index);
    story.hears(&["created 2.txt"]);
    let entries = ["created 2.txt 10:05:00", "created 3.txt 10:10:00"];
    story.site.write(parts[1], &part(&entries));
    story.hears(&["created 3.txt"]);
    story.stop();
    story.resume();
    let entries = [&entries[..], &["created 4.txt 10:15:00"]].concat();
    story.site.write(parts[1], &part(&entries));
    story.hears(&["created 4.txt"]);
}

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

#[test]
fn a_list_that_was_cut_off_tells_its_tail_once_it_is_whole() {
    let mut story = Story::start();
    story.add(&["created 1.txt 10:00:00"]);
    story.hears(&["created 1.txt"]);
    story.set_entries(&[FIRST, "created 1.txt 10:00:00", "created 2.txt 10:05:00"]);
    let whole = story.list();
    let (cut, _) = whole.split_at(whole.len() - 30);
    story.site.write_in_place(LIST, cut);
    story.daemon().await_log("cannot read");
    story.site.write_in_place(LIST, &whole);
    story.hears(&["created 2.txt"]);
    story.ends();
}

#[test]
fn a_list_without_datetimes_tells_its_changes_in_its_order() {
    let mut story = Story::new("");
    story.set_entries(&[]);
    story.site.write(LIST, &story.list());
    story.resume();
    story.await_learned(1);
    story.add(&["updated b.txt", "deleted c.txt", "created d.txt"]);
    story.hears(&["updated b.txt", "deleted c.txt", "created d.txt"]);
    // As resync-build does: each run lists what changed since the last.
    story.set_entries(&["created e.txt"]);
    story.site.write_in_place(LIST, &story.list());
    story.hears(&["created e.txt"]);
    assert_eq!(story.heard.gaps, 0);
    story.ends();
}

#[test]
fn entries_that_cannot_be_told_do_not_keep_the_others_back() {
    let mut story = Story::start();
    story.add(&[
        "moved 1.txt 10:00:00",
        "created 2.txt",
        "created 3.txt yesterday",
    ]);
    let list = story.list().replace("2024-11-20TyesterdayZ", "yesterday");
    story.site.write(LIST, &list);
    story.hears(&["created 2.txt", "created 3.txt"]);
    story.ends();
}
