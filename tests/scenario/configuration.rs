//! A change of the configuration announces nothing (R13).

use announce::event::{DropCause, Fact};
use announce::finding::Finding;
use announce::plan::{Plan, PublishMode};
use resourcesync::uri::Uri;
use rstest::rstest;

use crate::channels::configured;
use crate::world::{
    HUB, NOTHING, OTHER_HUB, Reply, SET_A, SET_B, World, all_deletions, altered, excluding, index,
    list, mount, plan, set_hubs, told, two_hubs, uri,
};

#[test]
fn a_hub_added_between_runs_starts_at_now() {
    let mut world = World::with_two_sets(plan());
    world.plan = two_hubs();
    world.crash_and_start().expect_at(OTHER_HUB, 100, NOTHING);
    world.update("/a/changelist.xml");
    world.expect(10, ["u /a/changelist.xml"]);
    assert_eq!(world.news_at(OTHER_HUB), ["u /a/changelist.xml"]);
}

#[test]
fn the_dues_of_a_removed_hub_are_dropped() {
    let mut world = World::with_two_sets(two_hubs()).with_down(OTHER_HUB);
    world.update("/a/changelist.xml");
    world.update("/a/resourcelist.xml").wait(10);
    world.plan = plan();
    world.facts();
    world.crash_and_start();
    let dropped = [format!("{OTHER_HUB} /a/framework/ 2")];
    assert_eq!(world.dropped(DropCause::HubRemoved), dropped);
    world.wait(10);
    world.plan = two_hubs();
    world.script(OTHER_HUB, Reply::Accept);
    world.crash_and_start().expect_at(OTHER_HUB, 1_000, NOTHING);
}

#[test]
fn a_channel_configured_for_a_known_set_starts_from_what_was_seen() {
    let mut world = World::with_two_sets(plan());
    world.plan.channels.push(configured(SET_A, "/configured/"));
    world.crash_and_start().expect_nothing(100);
    world.update("/a/changelist.xml").wait(10);
    let news = world.news_by_topic();
    assert_eq!(news["/configured/"], ["u /a/changelist.xml"]);
    assert_eq!(news.len(), 1);
}

#[test]
fn documents_no_longer_configured_are_forgotten() {
    let more = mount("/srv/more", "https://more.example.org/");
    let changed = altered(plan(), |plan| plan.sources[0].mounts.push(more));
    let lists = "https://more.example.org/capabilitylist.xml";
    let changes = "https://more.example.org/changelist.xml";
    let mut world = World::with_two_sets(changed.clone());
    world.write(lists, list("capabilitylist").lists(&[changes]));
    world.write(changes, list("changelist")).wait(10).news();
    world.script(HUB, Reply::Status(503)).update(lists);
    world.update(changes).wait(10);
    world.plan = plan();
    world.crash_and_start();
    world.script(HUB, Reply::Accept).wait(10_000).news();
    assert!(!world.remembers(changes));
    world.expect_nothing(10_000);

    world.plan = changed;
    world.update(changes).wait(10);
    world.crash_and_start().expect_nothing(1_000);
    world.update(changes).expect(10, [format!("u {changes}")]);
}

#[test]
fn a_hub_may_change_its_mode() {
    let mut world = World::with_two_sets(plan());
    set_hubs(&mut world.plan, &[(HUB, PublishMode::Ping)]);
    world.crash_and_start().expect_nothing(100);
    assert_eq!(world.served("/a/framework/"), NOTHING);
    world.update("/a/changelist.xml").wait(10);
    assert_eq!(world.served("/a/framework/"), ["u /a/changelist.xml"]);
}

/// A daemon that never looked at the set `/b`, until it does.
fn world_that_includes_more() -> World {
    let narrow = |plan: &mut Plan| plan.sources[0].candidates = excluding(&["b/**"]);
    let mut world = World::with_two_sets(altered(plan(), narrow));
    world.crash();
    world.plan = plan();
    world
}

#[rstest]
#[case::in_the_first_sweep(|world: &mut World| {
    world.start();
})]
#[case::after_a_look_that_was_cut_off(|world: &mut World| {
    world.launch().find_mount(0).see("/b/changelist.xml");
    world.see(SET_B).crash_and_start();
})]
#[case::below_a_directory_that_could_not_be_read(|world: &mut World| {
    let hidden = world.take_away("/b/");
    world.launch().find_mount(0).deny_directories(&["b"]);
    world.sweep(0).wait(100).bring_back(hidden);
    world.deny_directories(&[]).see(SET_B);
    world.see("/b/changelist.xml").expect_nothing(100).sweep(0);
})]
fn what_is_newly_included_counts_as_known(#[case] find: fn(&mut World)) {
    let mut world = world_that_includes_more();
    find(&mut world);
    world.expect_nothing(100).update("/b/changelist.xml");
    world.expect(10, ["u /b/changelist.xml"]);
    world.write_list("/b/resourcedump.xml", "resourcedump");
    world.update(SET_B);
    world.expect(100, ["u /b/capabilitylist.xml", "c /b/resourcedump.xml"]);
}

#[test]
fn what_changed_beside_the_newly_included_is_announced() {
    let mut world = world_that_includes_more();
    world.update("/a/changelist.xml");
    world.write_list("/a/changedump.xml", "changedump").start();
    world.expect(100, ["u /a/changelist.xml", "c /a/changedump.xml"]);
}

#[test]
fn what_is_newly_included_and_broken_is_updated_once_it_can_be_read() {
    let mut world = world_that_includes_more();
    world.break_off("/b/changelist.xml");
    world.start().expect_nothing(100);
    world.write_list("/b/changelist.xml", "changelist");
    world.expect(10, ["u /b/changelist.xml"]);
}

#[test]
fn what_is_excluded_and_included_again_counts_as_known() {
    let mut world = World::with_two_sets(plan());
    world.crash();
    world.plan.sources[0].candidates = excluding(&["b/**"]);
    world.start().wait(100).crash();
    world.update("/a/changelist.xml");
    world.plan = plan();
    world.start().expect(100, ["u /a/changelist.xml"]);
    world.update("/b/changelist.xml");
    world.expect(10, ["u /b/changelist.xml"]);
}

#[test]
fn what_is_due_survives_the_move_of_a_directory() {
    for is_restarted in [false, true] {
        let mut world = World::with_two_sets(plan()).with_down(HUB);
        for name in ["changelist", "resourcelist"] {
            world.update(&format!("/a/{name}.xml")).wait(100);
        }
        world.plan.sources[0].mounts[0].directory = "/srv/larger".into();
        world.set_root(0, 7);
        world.apply_plan(!is_restarted).wait(100);
        assert_eq!(world.directories(), ["/srv/larger"]);
        world.script(HUB, Reply::Accept);
        world.expect(1_000, ["u /a/changelist.xml", "u /a/resourcelist.xml"]);
    }
}

#[test]
fn another_directory_that_is_empty_deletes_nothing() {
    let mut world = World::with_two_sets(plan());
    world.crash();
    world.plan.sources[0].mounts[0].directory = "/srv/wrong".into();
    world.set_root(0, 7);
    let aside = world.take_away("https://example.org/");
    world.start().expect_nothing(1_000).bring_back(aside);
    world.crash_and_start().expect_nothing(1_000);
}

#[test]
fn what_is_due_of_documents_that_are_forgotten_is_dropped_aloud() {
    for is_renamed in [false, true] {
        let mut world = World::with_two_sets(plan()).with_down(HUB);
        world.update(SET_A).wait(100).update("/a/changelist.xml");
        world.update("/a/resourcelist.xml").wait(100);
        let source = &mut world.plan.sources[0];
        match is_renamed {
            true => source.name = "other".to_owned(),
            false => source.candidates = excluding(&["a/changelist.xml", "a/resourcelist.xml"]),
        }
        world.facts();
        world.crash_and_start();
        // What is in flight is still sent, unless its channel ends.
        let changes = if is_renamed { 3 } else { 2 };
        let dropped = format!("{HUB} /a/framework/ {changes}");
        assert_eq!(world.dropped(DropCause::DocumentsRemoved), [dropped]);
    }
}

/// Writes a set whose documents name one another under `http://`, and starts the daemon.
fn world_of_http(plan: Plan) -> World {
    let mut world = World::new(plan);
    let http = |name: &str| format!("http://example.org{name}");
    let lists = [http("/a/changelist.xml"), http("/a/index.xml")];
    world.write(SET_A, list("capabilitylist").lists(&[&lists[0], &lists[1]]));
    world.write("/a/changelist.xml", list("changelist"));
    let parts = index("resourcelist").lists(&[&http("/a/part.xml")]);
    world.write("/a/index.xml", parts);
    world.write("/a/part.xml", list("resourcelist"));
    world.write("/a/dump.xml", list("changedump").up(&http(SET_A)));
    world.wait(10).start().expect_nothing(100);
    world
}

/// The alias of the site.
fn http() -> Uri {
    uri("http://example.org/")
}

#[test]
fn an_alias_added_later_holds_for_what_was_read_before() {
    for is_reload in [false, true] {
        let mut world = world_of_http(plan());
        world.plan.sources[0].mounts[0].aliases.push(http());
        world.apply_plan(is_reload).expect_nothing(100);
        for name in ["/a/changelist.xml", "/a/part.xml", "/a/dump.xml"] {
            world.update(name).wait(100);
            let news = world.news();
            assert_eq!(news.len(), 1, "{name}");
            assert!(
                news[0].starts_with("u ") && news[0].ends_with(name),
                "{news:?}"
            );
        }
        let findings = world.findings();
        let is_unrouted = |it: &&Finding| matches!(it, Finding::Unrouted { .. });
        assert_eq!(findings.iter().find(is_unrouted), None);
    }
}

#[test]
fn what_was_read_before_an_alias_is_removed_names_what_it_named() {
    let mut with_alias = plan();
    with_alias.sources[0].mounts[0].aliases.push(http());
    let mut world = world_of_http(with_alias);
    world.plan = plan();
    world.reload().expect_nothing(100);
    world.update("/a/changelist.xml");
    world.expect(100, ["u /a/changelist.xml"]);
    world.update(SET_A).expect(100, ["u /a/capabilitylist.xml"]);
    world.update("/a/changelist.xml").expect_nothing(100);
}

#[test]
fn what_changed_while_an_alias_was_added_is_announced_in_its_set() {
    let mut world = world_of_http(plan());
    world.crash();
    world.plan.sources[0].mounts[0].aliases.push(http());
    world.update("/a/changelist.xml");
    world.write("/a/new.xml", list("changedump"));
    let new = ["http://example.org/a/changelist.xml", "/a/new.xml"];
    world.write(SET_A, list("capabilitylist").lists(&new));
    world.start();
    let updated = ["u /a/capabilitylist.xml", "u /a/changelist.xml"];
    world.expect(100, [&updated[..], &["c changedump /a/new.xml"]].concat());
}

/// A source whose second mount is published below the first.
fn with_inner_mount() -> Plan {
    let mut plan = plan();
    let inner = mount("/srv/www/b", "https://example.org/b/");
    plan.sources[0].mounts.push(inner);
    plan
}

#[rstest]
fn what_another_mount_publishes_under_the_same_uri_is_as_it_was(
    #[values(false, true)] is_reload: bool,
    #[values(false, true)] is_added: bool,
    #[values(false, true)] is_cut_off: bool,
) {
    let (mut before, mut after) = (with_inner_mount(), plan());
    if is_added {
        std::mem::swap(&mut before, &mut after);
    }
    let mut world = World::with_two_sets(before).with_down(HUB);
    world.update(SET_B).wait(100);
    world.update("/b/changelist.xml").wait(100).facts();
    if !is_reload {
        world.crash();
    }
    // The one that the other mount has besides was never published.
    world.unseen().write_list("/b/other.xml", "changedump");
    world.wait(10);
    world.plan = after;
    if is_cut_off {
        let position = usize::from(is_added);
        world.launch().find_mount(position).see(SET_B);
        world.unmount(position);
        world.set_root(position, 8);
        world.find_mount(position).see("/b/changelist.xml").crash();
    }
    world.start().wait(100);
    let facts = world.facts();
    let is_drop = |fact: &&Fact| {
        matches!(
            fact,
            Fact::Dropped {
                cause: DropCause::DocumentsRemoved,
                ..
            } | Fact::ChannelRetired { .. }
        )
    };
    assert_eq!(facts.iter().find(is_drop), None);
    world.script(HUB, Reply::Accept);
    world.expect(1_000, ["u /b/capabilitylist.xml", "u /b/changelist.xml"]);
    world.update("/b/other.xml");
    world.expect(100, ["u changedump /b/other.xml"]);
    world.update("/b/resourcelist.xml");
    world.expect(100, ["u /b/resourcelist.xml"]);
}

#[test]
fn what_an_outer_mount_lacks_of_an_inner_one_is_forgotten() {
    let mut world = World::with_two_sets(with_inner_mount());
    world.crash();
    world.plan = plan();
    world.delete(SET_B).delete("/b/changelist.xml");
    world.start().expect_nothing(1_000);
    assert!(!world.remembers(SET_B));
    assert!(world.remembers("/b/resourcelist.xml"));
}

#[test]
fn a_mount_that_took_documents_over_is_absent_when_its_root_is_empty() {
    let mut world = World::with_two_sets(plan());
    world.plan = with_inner_mount();
    world.reload().wait(100);
    let hidden = world.take_away("/b/");
    world.remount(1, 7);
    assert_eq!(world.presence(), [Some(true), Some(false)]);
    world.wait(10_000).bring_back(hidden);
    world.remount(1, 8).expect_nothing(100);
}

/// R15: an inner mount is configured before its file system is mounted.
#[rstest]
fn a_mount_that_took_documents_over_is_absent_until_its_file_system_is_mounted(
    #[values(false, true)] is_reload: bool,
) {
    let mut world = World::with_two_sets(plan()).with_down(HUB);
    world.update("/b/changelist.xml").wait(10);
    let hidden = world.take_away("/b/");
    world.plan = with_inner_mount();
    world.apply_plan(is_reload).wait(100);
    assert_eq!(world.presence(), [Some(true), Some(false)]);
    world.crash_and_start().wait(10_000);
    assert!(!told!(world, Fact::Dropped { .. }));
    world.bring_back(hidden).remount(1, 8);
    world.script(HUB, Reply::Accept);
    world.expect(1_000, ["u /b/changelist.xml"]);
}

/// R15: a file that cannot be read is there.
#[test]
fn what_a_mount_took_over_and_cannot_read_is_deleted_once_it_is_gone() {
    let mut world = World::with_two_sets(plan());
    world.unseen().break_off(SET_B);
    world.plan = with_inner_mount();
    world.reload().wait(100);
    world.delete(SET_B);
    world.expect(10_000, ["d /b/capabilitylist.xml"]);
}

#[test]
fn what_cannot_be_read_below_another_mount_is_forgotten_with_its_uri() {
    let mut world = World::with_two_sets(plan());
    world.break_off("/b/broken.xml").wait(1_000);
    assert_eq!(world.troubles(), 1);
    world.unseen().delete("/b/broken.xml");
    world.plan = with_inner_mount();
    world.reload().wait(100);
    assert_eq!(world.troubles(), 0);
}

#[test]
fn what_an_outer_mount_cannot_read_yet_in_place_of_an_inner_one_is_known() {
    let mut world = World::with_two_sets(with_inner_mount());
    world.crash();
    world.plan = plan();
    let other = list("changedump").of("/b");
    world.write("/b/other.xml", other);
    let hidden = world.take_away("/b/other.xml");
    world.launch().find_mount(0).deny_directories(&["b"]);
    world.sweep(0).bring_back(hidden).deny_directories(&[]);
    world.see("/b/other.xml").expect_nothing(100);
}

#[test]
fn what_is_missing_while_another_mount_takes_its_uri_is_deleted() {
    let name = SET_B;
    for is_deleted in [true, false] {
        let mut world = World::with_two_sets(with_inner_mount());
        world.delete(name).wait(10);
        world.plan = plan();
        if !is_deleted {
            world
                .unseen()
                .write_set("/b", &["resourcelist", "changelist"]);
        }
        world.reload().wait(1_000);
        let deleted = is_deleted.then(|| format!("d {name}"));
        assert!(world.news().into_iter().eq(deleted));
    }
}

#[test]
fn an_alias_below_another_mount_stands_for_its_own() {
    let mut plan = plan();
    let mut data = mount("/srv/data", "https://data.example.org/");
    data.aliases = vec![uri("https://example.org/data/")];
    plan.sources[0].mounts.push(data.clone());
    let mut world = World::new(plan);
    let doc = list("capabilitylist").lists(&["/data/changelist.xml"]);
    world.write(SET_A, doc);
    let changes = "https://data.example.org/changelist.xml";
    world.write(changes, list("changelist")).wait(10);
    world.start().wait(100);
    world.update(changes).expect(100, [format!("u {changes}")]);

    // Without the alias, the first mount publishes what it has there; that was there before.
    world.write("/data/other.xml", list("changedump").of("/a"));
    world.wait(10);
    world.plan.sources[0].mounts[1].aliases.clear();
    world.reload().expect_nothing(100);
    world.update("/data/other.xml");
    world.expect(100, ["u changedump /data/other.xml"]);
}

#[test]
fn what_is_in_flight_of_a_document_that_is_forgotten_is_not_dropped() {
    let mut world = World::with_two_sets(plan()).with_down(HUB);
    world.update("/a/changelist.xml").wait(100);
    world.plan.sources[0].candidates = excluding(&["a/changelist.xml"]);
    world.facts();
    world.crash_and_start();
    assert_eq!(world.dropped(DropCause::DocumentsRemoved), NOTHING);
    world.script(HUB, Reply::Accept);
    world.expect(100, ["u /a/changelist.xml"]);
}

#[test]
fn what_is_in_flight_of_a_document_that_is_forgotten_can_be_dropped() {
    let mut world = World::with_two_sets(plan()).with_down(HUB);
    world.update("/a/changelist.xml").wait(10);
    world.plan.sources[0].candidates = excluding(&["a/changelist.xml"]);
    world
        .reload()
        .drop_due("/a", HUB)
        .script(HUB, Reply::Accept);
    world.expect_nothing(10_000);
}

#[test]
fn deletions_that_are_not_announced_any_more_are_not_due() {
    let mut world = World::with_two_sets(all_deletions()).with_down(HUB);
    world.update("/a/resourcelist.xml").wait(10);
    world.delete("/a/changelist.xml").wait(1_000);
    world.plan = plan();
    world.crash_and_start().wait(100);
    assert!(!world.remembers("/a/changelist.xml"));
}

#[test]
fn what_a_plan_says_of_now_holds_until_the_lists_are_read() {
    let mut world = World::with_two_sets(plan()).with_down(HUB);
    world.update("/a/changelist.xml").wait(10);
    world.plan = two_hubs();
    world.launch().reload().wait(100);
    assert_eq!(world.news_at(OTHER_HUB), NOTHING);
}
