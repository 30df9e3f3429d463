//! `resend`: what is there now, once for a consumer that discards by `messageId`, whatever ends it or changes meanwhile.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::brokers::Story;
use crate::brokers::feeds::{ATOM, publish, told};
use crate::support::changes::change_list;
use crate::support::daemon::{assert_contains, assert_lacks, exit_with, fail, output, succeed};
use crate::support::documents::capability_list;
use crate::support::stomp::{FakeBroker, Manner, Place};

/// A Resource List with these resources.
fn resource_list(names: impl Iterator<Item = String>) -> String {
    let entries: Vec<String> = names.map(|name| format!("updated {name}.txt")).collect();
    change_list("a", &entries).replace("\"changelist\"", "\"resourcelist\"")
}

fn numbered(prefix: &str, count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |at| format!("{prefix}{at:03}"))
}

/// The messages that tell of resources.
fn added(names: impl Iterator<Item = String>) -> Vec<String> {
    names.map(|name| format!("ADD a/{name}.txt")).collect()
}

/// A broker, and a set with so many resources.
fn with_resources(count: usize) -> (FakeBroker, Story) {
    let (fake, story) = Story::with_broker(ATOM);
    let list = resource_list(numbered("", count));
    story.site.write("a/resourcelist.xml", &list);
    (fake, story)
}

fn resend(story: &Story, rate: &str) -> Command {
    let mut command = story.setup.command("resend");
    command.args(["repository", "--rate", rate]);
    command
}

#[test]
fn a_resend_names_what_the_resource_lists_name_and_continues_after_a_kill() {
    let (fake, mut story) = with_resources(230);
    let daemon = story.start();
    story.change();
    fake.messages(1);
    assert!(daemon.stop().success());
    let setup = &story.setup;
    let resend = |flags: &[&str]| {
        let mut command = setup.command("resend");
        command.args(["repository", "--destination", "/queue/initial"]);
        command.args(flags);
        command
    };
    let mut slow = resend(&["--rate", "25"]).spawn().unwrap();
    let some = fake.messages(1 + 50).len();
    slow.kill().unwrap();
    slow.wait().unwrap();
    let (_, said) = exit_with(&mut resend(&[]), 0);
    assert_contains(&said, "which were sent before");
    assert_contains(&said, "sent 230 resources of 1 set to /queue/initial");
    let messages = fake.messages(1 + 230);
    assert!(some < messages.len());
    let initial = &messages[1..];
    assert_eq!(told(initial), added(numbered("", 230)));
    for message in initial {
        assert_eq!(message.header("initial"), Some("true"));
        assert_eq!(message.header("destination"), Some("/queue/initial"));
        assert_eq!(message.header("changeTypes"), Some("ADD"));
    }
    // What the broker was told of stays as it is.
    let daemon = story.setup.start();
    story.change();
    let more = fake.messages(messages.len() + 1);
    assert_eq!(told(&more[messages.len()..]), ["UPDATE a/1.txt"]);
    assert!(daemon.stop().success());
    // Another run is no repeat.
    let mut command = story.setup.command("resend");
    command.args(["repository", "--under", "https://source.example/a/007.txt"]);
    succeed(&mut command);
    let all = fake.messages(more.len() + 1);
    assert_eq!(told(&all[more.len()..]), ["ADD a/007.txt"]);
    let before = all[..more.len()].iter();
    let last = all[more.len()].header("messageId");
    assert!(before.clone().all(|one| one.header("messageId") != last));
}

#[test]
fn a_resend_without_resource_lists_names_what_was_not_deleted_last() {
    let (fake, mut story) = Story::with_broker(ATOM);
    story.site.remove("a/resourcelist.xml");
    story.site.write_capability_list("a", &["changelist"]);
    publish(
        &mut story,
        &[
            "created 1.txt 10:00:00",
            "created 2.txt 10:00:01",
            "deleted 1.txt 10:00:02",
            "deleted 3.txt 10:00:03",
            "created 3.txt 10:00:04",
            "updated 2.txt 10:00:05",
        ],
    );
    let daemon = story.start();
    assert!(daemon.stop().success());
    let resend = |name: &str| output(story.setup.command("resend").arg(name));
    let (code, _, said) = resend("repository");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(told(&fake.messages(2)), ["ADD a/3.txt", "ADD a/2.txt"]);
    let (code, _, said) = resend("other");
    assert_eq!(code, Some(1));
    assert_contains(&said, "no broker is named \"other\"; there is repository");
    fake.behave(Manner::RefuseMessage(
        "User a is not authorized to write to: topic://x",
    ));
    let (code, _, said) = resend("repository");
    assert_eq!(code, Some(69), "{said}");
    // Nothing was sent, so another destination is no other run in between.
    fake.behave(Manner::Take);
    let mut elsewhere = story.setup.command("resend");
    elsewhere.args(["repository", "--destination", "/queue/elsewhere"]);
    let (_, said) = exit_with(&mut elsewhere, 0);
    assert_lacks(&said, "continuing after");
}

#[test]
fn a_resend_sends_nothing_while_a_list_cannot_be_read() {
    let (fake, story) = Story::with_broker(ATOM);
    let index = change_list(
        "a",
        &["created changelist-1.xml", "created changelist-2.xml"],
    );
    let index = index
        .replace("urlset", "sitemapindex")
        .replace("url>", "sitemap>");
    let whole = change_list("a", &["created 1.txt", "created 2.txt"]);
    let broken = &whole[..whole.len() / 2];
    let capabilities = ["changelist", "resourcedump"];
    story.site.write_capability_list("a", &capabilities);
    story.site.remove("a/resourcelist.xml");
    story.site.write("a/changelist.xml", &index);
    story.site.write("a/changelist-1.xml", &whole);
    for second in [None, Some(broken)] {
        if let Some(second) = second {
            story.site.write("a/changelist-2.xml", second);
        }
        let said = fail(&mut resend(&story, "1000"), 1);
        assert_contains(&said, "https://source.example/a/changelist-2.xml");
        assert_eq!(fake.messages(0).len(), 0);
    }
    let whole = change_list("a", &["deleted 1.txt"]);
    story.site.write("a/changelist-2.xml", &whole);
    // The Source Description lists a set of which nothing else is known.
    story.site.write_description(&["a", "b"]);
    let other = capability_list("b", &[]);
    let broken = &other[..other.len() / 2];
    story.site.write("b/capabilitylist.xml", broken);
    let said = fail(&mut resend(&story, "1000"), 1);
    assert_contains(&said, "https://source.example/b/capabilitylist.xml");
    story.site.remove("b/capabilitylist.xml");
    // A dump is not needed.
    succeed(&mut resend(&story, "1000"));
    assert_eq!(told(&fake.messages(1)), ["ADD a/2.txt"]);
}

#[test]
fn a_resend_that_was_killed_before_a_receipt_repeats_the_same_messages() {
    let (fake, story) = with_resources(120);
    for manner in [
        Manner::SendNoReceipts,
        Manner::DieAt(Place::Commit),
        Manner::DieAt(Place::Confirmed),
    ] {
        let before = fake.messages(0).len();
        fake.behave(manner);
        let mut process = resend(&story, "1000").spawn().unwrap();
        fake.messages(before + 50);
        process.kill().unwrap();
        process.wait().unwrap();
    }
    fake.behave(Manner::Take);
    succeed(&mut resend(&story, "1000"));
    let messages = fake.messages(0);
    assert!(messages.len() > 120, "something was repeated");
    assert_eq!(told(&messages), added(numbered("", 120)));
    let ids = messages.iter().map(|message| message.header("messageId"));
    assert_eq!(ids.collect::<HashSet<_>>().len(), 120);
}

#[test]
fn a_list_that_is_written_anew_midway_is_read_again_from_its_start() {
    let (fake, story) = Story::with_broker(ATOM);
    let path = story.site.path("a/resourcelist.xml");
    // In place: the file that is being read changes.
    std::fs::write(&path, resource_list(numbered("old", 2_000))).unwrap();
    let mut process = resend(&story, "100").spawn().unwrap();
    let some = fake.messages(50);
    std::fs::write(&path, resource_list(numbered("new", 70))).unwrap();
    // A run that meets the file while it is empty ends, and the next one goes on.
    if !process.wait().unwrap().success() {
        succeed(&mut resend(&story, "1000"));
    }
    let messages = fake.messages(some.len() + 70);
    let told = told(&messages);
    let old = told.len() - 70;
    assert_eq!(told[..old], added(numbered("old", 2_000))[..old]);
    assert_eq!(told[old..], added(numbered("new", 70)));
    assert!(old < 2_000, "what is not there any more is not told");
    let ids = messages.iter().map(|message| message.header("messageId"));
    assert_eq!(ids.collect::<HashSet<_>>().len(), messages.len());
}

#[test]
fn a_set_is_sent_whole_while_one_of_its_lists_is_written_anew_all_the_time() {
    let (fake, story) = Story::with_broker(ATOM);
    // The list that is written anew is read, and sent, before one that takes long to be read.
    story.site.remove("a/resourcelist.xml");
    let first = resource_list(numbered("", 60));
    story.site.write("a/a.xml", &first);
    let list = change_list("a", &["created last.txt".to_owned()]);
    story.site.write("a/b.xml", &list);
    let large: Vec<String> = (0..40_000).map(|at| format!("deleted x{at}.txt")).collect();
    let large = change_list("a", &large);
    story.site.write("a/changelist.xml", &large);
    let capabilities = capability_list("a", &["a", "b", "changelist"]);
    let capabilities = capabilities.replace("\"a\"", "\"resourcelist\"");
    let capabilities = capabilities.replace("\"b\"", "\"changelist\"");
    story.site.write("a/capabilitylist.xml", &capabilities);
    let mut process = resend(&story, "20").spawn().unwrap();
    fake.messages(20);
    while process.try_wait().unwrap().is_none() {
        story.site.write("a/b.xml", &list);
    }
    assert!(process.wait().unwrap().success());
    let mut want = added(numbered("", 60));
    want.push("ADD a/last.txt".to_owned());
    assert_eq!(told(&fake.messages(61)), want);
}

#[test]
fn a_resend_waits_for_a_broker_whose_node_is_down() {
    let (fake, story) = with_resources(3);
    fake.behave(Manner::RefuseMessage(
        "NOT_FOUND - home node 'rabbit@a' of durable queue 'b' in vhost '/' is down or inaccessible",
    ));
    let mut command = resend(&story, "1000");
    let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    let waits = |line: std::io::Result<String>| line.unwrap().contains("trying again in");
    assert!(lines.any(waits));
    fake.behave(Manner::Take);
    assert!(process.wait().unwrap().success());
    assert_eq!(told(&fake.messages(3)), added(numbered("", 3)));
}

#[test]
fn a_list_that_vanishes_midway_ends_the_run_and_the_next_one_goes_on() {
    let (fake, story) = with_resources(120);
    let second = resource_list(numbered("x", 10));
    story.site.write("a/resourcelist2.xml", &second);
    let capabilities = capability_list("a", &["changelist", "resourcelist", "resourcelist2"]);
    let capabilities = capabilities.replace("\"resourcelist2\"", "\"resourcelist\"");
    story.site.write("a/capabilitylist.xml", &capabilities);
    let mut command = resend(&story, "100");
    let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
    fake.messages(50);
    story.site.remove("a/resourcelist2.xml");
    let status = process.wait().unwrap();
    let said = std::io::read_to_string(process.stderr.take().unwrap()).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    assert_contains(
        &said,
        "cannot read https://source.example/a/resourcelist2.xml",
    );
    story.site.write("a/resourcelist2.xml", &second);
    let (_, said) = exit_with(&mut resend(&story, "1000"), 0);
    assert_contains(&said, "continuing after 120 resources");
    let want = [added(numbered("", 120)), added(numbered("x", 10))].concat();
    let messages = fake.messages(130);
    assert_eq!(messages.len(), 130);
    assert_eq!(told(&messages), want);
}
