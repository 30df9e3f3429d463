//! A change of the configuration announces nothing (R13).

use resourcesync::uri::Uri;
use rsnotify::announce::event::{DropCause, Fact};
use rsnotify::announce::finding::Finding;
use rsnotify::announce::plan::{Mode, Plan};
use rstest::rstest;

use crate::channels::configured;
use crate::world::{
    HUB, OTHER_HUB, Reply, World, excluding, index, list, mount, plan, set_hubs, two_hubs,
};

const NOTHING: [&str; 0] = [];

#[test]
fn a_restart_announces_nothing() {
    let mut world = World::with_two_sets(two_hubs());
    for _ in 0..3 {
        world.crash_and_start();
        world.wait(10_000);
    }
    assert_eq!(world.news(), NOTHING);
    assert_eq!(world.news_at(OTHER_HUB), NOTHING);
}

#[test]
fn a_hub_added_between_runs_starts_at_now() {
    let mut world = World::with_two_sets(plan());
    world.plan = two_hubs();
    world.crash_and_start();
    world.wait(100);
    assert_eq!(world.news_at(OTHER_HUB), NOTHING);
    world.update("/a/changelist.xml");
    world.wait(10);
    assert_eq!(world.news(), ["updated changelist /a/changelist.xml"]);
    assert_eq!(
        world.news_at(OTHER_HUB),
        ["updated changelist /a/changelist.xml"]
    );
}

#[test]
fn the_dues_of_a_removed_hub_are_dropped() {
    let mut world = World::with_two_sets(two_hubs());
    world.script(OTHER_HUB, Reply::Status(503));
    world.update("/a/changelist.xml");
    world.update("/a/resourcelist.xml");
    world.wait(10);
    world.plan = plan();
    world.facts();
    world.crash_and_start();
    let facts = world.facts();
    let dropped = |fact: &&Fact| {
        matches!(
            fact,
            Fact::Dropped {
                changes: 2,
                cause: DropCause::HubRemoved,
                ..
            }
        )
    };
    assert_eq!(facts.iter().filter(dropped).count(), 1, "{facts:?}");
    world.wait(10);
    world.plan = two_hubs();
    world.script(OTHER_HUB, Reply::Accept);
    world.crash_and_start();
    world.wait(1_000);
    assert_eq!(world.news_at(OTHER_HUB), NOTHING);
}

#[test]
fn a_change_made_while_a_hub_was_added_reaches_it_too() {
    let mut world = World::with_two_sets(plan());
    world.crash();
    world.update("/a/changelist.xml");
    world.plan = two_hubs();
    world.start();
    world.wait(10);
    assert_eq!(
        world.news_at(OTHER_HUB),
        ["updated changelist /a/changelist.xml"]
    );
}

#[test]
fn a_channel_configured_for_a_known_set_starts_from_what_was_seen() {
    let mut world = World::with_two_sets(plan());
    world.plan.channels.push(configured(
        "https://example.org/a/capabilitylist.xml",
        "https://example.org/configured/",
    ));
    world.crash_and_start();
    world.wait(100);
    assert_eq!(world.news(), NOTHING);
    world.update("/a/changelist.xml");
    world.wait(10);
    let news = world.news_by_topic();
    assert_eq!(
        news["/configured/"],
        ["updated changelist /a/changelist.xml"]
    );
    assert_eq!(news.len(), 1);
}

#[test]
fn documents_no_longer_configured_are_forgotten() {
    let mut changed = plan();
    let more = mount("/srv/more", "https://more.example.org/");
    changed.sources[0].mounts.push(more);
    let lists = "https://more.example.org/capabilitylist.xml";
    let changes = "https://more.example.org/changelist.xml";
    let mut world = World::with_two_sets(changed.clone());
    world.write(lists, list("capabilitylist").lists(&[changes]));
    world.write(changes, list("changelist"));
    world.wait(10);
    world.news();
    world.script(HUB, Reply::Status(503));
    world.update(lists);
    world.update(changes);
    world.wait(10);
    world.plan = plan();
    world.crash_and_start();
    world.script(HUB, Reply::Accept);
    world.wait(10_000);
    world.news();
    assert!(!world.remembers(changes));
    world.wait(10_000);
    assert_eq!(world.news(), NOTHING);

    world.plan = changed;
    world.update(changes);
    world.wait(10);
    world.crash_and_start();
    world.wait(1_000);
    assert_eq!(world.news(), NOTHING);
    world.update(changes);
    world.wait(10);
    assert_eq!(world.news(), [format!("updated changelist {changes}")]);
}

#[test]
fn a_hub_may_change_its_mode() {
    let mut world = World::with_two_sets(plan());
    set_hubs(&mut world.plan, &[(HUB, Mode::Ping)]);
    world.crash_and_start();
    world.wait(100);
    assert_eq!(world.news(), NOTHING);
    assert_eq!(world.served("/a/framework/"), NOTHING);
    world.update("/a/changelist.xml");
    world.wait(10);
    assert_eq!(
        world.served("/a/framework/"),
        ["updated changelist /a/changelist.xml"]
    );
}

/// A daemon that never looked at the set `/b`, until it does.
fn world_that_includes_more() -> World {
    let mut narrow = plan();
    narrow.sources[0].candidates = excluding(&["b/**"]);
    let mut world = World::with_two_sets(narrow);
    world.crash();
    world.plan = plan();
    world
}

#[test]
fn what_is_newly_included_counts_as_known() {
    let mut world = world_that_includes_more();
    world.start();
    world.wait(100);
    assert_eq!(world.news(), NOTHING);
    world.update("/b/changelist.xml");
    world.wait(10);
    assert_eq!(world.news(), ["updated changelist /b/changelist.xml"]);
    world.write(
        "/b/resourcedump.xml",
        list("resourcedump").up("/b/capabilitylist.xml"),
    );
    world.update("/b/capabilitylist.xml");
    world.wait(100);
    assert_eq!(
        world.news(),
        [
            "updated capabilitylist /b/capabilitylist.xml",
            "created resourcedump /b/resourcedump.xml"
        ]
    );
}

#[test]
fn what_is_newly_included_counts_as_known_though_its_directory_cannot_be_read_yet() {
    let mut world = world_that_includes_more();
    let hidden = world.take_away("/b/");
    world.launch();
    world.find_mount(0);
    world.deny_directories(&["b"]);
    world.sweep(0);
    world.wait(100);
    world.bring_back(hidden);
    world.deny_directories(&[]);
    world.see("/b/capabilitylist.xml");
    world.see("/b/changelist.xml");
    world.wait(100);
    assert_eq!(world.news(), NOTHING);
    world.sweep(0);
    world.update("/b/changelist.xml");
    world.wait(100);
    assert_eq!(world.news(), ["updated changelist /b/changelist.xml"]);
}

#[test]
fn what_changed_beside_the_newly_included_is_announced() {
    let mut world = world_that_includes_more();
    world.update("/a/changelist.xml");
    world.write(
        "/a/changedump.xml",
        list("changedump").up("/a/capabilitylist.xml"),
    );
    world.start();
    world.wait(100);
    assert_eq!(
        world.news(),
        [
            "updated changelist /a/changelist.xml",
            "created changedump /a/changedump.xml"
        ]
    );
}

#[test]
fn what_is_newly_included_counts_as_known_though_the_first_look_is_cut_off() {
    let mut world = world_that_includes_more();
    world.launch();
    world.find_mount(0);
    world.see("/b/changelist.xml");
    world.see("/b/capabilitylist.xml");
    world.crash_and_start();
    world.wait(100);
    assert_eq!(world.news(), NOTHING);
    world.update("/b/changelist.xml");
    world.wait(10);
    assert_eq!(world.news(), ["updated changelist /b/changelist.xml"]);
}

#[test]
fn what_is_newly_included_and_broken_is_updated_once_it_can_be_read() {
    let mut world = world_that_includes_more();
    world.break_off("/b/changelist.xml");
    world.start();
    world.wait(100);
    assert_eq!(world.news(), NOTHING);
    world.write(
        "/b/changelist.xml",
        list("changelist").up("/b/capabilitylist.xml"),
    );
    world.wait(10);
    assert_eq!(world.news(), ["updated changelist /b/changelist.xml"]);
}

#[test]
fn what_is_excluded_and_included_again_counts_as_known() {
    let mut world = World::with_two_sets(plan());
    world.crash();
    world.plan.sources[0].candidates = excluding(&["b/**"]);
    world.start();
    world.wait(100);
    world.crash();
    world.update("/a/changelist.xml");
    world.plan = plan();
    world.start();
    world.wait(100);
    assert_eq!(world.news(), ["updated changelist /a/changelist.xml"]);
    world.update("/b/changelist.xml");
    world.wait(10);
    assert_eq!(world.news(), ["updated changelist /b/changelist.xml"]);
}

#[test]
fn what_is_due_survives_the_move_of_a_directory() {
    for is_restarted in [false, true] {
        let mut world = World::with_two_sets(plan());
        world.script(HUB, Reply::Status(503));
        for name in ["changelist", "resourcelist"] {
            world.update(&format!("/a/{name}.xml"));
            world.wait(100);
        }
        world.plan.sources[0].mounts[0].directory = "/srv/larger".into();
        world.set_root(0, 7);
        match is_restarted {
            true => world.crash_and_start(),
            false => world.reload(),
        }
        world.wait(100);
        assert_eq!(world.directories(), ["/srv/larger"]);
        world.script(HUB, Reply::Accept);
        world.wait(1_000);
        assert_eq!(
            world.news(),
            [
                "updated changelist /a/changelist.xml",
                "updated resourcelist /a/resourcelist.xml",
            ]
        );
    }
}

#[test]
fn another_directory_that_is_empty_deletes_nothing() {
    let mut world = World::with_two_sets(plan());
    world.crash();
    world.plan.sources[0].mounts[0].directory = "/srv/wrong".into();
    world.set_root(0, 7);
    let aside = world.take_away("https://example.org/");
    world.start();
    world.wait(1_000);
    assert_eq!(world.news(), NOTHING);
    world.bring_back(aside);
    world.crash_and_start();
    world.wait(1_000);
    assert_eq!(world.news(), NOTHING);
}

#[test]
fn what_is_due_of_documents_that_are_forgotten_is_dropped_aloud() {
    for is_renamed in [false, true] {
        let mut world = World::with_two_sets(plan());
        world.script(HUB, Reply::Status(503));
        world.update("/a/capabilitylist.xml");
        world.wait(100);
        world.update("/a/changelist.xml");
        world.update("/a/resourcelist.xml");
        world.wait(100);
        let source = &mut world.plan.sources[0];
        match is_renamed {
            true => source.name = "other".to_owned(),
            false => source.candidates = excluding(&["a/changelist.xml", "a/resourcelist.xml"]),
        }
        world.facts();
        world.crash_and_start();
        let facts = world.facts();
        let dropped = facts.iter().filter_map(|fact| match fact {
            Fact::Dropped {
                changes,
                cause: DropCause::DocumentsRemoved,
                ..
            } => Some(*changes),
            _ => None,
        });
        // What is in flight is still sent, unless its channel ends.
        let changes = if is_renamed { 3 } else { 2 };
        assert!(dropped.eq([changes]), "{facts:?}");
    }
}

/// Writes a set whose documents name one another under `http://`, and starts the daemon.
fn world_of_http(plan: Plan) -> World {
    let mut world = World::new(plan);
    let http = |name: &str| format!("http://example.org{name}");
    let lists = [http("/a/changelist.xml"), http("/a/index.xml")];
    world.write(
        "/a/capabilitylist.xml",
        list("capabilitylist").lists(&[&lists[0], &lists[1]]),
    );
    world.write("/a/changelist.xml", list("changelist"));
    world.write(
        "/a/index.xml",
        index("resourcelist").lists(&[&http("/a/part.xml")]),
    );
    world.write("/a/part.xml", list("resourcelist"));
    world.write(
        "/a/dump.xml",
        list("changedump").up(&http("/a/capabilitylist.xml")),
    );
    world.wait(10);
    world.start();
    world.wait(100);
    assert_eq!(world.news(), NOTHING);
    world
}

/// The alias of the site.
fn http() -> Uri {
    Uri::parse("http://example.org/").unwrap()
}

#[test]
fn an_alias_added_later_holds_for_what_was_read_before() {
    for is_reload in [false, true] {
        let mut world = world_of_http(plan());
        world.plan.sources[0].mounts[0].aliases.push(http());
        match is_reload {
            true => world.reload(),
            false => world.crash_and_start(),
        }
        world.wait(100);
        assert_eq!(world.news(), NOTHING);
        for name in ["/a/changelist.xml", "/a/part.xml", "/a/dump.xml"] {
            world.update(name);
            world.wait(100);
            let news = world.news();
            assert_eq!(news.len(), 1, "{name}");
            assert!(
                news[0].starts_with("updated") && news[0].ends_with(name),
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
    world.reload();
    world.wait(100);
    assert_eq!(world.news(), NOTHING);
    world.update("/a/changelist.xml");
    world.wait(100);
    assert_eq!(world.news(), ["updated changelist /a/changelist.xml"]);
    world.update("/a/capabilitylist.xml");
    world.wait(100);
    assert_eq!(
        world.news(),
        ["updated capabilitylist /a/capabilitylist.xml"]
    );
    world.update("/a/changelist.xml");
    world.wait(100);
    assert_eq!(world.news(), NOTHING);
}

#[test]
fn what_changed_while_an_alias_was_added_is_announced_in_its_set() {
    let mut world = world_of_http(plan());
    world.crash();
    world.plan.sources[0].mounts[0].aliases.push(http());
    world.update("/a/changelist.xml");
    world.write("/a/new.xml", list("changedump"));
    let new = ["http://example.org/a/changelist.xml", "/a/new.xml"];
    world.write("/a/capabilitylist.xml", list("capabilitylist").lists(&new));
    world.start();
    world.wait(100);
    assert_eq!(
        world.news(),
        [
            "updated capabilitylist /a/capabilitylist.xml",
            "updated changelist /a/changelist.xml",
            "created changedump /a/new.xml"
        ]
    );
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
    let mut world = World::with_two_sets(before);
    world.script(HUB, Reply::Status(503));
    world.update("/b/capabilitylist.xml");
    world.wait(100);
    world.update("/b/changelist.xml");
    world.wait(100);
    world.facts();
    if !is_reload {
        world.crash();
    }
    // The one that the other mount has besides was never published.
    world.unseen(|world| {
        let other = list("changedump").up("/b/capabilitylist.xml");
        world.write("/b/other.xml", other);
    });
    world.wait(10);
    world.plan = after;
    if is_cut_off {
        let position = usize::from(is_added);
        world.launch();
        world.find_mount(position);
        world.see("/b/capabilitylist.xml");
        world.unmount(position);
        world.set_root(position, 8);
        world.find_mount(position);
        world.see("/b/changelist.xml");
        world.crash();
    }
    world.start();
    world.wait(100);
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
    world.wait(1_000);
    assert_eq!(
        world.news(),
        [
            "updated capabilitylist /b/capabilitylist.xml",
            "updated changelist /b/changelist.xml"
        ]
    );
    for name in [
        "changedump /b/other.xml",
        "resourcelist /b/resourcelist.xml",
    ] {
        world.update(name.split_once(' ').unwrap().1);
        world.wait(100);
        assert_eq!(world.news(), [format!("updated {name}")]);
    }
}

#[test]
fn what_an_outer_mount_lacks_of_an_inner_one_is_forgotten() {
    let mut world = World::with_two_sets(with_inner_mount());
    world.crash();
    world.plan = plan();
    world.delete("/b/capabilitylist.xml");
    world.delete("/b/changelist.xml");
    world.start();
    world.wait(1_000);
    assert_eq!(world.news(), NOTHING);
    assert!(!world.remembers("/b/capabilitylist.xml"));
    assert!(world.remembers("/b/resourcelist.xml"));
}

#[test]
fn a_mount_that_took_documents_over_is_absent_when_its_root_is_empty() {
    let mut world = World::with_two_sets(plan());
    world.plan = with_inner_mount();
    world.reload();
    world.wait(100);
    let hidden = world.take_away("/b/");
    world.remount(1, 7);
    assert_eq!(world.presence(), [Some(true), Some(false)]);
    world.wait(10_000);
    world.bring_back(hidden);
    world.remount(1, 8);
    world.wait(100);
    assert_eq!(world.news(), NOTHING);
}

/// R15: an inner mount is configured before its file system is mounted.
#[rstest]
fn a_mount_that_took_documents_over_is_absent_until_its_file_system_is_mounted(
    #[values(false, true)] is_reload: bool,
) {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::Status(503));
    world.update("/b/changelist.xml");
    world.wait(10);
    let hidden = world.take_away("/b/");
    world.plan = with_inner_mount();
    match is_reload {
        true => world.reload(),
        false => world.crash_and_start(),
    }
    world.wait(100);
    assert_eq!(world.presence(), [Some(true), Some(false)]);
    world.crash_and_start();
    world.wait(10_000);
    let is_dropped = |fact: &Fact| matches!(fact, Fact::Dropped { .. });
    assert!(!world.facts().iter().any(is_dropped));
    world.bring_back(hidden);
    world.remount(1, 8);
    world.script(HUB, Reply::Accept);
    world.wait(1_000);
    assert_eq!(world.news(), ["updated changelist /b/changelist.xml"]);
}

/// R15: a file that cannot be read is there.
#[test]
fn what_a_mount_took_over_and_cannot_read_is_deleted_once_it_is_gone() {
    let mut world = World::with_two_sets(plan());
    world.unseen(|world| world.break_off("/b/capabilitylist.xml"));
    world.plan = with_inner_mount();
    world.reload();
    world.wait(100);
    world.delete("/b/capabilitylist.xml");
    world.wait(10_000);
    assert_eq!(
        world.news(),
        ["deleted capabilitylist /b/capabilitylist.xml"]
    );
}

#[test]
fn what_cannot_be_read_below_another_mount_is_forgotten_with_its_uri() {
    let mut world = World::with_two_sets(plan());
    world.break_off("/b/broken.xml");
    world.wait(1_000);
    assert_eq!(world.troubles(), 1);
    world.unseen(|world| world.delete("/b/broken.xml"));
    world.plan = with_inner_mount();
    world.reload();
    world.wait(100);
    assert_eq!(world.troubles(), 0);
}

#[test]
fn what_an_outer_mount_cannot_read_yet_in_place_of_an_inner_one_is_known() {
    let mut world = World::with_two_sets(with_inner_mount());
    world.crash();
    world.plan = plan();
    let other = list("changedump").up("/b/capabilitylist.xml");
    world.write("/b/other.xml", other);
    let hidden = world.take_away("/b/other.xml");
    world.launch();
    world.find_mount(0);
    world.deny_directories(&["b"]);
    world.sweep(0);
    world.bring_back(hidden);
    world.deny_directories(&[]);
    world.see("/b/other.xml");
    world.wait(100);
    assert_eq!(world.news(), NOTHING);
}

#[test]
fn what_is_missing_while_another_mount_takes_its_uri_is_deleted() {
    let name = "/b/capabilitylist.xml";
    for is_deleted in [true, false] {
        let mut world = World::with_two_sets(with_inner_mount());
        world.delete(name);
        world.wait(10);
        world.plan = plan();
        if !is_deleted {
            world.unseen(|world| world.write_set("/b", &["resourcelist", "changelist"]));
        }
        world.reload();
        world.wait(1_000);
        let deleted = is_deleted.then(|| format!("deleted capabilitylist {name}"));
        assert!(world.news().into_iter().eq(deleted));
    }
}

#[test]
fn an_alias_below_another_mount_stands_for_its_own() {
    let mut plan = plan();
    let mut data = mount("/srv/data", "https://data.example.org/");
    data.aliases = vec![Uri::parse("https://example.org/data/").unwrap()];
    plan.sources[0].mounts.push(data.clone());
    let mut world = World::new(plan);
    world.write(
        "/a/capabilitylist.xml",
        list("capabilitylist").lists(&["/data/changelist.xml"]),
    );
    let changes = "https://data.example.org/changelist.xml";
    world.write(changes, list("changelist"));
    world.wait(10);
    world.start();
    world.wait(100);
    world.update(changes);
    world.wait(100);
    assert_eq!(world.news(), [format!("updated changelist {changes}")]);

    // Without the alias, the first mount publishes what it has there; that was there before.
    world.write(
        "/data/other.xml",
        list("changedump").up("/a/capabilitylist.xml"),
    );
    world.wait(10);
    world.plan.sources[0].mounts[1].aliases.clear();
    world.reload();
    world.wait(100);
    assert_eq!(world.news(), NOTHING);
    world.update("/data/other.xml");
    world.wait(100);
    assert_eq!(world.news(), ["updated changedump /data/other.xml"]);
}

#[test]
fn what_is_in_flight_of_a_document_that_is_forgotten_is_not_dropped() {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::Status(503));
    world.update("/a/changelist.xml");
    world.wait(100);
    world.plan.sources[0].candidates = excluding(&["a/changelist.xml"]);
    world.facts();
    world.crash_and_start();
    let facts = world.facts();
    let is_drop = |fact: &&Fact| {
        matches!(
            fact,
            Fact::Dropped {
                cause: DropCause::DocumentsRemoved,
                ..
            }
        )
    };
    assert_eq!(facts.iter().find(is_drop), None);
    world.script(HUB, Reply::Accept);
    world.wait(100);
    assert_eq!(world.news(), ["updated changelist /a/changelist.xml"]);
}
