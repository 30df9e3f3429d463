//! Indexes, which are never announced, and components that wait for theirs.

use rstest::rstest;

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::support::documents::{Site, URL, component, index};

#[rstest]
fn a_component_waits_for_its_index_below_another_index(
    #[values(Inotify, Notify, Poll)] watch: Watch,
) {
    let site = Site::new();
    let below = ["a/below.xml".to_owned()];
    site.write("a/top.xml", &index("a", "changelist", &below));
    site.write("a/below.xml", &index("a", "changelist", &[]));
    let mut story = Story::over(watch, site, "");
    story.edit("[window]\n", "[window]\nhold = \"10m\"\n");
    story.resume();
    let text = component("a", "changelist", "a/below.xml", "1");
    story.site.write("a/part.xml", &text);
    story.stays_silent();
    let members = index("a", "changelist", &["a/part.xml".to_owned()]);
    story.site.write("a/below.xml", &members);
    let requests = story.hears(&["created changelist a/part.xml"]);
    let link = format!("rel=\"index\" href=\"{URL}a/below.xml\"");
    let mut bodies = requests
        .iter()
        .map(|request| String::from_utf8_lossy(&request.body));
    assert!(bodies.any(|body| body.contains(&link)));
    story.ends();
}
