//! Documents that are put into place completely: renamed, linked, exchanged.

use std::fs::{self, File};
use std::io::Write;

use rstest::rstest;
use rustix::fs::{CWD, RenameFlags};

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::support::documents::{Site, archive, list};
use crate::writing::{PATH, UPDATED, long_list, write_with_a_stall};

/// A site whose Capability List has these Change Lists, of which only those with a content are there yet.
fn listing(watch: Watch, lists: &[(String, Option<&str>)]) -> Story {
    let site = Site::new();
    let mut listed = vec![PATH.to_owned(), "a/resourcelist.xml".to_owned()];
    for (path, content) in lists {
        listed.push(path.clone());
        if let Some(content) = content {
            site.write(path, &list("a", "changelist", content));
        }
    }
    site.write(
        "a/capabilitylist.xml",
        &archive("a", "capabilitylist", &listed),
    );
    Story::begin(watch, site, "deletion_grace = \"60s\"")
}

#[rstest]
fn renamed_while_it_is_open_and_written_on(#[values(Inotify, Notify, Poll)] watch: Watch) {
    let story = Story::start(watch);
    let text = long_list("2");
    let temporary = story.site.path("a/changelist.tmp");
    let mut file = File::create(&temporary).unwrap();
    file.write_all(&text.as_bytes()[..3000]).unwrap();
    fs::rename(&temporary, story.site.path(PATH)).unwrap();
    write_with_a_stall(story, file, &text[3000..], 2000);
}

#[rstest]
fn with_a_directory_that_is_renamed_meanwhile(#[values(Inotify, Poll)] watch: Watch) {
    let lists: Vec<_> = (0..20).map(|n| (format!("a/y/{n}.xml"), None)).collect();
    let mut story = listing(watch, &lists);
    let [before, after] = ["a/x", "a/y"].map(|path| story.site.path(path));
    fs::create_dir(&before).unwrap();
    let text = list("a", "changelist", "1");
    let (begin, end) = text.split_at(text.len() / 2);
    let mut files: Vec<File> = (0..20)
        .map(|n| File::create(before.join(format!("{n}.xml"))).unwrap())
        .collect();
    for file in &mut files {
        file.write_all(begin.as_bytes()).unwrap();
    }
    fs::rename(before, after).unwrap();
    let moment = std::time::Instant::now();
    for mut file in files {
        file.write_all(end.as_bytes()).unwrap();
    }
    let wanted = lists
        .iter()
        .map(|(path, _)| format!("created changelist {path}"));
    story.hears_after(moment, &wanted.collect::<Vec<_>>());
    // The directory is watched still, or anew.
    story.site.write("a/y/0.xml", &list("a", "changelist", "2"));
    story.ends_hearing(&["updated changelist a/y/0.xml"]);
}

#[rstest]
fn exchanged_rotated_linked_and_renamed(#[values(Inotify, Poll)] watch: Watch) {
    let contents = [Some("zero"), Some("one"), Some("two"), None, None];
    let path = |number: usize| format!("a/changelist-{number}.xml");
    let lists: Vec<_> = (0..).map(path).zip(contents).collect();
    let mut story = listing(watch, &lists);
    let root = story.site.root.path().to_owned();
    let rename = |from: &str, to: &str| fs::rename(root.join(from), root.join(to)).unwrap();
    let updated = |number| format!("updated changelist {}", path(number));
    let created = |number| format!("created changelist {}", path(number));

    let [one, other] = [0, 1].map(|number| root.join(path(number)));
    rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
    story.hears(&[0, 1].map(updated));
    // As logs are rotated.
    rename(&path(1), &path(2));
    rename(&path(0), &path(1));
    story
        .site
        .write(&path(0), &list("a", "changelist", "newest"));
    story.hears(&[0, 1, 2].map(updated));
    // The name in between is listed nowhere, so that it would be held until it is (R17).
    rename(&path(2), "a/between.xml");
    rename("a/between.xml", &path(3));
    story.hears(&[created(3)]);
    // From another directory, where nobody looks.
    story.site.write("staging/new", &long_list("2"));
    fs::hard_link(root.join("staging/new"), root.join(path(4))).unwrap();
    rename("staging/new", PATH);
    story.hears(&[created(4), UPDATED.to_owned()]);
    // An editor makes the old version the backup, and writes the new one in its place.
    rename(PATH, "a/changelist.xml~");
    story.site.write_in_place(PATH, &long_list("3"));
    story.hears(&[UPDATED]);
    story.site.remove("a/changelist.xml~");
    story.ends_silent();
}
