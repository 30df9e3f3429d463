//! The XML declaration (XML 1.0 section 2.8), and character and entity references (section 4.1). No entity is ever expanded
//! but the five that XML predefines (R2).

use std::ops::Range;

use crate::reader::StopReason;
use crate::scan::{find, forbidden, is_allowed, is_space};

/// Reads the text between `<?xml` and `?>` (XML 1.0 section 2.8). Returns the range of the encoding's name, or the
/// offset and message of an error.
pub(crate) fn declaration(bytes: &[u8]) -> Result<Option<Range<usize>>, (usize, &'static str)> {
    let mut at = 0;
    let version = pseudo_attribute(bytes, &mut at, b"version")?;
    let version = version.ok_or((0, "the XML declaration has no version"))?;
    let minor = bytes[version.clone()].strip_prefix(b"1.");
    if !minor.is_some_and(|minor| !minor.is_empty() && minor.iter().all(u8::is_ascii_digit)) {
        return Err((version.start, "the version of XML is not 1.0"));
    }
    let encoding = pseudo_attribute(bytes, &mut at, b"encoding")?;
    if let Some(encoding) = &encoding {
        let is_name = |name: &[u8]| {
            let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
            name.first().is_some_and(u8::is_ascii_alphabetic) && name.iter().all(is_part)
        };
        if !is_name(&bytes[encoding.clone()]) {
            return Err((encoding.start, "the encoding has no proper name"));
        }
    }
    if let Some(standalone) = pseudo_attribute(bytes, &mut at, b"standalone")?
        && !matches!(&bytes[standalone.clone()], b"yes" | b"no")
    {
        return Err((standalone.start, "standalone is neither yes nor no"));
    }
    match skip_all_space(bytes, at) {
        end if end == bytes.len() => Ok(encoding),
        end => Err((
            end,
            "the XML declaration has something else than version, encoding and standalone, in this order",
        )),
    }
}

/// Reads `name="value"` and the white space before it, if the next name is this one. Returns the range of the value.
fn pseudo_attribute(
    bytes: &[u8],
    at: &mut usize,
    name: &[u8],
) -> Result<Option<Range<usize>>, (usize, &'static str)> {
    let start = skip_all_space(bytes, *at);
    if !bytes[start..].starts_with(name) {
        return Ok(None);
    }
    if start == *at {
        return Err((start, "white space is missing in the XML declaration"));
    }
    let equals = skip_all_space(bytes, start + name.len());
    if bytes.get(equals) != Some(&b'=') {
        return Err((equals, "the XML declaration has a name without a value"));
    }
    let open = skip_all_space(bytes, equals + 1);
    let quote = match bytes.get(open) {
        Some(quote @ (b'"' | b'\'')) => quote,
        _ => return Err((open, "a value of the XML declaration is not quoted")),
    };
    let value = open + 1;
    let length = bytes[value..].iter().position(|byte| byte == quote);
    let length = length.ok_or((open, "a value of the XML declaration does not end"))?;
    *at = value + length + 1;
    Ok(Some(value..value + length))
}

/// Skips white space as [`skip_space`](crate::scan::skip_space), before line ends are normalised.
fn skip_all_space(bytes: &[u8], at: usize) -> usize {
    let space = bytes[at..].iter().take_while(|byte| is_space(**byte));
    at + space.count()
}

/// Message about an ampersand that begins no reference, as in a URI that was not escaped.
pub(crate) const BARE_AMPERSAND: &str = "bare \"&\": write &amp;";

/// Returns true if the text between an ampersand and the next semicolon is no name, so that no reference was meant.
pub(crate) fn is_bare_ampersand(name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "_:.-".contains(c);
    name.is_empty() || !name.starts_with('#') && !name.chars().all(is_part)
}

/// Appends the character of a reference to a character or to one of the five entities that XML predefines.
pub(crate) fn push_referenced(name: &str, text: &mut String) -> Result<(), String> {
    let Some(number) = name.strip_prefix('#') else {
        text.push(match name {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            _ => return Err(format!("the entity {name} is not defined")),
        });
        return Ok(());
    };
    let (digits, radix) = match number.strip_prefix('x') {
        Some(digits) => (digits, 16),
        None => (number, 10),
    };
    let character = digits
        .bytes()
        .all(|digit| digit.is_ascii_hexdigit())
        .then(|| u32::from_str_radix(digits, radix).ok())
        .flatten()
        .and_then(char::from_u32)
        .ok_or_else(|| format!("&#{number}; is no character"))?;
    if !is_allowed(character) {
        return Err(forbidden(character));
    }
    text.push(character);
    Ok(())
}

/// Returns the value of an attribute: references are replaced, and literal white space by spaces (XML 1.0 section
/// 3.3.3).
pub(crate) fn unescaped(raw: &str, value: Range<usize>) -> Result<String, StopReason> {
    let mut text = String::with_capacity(value.len());
    let mut rest = &raw[value.clone()];
    while let Some(at) = find(rest.as_bytes(), [b'&', b'\t', b'\n']) {
        text.push_str(&rest[..at]);
        let special = &rest[at..];
        if !special.starts_with('&') {
            text.push(' ');
            rest = &special[1..];
            continue;
        }
        let offset = value.end - special.len();
        let end = special
            .find(';')
            .filter(|&end| !is_bare_ampersand(&special[1..end]));
        let end = end.ok_or_else(|| StopReason::syntax(offset, BARE_AMPERSAND))?;
        push_referenced(&special[1..end], &mut text)
            .map_err(|message| StopReason::syntax(offset, message))?;
        rest = &special[end + 1..];
    }
    text.push_str(rest);
    Ok(text)
}
