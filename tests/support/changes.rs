//! Change Lists as a generator would write them, and a Destination that hears of the changes.

use std::time::Instant;

use resourcesync::change_payload::ChangePayload;

use super::DEADLINE;
use super::daemon::TOPICS;
use super::documents::{URL, document, link};
use super::hub::FakeHub;

/// An entry of a Change List, such as `updated 1.txt 10:05:00`: the change, the path of the resource in its set, and, if
/// the generator writes any, its datetime on one day.
fn entry(set: &str, entry: &str) -> String {
    let mut words = entry.split(' ');
    let (change, path) = (words.next().unwrap(), words.next().unwrap());
    let datetime = words.next().map_or(String::new(), |time| {
        format!(" datetime=\"2024-11-20T{time}Z\"")
    });
    format!("<url><loc>{URL}{set}/{path}</loc><rs:md change=\"{change}\"{datetime}/></url>\n")
}

/// A Change List of a set with these entries.
pub fn change_list(set: &str, entries: &[impl AsRef<str>]) -> String {
    let up = link("up", &format!("{set}/capabilitylist.xml"));
    let entries = entries.iter().map(|one| entry(set, one.as_ref()));
    document("urlset", &up, "changelist", &entries.collect::<String>())
}

/// The topic of a set's change channel that no Capability List advertises.
pub fn topic(set: &str) -> String {
    format!("{TOPICS}changes/main/{set}/capabilitylist/")
}

/// Returns the changes of a notification, such as `updated a/1.txt`.
pub fn told(notification: &ChangePayload) -> Vec<String> {
    let changes = notification.entries.iter().map(|change| {
        let path = change.loc.strip_prefix(URL).unwrap_or(&change.loc);
        format!("{} {path}", change.kind)
    });
    changes.collect()
}

/// A notification, compared with the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// It begins where the last one ended.
    Next,
    /// It is the last one once more, byte for byte.
    Again,
    /// It begins later than the last one ended: something was missed.
    AfterGap,
}

/// A Destination of one change channel, with all that it has heard.
#[derive(Debug, Default)]
pub struct Destination {
    last: Option<(ChangePayload, Vec<u8>)>,
    /// All changes, in order; those that came again count once.
    pub told: Vec<String>,
    /// Number of entries of each notification.
    pub sizes: Vec<usize>,
    pub repeats: usize,
    pub gaps: usize,
}

impl Destination {
    /// Takes in a notification, which must be one that section 3 of Change Notification 1.0.1 allows here.
    #[track_caller]
    pub fn hear(&mut self, body: &[u8]) -> Heard {
        let text = String::from_utf8_lossy(body);
        let notification = ChangePayload::parse(body).unwrap_or_else(|| panic!("{text}"));
        let (from, until) = (notification.from, notification.until);
        assert!(from < until, "{text}");
        assert!(!notification.entries.is_empty(), "{text}");
        assert!(notification.up.is_some(), "{text}");
        let datetimes = notification.entries.iter().filter_map(|one| one.datetime);
        let mut before = from;
        for datetime in datetimes {
            assert!(datetime.end() > from && datetime.at() <= until, "{text}");
            assert!(datetime.end() > before, "out of order: {text}");
            before = datetime.at();
        }
        let heard = match &self.last {
            Some((_, last)) if last == body => {
                self.repeats += 1;
                return Heard::Again;
            }
            Some((last, _)) if last.until < from => {
                self.gaps += 1;
                Heard::AfterGap
            }
            last => {
                let until = last.as_ref().map(|(last, _)| last.until);
                assert_eq!(until.unwrap_or(from), from, "an overlap: {text}");
                Heard::Next
            }
        };
        self.sizes.push(notification.entries.len());
        self.told.extend(told(&notification));
        self.last = Some((notification, body.to_vec()));
        heard
    }

    /// Hears what a hub accepts on a topic, until so many changes were told.
    #[track_caller]
    pub fn listen(&mut self, hub: &FakeHub, topic: &str, changes: usize) {
        let deadline = Instant::now() + DEADLINE;
        while self.told.len() < changes {
            assert!(Instant::now() < deadline, "heard only {:?}", self.told);
            let request = hub.notification();
            if request.challenge().is_none() && request.topic() == topic {
                self.hear(&request.body);
            }
        }
    }

    /// Returns the end of the last interval.
    pub fn until(&self) -> Option<jiff::Timestamp> {
        self.last.as_ref().map(|(last, _)| last.until)
    }
}
