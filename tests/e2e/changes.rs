//! Change channels with the real binary: what Change Lists report is told once, in order, in consecutive intervals (C10).

pub mod channels;
pub mod story;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::changes::story::{LEARNED, LIST, Story};
use crate::support::changes::{change_list, topic};
use crate::support::documents::capability_list;

/// C10: nothing that is published once the daemon says that it is ready counts as known.
#[test]
fn what_is_published_once_the_daemon_is_ready_is_told() {
    let mut story = Story::new("");
    let sets: Vec<String> = (0..64).map(|set| format!("s{set}")).collect();
    let mut entries: Vec<String> = (0..1_000)
        .map(|one| format!("updated {one}.txt 09:00:00"))
        .collect();
    for set in &sets {
        story.site.add_set(set);
        let path = format!("{set}/changelist.xml");
        story.site.write(&path, &change_list(set, &entries));
    }
    story.resume();
    entries.push("created new.txt 10:00:00".to_owned());
    for set in sets.iter().rev() {
        let path = format!("{set}/changelist.xml");
        story.site.write(&path, &change_list(set, &entries));
    }
    let mut topics: BTreeSet<String> = sets.iter().map(|set| topic(set)).collect();
    while !topics.is_empty() {
        let request = story.hub.notification();
        topics.remove(&request.topic());
    }
}

#[test]
fn a_list_of_very_many_changes_is_told_in_bounded_notifications_and_memory() {
    const MANY: usize = 60_000;
    let mut story = Story::start();
    let mut entries = vec![LEARNED.to_owned()];
    entries.extend((0..MANY).map(|one| {
        let (minute, second) = (one / 1_000, one / 17 % 60);
        format!("created {one}.txt 10:{minute:02}:{second:02}")
    }));
    story.site.write(LIST, &change_list("a", &entries));
    story.heard.listen(&story.hub, &topic("a"), MANY);
    assert_eq!(story.heard.told.len(), MANY);
    let each_once: BTreeSet<&String> = story.heard.told.iter().collect();
    assert_eq!(each_once.len(), MANY);
    assert!(story.heard.sizes.iter().all(|size| *size <= 1_000));
    assert_eq!(story.heard.gaps, 0);
    let peak = story.daemon().peak_memory();
    assert!(peak < 150 << 20, "{peak} bytes");
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
    story.set_entries(&[LEARNED, "created 1.txt 10:00:00"]);
    packed(&story);
    story.hears(&["created 1.txt"]);
    story.set_entries(&[LEARNED, "created 1.txt 10:00:00", "deleted 1.txt"]);
    packed(&story);
    story.hears(&["deleted 1.txt"]);
}
