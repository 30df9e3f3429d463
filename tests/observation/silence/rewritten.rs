//! The same content again, byte for byte or in another form.

use std::fs;

use rstest::rstest;

use crate::silence::PATH;
use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::support::documents::Site;
use crate::tools::run;

/// Rewrites the Change List as `change` has it, in place and by renaming, and is silent each time.
fn rewrite(watch: Watch, change: impl Fn(&str) -> String) {
    let mut story = Story::start(watch);
    let text = fs::read_to_string(story.site.path(PATH)).unwrap();
    let text = change(&text);
    story.site.write_in_place(PATH, &text);
    story.stays_silent();
    story.site.write(PATH, &text);
    story.ends_silent();
}

#[rstest]
fn byte_for_byte(#[values(Inotify, Notify, Poll)] watch: Watch) {
    rewrite(watch, str::to_owned);
}

#[rstest]
fn indented(#[values(Inotify, Notify, Poll)] watch: Watch) {
    rewrite(watch, |text| {
        let text = text
            .replace('\n', "\n\t  ")
            .replace("<loc>", "\n\n<loc>\n  ");
        text.replace("</loc>", "\n</loc>")
            .replace("\"/>", "\"\n  />")
    });
}

/// As generators do on every run.
#[rstest]
fn a_whole_site_as_it_was(#[values(Inotify, Poll)] watch: Watch) {
    if crate::support::needs::program("rsync").is_none() {
        return;
    }
    let mut story = Story::start(watch);
    let again = Site::new();
    for line in [
        "rsync -a ./ $2/",
        "rsync -a ./ $2/",
        "rsync -a --ignore-times ./ $2/",
        "rsync -a --ignore-times --inplace ./ $2/",
        "cp -a . $2",
        "tar -c . | tar -x --overwrite -C $2",
    ] {
        run(line, &[again.root.path(), story.site.root.path()]);
        story.stays_silent();
    }
    story.ends();
}
