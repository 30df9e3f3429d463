//! Functions that the templates share: links, numbers, style classes.

use std::borrow::Borrow;

use jiff::Timestamp;
use resourcesync::capability::ChannelKind;
pub use resourcesync::escape::escaped;
use resourcesync::uri::Topic;
use websub::headers::encode_form;
use websub::hub::subscriptions::view::SubscriptionView;

use crate::report::status::alerts::{Health, StatusPart};
use crate::report::status::{AccountCondition, HubView, MountStatus, SourceStatus, words};
use announce::history::{NotificationState, NotificationView};
use announce::plan::PublishMode;
pub use announce::plan::is_broker_name;

pub use crate::report::status::words::{counted_grouped as counted, elapsed, grouped, relative};

pub const STYLE: &str = include_str!("../../../templates/style.css");
/// Channels per page.
pub const PER_PAGE: usize = 100;
/// Bytes of a text that a page shows; the whole text has its own page.
const BEGINNING: usize = 4 << 10;

/// Returns the address of a channel's page.
pub fn channel_url(topic: &Topic) -> String {
    format!("/channel?{}", encode_form(&[("topic", topic.as_str())]))
}

/// Returns the address of a notification's payload.
pub fn payload_url(notification: &NotificationView) -> String {
    let (topic, seq) = (notification.topic.as_str(), notification.seq.to_string());
    let query = encode_form(&[("topic", topic), ("seq", &seq)]);
    format!("/payload?{query}")
}

/// Returns true if the page may link to the URI.
pub fn is_web(uri: &str) -> bool {
    uri.starts_with("https://") || uri.starts_with("http://")
}

/// Returns the beginning of a text, up to the end of a line if one ends late enough.
pub fn beginning(text: &str) -> &str {
    let end = text.floor_char_boundary(BEGINNING);
    if end == text.len() {
        return text;
    }
    let whole_lines = text[..end].rfind('\n').filter(|at| *at > end / 2);
    &text[..whole_lines.map_or(end, |at| at + 1)]
}

pub fn to_the_second(at: &Timestamp) -> String {
    format!("{at:.0}").replace('T', " ").replace('Z', " UTC")
}

/// Returns the time of the day.
pub fn time_of_day(at: &Timestamp) -> String {
    at.strftime("%H:%M").to_string()
}

/// Returns the time of the next attempt in words.
pub fn next_try(hub: &HubView, now: &Timestamp) -> String {
    if hub.sending {
        "being sent now".to_owned()
    } else {
        format!(
            "next attempt {}",
            words::next_try_in_words(hub.next_try, *now)
        )
    }
}

/// Returns the state of a source with its class in the style sheet.
pub fn source_state(source: &SourceStatus) -> (&'static str, &'static str) {
    let is_any = |is: fn(&MountStatus) -> bool| source.mounts.iter().any(is);
    if source.suspended {
        ("act", "deletions suspended")
    } else if is_any(|mount| mount.present == Some(false)) {
        ("act", "mount absent")
    } else if is_any(|mount| mount.unreadable_directory_count() > 0) {
        ("act", "directories unreadable")
    } else if !source.settled {
        ("busy", "reading")
    } else {
        ("fine", "watched")
    }
}

pub fn size(bytes: usize) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{}.{} kB", bytes / 1_000, bytes % 1_000 / 100),
        _ => format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000),
    }
}

/// Returns the kind of a channel in words.
pub fn kind(kind: &ChannelKind) -> &'static str {
    match kind {
        ChannelKind::Framework => "framework: changes of documents",
        ChannelKind::Change => "change: changes of resources",
    }
}

/// Returns the mode of a hub in words.
pub fn mode(mode: &PublishMode) -> &'static str {
    match mode {
        PublishMode::Content => "content",
        PublishMode::ContentQuery => "content, with the topic in the query",
        PublishMode::Ping => "ping",
        PublishMode::Embedded => "embedded",
        PublishMode::Broker => "message broker",
    }
}

/// Returns the class of a condition in the style sheet.
pub fn condition_class(state: impl Borrow<AccountCondition>) -> &'static str {
    match state.borrow() {
        AccountCondition::Muted | AccountCondition::NeedsOperator => "act",
        AccountCondition::Failing | AccountCondition::Unfetched => "look",
        AccountCondition::NoSubscribers | AccountCondition::Due => "busy",
        AccountCondition::Fine => "fine",
    }
}

pub fn notification_class(outcome: &NotificationState) -> &'static str {
    match outcome {
        NotificationState::Accepted => "fine",
        NotificationState::Due | NotificationState::InFlight => "busy",
        NotificationState::Refused | NotificationState::Withdrawn | NotificationState::Dropped => {
            "look"
        }
    }
}

/// Returns the class of a subscription's state in the style sheet.
pub fn subscription_class(subscription: &SubscriptionView) -> &'static str {
    match subscription.state() {
        "failing" => "look",
        "owed" => "busy",
        _ => "fine",
    }
}

pub fn health_class(verdict: &Health) -> &'static str {
    match verdict {
        Health::Act => "act",
        Health::Look => "look",
        Health::Busy => "busy",
        Health::Fine => "fine",
    }
}

/// Returns the address of the section or page with the details.
pub fn details_link(part: &StatusPart) -> &'static str {
    match part {
        StatusPart::State | StatusPart::Sources => "#sources",
        StatusPart::Configuration => "#configuration",
        StatusPart::Hubs => "#hubs",
        StatusPart::Subscriptions => "/subscriptions",
        StatusPart::Broken => "#broken",
        StatusPart::Findings => "#findings",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_suitable_unit() {
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
