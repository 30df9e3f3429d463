//! URIs: one type per role, so that swapping two of them cannot compile.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::escape::escaped;

/// The URI of a document, normalised as RFC 3986 section 6.2 says, so that equal URIs are equal strings.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Uri(Arc<str>);

// A URI hashes and compares as its text.
impl Borrow<str> for Uri {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// A text that is not an absolute URI with an authority.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not an absolute URI such as https://example.org/")]
pub struct NotAUri(pub String);

impl Uri {
    /// Reads an absolute hierarchical URI. White space around it is removed; characters that a URI may not contain are
    /// kept ([`has_valid_chars`]), because real documents contain them.
    ///
    /// # Errors
    ///
    /// If it is relative, or has no authority.
    pub fn parse(text: &str) -> Result<Uri, NotAUri> {
        normal(text).map(|uri| Uri(uri.into()))
    }

    /// Returns the URI of the file at `path` below a mount whose prefix ends in `/`: the path's bytes are
    /// percent-encoded as in RFC 3986 (R1).
    pub fn below(prefix: &Uri, path: &[u8]) -> Uri {
        let mut uri = String::with_capacity(prefix.0.len() + path.len() + 8);
        uri.push_str(&prefix.0);
        for &byte in path {
            if byte == b'/' || stands_in_path(byte) {
                uri.push(char::from(byte));
            } else {
                push_percent_escape(&mut uri, byte);
            }
        }
        Uri(uri.into())
    }

    /// Returns the same URI below `to` instead of `from`, if it lies there.
    pub fn moved(&self, from: &Uri, to: &Uri) -> Option<Uri> {
        let rest = self.0.strip_prefix(from.as_str())?;
        Some(Uri(format!("{}{rest}", to.0).into()))
    }

    /// Returns true if this URI lies below a prefix that ends in `/`.
    pub fn is_below(&self, prefix: &Uri) -> bool {
        self.0.starts_with(prefix.as_str())
    }
}

/// Returns true if a text has no control characters, spaces, `<`, `>` or `"`, which no URI may have and which would
/// break a `Link` header (R8).
pub fn has_valid_chars(text: &str) -> bool {
    !text.contains(|c: char| c.is_control() || c.is_whitespace() || "<>\"".contains(c))
}

impl TryFrom<String> for Uri {
    type Error = NotAUri;

    fn try_from(text: String) -> Result<Uri, NotAUri> {
        Uri::parse(&text)
    }
}

/// The URI under which a channel's notifications are published, kept byte for byte (R24).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Topic(Arc<str>);

/// The URI of a WebSub hub as it is advertised, kept byte for byte (R24).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Hub(Arc<str>);

macro_rules! byte_exact {
    ($name:ident) => {
        impl $name {
            /// Wraps an address, which is not changed.
            pub fn new(text: impl Into<Arc<str>>) -> $name {
                $name(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> $name {
                $name::new(text)
            }
        }
    };
}
byte_exact!(Topic);
byte_exact!(Hub);

macro_rules! shown_as_text {
    ($name:ident) => {
        impl $name {
            /// Returns the URI: a `Uri` in its normal form, the others byte for byte.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.as_str().to_owned()
            }
        }

        /// Writes the URI escaped for display; `as_str` is the URI itself.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&escaped(&self.0))
            }
        }
    };
}
shown_as_text!(Uri);
shown_as_text!(Topic);
shown_as_text!(Hub);

/// Returns the text of [`Uri::parse`], without a copy of one that is normal already.
pub(crate) fn normal(text: &str) -> Result<Cow<'_, str>, NotAUri> {
    if is_plain(text) {
        return Ok(Cow::Borrowed(text));
    }
    let text = text.split('#').next().unwrap_or(text).trim();
    let not_a_uri = || NotAUri(text.chars().take(200).collect());
    let (scheme, rest) = text.split_once("://").ok_or_else(not_a_uri)?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path_and_query) = rest.split_at(end);
    if !is_scheme(scheme) {
        return Err(not_a_uri());
    }
    let mut parts = path_and_query.splitn(2, '?');
    let path = parts.next().unwrap_or_default();
    let scheme = scheme.to_ascii_lowercase();
    let mut uri = String::with_capacity(text.len() + 1);
    uri.push_str(&scheme);
    uri.push_str("://");
    uri.push_str(&normal_authority(&scheme, authority).ok_or_else(not_a_uri)?);
    uri.push_str(&without_dot_segments(&normal_escapes(path, stands_in_path)));
    if let Some(query) = parts.next() {
        uri.push('?');
        uri.push_str(&normal_escapes(query, is_unreserved));
    }
    Ok(Cow::Owned(uri))
}

/// Returns the URI of a resource as compared: in normal form as a [`Uri`], but it may also have a scheme without an
/// authority, such as `urn:`.
///
/// # Errors
///
/// If it is relative.
pub fn normal_resource(text: &str) -> Result<Cow<'_, str>, NotAUri> {
    let not_a_uri = match normal(text) {
        Ok(uri) => return Ok(uri),
        Err(error) => error,
    };
    let text = text.split('#').next().unwrap_or(text).trim();
    let Some((scheme, rest)) = text.split_once(':') else {
        return Err(not_a_uri);
    };
    let scheme = scheme.to_ascii_lowercase();
    let has_authority = rest.starts_with("//") || ["http", "https"].contains(&&*scheme);
    // A single letter is the drive of a path.
    let is_opaque = is_scheme(&scheme) && scheme.len() > 1 && !rest.is_empty() && !has_authority;
    let normal = || Cow::Owned(format!("{scheme}:{}", normal_escapes(rest, is_unreserved)));
    is_opaque.then(normal).ok_or(not_a_uri)
}

/// Returns a URI as it is compared with others: in normal form, or as it is if it has none.
pub fn compared(uri: &str) -> Cow<'_, str> {
    normal_resource(uri).unwrap_or(Cow::Borrowed(uri))
}

/// Returns what follows `prefix` in a URI, both in normal form; nothing if it does not begin with it, or if the prefix ends
/// within a segment of the path or a part of the query.
pub fn rest_below(uri: &str, prefix: &str) -> Option<String> {
    let (uri, normal) = (compared(uri), compared(prefix));
    // The slash after an authority alone belongs to the rest.
    let begin = match normal.strip_suffix('/') {
        Some(begin) if !prefix.ends_with('/') => begin,
        _ => &normal,
    };
    let rest = uri.strip_prefix(begin)?;
    let is_whole = rest.is_empty()
        || begin.ends_with(['/', '?', '=', '&', ':'])
        || rest.starts_with(['/', '?'])
        || rest.starts_with('&') && begin.contains('?');
    is_whole.then(|| rest.to_owned())
}

/// Returns true for the name of a scheme (RFC 3986 section 3.1).
pub(crate) fn is_scheme(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(is_part)
}

/// Returns true if a URI is evidently normal, as most are: it has a host in lower case and a path, and nothing that
/// could be written in another way.
fn is_plain(text: &str) -> bool {
    let rest = text
        .strip_prefix("http")
        .map(|rest| rest.strip_prefix('s').unwrap_or(rest));
    let Some(rest) = rest.and_then(|rest| rest.strip_prefix("://")) else {
        return false;
    };
    let rest = rest.as_bytes();
    let is_in_host = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    let host = rest.iter().take_while(|byte| is_in_host(byte)).count();
    let path = &rest[host..];
    host > 0
        && path.first() == Some(&b'/')
        && path.iter().all(|&byte| IS_PLAIN[usize::from(byte)])
        && !path.windows(2).any(|pair| pair == b"/.")
}

/// The bytes that stand in a normal path or query as they are.
const IS_PLAIN: [bool; 256] = {
    let mut is_plain = [false; 256];
    let mut byte = b'!';
    while byte <= b'~' {
        is_plain[byte as usize] = !matches!(
            byte,
            b'#' | b'%' | b'[' | b']' | b'{' | b'}' | b'\\' | b'^' | b'`' | b'|'
        );
        byte += 1;
    }
    is_plain
};

/// Characters around an address in an authority (RFC 3986 section 3.2.2), and of no other place.
const BRACKETS: [char; 2] = ['[', ']'];

/// Returns true for a character that stands for itself in any part of a URI (RFC 3986 section 2.3).
pub fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// Returns true for a character of a path segment (RFC 3986 section 3.3), which servers take for the same whether it is
/// escaped or not: some generators escape all but the unreserved ones.
fn stands_in_path(byte: u8) -> bool {
    is_unreserved(byte) || b"!$&'()*+,;=:@".contains(&byte)
}

fn push_percent_escape(text: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    text.push('%');
    text.push(char::from(DIGITS[usize::from(byte >> 4)]));
    text.push(char::from(DIGITS[usize::from(byte & 15)]));
}

/// Returns an authority with its host in lower case, without a default or empty port (RFC 3986 sections 6.2.2.1 and
/// 6.2.3); `None` without a host, with a second `@`, with a colon or bracket in the host outside an address, with a
/// port that is no number, or with an invalid escape.
fn normal_authority(scheme: &str, authority: &str) -> Option<String> {
    let parts = authority.rsplit_once('@');
    let (user, host) = parts.map_or((None, authority), |(user, host)| (Some(user), host));
    let is_escape = |(at, _)| unescape_at(authority.as_bytes(), at).is_some();
    if user.is_some_and(|user| user.contains('@') || user.contains(BRACKETS))
        || !authority.match_indices('%').all(is_escape)
    {
        return None;
    }
    let host = host.to_ascii_lowercase();
    let default_port = match scheme {
        "http" => "80",
        "https" => "443",
        _ => "",
    };
    let parts = host
        .rsplit_once(':')
        .filter(|(_, port)| !port.ends_with(']'));
    let (name, port) = parts.unwrap_or((&host, ""));
    let opened = name.strip_prefix('[');
    let address = opened.and_then(|name| name.strip_suffix(']'));
    let is_host = match address {
        Some(address) => !address.is_empty() && !address.contains(BRACKETS),
        None => !name.is_empty() && !name.contains(':') && !name.contains(BRACKETS),
    };
    if !is_host || !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let is_needless = port.is_empty() || port == default_port;
    let host = if is_needless { name } else { &host };
    let user = user.map(|user| format!("{user}@"));
    Some(user.unwrap_or_default() + host)
}

/// Normalises escapes (RFC 3986 section 6.2.2.2): those of characters that `is_same` with or without are removed, and
/// characters that should have been escaped are: non-ASCII ones, percent signs and brackets, as in file names and as some
/// generators write them.
fn normal_escapes(text: &str, is_same: fn(u8) -> bool) -> Cow<'_, str> {
    if text.bytes().all(needs_no_escape) {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut normal = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escaped = unescape_at(bytes, at);
        match escaped {
            Some(value) if is_same(value) => normal.push(char::from(value)),
            Some(value) => push_percent_escape(&mut normal, value),
            None if needs_no_escape(byte) => normal.push(char::from(byte)),
            None => push_percent_escape(&mut normal, byte),
        }
        at += if escaped.is_some() { 3 } else { 1 };
    }
    Cow::Owned(normal)
}

/// Returns the byte that an escape such as `%2F` stands for, if one begins there.
pub fn unescape_at(bytes: &[u8], at: usize) -> Option<u8> {
    let [b'%', digits @ ..] = bytes.get(at..at + 3)? else {
        return None;
    };
    let digits = std::str::from_utf8(digits).ok()?;
    let are_digits = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    are_digits.then(|| u8::from_str_radix(digits, 16).ok())?
}

/// Returns true if a byte of a path or query stays as it is. Those that [`has_valid_chars`] rejects stay, so that it can.
fn needs_no_escape(byte: u8) -> bool {
    byte.is_ascii() && !b"%[]{}\\^`|".contains(&byte)
}

/// Removes dot segments (RFC 3986 section 5.2.4); an empty path becomes `/`.
fn without_dot_segments(path: &str) -> Cow<'_, str> {
    if path.is_empty() {
        return Cow::Borrowed("/");
    }
    if !path.contains("/.") {
        return Cow::Borrowed(path);
    }
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/').skip(1) {
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    if path.ends_with("/.") || path.ends_with("/..") {
        kept.push("");
    }
    Cow::Owned(format!("/{}", kept.join("/")))
}

#[cfg(test)]
mod tests;
