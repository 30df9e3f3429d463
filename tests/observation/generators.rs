//! Trees of real generators, run after run.
//!
//! Each generator is a Python script in `generators/`, which publishes the run whose name it is passed. For
//! each run there is a list of the expected changes, derived by hand from the trees before and after it: a line
//! for each topic and change, below a comment with the reason. `(R18)` marks changes that are announced only with
//! `announce_all_components`. Lines with `/changes: ` are changes of resources, in the order in which the set's change
//! channel tells them; a `*` stands for all that the Change List has besides what it had before.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use resourcesync::change::ChangeKey;
use resourcesync::change_list::{read_changes, read_keys};
use resourcesync::change_payload::ChangePayload;
use rstest::rstest;
use tempfile::TempDir;

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Poll};
use crate::support::DEADLINE;
use crate::support::changes::Destination;
use crate::support::daemon::TOPICS;
use crate::support::documents::{Site, URL};
use crate::support::hub::Request;
use crate::support::python::python;
use crate::support::state::Saved;
use crate::support::until;

/// The daemon's state while a run is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Daemon {
    /// It sees every step, and tells of each component.
    Running,
    /// It finds the difference when it starts.
    Stopped,
}

use Daemon::{Running, Stopped};

/// The place of a source: a directory below the site, and its prefix below the site's.
type Mounts = &'static [(&'static str, &'static str)];

/// Everything lies where it is published.
const ONE: Mounts = &[("", "")];

#[rstest]
#[case::resync_build("resync_build", ONE)]
#[case::resync_library("resync_library", ONE)]
#[case::simulator("simulator", ONE)]
#[case::pysync("pysync", ONE)]
#[case::dspace("dspace", ONE)]
#[case::rspub("rspub", &[("host", ""), ("metadata", "metadata/")])]
#[case::crashing("crashing", ONE)]
fn is_told_as_a_careful_reader_would(
    #[case] generator: &str,
    #[case] mounts: Mounts,
    #[values(Inotify, Poll)] watch: Watch,
    #[values(Running, Stopped)] daemon: Daemon,
) {
    let Some(python) = python() else { return };
    let site = Site::empty();
    let mut generator = Generator::start(python, generator, site.root.path());
    let list = site.path("s/changelist.xml");
    let mut listed = BTreeSet::new();
    let mut story = begin(watch, daemon, site, mounts);
    let mut channels = BTreeMap::new();
    for run in generator.runs.clone() {
        let mut expected = Expected::read(&generator.name, &run, daemon);
        match daemon {
            Running => generator.publish(&run),
            Stopped => {
                story.stop();
                generator.publish(&run);
                story.resume();
            }
        }
        expected.complete(besides(&list, &mut listed));
        let heard = listen(&mut story, daemon, &expected, &mut channels);
        expected.compare(heard);
        await_learned(&story);
    }
    let mut ended = channels.values();
    assert!(ended.all(|heard| (heard.gaps, heard.repeats) == (0, 0)));
    story.ends();
}

/// A daemon over a tree without documents.
fn begin(watch: Watch, daemon: Daemon, site: Site, mounts: Mounts) -> Story {
    let mut keys = "change_notifications = true\n".to_owned();
    keys += match daemon {
        // What is deleted to be written anew is not believed to be gone, nor is each step told of.
        Running => "deletion_grace = \"3s\"\nannounce_all_components = true",
        Stopped => "announce_all_deletions = false",
    };
    let root = site.root.path().to_owned();
    let mut story = Story::over(watch, site, &keys);
    let place = |path: &Path, prefix: &str| {
        let path = path.display();
        format!("{{ path = \"{path}\", url = \"{URL}{prefix}\" }}")
    };
    let whole = place(&root, "");
    let mut places = Vec::new();
    for (below, prefix) in mounts {
        fs::create_dir_all(root.join(below)).unwrap();
        places.push(place(&root.join(below), prefix));
    }
    let mut replace = |from: &str, to: &str| {
        assert!(story.setup.config.contains(from), "{from}");
        story.setup.config = story.setup.config.replacen(from, to, 1);
    };
    replace(&whole, &places.join(", "));
    // What no list names yet stays untold, however slow the machine is.
    let quiet = if daemon == Running { "1s" } else { "20ms" };
    replace(
        "quiet = \"20ms\"",
        &format!("quiet = \"{quiet}\"\nmax_wait = \"60s\"\nhold = \"10m\""),
    );
    story.resume();
    story
}

/// Change channels by the names of their sets, as a Destination has heard them.
type Channels = BTreeMap<String, Destination>;

/// Announcements as lines.
#[derive(Debug, Default, PartialEq, Eq)]
struct Announced {
    /// Of documents, sorted.
    documents: Vec<String>,
    /// Of resources, set after set, those of each in the order in which they are told.
    resources: Vec<String>,
}

/// Returns what the hub receives until every change was seen, and every expected one received.
fn listen(
    story: &mut Story,
    daemon: Daemon,
    expected: &Expected,
    channels: &mut Channels,
) -> Announced {
    let before: BTreeMap<String, usize> = channels
        .iter()
        .map(|(set, heard)| (set.clone(), heard.told.len()))
        .collect();
    let deadline = Instant::now() + DEADLINE;
    let mut requests = Vec::new();
    let mut documents = Vec::new();
    story.mark(&mut requests);
    loop {
        story.mark(&mut requests);
        for request in requests.drain(..) {
            let set = set(&request.topic());
            match ChangePayload::parse(&request.body) {
                Some(_) => {
                    channels.entry(set).or_default().hear(&request.body);
                }
                None => documents.push(request),
            }
        }
        let told = channels.iter().flat_map(|(set, heard)| {
            let before = before.get(set).copied().unwrap_or_default();
            let told = heard.told[before..].iter();
            told.map(move |change| format!("{set}/changes: {change}"))
        });
        let heard = Announced {
            documents: lines(&documents, daemon),
            resources: told.collect(),
        };
        let wanted = &expected.lines;
        let mut lines = wanted.documents.iter();
        let is_all = lines.all(|line| heard.documents.contains(line))
            && heard.resources.len() >= wanted.resources.len();
        if is_all || Instant::now() > deadline {
            return heard;
        }
    }
}

/// Waits until each set with a channel of changes knows what was listed when that opened (C10).
fn await_learned(story: &Story) {
    let unlearned = "SELECT count(*) FROM channel c WHERE c.kind = 1 AND c.retired IS NULL AND NOT EXISTS \
                     (SELECT 1 FROM change_set s WHERE s.id = c.set_id AND s.learned > 0)";
    until(|| Saved::of(&story.setup).count(unlearned) == 0);
}

/// Returns the name of the set that has a topic.
fn set(topic: &str) -> String {
    let below = topic.strip_prefix(TOPICS).unwrap();
    let kinds = ["topics/", "changes/"];
    let mut below = kinds.iter().filter_map(|kind| below.strip_prefix(kind));
    let below = below.next().unwrap();
    let below = below.strip_prefix("main/source.example/").unwrap();
    let below = below.strip_prefix("metadata/").unwrap_or(below);
    below.strip_suffix("/capabilitylist/").unwrap().to_owned()
}

/// A line for each change and topic. A run that took so long that two windows shared it is told in steps: its
/// documents may be updated after they were created or updated.
fn lines(requests: &[Request], daemon: Daemon) -> Vec<String> {
    let mut heard: Vec<String> = Vec::new();
    for request in requests {
        let set = set(&request.topic());
        for change in request.changes() {
            let line = format!("{set}: {change}");
            if line == "marker: updated changelist marker/changelist.xml" {
                continue;
            }
            let created = line.replacen(": updated ", ": created ", 1);
            let is_step = line != created && (heard.contains(&line) || heard.contains(&created));
            if !(daemon == Running && is_step) {
                heard.push(line);
            }
        }
    }
    heard.sort();
    heard
}

/// Returns the changes that a Change List has now besides those `listed` before.
fn besides(list: &Path, listed: &mut BTreeSet<ChangeKey>) -> Vec<String> {
    let Ok(mut file) = File::open(list) else {
        return Vec::new();
    };
    let entries = read_keys(&mut file).unwrap().entries.into_iter();
    let fresh = entries.filter(|entry| listed.insert(entry.place.key));
    let fresh: Vec<u32> = fresh.map(|entry| entry.place.position).collect();
    let changes = read_changes(&mut File::open(list).unwrap(), &fresh).unwrap();
    let told = changes.iter().map(|(_, change)| {
        let path = change.loc.strip_prefix(URL).unwrap();
        format!("{} {path}", change.kind)
    });
    told.collect()
}

/// The changes that a careful reader wrote down for a run.
struct Expected {
    file: PathBuf,
    why: String,
    lines: Announced,
}

impl Expected {
    fn read(generator: &str, run: &str, daemon: Daemon) -> Expected {
        let file = folder().join(generator).join(format!("{run}.txt"));
        let text = fs::read_to_string(&file).unwrap();
        let (why, lines): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.starts_with('#'));
        assert!(text.starts_with("# "), "{} says why", file.display());
        let (resources, documents): (Vec<&str>, Vec<&str>) =
            lines.iter().partition(|line| line.contains("/changes: "));
        assert!(documents.is_sorted(), "{} is sorted", file.display());
        let mut documents: Vec<String> = documents
            .iter()
            .filter(|line| daemon == Running || !line.ends_with(" (R18)"))
            .map(|line| line.trim_end_matches(" (R18)").to_owned())
            .collect();
        documents.sort();
        Expected {
            file,
            why: why.join("\n"),
            lines: Announced {
                documents,
                resources: resources.into_iter().map(str::to_owned).collect(),
            },
        }
    }

    /// Puts these changes in place of a `*`.
    fn complete(&mut self, besides: Vec<String>) {
        let lines = std::mem::take(&mut self.lines.resources).into_iter();
        let lines = lines.flat_map(|line| match line.strip_suffix('*') {
            Some(channel) => besides
                .iter()
                .map(|change| format!("{channel}{change}"))
                .collect(),
            None => vec![line],
        });
        self.lines.resources = lines.collect();
    }

    #[track_caller]
    fn compare(&self, heard: Announced) {
        let Announced {
            documents,
            resources,
        } = &self.lines;
        assert_eq!(&heard.resources, resources, "{}", self.file.display());
        let heard = heard.documents;
        if heard == *documents {
            return;
        }
        let count = |lines: &[String], line: &String| lines.iter().filter(|at| *at == line).count();
        let all: BTreeSet<&String> = heard.iter().chain(documents).collect();
        let difference: String = all
            .into_iter()
            .map(|line| (line, count(documents, line), count(&heard, line)))
            .filter(|(_, wanted, heard)| wanted != heard)
            .map(|(line, wanted, heard)| format!("  {line}: expected {wanted}, heard {heard}\n"))
            .collect();
        panic!("{}\n{}\n{difference}", self.file.display(), self.why);
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/observation/generators")
}

/// A generator that waits to be told what to publish.
struct Generator {
    name: String,
    runs: Vec<String>,
    process: Child,
    orders: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
    _work: TempDir,
}

impl Generator {
    fn start(python: &Path, name: &str, root: &Path) -> Generator {
        let work = TempDir::new().unwrap();
        let mut process = Command::new(python)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .arg(folder().join(format!("{name}.py")))
            .args([root, work.path()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut answers = BufReader::new(process.stdout.take().unwrap()).lines();
        let runs = answers.next().unwrap().unwrap();
        let runs: Vec<String> = runs.split(' ').map(str::to_owned).collect();
        let lists = fs::read_dir(folder().join(name)).unwrap();
        let lists = lists.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let named: BTreeSet<String> = runs.iter().map(|run| format!("{run}.txt")).collect();
        assert_eq!(lists.collect::<BTreeSet<_>>(), named);
        Generator {
            name: name.to_owned(),
            runs,
            orders: process.stdin.take(),
            process,
            answers,
            _work: work,
        }
    }

    fn publish(&mut self, run: &str) {
        writeln!(self.orders.as_ref().unwrap(), "{run}").unwrap();
        let answer = self.answers.next().and_then(Result::ok);
        assert_eq!(answer.as_deref(), Some("done"), "{} {run}", self.name);
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        // Without orders it ends, and what it started with it.
        self.orders = None;
        let _ = self.process.wait();
    }
}
