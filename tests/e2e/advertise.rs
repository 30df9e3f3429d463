//! The output of `advertise`, used by `patch`, by the daemon and by operators.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::support::daemon::{
    Setup, TOPICS, answered, assert_contains, assert_lacks, exit_with, fail, output, succeed,
};
use crate::support::documents::{Site, URL, capability_list};
use crate::support::hub::FakeHub;
use crate::support::needs::program;

const HUB: &str = "https://hub.example/?a=1&b=2";

fn setup(site: &Site, more: &str) -> Setup {
    Setup::new(site, &[HUB.to_owned()], more)
}

/// Returns the output of `advertise`, which must succeed.
fn advertised(setup: &Setup) -> String {
    succeed(&mut setup.command("advertise"))
}

/// Returns the number of files that a text has patches of.
fn patches(text: &str) -> usize {
    text.lines().filter(|line| line.starts_with("--- ")).count()
}

/// Gives `text` to a command in `directory`; whether it succeeded, and what it said.
fn pipe(text: &str, directory: &Path, command: &[&str]) -> (bool, String) {
    let mut child = Command::new(command[0])
        .args(&command[1..])
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.success(), said)
}

fn patch(text: &str) {
    let elsewhere = TempDir::new().unwrap();
    let (is_fine, said) = pipe(text, elsewhere.path(), &["patch", "-d", "/", "-p0"]);
    assert!(is_fine, "{said}");
    assert_lacks(&said, "fuzz");
    assert_lacks(&said, "offset");
}

fn topic_of(set: &str) -> String {
    format!("{TOPICS}topics/main/{set}/capabilitylist/")
}

/// The Capability List of a set as it is now.
fn list_of(site: &Site, set: &str) -> String {
    fs::read_to_string(site.path(&format!("{set}/capabilitylist.xml"))).unwrap()
}

/// An entry as it is written in a manner of ours.
fn entry(topic: &str) -> String {
    let hub = HUB.replace('&', "&amp;");
    format!(
        "\n<url>\n  <loc>{topic}</loc>\n  <rs:ln rel=\"hub\" href=\"{hub}\"/>\n  \
         <rs:md capability=\"framework-notification\"/>\n</url>"
    )
}

#[test]
fn patched_lists_advertise_their_channels_and_the_daemon_notices() {
    let Some(_) = program("patch") else { return };
    let site = Site::empty();
    let hub = FakeHub::start();
    let setup = Setup::new(&site, &[hub.url()], "");
    site.add_set("a");
    add_various_lists(&site, "c d/ü\"'\\\t");
    let daemon = setup.start();

    let findings = || output(&mut setup.command("check")).1;
    let lacking = findings();
    assert_eq!(lacking.matches("does not advertise its channel").count(), 3);
    let printed = advertised(&setup);
    assert_eq!(patches(&printed), 3, "{printed}");
    patch(&printed);

    let heard = hub.changes_until(&[
        "updated capabilitylist a/capabilitylist.xml",
        "updated capabilitylist b/capabilitylist.xml",
        "updated capabilitylist c%20d/%C3%BC%22'%5C%09/capabilitylist.xml",
    ]);
    assert_eq!(heard.len(), 3, "{heard:?}");
    assert_eq!(patches(&advertised(&setup)), 0);
    assert_lacks(&findings(), "does not advertise");
    // The channels are those of before: nothing was lost on the way.
    site.write_list("a", "changelist", "2");
    hub.changes_until(&["updated changelist a/changelist.xml"]);
    assert!(daemon.stop().success());
    assert_eq!(patches(&advertised(&setup)), 0);
}

/// Lists as generators write them, with line ends, indentation and comments of their own.
fn add_various_lists(site: &Site, line_at: &str) {
    let tabs = capability_list("b", &["changelist"])
        .replace("<url><loc", "<!-- é -->\t<url>\r\n\t\t<loc")
        .replace("/></url>", "/>\r\n\t</url>\r")
        .replace("</urlset>\n", "</urlset>");
    let line = capability_list("c", &["resourcelist"]).replace('\n', "");
    site.write_capability_list("a", &["changelist"]);
    site.write("b/capabilitylist.xml", &tabs);
    site.write(&format!("{line_at}/capabilitylist.xml"), &line);
}

#[test]
fn written_lists_are_those_that_patch_leaves_and_a_second_run_changes_nothing() {
    let Some(_) = program("patch") else { return };
    let (patched, site) = (Site::empty(), Site::empty());
    for site in [&patched, &site] {
        add_various_lists(site, "c d");
    }
    patch(&advertised(&setup(&patched, "")));
    // Where the file is, not the link to it.
    let list = site.path("b/list.txt");
    fs::rename(site.path("b/capabilitylist.xml"), &list).unwrap();
    symlink("list.txt", site.path("b/capabilitylist.xml")).unwrap();
    let setup = setup(
        &site,
        "[[channel]]\ncapability_list = \"https://source.example/cgi\"\n\
         topic = \"https://source.example/t/\"\n",
    );
    let write = || output(setup.command("advertise").arg("--write"));

    let (code, out, err) = write();
    assert_eq!(code, Some(0), "{err}");
    let written = out.matches(" written: it advertises its channel now\n");
    assert_eq!(written.count(), 3, "{out}");
    assert_contains(&out, "cgi is not in the tree");
    assert!(site.path("b/capabilitylist.xml").is_symlink());
    for set in ["a", "b", "c d"] {
        let read = |site: &Site| list_of(site, set);
        assert_eq!(read(&site), read(&patched));
    }

    let before = traces(site.root.path());
    let (code, out, _) = write();
    assert_eq!(code, Some(0));
    let unchanged = out.matches(" unchanged: it advertises its channel\n");
    assert_eq!(unchanged.count(), 3, "{out}");
    assert_eq!(traces(site.root.path()), before);
}

/// Returns the metadata of every file and directory, which reading must not change.
fn traces(root: &Path) -> Vec<String> {
    let mut traces = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let about = path.symlink_metadata().unwrap();
            let mut digest = None;
            if about.is_dir() {
                directories.push(path.clone());
            } else {
                digest = Some(blake3::hash(&fs::read(&path).unwrap()));
            }
            let modified = (about.mtime(), about.mtime_nsec());
            let changed = (about.ctime(), about.ctime_nsec());
            let (path, mode) = (path.display(), about.mode());
            traces.push(format!(
                "{path} {mode:o} {modified:?} {changed:?} {digest:?}"
            ));
        }
    }
    traces.sort();
    traces
}

#[test]
fn it_leaves_tree_and_state_as_they_are() {
    let site = Site::new();
    let setup = setup(&site, "");
    let (code, out, err) = output(&mut setup.command("advertise"));
    assert_eq!((code, patches(&out)), (Some(0), 1), "{err}");
    let state = setup.state.path().join("state");
    assert!(!state.exists());

    assert!(setup.start().stop().success());
    let permit = |mode: u32| {
        for directory in [&state, &site.path("a"), &site.path("")] {
            fs::set_permissions(directory, fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    permit(0o555);
    let before = (traces(site.root.path()), traces(&state));
    for arguments in [&[][..], &["--entry"], &["--json"]] {
        succeed(setup.command("advertise").args(arguments));
    }
    let after = (traces(site.root.path()), traces(&state));
    permit(0o755);
    assert_eq!(after, before);
}

#[test]
fn in_the_directory_of_a_list_patch_alone_does_and_never_takes_one_for_another() {
    let Some(_) = program("patch") else { return };
    let site = Site::empty();
    for set in ["a", "b"] {
        let entries = capability_list(set, &["resourcelist", "changelist"])
            .replace("<url>", "<url>\n")
            .replace("<rs:md", "\n<rs:md")
            .replace("</url>", "\n</url>");
        site.write(&format!("{set}/capabilitylist.xml"), &entries);
    }
    let printed = advertised(&setup(&site, ""));
    let untouched = list_of(&site, "b");
    let (is_fine, said) = pipe(&printed, &site.path("a"), &["patch", "--batch"]);
    assert!(!is_fine, "{said}");
    let list = list_of(&site, "a");
    assert_eq!(list.matches("framework-notification").count(), 1, "{list}");
    assert_eq!(list_of(&site, "b"), untouched);
    // What is left to do is b's alone.
    let printed = advertised(&setup(&site, ""));
    assert_eq!(patches(&printed), 1);
    let (is_fine, said) = pipe(&printed, &site.path("b"), &["patch"]);
    assert!(is_fine, "{said}");
    assert_eq!(patches(&advertised(&setup(&site, ""))), 0);
}

#[test]
fn git_takes_the_patches_too() {
    let Some(_) = program("git") else { return };
    let site = Site::new();
    site.write("b c/capabilitylist.xml", &capability_list("b", &[]));
    let setup = setup(&site, "");
    let command = ["git", "apply", "--unsafe-paths", "-p0"];
    let (is_fine, said) = pipe(&advertised(&setup), &site.path(""), &command);
    assert!(is_fine, "{said}");
    assert_eq!(patches(&advertised(&setup)), 0);
}

#[test]
fn a_list_behind_links_is_patched_where_it_is() {
    let Some(_) = program("patch") else { return };
    let site = Site::empty();
    let releases = TempDir::new().unwrap();
    let list = releases.path().join("1/capabilitylist.xml");
    fs::create_dir(list.parent().unwrap()).unwrap();
    fs::write(&list, capability_list("a", &["changelist"])).unwrap();
    symlink(releases.path().join("1"), releases.path().join("current")).unwrap();
    symlink(releases.path().join("current"), site.path("a")).unwrap();
    let setup = setup(&site, "");
    patch(&advertised(&setup));
    assert_eq!(patches(&advertised(&setup)), 0);

    // Published twice, it can advertise one of the channels.
    fs::write(&list, capability_list("a", &["changelist"])).unwrap();
    symlink(releases.path().join("1"), site.path("b")).unwrap();
    let (code, out, err) = output(&mut setup.command("advertise"));
    assert_eq!((code, patches(&out)), (Some(1), 1), "{out}");
    assert_contains(&err, "is the same file as another set's");
    assert_contains(&err, &format!("not {TOPICS}topics/main/b/capabilitylist/"));
}

#[test]
fn a_hub_makes_room_only_if_the_state_knows_it_as_ours() {
    let site = Site::empty();
    site.add_set("a");
    let mut setup = setup(&site, "");
    let embedding = setup.config.clone();
    let (plain, _) = embedding.split_once("[embedded_hub]").unwrap();
    setup.config = plain.to_owned();
    let link = format!("<rs:ln rel=\"hub\" href=\"{TOPICS}hub\"/>");
    let entry = entry(&topic_of("a")).replace("<rs:ln ", &format!("{link}<rs:ln "));
    let list = capability_list("a", &["changelist"]);
    let list = list.replace("</urlset>", &format!("{entry}\n</urlset>"));
    site.write("a/capabilitylist.xml", &list);
    assert_eq!(patches(&advertised(&setup)), 0, "another program's");

    setup.config = embedding.replace("[embedded_hub]", "[embedded_hub]\nenabled = true");
    setup.start().stop();
    setup.config = plain.to_owned();
    let printed = advertised(&setup);
    let mut removed = printed.lines().filter(|line| line.starts_with('-'));
    assert!(removed.any(|line| line.contains(&link)), "{printed}");
}

#[test]
fn generators_get_the_entry_alone_also_of_lists_that_are_not_in_the_tree() {
    let Some(_) = program("patch") else { return };
    let site = Site::new();
    let channel =
        format!("[[channel]]\ncapability_list = \"{URL}cgi?list=--\"\ntopic = \"{URL}t/?a&b\"\n");
    let setup = setup(&site, &channel);
    let out = succeed(setup.command("advertise").arg("--entry"));
    let wanted = format!(
        "<!-- {URL}a/capabilitylist.xml -->{}\n<!-- {URL}cgi?list=-%2D -->{}\n",
        entry(&topic_of("a")),
        entry(&format!("{URL}t/?a&amp;b"))
    );
    assert_eq!(out, wanted);
    let printed = advertised(&setup);
    assert_contains(&printed, "cgi?list=-- is not in the tree");
    assert_contains(&printed, &format!("#   <loc>{URL}t/?a&amp;b</loc>\n"));
    patch(&printed);
}

#[test]
fn a_list_that_cannot_be_patched_is_reported_with_the_entry_and_exits_with_1() {
    let Some(_) = program("patch") else { return };
    let site = Site::new();
    let text = capability_list("b", &["changelist"]).replace("UTF-8", "UTF-16");
    let utf16: Vec<u8> = format!("\u{feff}{text}")
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    fs::create_dir(site.path("b")).unwrap();
    fs::write(site.path("b/capabilitylist.xml"), utf16).unwrap();
    let other = capability_list("c", &["changelist"])
        .replace("changelist\"/>", "framework-notification\"/>");
    site.write(
        "c/capabilitylist.xml",
        &other.replace(URL, "https://elsewhere.example/&#10;--- /x&#10;+++ /x&#10;"),
    );
    let setup = setup(&site, "");
    let (code, out, err) = output(&mut setup.command("advertise"));
    assert_eq!((code, patches(&out)), (Some(1), 1), "{out}");
    assert_eq!(patches(&err), 0, "{err}");
    let named = "b/capabilitylist.xml cannot be patched: its encoding is UTF-16LE";
    assert_contains(&err, named);
    assert_contains(
        &err,
        "c/capabilitylist.xml advertises the topic https://elsewhere.example/",
    );
    assert_contains(
        &out,
        &format!("#   <loc>{TOPICS}topics/main/b/capabilitylist/</loc>\n"),
    );
    patch(&out);
    site.write_capability_list("a", &["changelist"]);
    let (out, err) = exit_with(setup.command("advertise").arg("--write"), 1);
    let path = site.path("a/capabilitylist.xml").display().to_string();
    assert_contains(&out, &format!("{path} written"));
    assert_contains(&err, named);
    let left = fs::read_dir(site.path("a")).unwrap();
    assert_eq!(left.count(), 3, "nothing is left beside the list");
}

#[test]
fn json_has_each_set_with_what_it_takes() {
    let Some(_) = program("patch") else { return };
    let site = Site::new();
    let setup = setup(&site, "");
    let lacking = answered(&mut setup.command("advertise"));
    let set = &lacking["sets"][0];
    let path = site.path("a/capabilitylist.xml").canonicalize().unwrap();
    assert_eq!(set["capability_list"], format!("{URL}a/capabilitylist.xml"));
    assert_eq!(set["path"].as_str(), path.to_str());
    assert_eq!(set["topic"], topic_of("a"));
    assert_eq!(set["hubs"][0], HUB);
    let wanted = format!("{}\n", entry(&topic_of("a")).trim_start());
    assert_eq!(set["entry"], wanted);
    assert!(set["reason"].is_null());
    patch(set["diff"].as_str().unwrap());
    let fine = answered(&mut setup.command("advertise"));
    assert!(fine["sets"][0]["diff"].is_null());
}

#[test]
fn the_reason_why_only_this_host_reaches_an_address_is_told() {
    let site = Site::new();
    let mut embedded = Setup::new(&site, &[], "");
    let err = fail(&mut embedded.command("advertise"), 1);
    assert_contains(&err, "set server.public_url");
    embedded.replace("127.0.0.1:0\"\nadmin", "127.0.0.1:8400\"\nadmin");
    let (_, err) = exit_with(&mut embedded.command("advertise"), 0);
    let words = "only this host reaches http://127.0.0.1:8400: set server.public_url, or --public-url, to the address";
    assert_contains(&err, words);
    let of_hub = Setup::new(&site, &["http://localhost:1/hub".to_owned()], "");
    const LOCAL: &str = "http://127.0.0.1:8000/";
    let mut of_mount = setup(&site, "");
    of_mount.replace(URL, LOCAL);
    let entry = format!(
        "<url><loc>{LOCAL}a/framework/</loc><rs:md capability=\"framework-notification\"/></url></urlset>"
    );
    let list = capability_list("a", &["changelist"]);
    let advertising = list.replace(URL, LOCAL).replace("</urlset>", &entry);
    for (setup, list, words) in [
        (
            of_hub,
            &list,
            "http://localhost:1: the hub is on localhost; subscribers elsewhere cannot reach it",
        ),
        (
            of_mount,
            &advertising,
            "http://127.0.0.1:8000: the url of a mount says so; give it the address",
        ),
    ] {
        site.write("a/capabilitylist.xml", list);
        let (_, _, err) = output(&mut setup.command("advertise"));
        assert_contains(&err, &format!("only this host reaches {words}"));
    }
}
