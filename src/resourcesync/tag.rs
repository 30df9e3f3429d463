//! A start tag, read in one pass and without an allocation per attribute (XML 1.0 section 3.1).

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

use quick_xml::escape::resolve_xml_entity;

use crate::resourcesync::namespaces::{Namespace, Namespaces};
use crate::resourcesync::reading::Pause;
use crate::resourcesync::window::{forbidden, is_allowed};

/// An attribute of the tag that is being read; ranges are of its text, from the `<`.
#[derive(Debug, Clone)]
pub(crate) struct Attribute {
    prefix: Range<usize>,
    local: Range<usize>,
    value: Range<usize>,
    /// Whether the value needs neither unescaping nor normalising.
    is_plain: bool,
    pub(crate) namespace: Namespace,
}

/// A start tag whose namespaces are not yet resolved.
#[derive(Debug)]
pub(crate) struct RawTag<'a> {
    pub(crate) text: &'a str,
    pub(crate) name: &'a str,
    pub(crate) prefix: &'a str,
    pub(crate) local: &'a str,
    pub(crate) is_empty_element: bool,
    /// Whether no attribute has a prefix or is `xmlns`.
    is_simple: bool,
}

/// A start tag's attributes, in order of their resolved names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tag<'a> {
    text: &'a str,
    pub(crate) attributes: &'a [Attribute],
}

impl<'a> RawTag<'a> {
    /// Reads the start tag at the start of a text.
    pub(crate) fn read(
        text: &'a str,
        attributes: &mut Vec<Attribute>,
    ) -> Result<RawTag<'a>, Pause> {
        attributes.clear();
        let bytes = text.as_bytes();
        let name = name_at(bytes, 1).ok_or_else(|| Pause::flaw(0, "a tag has no proper name"))?;
        let mut is_simple = true;
        let mut at = name.end;
        loop {
            let start = skip_space(bytes, at);
            let (length, is_empty_element) = match bytes.get(start..) {
                Some([b'>', ..]) => (start + 1, false),
                Some([b'/', b'>', ..]) => (start + 2, true),
                None | Some([] | [b'/']) => return Err(Pause::Cut),
                Some(_) if start == at => {
                    return Err(Pause::flaw(at, "white space is missing in a tag"));
                }
                Some(_) => {
                    let attribute = attribute_at(bytes, start)?;
                    is_simple &=
                        attribute.prefix.is_empty() && &bytes[attribute.local.clone()] != b"xmlns";
                    // The closing quote follows the value.
                    at = attribute.value.end + 1;
                    attributes.push(attribute);
                    continue;
                }
            };
            return Ok(RawTag {
                text: &text[..length],
                name: &text[1..name.end],
                prefix: &text[1..name.prefix_end],
                local: &text[name.local_start..name.end],
                is_empty_element,
                is_simple,
            });
        }
    }

    /// Puts declarations of namespaces in force, and resolves, sorts and checks the attributes that remain.
    pub(crate) fn resolve(
        &self,
        attributes: &'a mut Vec<Attribute>,
        namespaces: &mut Namespaces,
    ) -> Result<Tag<'a>, Pause> {
        let text = self.text;
        if !self.is_simple {
            declare(text, attributes, namespaces)?;
            for attribute in attributes.iter_mut().filter(|a| !a.prefix.is_empty()) {
                let prefix = &text[attribute.prefix.clone()];
                attribute.namespace = namespaces
                    .resolve(prefix)
                    .ok_or_else(|| Pause::flaw(attribute.prefix.start, undeclared(prefix)))?;
            }
        }
        let order = |a: &Attribute, b: &Attribute| {
            let by_namespace = match a.namespace == b.namespace {
                true => Ordering::Equal,
                false => namespaces.uri(a.namespace).cmp(namespaces.uri(b.namespace)),
            };
            by_namespace.then_with(|| in_order(&text[a.local.clone()], &text[b.local.clone()]))
        };
        if !attributes.is_sorted_by(|a, b| order(a, b).is_lt()) {
            attributes.sort_unstable_by(order);
            for pair in attributes.windows(2) {
                if order(&pair[0], &pair[1]).is_eq() {
                    let name = &text[pair[0].local.clone()];
                    let at = pair[0].local.start.max(pair[1].local.start);
                    return Err(Pause::flaw(
                        at,
                        format!("the attribute {name} occurs twice"),
                    ));
                }
            }
        }
        Ok(Tag { text, attributes })
    }
}

impl<'a> Tag<'a> {
    /// The local part of an attribute's name.
    pub(crate) fn local_name(self, attribute: &Attribute) -> &'a str {
        &self.text[attribute.local.clone()]
    }

    /// An attribute's value, unescaped.
    #[inline]
    pub(crate) fn text(self, attribute: &Attribute) -> Result<Cow<'a, str>, Pause> {
        if attribute.is_plain {
            Ok(Cow::Borrowed(&self.text[attribute.value.clone()]))
        } else {
            unescaped(self.text, attribute.value.clone()).map(Cow::Owned)
        }
    }

    /// The value of the attribute that has this name and no prefix.
    pub(crate) fn value(self, name: &str) -> Option<Cow<'a, str>> {
        self.attributes
            .iter()
            .find(|a| a.namespace == Namespace::None && self.local_name(a) == name)
            .and_then(|attribute| self.text(attribute).ok())
    }
}

pub(crate) fn undeclared(prefix: &str) -> String {
    format!("the prefix {prefix} is not declared")
}

/// Appends what a reference stands for: a character, or one of the five entities that XML predefines.
pub(crate) fn push_referenced(name: &str, text: &mut String) -> Result<(), String> {
    let Some(number) = name.strip_prefix('#') else {
        let entity =
            resolve_xml_entity(name).ok_or_else(|| format!("the entity {name} is not defined"))?;
        text.push_str(entity);
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

/// What a byte may be in a name (XML 1.0 section 2.3); beyond ASCII, anything.
const OTHER: u8 = 0;
const NAME_START: u8 = 1;
/// Part of a name, but not its first character.
const NAME: u8 = 2;
const COLON: u8 = 3;

const CLASSES: [u8; 256] = {
    let mut classes = [OTHER; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => NAME_START,
            b'0'..=b'9' | b'-' | b'.' => NAME,
            b':' => COLON,
            _ => OTHER,
        };
        byte += 1;
    }
    classes
};

/// Where the first byte is that `is_it` is true of. Blocks without an early exit let the compiler compare
/// many bytes at once.
#[inline]
pub(crate) fn find(bytes: &[u8], is_it: impl Fn(u8) -> bool) -> Option<usize> {
    const BLOCK: usize = 16;
    let mut at = 0;
    while let Some(block) = bytes.get(at..at + BLOCK) {
        if block.iter().fold(false, |found, &byte| found | is_it(byte)) {
            break;
        }
        at += BLOCK;
    }
    let rest = bytes[at..].iter().position(|&byte| is_it(byte))?;
    Some(at + rest)
}

/// The first place from `at` on that is not white space.
#[inline]
pub(crate) fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\n') = bytes.get(at) {
        at += 1;
    }
    at
}

/// As `cmp`; most names differ in their first byte.
fn in_order(a: &str, b: &str) -> Ordering {
    let first = a.as_bytes().first().cmp(&b.as_bytes().first());
    first.then_with(|| a.cmp(b))
}

/// Where a name's parts are. Without a prefix, `prefix_end` is its start.
struct Name {
    prefix_end: usize,
    local_start: usize,
    end: usize,
}

/// The name at a place, if there is a proper one.
#[inline]
fn name_at(bytes: &[u8], start: usize) -> Option<Name> {
    let mut name = Name {
        prefix_end: start,
        local_start: start,
        end: start,
    };
    loop {
        let class = bytes.get(name.end).map(|&byte| CLASSES[usize::from(byte)]);
        match class {
            Some(NAME_START) => {}
            Some(NAME) if name.end > name.local_start => {}
            Some(COLON) if name.local_start == start && name.end > start => {
                name.prefix_end = name.end;
                name.local_start = name.end + 1;
            }
            Some(NAME | COLON) => return None,
            // At the end of the text more may follow; the caller will find nothing there.
            None => return Some(name),
            Some(_) => return (name.end > name.local_start).then_some(name),
        }
        name.end += 1;
    }
}

fn attribute_at(bytes: &[u8], start: usize) -> Result<Attribute, Pause> {
    let name = name_at(bytes, start)
        .ok_or_else(|| Pause::flaw(start, "an attribute has no proper name"))?;
    let equals = skip_space(bytes, name.end);
    match bytes.get(equals) {
        Some(b'=') => {}
        Some(_) => return Err(Pause::flaw(equals, "an attribute has no value")),
        None => return Err(Pause::Cut),
    }
    let open = skip_space(bytes, equals + 1);
    let quote = match bytes.get(open) {
        Some(&quote @ (b'"' | b'\'')) => quote,
        Some(_) => return Err(Pause::flaw(open, "an attribute's value is not quoted")),
        None => return Err(Pause::Cut),
    };
    let is_special =
        |byte| (byte == b'"') | (byte == b'\'') | (byte == b'&') | (byte == b'<') | (byte < b' ');
    let mut is_plain = true;
    let mut close = open + 1;
    loop {
        close += find(&bytes[close..], is_special).ok_or(Pause::Cut)?;
        match bytes[close] {
            byte if byte == quote => break,
            b'<' => return Err(Pause::flaw(close, "an attribute's value contains <")),
            b'"' | b'\'' => {}
            _ => is_plain = false,
        }
        close += 1;
    }
    Ok(Attribute {
        prefix: start..name.prefix_end,
        local: name.local_start..name.end,
        value: open + 1..close,
        is_plain,
        namespace: Namespace::None,
    })
}

/// Puts the namespaces in force that a tag declares, and drops their declarations from the attributes.
fn declare(
    raw: &str,
    attributes: &mut Vec<Attribute>,
    namespaces: &mut Namespaces,
) -> Result<(), Pause> {
    let declared = |attribute: &Attribute| match (
        &raw[attribute.prefix.clone()],
        &raw[attribute.local.clone()],
    ) {
        ("", "xmlns") => Some(""),
        ("xmlns", prefix) => Some(prefix),
        _ => None,
    };
    let before = namespaces.depth();
    for attribute in attributes.iter() {
        let Some(prefix) = declared(attribute) else {
            continue;
        };
        if namespaces.declares_since(before, prefix) {
            let message = format!("the attribute xmlns:{prefix} occurs twice");
            return Err(Pause::flaw(attribute.local.start, message));
        }
        let uri = unescaped(raw, attribute.value.clone())?;
        namespaces
            .declare(prefix, &uri)
            .map_err(|message| Pause::flaw(attribute.local.start, message))?;
    }
    if namespaces.depth() > before {
        attributes.retain(|attribute| declared(attribute).is_none());
    }
    Ok(())
}

/// XML 1.0 section 3.3.3: references are replaced, and white space that is written as such is a space.
fn unescaped(raw: &str, value: Range<usize>) -> Result<String, Pause> {
    let mut text = String::with_capacity(value.len());
    let mut rest = &raw[value.clone()];
    let is_special = |byte: &u8| matches!(byte, b'&' | b'\t' | b'\n');
    while let Some(at) = rest.as_bytes().iter().position(is_special) {
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
            .ok_or_else(|| Pause::flaw(offset, "a reference does not end"))?;
        push_referenced(&special[1..end], &mut text)
            .map_err(|message| Pause::flaw(offset, message))?;
        rest = &special[end + 1..];
    }
    text.push_str(rest);
    Ok(text)
}
