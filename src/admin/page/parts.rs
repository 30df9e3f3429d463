//! What the templates say alike: links, numbers, and which colour goes with which word.

use std::borrow::Borrow;
use std::fmt::Display;

use jiff::Timestamp;

use crate::announce::delivery::attempt::Attempt;
use crate::announce::delivery::form;
use crate::announce::plan::Mode;
use crate::report::status::alerts::{Health, Part};
use crate::report::status::notification::{NotificationView, Outcome};
use crate::report::status::{ChannelView, Condition, HubView, SourceStatus, WaitingView, words};
use crate::resourcesync::uri::Topic;

pub use crate::report::status::words::grouped;
pub use crate::resourcesync::escape::escaped;

pub const STYLE: &str = include_str!("../../../templates/style.css");
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// So many channels are on one page.
pub const PER_PAGE: usize = 100;
/// So much of a text stands in a page; the rest has a page of its own.
const BEGINNING: usize = 4 << 10;

/// A document that is pending or held.
pub struct Waiting<'a> {
    pub state: &'static str,
    pub view: &'a WaitingView,
}

/// What is pending and held on these channels, the oldest first; what waits on several for the same reason is
/// told once.
pub fn waiting<'a>(channels: impl Iterator<Item = &'a ChannelView>) -> Vec<Waiting<'a>> {
    let all = channels.flat_map(|own| {
        let pending = own.pending.iter().map(|view| ("pending", view));
        pending.chain(own.held.iter().map(|view| ("held", view)))
    });
    let mut all: Vec<(&str, &WaitingView)> = all.collect();
    all.sort_by_key(|(state, view)| (view.since, &view.uri, *state, &view.reason));
    all.dedup();
    all.into_iter()
        .map(|(state, view)| Waiting { state, view })
        .collect()
}

/// Where a channel's own page is.
pub fn channel(topic: &Topic) -> String {
    format!("/channel?{}", form(&[("topic", topic.as_str())]))
}

/// Where a notification's payload is.
pub fn payload(own: &NotificationView) -> String {
    let seq = own.seq.to_string();
    format!(
        "/payload?{}",
        form(&[("topic", own.topic.as_str()), ("seq", &seq)])
    )
}

/// Whether a link may lead there.
pub fn is_web(uri: &str) -> bool {
    uri.starts_with("https://") || uri.starts_with("http://")
}

/// The beginning of a text that may be long, at the end of a line if one ends late enough.
pub fn beginning(text: &str) -> &str {
    let end = text.floor_char_boundary(BEGINNING);
    if end == text.len() {
        return text;
    }
    let whole_lines = text[..end].rfind('\n').filter(|at| *at > end / 2);
    &text[..whole_lines.map_or(end, |at| at + 1)]
}

/// A point in time, however often a template has borrowed it.
pub trait Moment {
    fn get(&self) -> Timestamp;
}

impl Moment for Timestamp {
    fn get(&self) -> Timestamp {
        *self
    }
}

impl<T: Moment> Moment for &T {
    fn get(&self) -> Timestamp {
        (*self).get()
    }
}

pub fn relative(at: impl Moment, now: impl Moment) -> String {
    words::relative(at.get(), now.get())
}

pub fn to_the_second(at: impl Moment) -> String {
    let at = at.get();
    format!("{at:.0}").replace('T', " ").replace('Z', " UTC")
}

/// When a notification is tried again.
pub fn next_try(hub: &HubView, now: &Timestamp) -> String {
    match hub.sending {
        true => "being sent now".to_owned(),
        false => format!("next attempt {}", words::next_try(hub.next_try, *now)),
    }
}

/// How a source is, and the class of that in the style sheet.
pub fn source_state(source: &SourceStatus) -> (&'static str, &'static str) {
    let is_lost = source
        .mounts
        .iter()
        .any(|mount| mount.present == Some(false));
    if source.suspended {
        ("act", "deletions suspended")
    } else if is_lost {
        ("act", "mount absent")
    } else if source.mounts.iter().any(|own| own.unreadable_count() > 0) {
        ("act", "directories unreadable")
    } else if !source.settled {
        ("busy", "reading")
    } else {
        ("fine", "watched")
    }
}

/// A number of things.
pub fn counted(number: impl Display, thing: &str) -> String {
    let number = number.to_string();
    let ending = if number == "1" { "" } else { "s" };
    format!("{} {thing}{ending}", grouped(number))
}

pub fn size(bytes: usize) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{}.{} kB", bytes / 1_000, bytes % 1_000 / 100),
        _ => format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000),
    }
}

pub fn answer(last: &Attempt) -> String {
    match last.status {
        Some(status) => format!("answered {status}"),
        None => "no answer".to_owned(),
    }
}

/// How a hub is told.
pub fn mode(mode: &Mode) -> &'static str {
    match mode {
        Mode::Content => "content",
        Mode::ContentQuery => "content, with the topic in the query",
        Mode::Ping => "ping",
        Mode::Embedded => "embedded",
    }
}

/// The class of a condition in the style sheet.
pub fn class(state: impl Borrow<Condition>) -> &'static str {
    match state.borrow() {
        Condition::Muted | Condition::NeedsOperator => "act",
        Condition::Failing | Condition::Unfetched => "look",
        Condition::NoSubscribers | Condition::Due => "busy",
        Condition::Fine => "fine",
    }
}

pub fn outcome_class(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Accepted => "fine",
        Outcome::InFlight => "busy",
        Outcome::Refused | Outcome::Withdrawn | Outcome::Dropped => "look",
    }
}

pub fn verdict_class(verdict: &Health) -> &'static str {
    match verdict {
        Health::Act => "act",
        Health::Look => "look",
        Health::Busy => "busy",
        Health::Fine => "fine",
    }
}

/// Where the status page says more.
pub fn anchor(part: &Part) -> &'static str {
    match part {
        Part::State | Part::Sources => "sources",
        Part::Configuration => "configuration",
        Part::Hubs => "hubs",
        Part::Broken => "broken",
        Part::Findings => "findings",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_in_the_unit_that_suits_them() {
        for (bytes, want) in [(612, "612 bytes"), (1_250, "1.2 kB"), (1_048_576, "1.0 MB")] {
            assert_eq!(size(bytes), want);
        }
    }

    #[test]
    fn a_long_text_ends_at_a_whole_character_and_at_a_whole_line_if_it_has_some() {
        let umlauts = "ü".repeat(BEGINNING);
        assert_eq!(beginning(&umlauts).len(), BEGINNING);
        let odd = format!("x{umlauts}");
        assert_eq!(beginning(&odd).len(), BEGINNING - 1);
        let lines = "a line\n".repeat(BEGINNING);
        assert!(beginning(&lines).ends_with('\n'));
        assert_eq!(beginning("short"), "short");
    }

    #[test]
    fn only_the_web_is_linked_to() {
        for (uri, want) in [
            ("https://e.org/", true),
            ("http://e.org/", true),
            ("javascript:alert(1)", false),
            ("data:text/html,x", false),
            ("ftp://e.org/", false),
        ] {
            assert_eq!(is_web(uri), want, "{uri}");
        }
    }
}
