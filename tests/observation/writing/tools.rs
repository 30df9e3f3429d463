//! Common programs for publishing.

use rstest::rstest;

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::support::documents::Site;
use crate::support::needs;
use crate::tools::run;
use crate::writing::{PATH, UPDATED, long_list};

const BOTH: [&str; 2] = [
    "updated changelist a/changelist.xml",
    "updated resourcelist a/resourcelist.xml",
];

/// Some tools delete what they are about to write.
fn patient(watch: Watch, site: Site) -> Story {
    Story::begin(watch, site, "deletion_grace = \"60s\"")
}

/// Another version of the site, with its Change List and Resource List changed.
fn next() -> Site {
    let site = Site::new();
    site.write(PATH, &long_list("2"));
    site.write_list("a", "resourcelist", "2");
    site
}

/// Runs a line of shell that knows the next version as `$1` and the published tree as `$2`.
#[track_caller]
fn publish(line: &str, next: &Site, story: &Story) {
    run(line, &[next.root.path(), story.site.root.path()]);
}

/// Runs a line that puts the next version in place of the published one.
fn publish_with(watch: Watch, line: &str) {
    if line.starts_with("rsync") && needs::program("rsync").is_none() {
        return;
    }
    let story = patient(watch, Site::new());
    publish(line, &next(), &story);
    story.ends_hearing(&BOTH);
}

#[rstest]
fn whole_documents(
    #[values(Inotify, Poll)] watch: Watch,
    #[values(
        "sed -i s/resource-1/resource-2/ $2/a/*.xml",
        "rsync -I -a ./ $2/",
        "rsync -I -a --inplace ./ $2/",
        "rsync -I -a --inplace --no-whole-file ./ $2/",
        "rsync -I -r --whole-file ./ $2/",
        "rsync -I -rc ./ $2/",
        "rsync -I -a --backup ./ $2/",
        "rsync -I -a --delete-before ./ $2/",
        "rsync -I -a --delay-updates ./ $2/",
        "rsync -I -a --partial-dir=.partial --delay-updates ./ $2/",
        "cp a/*list.xml $2/a",
        "cp -p a/*list.xml $2/a",
        "cp --reflink=auto a/*list.xml $2/a",
        "cp -a . $2",
        "cp --remove-destination a/*list.xml $2/a",
        "install -m 644 a/*list.xml $2/a",
        "dd status=none bs=100 if=a/changelist.xml of=$2/a/changelist.xml; \
         cat a/resourcelist.xml > $2/a/resourcelist.xml",
        "for f in a/*list.xml; do mv $f $2/a; done",
        "tar -c a/*.xml .well-known/resourcesync | tar -x -C $2",
        "tar -c a/*.xml .well-known/resourcesync | tar -x --overwrite -C $2",
        "tar -c a/*.xml .well-known/resourcesync | tar -x --unlink-first -C $2",
        "tar -c a/*.xml .well-known/resourcesync | tar -x --touch -C $2"
    )]
    line: &str,
) {
    publish_with(watch, line);
}

#[rstest]
fn under_notify(
    #[values("sed -i s/resource-1/resource-2/ $2/a/*.xml", "rsync -I -a ./ $2/")] line: &str,
) {
    publish_with(Notify, line);
}

/// A transfer that was cut off is taken up where it ended.
#[rstest]
fn rsync_that_appends(
    #[values(Inotify, Poll)] watch: Watch,
    #[values("--append", "--append-verify")] how: &str,
) {
    if needs::program("rsync").is_none() {
        return;
    }
    let mut story = Story::start(watch);
    story.site.write_in_place(PATH, &long_list("2")[..3000]);
    story.stays_silent();
    publish(&format!("rsync {how} {PATH} $2/{PATH}"), &next(), &story);
    story.ends_hearing(&[UPDATED]);
}

#[rstest]
fn git(#[values(Inotify, Poll)] watch: Watch) {
    if needs::program("git").is_none() {
        return;
    }
    let site = Site::new();
    let branches = "git init -q -b one; git add -A; git commit -q -m one; git checkout -q -b two; \
                    sed -i s/resource-1/resource-2/ a/changelist.xml a/resourcelist.xml; \
                    git commit -q -a -m two; git checkout -q one";
    run(branches, &[site.root.path()]);
    let mut story = patient(watch, site);
    for line in [
        "git checkout -q two",
        "git checkout -q one",
        "git merge -q two",
    ] {
        run(line, &[story.site.root.path()]);
        story.hears(&BOTH);
    }
    run("git gc -q; git reset -q --hard", &[story.site.root.path()]);
    story.ends_silent();
}
