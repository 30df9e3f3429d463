//! Character and entity references (XML 1.0 section 4.1). No entity is ever expanded but the five that XML
//! predefines (R2).

use std::ops::Range;

use crate::characters::{forbidden, is_allowed};
use crate::reader::StopReason;
use crate::scan::find;

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
