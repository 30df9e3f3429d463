//! Conversions between our types and columns, as readable text.

use std::fmt::Write as _;
use std::sync::Arc;

use jiff::Timestamp;
use resourcesync::capability::Capability;
use resourcesync::document::Form;
use resourcesync::fingerprint::Fingerprint;
use resourcesync::payload::{ChangeKind, Entry};
use resourcesync::uri::Uri;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use serde::{Deserialize, Serialize};
use websub::publisher::reason::RefusalKind;

use crate::announce::plan::Mode;
use crate::announce::span::whole;
use crate::announce::state::{Said, Told};

/// A value with a conversion to and from a column.
pub struct Column<T>(pub T);

impl ToSql for Column<Timestamp> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.to_string().into())
    }
}

impl FromSql for Column<Timestamp> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        parsed(value).map(Column)
    }
}

impl ToSql for Column<Capability> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.as_str().into())
    }
}

impl FromSql for Column<Capability> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        parsed(value).map(Column)
    }
}

impl ToSql for Column<Form> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.as_str().into())
    }
}

impl FromSql for Column<Form> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        form(value.as_str()?)
            .map(Column)
            .ok_or(FromSqlError::InvalidType)
    }
}

impl ToSql for Column<Fingerprint> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Blob(&self.0.0)))
    }
}

impl FromSql for Column<Fingerprint> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let bytes = <[u8; 32]>::column_result(value)?;
        Ok(Column(Fingerprint(bytes)))
    }
}

/// The modes and their text.
const MODES: [(&str, Mode); 5] = [
    ("content", Mode::Content),
    ("ping", Mode::Ping),
    ("content-query", Mode::ContentQuery),
    ("embedded", Mode::Embedded),
    ("broker", Mode::Broker),
];

impl ToSql for Column<Mode> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let name = MODES.iter().find(|(_, mode)| *mode == self.0);
        Ok(name.map_or("", |(name, _)| *name).into())
    }
}

impl FromSql for Column<Mode> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let name = value.as_str()?;
        let mode = MODES.iter().find(|(known, _)| *known == name);
        mode.map(|(_, mode)| Column(*mode))
            .ok_or(FromSqlError::InvalidType)
    }
}

impl FromSql for Column<RefusalKind> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        parsed(value).map(Column)
    }
}

impl FromSql for Column<Uri> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        uri(value.as_str()?)
            .map(Column)
            .ok_or(FromSqlError::InvalidType)
    }
}

fn parsed<T: std::str::FromStr>(value: ValueRef<'_>) -> FromSqlResult<T> {
    value
        .as_str()?
        .parse()
        .map_err(|_| FromSqlError::InvalidType)
}

fn form(text: &str) -> Option<Form> {
    [Form::List, Form::Index]
        .into_iter()
        .find(|form| form.as_str() == text)
}

fn uri(text: &str) -> Option<Uri> {
    Uri::parse(text).ok()
}

/// Formats times as one text, separated by spaces: a whole millisecond as the number of those since 1970, which is most of
/// them and costs a fraction of a date, any other time as RFC 3339 has it.
pub fn times_to_text(times: &[Timestamp]) -> String {
    let mut text = String::with_capacity(times.len() * 14);
    for time in times {
        if !text.is_empty() {
            text.push(' ');
        }
        // A `String` takes all that is written to it.
        let _ = match whole(*time) == *time {
            true => write!(text, "{}", time.as_millisecond()),
            false => write!(text, "{time}"),
        };
    }
    text
}

/// Parses what [`times_to_text`] formats.
pub fn times_from_text(text: &str) -> Option<Vec<Timestamp>> {
    let times = text
        .split_ascii_whitespace()
        .map(|time| match time.parse() {
            Ok(milliseconds) => Timestamp::from_millisecond(milliseconds).ok(),
            Err(_) => time.parse().ok(),
        });
    times.collect()
}

/// Formats a list of URIs as JSON.
pub fn uris_to_json<'a>(uris: impl IntoIterator<Item = &'a Uri>) -> String {
    let texts: Vec<&str> = uris.into_iter().map(Uri::as_str).collect();
    serde_json::to_string(&texts).unwrap_or_default()
}

/// Parses what [`uris_to_json`] formats.
pub fn uris_from_json<C: FromIterator<Uri>>(json: &str) -> Option<C> {
    let texts: Vec<String> = serde_json::from_str(json).ok()?;
    texts.iter().map(|text| uri(text)).collect()
}

#[derive(Serialize, Deserialize)]
struct CoverJson {
    uri: String,
    told: Option<ToldJson>,
}

#[derive(Serialize, Deserialize)]
struct ToldJson {
    capability: String,
    form: String,
    fingerprint: Option<[u8; 32]>,
}

/// Formats the changes that a notification in flight covers as JSON.
pub fn covers_to_json(covers: &[(Uri, Option<Told>)]) -> String {
    let json: Vec<CoverJson> = covers
        .iter()
        .map(|(uri, told)| CoverJson {
            uri: uri.as_str().to_owned(),
            told: told.map(|told| ToldJson {
                capability: told.capability.to_string(),
                form: told.form.as_str().to_owned(),
                fingerprint: told.fingerprint.map(|fingerprint| fingerprint.0),
            }),
        })
        .collect();
    serde_json::to_string(&json).unwrap_or_default()
}

/// Parses what [`covers_to_json`] formats.
pub fn covers_from_json(json: &str) -> Option<Vec<(Uri, Option<Told>)>> {
    let covers: Vec<CoverJson> = serde_json::from_str(json).ok()?;
    covers
        .into_iter()
        .map(|cover| {
            let told = match cover.told {
                None => None,
                Some(told) => Some(Told {
                    capability: told.capability.parse().ok()?,
                    form: form(&told.form)?,
                    fingerprint: told.fingerprint.map(Fingerprint),
                }),
            };
            Some((uri(&cover.uri)?, told))
        })
        .collect()
}

#[derive(Serialize, Deserialize)]
struct SaidJson {
    at: Timestamp,
    uri: String,
    change: String,
    capability: String,
    datetime: Option<Timestamp>,
    index: Option<String>,
}

/// Formats the entries that a topic repeats as JSON.
pub fn said_to_json(said: &[Said]) -> String {
    let json: Vec<SaidJson> = said
        .iter()
        .map(|said| SaidJson {
            at: said.at,
            uri: said.entry.uri.as_str().to_owned(),
            change: said.entry.change.to_string(),
            capability: said.entry.capability.to_string(),
            datetime: said.entry.datetime,
            index: said.entry.index.as_ref().map(Uri::to_string),
        })
        .collect();
    serde_json::to_string(&json).unwrap_or_default()
}

/// Parses what [`said_to_json`] formats.
pub fn said_from_json(json: &str) -> Option<Vec<Said>> {
    let said: Vec<SaidJson> = serde_json::from_str(json).ok()?;
    said.into_iter()
        .map(|said| {
            let change = [
                ChangeKind::Created,
                ChangeKind::Updated,
                ChangeKind::Deleted,
            ]
            .into_iter()
            .find(|kind| kind.as_str() == said.change)?;
            let index = match said.index {
                None => None,
                Some(index) => Some(uri(&index)?),
            };
            let entry = Entry {
                uri: uri(&said.uri)?,
                change,
                capability: said.capability.parse().ok()?,
                datetime: said.datetime,
                index,
            };
            Some(Said { at: said.at, entry })
        })
        .collect()
}

/// Returns a loaded blob for sharing.
pub fn shared(bytes: Vec<u8>) -> Arc<[u8]> {
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::{times_from_text, times_to_text};

    #[test]
    fn times_are_read_as_they_were_written() {
        let texts = [
            "2026-11-02T08:00:00Z",
            "2026-11-02T08:00:00.123Z",
            "2026-11-02T08:00:00.123456789Z",
            "1969-12-31T23:59:59.999Z",
        ];
        let times: Vec<_> = texts.iter().map(|text| text.parse().unwrap()).collect();
        let text = times_to_text(&times);
        assert_eq!(
            text,
            "1793606400000 1793606400123 2026-11-02T08:00:00.123456789Z -1"
        );
        assert_eq!(times_from_text(&text), Some(times));
        assert_eq!(times_from_text(""), Some(Vec::new()));
        assert_eq!(times_from_text("1793606400000 soon"), None);
    }
}
