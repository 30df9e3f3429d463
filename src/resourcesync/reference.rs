//! Character and entity references (XML 1.0 section 4.1). No entity is ever expanded but the five that XML
//! predefines (R2).

use std::ops::Range;

use crate::resourcesync::characters::{forbidden, is_allowed};
use crate::resourcesync::pause::Pause;
use crate::resourcesync::scan::find;

/// What is wrong with an ampersand that begins no reference, as in an address that was not escaped.
pub(crate) const BARE_AMPERSAND: &str = "bare \"&\": write &amp;";

/// Whether what stands between an ampersand and the next semicolon is no name, so that no reference was meant.
pub(crate) fn is_bare(name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "_:.-".contains(c);
    name.is_empty() || !name.starts_with('#') && !name.chars().all(is_part)
}

/// Appends what a reference stands for: a character, or one of the five entities that XML predefines.
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

/// XML 1.0 section 3.3.3: references are replaced, and white space that is written as such is a space.
pub(crate) fn unescaped(raw: &str, value: Range<usize>) -> Result<String, Pause> {
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
        let end = special.find(';').filter(|&end| !is_bare(&special[1..end]));
        let end = end.ok_or_else(|| Pause::flaw(offset, BARE_AMPERSAND))?;
        push_referenced(&special[1..end], &mut text)
            .map_err(|message| Pause::flaw(offset, message))?;
        rest = &special[end + 1..];
    }
    text.push_str(rest);
    Ok(text)
}
