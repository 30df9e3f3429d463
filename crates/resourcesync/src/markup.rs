//! Comments, processing instructions, CDATA sections and the XML declaration (XML 1.0 sections 2.5 to 2.8), and references
//! (section 4.1). No entity is ever expanded but the five that XML predefines (R2).

use std::ops::Range;

use crate::reader::StopReason;
use crate::scan::{find, forbidden, is_allowed, is_space, name_at};

/// Markup that begins with `<!` or `<?`.
#[derive(Debug)]
pub(crate) struct NonElementMarkup<'a> {
    pub(crate) kind: MarkupKind<'a>,
    pub(crate) length: usize,
    /// Offset and message of an error after which its end is still known.
    pub(crate) error: Option<(usize, String)>,
}

/// The kind of what begins with `<!` or `<?`.
#[derive(Debug)]
pub(crate) enum MarkupKind<'a> {
    /// A comment or processing instruction.
    Ignored,
    Declaration,
    CData(&'a str),
    /// Its end is still to be found.
    Doctype,
}

const COMMENT: &str = "<!--";
const CDATA: &str = "<![CDATA[";
const DOCTYPE: &str = "<!DOCTYPE";

impl<'a> NonElementMarkup<'a> {
    /// Reads the markup at the start of a text.
    pub(crate) fn read(text: &'a str) -> Result<NonElementMarkup<'a>, StopReason> {
        if text.starts_with("<?") {
            return instruction(text);
        }
        if text.starts_with(COMMENT) {
            return comment(text);
        }
        if let Some(rest) = text.strip_prefix(CDATA) {
            let end = rest.find("]]>").ok_or(StopReason::Cut)?;
            let kind = MarkupKind::CData(&rest[..end]);
            let length = CDATA.len() + end + 3;
            return Ok(NonElementMarkup::of(kind, length));
        }
        let begins = |markup: &str| {
            let common = text.len().min(markup.len());
            text.as_bytes()[..common].eq_ignore_ascii_case(&markup.as_bytes()[..common])
        };
        if begins(DOCTYPE) && text.len() >= DOCTYPE.len() {
            return Ok(NonElementMarkup::of(MarkupKind::Doctype, 0));
        }
        let is_cut = begins(DOCTYPE) || COMMENT.starts_with(text) || CDATA.starts_with(text);
        Err(if is_cut {
            StopReason::Cut
        } else {
            StopReason::syntax(0, "unknown or missed symbol in markup")
        })
    }

    fn of(kind: MarkupKind<'a>, length: usize) -> NonElementMarkup<'a> {
        NonElementMarkup {
            kind,
            length,
            error: None,
        }
    }
}

// XML 1.0 section 2.5: no `--` but the one that ends it.
fn comment(text: &str) -> Result<NonElementMarkup<'_>, StopReason> {
    let hyphens = |from: usize| text[from..].find("--").map(|at| from + at);
    let first = hyphens(COMMENT.len()).ok_or(StopReason::Cut)?;
    let end = text[first..].find("-->").ok_or(StopReason::Cut)?;
    let message = "forbidden string `--` was found in a comment";
    Ok(NonElementMarkup {
        error: (end > 0).then(|| (first, message.to_owned())),
        ..NonElementMarkup::of(MarkupKind::Ignored, first + end + 3)
    })
}

// XML 1.0 section 2.6, and Namespaces in XML 1.0 section 7: no colon in a target.
fn instruction(text: &str) -> Result<NonElementMarkup<'_>, StopReason> {
    let end = 2 + text[2..].find("?>").ok_or(StopReason::Cut)?;
    let mut kind = MarkupKind::Ignored;
    let length = end + 2;
    let name = name_at(&text.as_bytes()[..end], 2).filter(|name| name.end > 2);
    let error = match name {
        None => Some((2, "a processing instruction has no target".to_owned())),
        Some(name) => {
            let target = &text[2..name.end];
            let is_apart = name.end == end || is_space(text.as_bytes()[name.end]);
            if target == "xml" {
                kind = MarkupKind::Declaration;
                declaration(&text.as_bytes()[name.end..end])
                    .err()
                    .map(|(at, message)| (name.end + at, message.to_owned()))
            } else if target.eq_ignore_ascii_case("xml") {
                Some((2, format!("the target {target} is reserved")))
            } else {
                let flaw = match name.local_start {
                    3.. => Some("a colon in its name"),
                    _ => (!is_apart).then_some("no proper name"),
                };
                flaw.map(|flaw| (2, format!("the processing instruction {target} has {flaw}")))
            }
        }
    };
    Ok(NonElementMarkup {
        kind,
        length,
        error,
    })
}

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
