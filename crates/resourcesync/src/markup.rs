//! The parts of markup: the characters that XML admits in text and in names (XML 1.0 sections 2.2 and 2.3), names, the XML
//! declaration (section 2.8), and character and entity references (section 4.1). No entity is ever expanded but the five
//! that XML predefines (R2). Every byte of a document goes through the searches here.

use std::ops::Range;

use crate::reader::{ParseStop, syntax_error};

/// Reads the text between `<?xml` and `?>` (XML 1.0 section 2.8). Returns the range of the encoding's name, or the
/// offset and message of an error.
pub(crate) fn read_declaration(text: &[u8]) -> Result<Option<Range<usize>>, (usize, &'static str)> {
    let mut at = 0;
    let found = pseudo_attribute(text, &mut at, b"version")?;
    let version = found.ok_or((0, "the XML declaration has no version"))?;
    let minor = text[version.clone()].strip_prefix(b"1.");
    if !minor.is_some_and(|minor| !minor.is_empty() && minor.iter().all(u8::is_ascii_digit)) {
        return Err((version.start, "the version of XML is not 1.0"));
    }
    let encoding = pseudo_attribute(text, &mut at, b"encoding")?;
    if let Some(encoding) = &encoding {
        let is_name = |name: &[u8]| {
            let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
            name.first().is_some_and(u8::is_ascii_alphabetic) && name.iter().all(is_part)
        };
        if !is_name(&text[encoding.clone()]) {
            return Err((encoding.start, "the encoding has no proper name"));
        }
    }
    if let Some(standalone) = pseudo_attribute(text, &mut at, b"standalone")?
        && !matches!(&text[standalone.clone()], b"yes" | b"no")
    {
        return Err((standalone.start, "standalone is neither yes nor no"));
    }
    match skip_all_space(text, at) {
        end if end == text.len() => Ok(encoding),
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
    let end = bytes[value..].iter().position(|byte| byte == quote);
    let length = end.ok_or((open, "a value of the XML declaration does not end"))?;
    *at = value + length + 1;
    Ok(Some(value..value + length))
}

/// Skips white space as [`skip_space`], before line ends are normalised.
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
    let hexadecimal = number.strip_prefix('x').map(|digits| (digits, 16));
    let (digits, radix) = hexadecimal.unwrap_or((number, 10));
    // A sign would be accepted too.
    let is_number = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let code = u32::from_str_radix(digits, radix).ok();
    let numbered = code.filter(|_| is_number).and_then(char::from_u32);
    let character = numbered.ok_or_else(|| format!("&#{number}; is no character"))?;
    if !is_allowed(character) {
        return Err(forbidden_message(character));
    }
    text.push(character);
    Ok(())
}

/// Returns the value of an attribute: references are replaced, and literal white space by spaces (XML 1.0 section
/// 3.3.3).
pub(crate) fn unescaped(raw: &str, value: Range<usize>) -> Result<String, ParseStop> {
    let mut text = String::with_capacity(value.len());
    let mut rest = &raw[value.clone()];
    while let Some(at) = find_any(rest.as_bytes(), [b'&', b'\t', b'\n']) {
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
            .filter(|&end| !is_bare_ampersand(&special[1..end]))
            .ok_or_else(|| syntax_error(offset, BARE_AMPERSAND))?;
        push_referenced(&special[1..end], &mut text)
            .map_err(|message| syntax_error(offset, message))?;
        rest = &special[end + 1..];
    }
    text.push_str(rest);
    Ok(text)
}

/// Finds the first of some bytes. Eight are compared at once: where a byte equals a wanted one their difference is
/// zero, subtracting one sets its high bit, and the lowest high bit set is always right.
#[inline]
pub(crate) fn find_any<const N: usize>(bytes: &[u8], wanted: [u8; N]) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH_BITS: u64 = ONES << 7;
    let wide = wanted.map(|byte| u64::from(byte) * ONES);
    let mut at = 0;
    while let Some(block) = bytes[at..].first_chunk() {
        let block = u64::from_le_bytes(*block);
        let found = wide.iter().fold(0, |found, byte| {
            let difference = block ^ byte;
            found | difference.wrapping_sub(ONES) & !difference
        });
        if found & HIGH_BITS != 0 {
            return Some(at + (found & HIGH_BITS).trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let rest = bytes[at..].iter().position(|byte| wanted.contains(byte))?;
    Some(at + rest)
}

/// Returns the first offset from `at` on that is not white space.
#[inline]
pub(crate) fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\n') = bytes.get(at) {
        at += 1;
    }
    at
}

/// Offsets of a name's parts. Without a prefix, `prefix_end` is its start.
#[derive(Debug)]
pub(crate) struct NameOffsets {
    pub(crate) prefix_end: usize,
    pub(crate) local_start: usize,
    pub(crate) end: usize,
}

/// Returns the name at an offset, if there is a proper one.
#[inline]
pub(crate) fn name_at(bytes: &[u8], start: usize) -> Option<NameOffsets> {
    let mut name = NameOffsets {
        prefix_end: start,
        local_start: start,
        end: start,
    };
    let mut is_ascii = true;
    loop {
        let class = bytes.get(name.end).map(|&byte| CLASSES[usize::from(byte)]);
        match class {
            Some(NAME_START) => {}
            Some(BEYOND_ASCII) => is_ascii = false,
            Some(NAME) if name.end > name.local_start => {}
            Some(COLON) if name.local_start == start && name.end > start => {
                name.prefix_end = name.end;
                name.local_start = name.end + 1;
            }
            Some(NAME | COLON) => return None,
            // At the end of the text more may follow; the caller will find nothing there.
            None => break,
            Some(_) if name.end == name.local_start => return None,
            Some(_) => break,
        }
        name.end += 1;
    }
    (is_ascii || has_name_characters(bytes, start, &name)).then_some(name)
}

/// Returns true if the parts of a name beyond ASCII hold only characters that a name may.
#[cold]
fn has_name_characters(bytes: &[u8], start: usize, name: &NameOffsets) -> bool {
    let is_name = |part: &[u8]| {
        std::str::from_utf8(part).is_ok_and(|part| {
            part.chars().next().is_none_or(is_name_start) && part.chars().all(is_in_name)
        })
    };
    is_name(&bytes[start..name.prefix_end]) && is_name(&bytes[name.local_start..name.end])
}

/// Classes of bytes in a name (XML 1.0 section 2.3).
const OTHER: u8 = 0;
const NAME_START: u8 = 1;
/// Part of a name, but not its first character.
const NAME: u8 = 2;
const COLON: u8 = 3;
/// Part of a character that may be one of a name or not.
const BEYOND_ASCII: u8 = 4;

const CLASSES: [u8; 256] = {
    let mut classes = [OTHER; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => NAME_START,
            b'0'..=b'9' | b'-' | b'.' => NAME,
            b':' => COLON,
            0x80.. => BEYOND_ASCII,
            _ => OTHER,
        };
        byte += 1;
    }
    classes
};

/// Returns true if a byte is white space (XML 1.0 section 2.3).
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Returns true if a character is allowed in text (XML 1.0 section 2.2).
pub(crate) fn is_allowed(character: char) -> bool {
    match character {
        '\t' | '\n' | '\r' => true,
        '\u{fffe}' | '\u{ffff}' => false,
        character => character >= ' ',
    }
}

/// Returns true if a name may begin with a character (XML 1.0 section 2.3, fifth edition, which admits all that the
/// ones before it did). The colon is left to the caller.
pub(crate) fn is_name_start(character: char) -> bool {
    matches!(character,
        'A'..='Z' | 'a'..='z' | '_'
        | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{2ff}' | '\u{370}'..='\u{37d}'
        | '\u{37f}'..='\u{1fff}' | '\u{200c}'..='\u{200d}' | '\u{2070}'..='\u{218f}'
        | '\u{2c00}'..='\u{2fef}' | '\u{3001}'..='\u{d7ff}' | '\u{f900}'..='\u{fdcf}'
        | '\u{fdf0}'..='\u{fffd}' | '\u{10000}'..='\u{effff}')
}

/// Returns true if a name may contain a character; as [`is_name_start`].
pub(crate) fn is_in_name(character: char) -> bool {
    is_name_start(character)
        || matches!(character,
            '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}'..='\u{2040}')
}

/// Returns the message about a character that is not allowed.
pub(crate) fn forbidden_message(character: char) -> String {
    let number = u32::from(character);
    format!("the character U+{number:04X} is not allowed")
}

/// Finds the first character that is not allowed.
pub(crate) fn first_forbidden(text: &[u8]) -> Option<(usize, char)> {
    let is_suspect = |&byte: &u8| {
        (byte < b' ') & (byte != b'\t') & (byte != b'\n') & (byte != b'\r') | (byte == 0xef)
    };
    // Without an early exit the compiler compares many bytes at once.
    let bytes = text.iter();
    if bytes.fold(0, |found, byte| found | u8::from(is_suspect(byte))) == 0 {
        return None;
    }
    // The text was validated by the caller, or written by an encoder.
    let mut characters = std::str::from_utf8(text).ok()?.char_indices();
    characters.find(|(_, character)| !is_allowed(*character))
}
