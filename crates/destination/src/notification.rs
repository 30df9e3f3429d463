//! A notification as it is printed, as text or JSON, and as a command receives it.

use std::borrow::Cow;
use std::fmt;
use std::ops::Not;

use jiff::Timestamp;
use resourcesync::capability::ChannelKind;
use resourcesync::escape::escaped;
use resourcesync::payload::Entry;
use resourcesync::receive::{Notification, ReceivedChange};
use serde::{Serialize, Serializer};
use serde_json::json;

use crate::channels::ADVERTISING;

/// One notification, or missed changes in the form of one; as JSON, with a field that says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename = "notification")]
pub struct HandedMessage {
    pub topic: String,
    pub kind: ChannelKind,
    pub from: Option<String>,
    pub until: Option<String>,
    pub up: Option<String>,
    /// True if it was not delivered by the hub, but read from the topic or from Change Lists.
    #[serde(skip_serializing_if = "Not::not")]
    pub caught_up: bool,
    pub entries: HandedEntries,
    /// Digest of the notification as received, by which it is recognised.
    #[serde(skip)]
    pub digest: String,
}

/// The entries of a notification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum HandedEntries {
    Framework(#[serde(serialize_with = "serialize_entries")] Vec<Entry>),
    Change(Vec<ReceivedChange>),
}

impl HandedMessage {
    /// Returns a notification that was received on a topic, as `body`.
    pub fn new(topic: &str, notification: Notification, body: &[u8]) -> HandedMessage {
        let kind = notification.kind();
        let (from, until, up, entries) = match notification {
            Notification::Framework(payload) => (
                payload.from.map(with_milliseconds),
                payload.until.map(with_milliseconds),
                payload.up.map(|up| up.as_str().to_owned()),
                HandedEntries::Framework(payload.entries),
            ),
            Notification::Change(changes) => {
                let entries = HandedEntries::Change(changes.changes);
                (changes.from, changes.until, changes.up, entries)
            }
        };
        HandedMessage {
            topic: topic.to_owned(),
            kind,
            from,
            until,
            up,
            caught_up: false,
            entries,
            digest: blake3::hash(body).to_hex()[..32].to_owned(),
        }
    }

    /// Returns the changes of resources; none of a framework notification.
    pub fn changes(&self) -> &[ReceivedChange] {
        match &self.entries {
            HandedEntries::Framework(_) => &[],
            HandedEntries::Change(changes) => changes,
        }
    }

    /// Returns true if documents that advertise channels have changed.
    pub fn may_advertise(&self) -> bool {
        let HandedEntries::Framework(entries) = &self.entries else {
            return false;
        };
        let mut entries = entries.iter();
        entries.any(|entry| ADVERTISING.contains(&entry.capability))
    }
}

fn with_milliseconds(time: Timestamp) -> String {
    format!("{time:.3}")
}

fn serialize_entries<S: Serializer>(entries: &[Entry], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(entries.iter().map(|entry| {
        let mut object = json!({
            "loc": entry.uri, "change": entry.change, "capability": entry.capability
        });
        if let Some(at) = entry.datetime {
            object["datetime"] = json!(with_milliseconds(at));
        }
        if let Some(index) = &entry.index {
            object["index"] = json!(index);
        }
        object
    }))
}

/// One line per entry. Characters that would end a line are escaped; the rest is left to the output.
impl fmt::Display for HandedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.entries {
            HandedEntries::Framework(entries) => {
                for entry in entries {
                    let datetime = entry.datetime.map(with_milliseconds).unwrap_or_default();
                    let (change, capability) = (entry.change.as_str(), entry.capability.as_str());
                    let loc = escaped(entry.uri.as_str());
                    write!(f, "{datetime}  {change:<7}  {capability:<16}  {loc}")?;
                    match &entry.index {
                        Some(index) => writeln!(f, "  (index {})", escaped(index.as_str()))?,
                        None => writeln!(f)?,
                    }
                }
            }
            HandedEntries::Change(changes) => {
                for change in changes {
                    let datetime = escaped(change.datetime.as_deref().unwrap_or("-"));
                    let kind = change.change.as_str();
                    write!(f, "{datetime:<20}  {kind:<7}  {}", escaped(&change.loc))?;
                    let more = [text(&change.length), text(&change.media_type)].join(" ");
                    match more.trim() {
                        "" => writeln!(f)?,
                        more => writeln!(f, "  {more}")?,
                    }
                }
            }
        }
        Ok(())
    }
}

fn text(value: &Option<String>) -> Cow<'_, str> {
    escaped(value.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::{HandedMessage, Notification};

    fn handed(entries: &str) -> HandedMessage {
        let body = format!(
            "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\
             <rs:md capability=\"change-notification\" from=\"2026-11-20T10:00:00Z\" until=\"2026-11-20T10:05:31Z\"/>{entries}</urlset>"
        );
        HandedMessage::new(
            "https://e.org/t",
            Notification::parse(body.as_bytes()).unwrap(),
            body.as_bytes(),
        )
    }

    #[test]
    fn a_change_is_a_line() {
        let entries = "<url><loc>https://e.org/1.txt</loc><rs:md change=\"updated\" datetime=\"2026-11-20T10:05:00Z\" \
                       length=\"8876\" type=\"text/plain\"/></url>\
                       <url><loc>https://e.org/2.txt</loc><rs:md change=\"deleted\"/></url>\
                       <url><loc>https://e.org/&#10;3</loc><rs:md change=\"created\" length=\"7\"/></url>";
        assert_eq!(
            handed(entries).to_string(),
            "2026-11-20T10:05:00Z  updated  https://e.org/1.txt  8876 text/plain\n\
             -                     deleted  https://e.org/2.txt\n\
             -                     created  https://e.org/\\n3  7\n"
        );
    }

    #[test]
    fn a_notification_is_a_line_of_json() {
        let entries = "<url><loc>https://e.org/2</loc><rs:md change=\"deleted\"/></url>";
        let mut handed = handed(entries);
        let json = |handed: &HandedMessage| serde_json::to_string(handed).unwrap();
        let rest = "\"entries\":[{\"loc\":\"https://e.org/2\",\"change\":\"deleted\"}]}";
        let head = "{\"event\":\"notification\",\"topic\":\"https://e.org/t\",\"kind\":\"change\",\
                    \"from\":\"2026-11-20T10:00:00Z\",\"until\":\"2026-11-20T10:05:31Z\",\"up\":null,";
        assert_eq!(json(&handed), format!("{head}{rest}"));
        handed.caught_up = true;
        assert_eq!(json(&handed), format!("{head}\"caught_up\":true,{rest}"));
    }
}
