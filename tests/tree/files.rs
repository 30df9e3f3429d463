//! Single files: every way of writing one, and files that are no documents (R1, R3, R4).

use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use announce::observation::{Found, Incomplete};
use resourcesync::uri::Uri;
use rsnotify::tree::WatchMode::{self, Inotify, Notify, Poll};
use rsnotify::tree::{TreeNotice, TreeSettings};
use rstest::rstest;

use crate::harness::{DEADLINE, Watched, document, excluding, path, place, put, settings};
use crate::namespace::was_run_again;
use crate::needs;
use crate::nested::run;

const BEING_WRITTEN: Found = Found::Incomplete(Incomplete::BeingWritten);

/// Runs a test of root's again as somebody whom modes bind. Returns true if it was.
fn was_run_without_privileges() -> bool {
    let powerless = "setpriv --bounding-set=-dac_override,-dac_read_search --inh-caps=-all";
    rustix::process::geteuid().is_root() && was_run_again(powerless)
}

fn in_an_hour() -> SystemTime {
    SystemTime::now() + Duration::from_secs(3600)
}

fn set(path: &std::path::Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[rstest]
fn a_file_created_rewritten_renamed_and_deleted_is_seen_each_time(
    #[values(Inotify, Notify, Poll)] watch: WatchMode,
) {
    let mut it = Watched::start(watch);
    it.write_and_wait("a.xml", 1);
    it.write_and_wait("a.xml", 2);
    it.write("a.tmp", 3);
    fs::rename(it.root.join("a.tmp"), it.root.join("a.xml")).unwrap();
    it.wait_for("a.xml", 3);
    fs::rename(it.root.join("a.xml"), it.root.join("b.xml")).unwrap();
    it.wait_for("b.xml", 3);
    it.wait_for_missing("a.xml");
    fs::hard_link(it.root.join("b.xml"), it.root.join("c.xml")).unwrap();
    it.wait_for("c.xml", 3);
    fs::remove_file(it.root.join("b.xml")).unwrap();
    it.wait_for_missing("b.xml");
    it.wait_for("c.xml", 3);
}

#[rstest]
fn a_rewrite_of_equal_size_and_time_is_seen(#[values(Inotify, Notify, Poll)] watch: WatchMode) {
    let mut it = Watched::start(watch);
    it.write_and_wait("a.xml", 1);
    let file = fs::File::options().write(true).open(it.root.join("a.xml"));
    let mut file = file.unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.write_all(document(2).as_bytes()).unwrap();
    file.set_modified(modified).unwrap();
    drop(file);
    it.wait_for("a.xml", 2);
}

#[rstest]
fn a_file_written_with_a_stall_is_seen_after_its_last_byte(
    #[values(Inotify, Notify, Poll)] watch: WatchMode,
    #[values("", "<urlset", "</loc>", "</url>", "</urlset")] after: &str,
) {
    let mut it = Watched::start(watch);
    let text = document(7);
    let (first, rest) = text.split_at(text.find(after).unwrap() + after.len());
    let mut file = fs::File::create(it.root.join("a.xml")).unwrap();
    file.write_all(first.as_bytes()).unwrap();
    it.wait_for_look("a.xml", |look| matches!(look, Found::Incomplete(_)));
    it.wait_for_quiet();
    assert!(it.versions("a.xml").is_empty());
    file.write_all(rest.as_bytes()).unwrap();
    drop(file);
    it.wait_for("a.xml", 7);
}

#[rstest]
fn under_events_an_open_writer_is_waited_for_however_complete_its_file_looks(
    #[values(Inotify, Notify)] watch: WatchMode,
) {
    let mut it = Watched::start(watch);
    let mut file = fs::File::create(it.root.join("a.xml")).unwrap();
    file.write_all(document(1).as_bytes()).unwrap();
    it.wait_for_look("a.xml", |look| *look == BEING_WRITTEN);
    it.wait_for_quiet();
    assert!(it.versions("a.xml").is_empty());
    file.write_all(b"<!-- the end -->").unwrap();
    drop(file);
    it.wait_for("a.xml", 1);
    assert_eq!(it.versions("a.xml"), [1]);
}

#[rstest]
fn a_file_that_its_writer_keeps_open_is_read_once_nothing_more_is_written(
    #[values(Inotify, Notify)] watch: WatchMode,
) {
    let (place, root) = place();
    let mut settings = settings(&root, watch);
    settings.open_writer = Duration::from_millis(1_500);
    let mut it = Watched::start_with(place, settings);
    it.wait("the first sweep", |it| it.sweeps > 0);
    let mut file = fs::File::create(it.root.join("a.xml")).unwrap();
    for version in 1..=2 {
        file.set_len(0).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        let begun = Instant::now();
        file.write_all(document(version).as_bytes()).unwrap();
        // A clock that is ahead does not matter.
        file.set_modified(in_an_hour()).unwrap();
        it.wait_for("a.xml", version);
        assert!(begun.elapsed() >= Duration::from_millis(1_500));
    }
    // One that goes on is waited for.
    let mut busy = fs::File::create(it.root.join("b.xml")).unwrap();
    busy.write_all(document(3).as_bytes()).unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        busy.write_all(b" ").unwrap();
        std::thread::sleep(Duration::from_millis(50)); // a slow writer: no event, so no deadline
    }
    it.wait_for_look("b.xml", |look| *look == BEING_WRITTEN);
    assert!(it.versions("b.xml").is_empty());
    it.wait_for("b.xml", 3);
    drop((file, busy));
    it.wait_for_quiet();
    assert_eq!(it.versions("a.xml"), [1, 2]);
}

#[rstest]
fn a_mount_may_be_published_below_a_path_that_globs_ask_for(
    #[values(Inotify, Notify, Poll)] watch: WatchMode,
) {
    let (place, root) = place();
    put(root.join("resourcesync"), 1);
    let mut settings = settings(&root, watch);
    settings.mounts[0].prefix = Uri::parse("https://example.org/.well-known/").unwrap();
    settings.candidates = excluding(&[".well-known/private/**"]);
    let mut it = Watched::start_with(place, settings);
    it.wait_for("resourcesync", 1);
    it.write_and_wait("resourcesync", 2);
    it.write("private/a.xml", 3);
    it.write_and_wait("b.xml", 4);
    it.wait_for_quiet();
    assert!(it.looks_at("private/a.xml").is_empty());
}

#[rstest]
fn a_file_that_is_cut_is_reported_once_and_seen_when_whole(
    #[values(Inotify, Notify, Poll)] watch: WatchMode,
) {
    let mut it = Watched::start(watch);
    let text = document(1);
    fs::write(it.root.join("a.xml"), &text[..text.len() - 12]).unwrap();
    let malformed = |look: &Found| matches!(look, Found::Incomplete(Incomplete::Malformed(_)));
    it.wait_for_look("a.xml", malformed);
    it.wait_for_quiet();
    let looks = it.looks_at("a.xml").iter();
    assert_eq!(looks.filter(|look| malformed(look)).count(), 1);
    it.write_and_wait("a.xml", 1);
}

#[rstest]
fn names_of_any_bytes_are_files_like_others(#[values(Inotify, Notify, Poll)] watch: WatchMode) {
    let mut it = Watched::start(watch);
    let long = [b"x".repeat(251), b".xml".to_vec()].concat();
    let names: [&[u8]; 4] = [
        b"\xff\xfe.xml",
        b"a b\n%20\"'.xml",
        "é.xml".as_bytes(),
        &long,
    ];
    for (version, name) in names.iter().enumerate() {
        let path = it.root.join(std::ffi::OsStr::from_bytes(name));
        put(path, version);
    }
    for (version, name) in names.iter().enumerate() {
        it.wait_for(name, version);
    }
}

#[rstest]
fn a_file_that_is_not_regular_is_reported_and_hangs_nothing(
    #[values(Inotify, Notify, Poll)] watch: WatchMode,
) {
    let mut it = Watched::start(watch);
    let fifo = it.root.join("fifo.xml");
    run(Command::new("mkfifo").arg(&fifo));
    let _socket = std::os::unix::net::UnixListener::bind(it.root.join("socket.xml")).unwrap();
    it.write_and_wait("directory.xml/a.xml", 1);
    for name in ["fifo.xml", "socket.xml"] {
        let is_told = |look: &Found| *look == Found::Incomplete(Incomplete::NotAFile);
        it.wait_for_look(name, is_told);
    }
    assert!(it.looks_at("directory.xml").is_empty());
    // Nor does it hang who wants its bytes.
    let refusal = rsnotify::tree::content(&fifo).unwrap_err();
    assert_eq!(refusal.to_string(), "it is not a regular file");
    let bytes = rsnotify::tree::content(&it.root.join("directory.xml/a.xml")).unwrap();
    assert_eq!(bytes, document(1).as_bytes());
}

#[rstest]
fn a_file_that_becomes_a_directory_and_back_is_followed(
    #[values(Inotify, Notify, Poll)] watch: WatchMode,
) {
    let mut it = Watched::start(watch);
    it.write_and_wait("a.xml", 1);
    fs::remove_file(it.root.join("a.xml")).unwrap();
    it.write_and_wait("a.xml/b.xml", 2);
    it.wait_for_missing("a.xml");
    fs::remove_dir_all(it.root.join("a.xml")).unwrap();
    it.write_and_wait("a.xml", 3);
    it.wait_for_missing("a.xml/b.xml");
}

#[rstest]
fn hidden_temporary_and_excluded_names_are_never_looked_at(
    #[values(Inotify, Notify, Poll)] watch: WatchMode,
) {
    let (place, root) = place();
    fs::create_dir_all(root.join("private/below")).unwrap();
    fs::create_dir_all(root.join(".git")).unwrap();
    fs::create_dir_all(root.join(".well-known")).unwrap();
    let mut settings = settings(&root, watch);
    settings.candidates = excluding(&["private/**"]);
    let mut it = Watched::start_with(place, settings);
    it.wait("the first sweep", |it| it.sweeps > 0);
    for name in "private/below/a.xml .git/a.xml .a.xml.Xy12Zq a.xml~ a.txt".split(' ') {
        it.write(name, 1);
    }
    it.write_and_wait(".well-known/resourcesync", 2);
    it.wait_for_quiet();
    assert_eq!(it.paths(), [".well-known/resourcesync"]);
}

#[test]
fn times_that_go_back_and_forth_delay_a_file_only_by_the_settle_time() {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    let mut it = Watched::start(Poll);
    let times = [
        in_an_hour(),
        SystemTime::UNIX_EPOCH + 20 * YEAR,
        SystemTime::now() + 20 * YEAR,
        SystemTime::UNIX_EPOCH,
    ];
    for (version, time) in (1..).zip(times) {
        it.write("a.xml", version);
        let file = fs::File::options().write(true).open(it.root.join("a.xml"));
        file.unwrap().set_modified(time).unwrap();
        it.wait_for("a.xml", version);
    }
}

#[rstest]
fn a_look_that_is_asked_for_is_answered(#[values(Inotify, Notify, Poll)] watch: WatchMode) {
    let mut it = Watched::start(watch);
    it.write_and_wait("a.xml", 1);
    let before = it.looks_at("a.xml").len();
    it.tree()
        .request_looks(vec![path("a.xml"), path("no/such.xml")]);
    it.wait("both answers", |it| {
        it.looks_at("a.xml").len() > before && it.last("no/such.xml") == Some(&Found::Missing)
    });
    assert_eq!(it.version("a.xml"), Some(1));
}

#[test]
fn a_rename_into_place_is_reported_within_a_few_milliseconds() {
    let mut it = Watched::start(Inotify);
    let mut took = Vec::new();
    for version in 1..=100 {
        it.write("a.tmp", version);
        let begun = Instant::now();
        fs::rename(it.root.join("a.tmp"), it.root.join("a.xml")).unwrap();
        it.wait_for("a.xml", version);
        took.push(begun.elapsed());
    }
    took.sort();
    println!(
        "rename to report: median {:?}, worst {:?}",
        took[50], took[99]
    );
    assert!(took[50] < Duration::from_millis(200));
}

#[rstest]
fn what_is_unreadable_is_not_missing(#[values(Inotify, Notify, Poll)] watch: WatchMode) {
    // Root reads everything, unless that is taken from it.
    if was_run_without_privileges() {
        return;
    }
    let mut it = Watched::start(watch);
    it.write("d/a.xml", 1);
    it.write("b.xml", 1);
    it.wait_for("d/a.xml", 1);
    it.wait_for("b.xml", 1);
    let [directory, file] = ["d", "b.xml"].map(|name| it.root.join(name));
    set(&directory, 0o000);
    set(&file, 0o000);
    let denied = |look: &Found| matches!(look, Found::Incomplete(Incomplete::Denied(_)));
    for name in ["d/a.xml", "b.xml"] {
        it.wait_for_look(name, denied);
    }
    it.wait("a word about the directory", |it| it.unreadable.len() == 1);
    let told = it.unreadable[0].clone();
    assert_eq!(told.directory, directory.display().to_string());
    assert!(told.reason.contains("Permission denied"), "{told:?}");
    assert!(told.remedy.is_some(), "{told:?}");
    it.write_and_wait("c.xml", 1);
    it.wait_for_quiet();
    assert_eq!(it.unreadable, [told]);
    set(&directory, 0o755);
    set(&file, 0o644);
    it.wait_for("d/a.xml", 1);
    it.wait_for("b.xml", 1);
    it.wait("the end of it", |it| it.unreadable.is_empty());
    assert!(it.notices.contains(&TreeNotice::Readable { directory }));
}

#[test]
fn what_a_sweep_could_not_read_is_swept_once_it_can_be() {
    use std::os::unix::ffi::OsStrExt;
    if was_run_without_privileges() {
        return;
    }
    let name = std::ffi::OsStr::from_bytes(b"d\xff");
    let mut it = Watched::start_on(Inotify, |root| {
        put(root.join(name).join("a.xml"), 1);
        set(&root.join(name), 0o000);
    });
    assert_eq!(it.unreadable[0].below, name.as_bytes());
    set(&it.root.join(name), 0o755);
    it.wait_for(b"d\xff/a.xml", 1);
    it.wait("another sweep", |it| it.sweeps == 2);
}

/// R13: what is written there from then on is new.
#[test]
fn what_a_sweep_could_not_read_is_swept_once_another_directory_is_in_its_place() {
    if was_run_without_privileges() {
        return;
    }
    let mut it = Watched::start_on(Inotify, |root| {
        fs::create_dir(root.join("d")).unwrap();
        set(&root.join("d"), 0o000);
    });
    let new = it.place.path().join("new");
    put(new.join("a.xml"), 1);
    fs::remove_dir(it.root.join("d")).unwrap();
    fs::rename(&new, it.root.join("d")).unwrap();
    it.wait_for("d/a.xml", 1);
    it.wait("another sweep", |it| it.sweeps == 2);
}

#[test]
fn a_directory_is_said_to_be_readable_again_although_its_root_was_away_meanwhile() {
    if was_run_without_privileges() {
        return;
    }
    let mut it = Watched::start_on(Inotify, |root| {
        for name in ["d", "e"] {
            put(root.join(name).join("a.xml"), 1);
            set(&root.join(name), 0o000);
        }
    });
    let away = it.place.path().join("away");
    fs::rename(&it.root, &away).unwrap();
    it.wait("the loss", |it| it.lost.len() == 1);
    set(&away.join("d"), 0o755);
    fs::rename(&away, &it.root).unwrap();
    it.wait_for("d/a.xml", 1);
    let directory = it.root.join("d");
    let readable = TreeNotice::Readable { directory };
    it.wait("its end", |it| {
        it.sweeps > 1 && it.notices.contains(&readable)
    });
    let still = it.root.join("e");
    let is_of_still = |notice: &TreeNotice| matches!(notice, TreeNotice::Unreadable { directory, .. } if *directory == still);
    assert_eq!(it.noticed(is_of_still), 1);
    set(&still, 0o755);
}

/// R13: all of it belongs to that sweep.
#[test]
fn a_sweep_waits_for_a_directory_that_becomes_readable_during_it() {
    if was_run_without_privileges() {
        return;
    }
    let (place, root) = place();
    fs::create_dir_all(root.join("d")).unwrap();
    // A time in the future counts from the first look.
    let mut file = fs::File::create(root.join("d/a.xml")).unwrap();
    file.write_all(document(1).as_bytes()).unwrap();
    file.set_modified(in_an_hour()).unwrap();
    drop(file);
    set(&root.join("d"), 0o000);
    // Until that file may be read, the sweep lasts.
    put(root.join("b.xml"), 1);
    let settings = TreeSettings {
        settle: Duration::from_secs(5),
        ..settings(&root, Inotify)
    };
    let mut it = Watched::start_with(place, settings);
    it.wait("a word about the directory", |it| it.unreadable.len() == 1);
    assert_eq!(it.sweeps, 0);
    set(&it.root.join("d"), 0o755);
    it.wait("the sweep", |it| it.sweeps > 0);
    assert_eq!(it.version("d/a.xml"), Some(1), "it is read before its end");
}

#[rstest]
fn a_file_linked_in_place_or_exchanged_is_seen(#[values(Inotify, Notify, Poll)] watch: WatchMode) {
    use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
    let mut it = Watched::start(watch);
    let Ok(fd) = rustix::fs::open(&it.root, OFlags::TMPFILE | OFlags::WRONLY, Mode::RUSR) else {
        needs::skip("this file system has no unnamed files", "");
        return;
    };
    let mut file = fs::File::from(fd);
    file.write_all(document(1).as_bytes()).unwrap();
    let unnamed = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let place = it.root.join("a.xml");
    rustix::fs::linkat(CWD, unnamed, CWD, &place, AtFlags::SYMLINK_FOLLOW).unwrap();
    it.wait_for("a.xml", 1);
    it.write_and_wait("b.xml", 2);
    let other = it.root.join("b.xml");
    rustix::fs::renameat_with(CWD, &place, CWD, &other, RenameFlags::EXCHANGE).unwrap();
    it.wait_for("a.xml", 2);
    it.wait_for("b.xml", 1);
}

/// "Soon" is a promise about the writer: where the machine halts this one for longer, nothing is learned, and the file is
/// written again under another name.
#[test]
fn an_empty_file_that_is_filled_soon_is_never_called_broken() {
    const SOON: Duration = Duration::from_millis(40);
    let mut it = Watched::start(Inotify);
    let end = Instant::now() + DEADLINE;
    let (mut version, mut filled_soon) = (0, 0);
    while filled_soon < 20 {
        assert!(Instant::now() < end, "{filled_soon} of {version} in time");
        version += 1;
        let name = format!("{version}.xml");
        let begun = Instant::now();
        let mut file = fs::File::create(it.root.join(&name)).unwrap();
        file.write_all(document(version).as_bytes()).unwrap();
        let is_soon = begun.elapsed() < SOON;
        drop(file);
        it.wait_for(&name, version);
        if is_soon {
            filled_soon += 1;
            let looks = it.looks_at(&name);
            // A look between two moments of the writer says that it writes.
            let is_good =
                |look: &Found| matches!(look, Found::Document { .. }) || *look == BEING_WRITTEN;
            assert!(looks.iter().all(is_good), "{looks:?}");
        }
    }
}
