//! Forms of values that keys of several tables have.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use resourcesync::uri::Uri;
use toml::de::DeValue;

use crate::config::address::Address;
use crate::config::definition::{Definition, Kind, TextKind};
use crate::config::duration;
use crate::config::holder::{HeaderValue, Holder};
use crate::config::key::ValueForm;
use crate::config::loader::Loader;
use crate::config::origin::{Given, located};
use crate::config::structure::shown;
use crate::config::suggestion::nearest;
use crate::config::web_uri;

/// Any text.
pub const TEXT: ValueForm<String> = ValueForm {
    kind: Kind::Text(&TextKind::ANY),
    read: |loader, key, value| text(loader, key, &value, |text| Ok::<_, String>(text.to_owned())),
};

/// A path; relative ones become absolute.
pub const PATH: ValueForm<PathBuf> = ValueForm {
    kind: Kind::Text(&TextKind::NOT_EMPTY),
    read: |loader, key, value| {
        let path = value.value.as_str().unwrap_or_default();
        loader.path(key, value.origin, path.as_ref())
    },
};

pub const BOOLEAN: ValueForm<bool> = ValueForm {
    kind: Kind::Boolean,
    read: |_, _, value| value.value.as_bool(),
};

/// Makes the form of an integer from 1.
pub const fn integer(max: u32) -> ValueForm<u32> {
    ValueForm {
        kind: Kind::Integer { max },
        read: |loader, key, value| {
            let Kind::Integer { max } = key.kind else {
                return None;
            };
            let number = integer_of(&value.value).filter(|number| (1..=max).contains(number));
            if number.is_none() {
                let shown = shown(&value.value);
                loader.report(
                    value.origin,
                    key,
                    format!("{shown} is not between 1 and {max}"),
                );
            }
            number
        },
    }
}

/// Makes the form of a number of bytes from 1: an integer, or a text such as `2MiB`.
pub const fn size(max: u32) -> ValueForm<u32> {
    ValueForm {
        kind: Kind::Size { max },
        read: |loader, key, value| {
            let Kind::Size { max } = key.kind else {
                return None;
            };
            let size = match value.value.as_str() {
                Some(text) => bytes_of(text),
                None => integer_of(&value.value),
            };
            let size = size.filter(|size| (1..=max).contains(size));
            if size.is_none() {
                let shown = shown(&value.value);
                let message = format!(
                    "{shown} is no size such as \"2MiB\", \"64KiB\" or 1000 (bytes), from 1 to {max}"
                );
                loader.report(value.origin, key, message);
            }
            size
        },
    }
}

fn bytes_of(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    let unit = match unit.trim_start() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u32>().ok()?.checked_mul(unit)
}

fn integer_of(value: &DeValue<'_>) -> Option<u32> {
    let integer = value.as_integer()?;
    u32::from_str_radix(integer.as_str(), integer.radix()).ok()
}

const DURATION_TEXT: TextKind = TextKind {
    examples: &["100ms", "2s", "5m", "12h", "30d"],
    instead_of_number: Some(|number| format!("write \"{number}s\"")),
    ..TextKind::matching("^[0-9]+(ms|s|m|h|d)$")
};

pub const DURATION: ValueForm<Duration> = ValueForm {
    kind: Kind::Text(&DURATION_TEXT),
    read: |loader, key, value| text(loader, key, &value, duration::parse),
};

/// A duration for which zero makes no sense.
pub const POSITIVE_DURATION: ValueForm<Duration> = ValueForm {
    kind: Kind::Text(&DURATION_TEXT),
    read: |loader, key, value| {
        text(loader, key, &value, |text| {
            let duration = duration::parse(text).map_err(|error| error.to_string())?;
            match duration.is_zero() {
                true => Err("it must be longer than zero".to_owned()),
                false => Ok(duration),
            }
        })
    },
};

/// The address of a listener. The path of a Unix socket becomes absolute.
pub const ADDRESS: ValueForm<Address> = ValueForm {
    kind: Kind::Text(&TextKind {
        examples: &[
            "127.0.0.1:8400",
            "[::1]:8400",
            "unix:/run/rsnotify/http.sock",
        ],
        instead_of_number: Some(|number| {
            format!("write an address with the port, such as \"127.0.0.1:{number}\"")
        }),
        ..TextKind::matching(r"^(unix:.+|[0-9.]+:[0-9]{1,5}|\[[0-9A-Fa-f:.%]+\]:[0-9]{1,5})$")
    }),
    read: |loader, key, value| match text(loader, key, &value, Address::parse)? {
        Address::Unix(path) => loader.path(key, value.origin, &path).map(Address::Unix),
        address => Some(address),
    },
};

pub const WEB_URI_TEXT: TextKind = TextKind::matching(r#"^[Hh][Tt][Tt][Pp][Ss]?://[^#\s<>"]+$"#);
const PREFIX_TEXT: TextKind = TextKind::matching(r#"^[Hh][Tt][Tt][Pp][Ss]?://[^\s<>"?#]+$"#);

/// The URI of a document.
pub const WEB_URI: ValueForm<Uri> = ValueForm {
    kind: Kind::Text(&WEB_URI_TEXT),
    read: |loader, key, value| text(loader, key, &value, web_uri::parse),
};

/// A prefix of documents' URIs.
pub const PREFIX: ValueForm<Uri> = ValueForm {
    kind: Kind::Text(&PREFIX_TEXT),
    read: |loader, key, value| text(loader, key, &value, web_uri::prefix),
};

pub const PREFIXES: ValueForm<Vec<Uri>> = ValueForm {
    kind: Kind::List {
        item: &PREFIX_TEXT,
        may_be_empty: true,
    },
    read: |loader, key, value| Some(list(loader, key, value, web_uri::prefix)),
};

pub const HOLDER: ValueForm<Holder> = ValueForm {
    kind: Kind::Holder,
    read: |_, _, value| Holder::of_secret(&value.value),
};

/// The values of headers, by name.
pub const HEADERS: ValueForm<BTreeMap<String, Given<HeaderValue>>> = ValueForm {
    kind: Kind::Headers,
    read: |_, _, value| {
        let DeValue::Table(table) = value.value else {
            return None;
        };
        let headers = table.into_iter().filter_map(|(name, value)| {
            let Given { value, origin } = located(value);
            let value = HeaderValue::of(&value)?;
            Some((name.into_inner().into_owned(), Given { value, origin }))
        });
        Some(headers.collect())
    },
};

/// Returns what `parse` makes of a text, or reports it.
pub fn text<T, E: Display>(
    loader: &mut Loader<'_>,
    key: &Definition,
    value: &Given<DeValue<'_>>,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Option<T> {
    parse(value.value.as_str().unwrap_or_default())
        .map_err(|message| loader.report(value.origin, key, message))
        .ok()
}

/// Returns the texts of a list.
pub fn texts(value: Given<DeValue<'_>>) -> Vec<Given<String>> {
    let DeValue::Array(items) = value.value else {
        return Vec::new();
    };
    let items = items.into_iter().map(located);
    items
        .map(|item| item.map(|text| text.as_str().unwrap_or_default().to_owned()))
        .collect()
}

/// Returns what `parse` makes of the texts of a list, and reports the others.
pub fn list<T, E: Display>(
    loader: &mut Loader<'_>,
    key: &Definition,
    value: Given<DeValue<'_>>,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Vec<T> {
    let texts = texts(value).into_iter();
    texts
        .filter_map(|text| loader.checked(key, &text, &parse))
        .collect()
}

/// Returns the meaning of one of a few words, or reports it.
pub fn choice<T: Copy>(
    loader: &mut Loader<'_>,
    key: &Definition,
    value: &Given<DeValue<'_>>,
    choices: &[(&str, T)],
) -> Option<T> {
    let text = value.value.as_str().unwrap_or_default();
    if let Some((_, choice)) = choices.iter().find(|(word, _)| *word == text) {
        return Some(*choice);
    }
    let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
    let message = format!("\"{text}\" is none of \"{}\"", words.join("\", \""));
    let suggestion = nearest(text, words).map(str::to_owned);
    loader.suggest(value.origin, key, message, suggestion);
    None
}

/// Returns the words of a choice.
pub const fn words<T, const N: usize>(choices: &[(&'static str, T); N]) -> [&'static str; N] {
    let mut words = [""; N];
    let mut position = 0;
    while position < N {
        words[position] = choices[position].0;
        position += 1;
    }
    words
}
