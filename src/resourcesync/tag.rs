//! The inside of a start tag: what quick-xml leaves unchecked is checked here, and nothing is allocated
//! per attribute (XML 1.0 section 3.1).

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

use quick_xml::escape::resolve_xml_entity;

use crate::resourcesync::namespaces::{Namespace, Namespaces};
use crate::resourcesync::window::{forbidden, is_allowed};

/// What is wrong, and how far after the start of the markup.
#[derive(Debug)]
pub(crate) struct Flaw {
    pub(crate) at: usize,
    pub(crate) message: String,
}

impl Flaw {
    pub(crate) fn new(at: usize, message: impl Into<String>) -> Flaw {
        Flaw {
            at,
            message: message.into(),
        }
    }
}

/// An attribute of the tag that is being read; ranges are of the text after the element's name.
#[derive(Debug, Clone)]
pub(crate) struct Attribute {
    prefix: Range<usize>,
    local: Range<usize>,
    value: Range<usize>,
    /// Whether the value needs neither unescaping nor normalising.
    is_plain: bool,
    namespace: Namespace,
}

/// The attributes of one start tag.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tag<'a> {
    raw: &'a str,
    attributes: &'a [Attribute],
}

impl<'a> Tag<'a> {
    /// Reads the text after the element's name, puts declarations of namespaces in force, and resolves,
    /// sorts and checks the attributes that remain.
    pub(crate) fn read(
        raw: &'a str,
        attributes: &'a mut Vec<Attribute>,
        namespaces: &mut Namespaces,
    ) -> Result<Tag<'a>, Flaw> {
        attributes.clear();
        scan(raw, attributes)?;
        if attributes.is_empty() {
            return Ok(Tag { raw, attributes });
        }
        declare(raw, attributes, namespaces)?;
        for attribute in attributes.iter_mut().filter(|a| !a.prefix.is_empty()) {
            let prefix = &raw[attribute.prefix.clone()];
            attribute.namespace = namespaces
                .resolve(prefix)
                .ok_or_else(|| Flaw::new(attribute.prefix.start, undeclared(prefix)))?;
        }
        let order = |a: &Attribute, b: &Attribute| {
            let by_namespace = match a.namespace == b.namespace {
                true => Ordering::Equal,
                false => namespaces.uri(a.namespace).cmp(namespaces.uri(b.namespace)),
            };
            by_namespace.then_with(|| raw[a.local.clone()].cmp(&raw[b.local.clone()]))
        };
        attributes.sort_unstable_by(order);
        for pair in attributes.windows(2) {
            if order(&pair[0], &pair[1]).is_eq() {
                let name = &raw[pair[0].local.clone()];
                let at = pair[0].local.start.max(pair[1].local.start);
                return Err(Flaw::new(at, format!("the attribute {name} occurs twice")));
            }
        }
        Ok(Tag { raw, attributes })
    }

    /// Each attribute in order of its resolved name, its value unescaped.
    pub(crate) fn attributes(
        self,
    ) -> impl Iterator<Item = Result<(Namespace, &'a str, Cow<'a, str>), Flaw>> {
        self.attributes.iter().map(move |attribute| {
            let value = unescaped(self.raw, attribute)?;
            Ok((
                attribute.namespace,
                &self.raw[attribute.local.clone()],
                value,
            ))
        })
    }

    /// The value of the attribute that has this name and no prefix.
    pub(crate) fn value(self, name: &str) -> Option<Cow<'a, str>> {
        self.attributes
            .iter()
            .find(|a| a.namespace == Namespace::None && &self.raw[a.local.clone()] == name)
            .and_then(|attribute| unescaped(self.raw, attribute).ok())
    }
}

/// The prefix and the local part of a name; the prefix is empty where there is none.
pub(crate) fn split_name(name: &str) -> Option<(&str, &str)> {
    let bytes = name.as_bytes();
    let starts_name = |at: usize| bytes.get(at).is_some_and(|&byte| is_name_start(byte));
    if !starts_name(0) || !bytes.iter().all(|&byte| is_name(byte) || byte == b':') {
        return None;
    }
    match bytes.iter().position(|&byte| byte == b':') {
        None => Some(("", name)),
        Some(colon) if starts_name(colon + 1) && !bytes[colon + 1..].contains(&b':') => {
            Some((&name[..colon], &name[colon + 1..]))
        }
        Some(_) => None,
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

fn is_name_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

fn is_name(byte: u8) -> bool {
    is_name_start(byte) || byte.is_ascii_digit() || byte == b'-' || byte == b'.'
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n')
}

fn scan(raw: &str, attributes: &mut Vec<Attribute>) -> Result<(), Flaw> {
    let bytes = raw.as_bytes();
    let skip = |mut at: usize, is_skipped: fn(u8) -> bool| {
        while bytes.get(at).is_some_and(|&byte| is_skipped(byte)) {
            at += 1;
        }
        at
    };
    let mut at = 0;
    loop {
        let start = skip(at, is_space);
        if start == bytes.len() {
            return Ok(());
        }
        if start == at {
            return Err(Flaw::new(at, "white space is missing between attributes"));
        }
        let end = skip(start, |byte| is_name(byte) || byte == b':');
        let (prefix, local) = split_name(&raw[start..end])
            .ok_or_else(|| Flaw::new(start, "an attribute has no proper name"))?;
        let equals = skip(end, is_space);
        if bytes.get(equals) != Some(&b'=') {
            return Err(Flaw::new(equals, "an attribute has no value"));
        }
        let open = skip(equals + 1, is_space);
        let quote = match bytes.get(open) {
            Some(&quote @ (b'"' | b'\'')) => quote,
            _ => return Err(Flaw::new(open, "an attribute's value is not quoted")),
        };
        let mut close = open + 1;
        let mut is_plain = true;
        loop {
            match bytes.get(close) {
                None => return Err(Flaw::new(open, "an attribute's value does not end")),
                Some(&byte) if byte == quote => break,
                Some(b'<') => return Err(Flaw::new(close, "an attribute's value contains <")),
                Some(b'&' | b'\t' | b'\n') => is_plain = false,
                Some(_) => {}
            }
            close += 1;
        }
        attributes.push(Attribute {
            prefix: start..start + prefix.len(),
            local: end - local.len()..end,
            value: open + 1..close,
            is_plain,
            namespace: Namespace::None,
        });
        at = close + 1;
    }
}

/// Puts the namespaces in force that a tag declares, and drops their declarations from the attributes.
fn declare(
    raw: &str,
    attributes: &mut Vec<Attribute>,
    namespaces: &mut Namespaces,
) -> Result<(), Flaw> {
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
            return Err(Flaw::new(attribute.local.start, message));
        }
        let uri = unescaped(raw, attribute)?;
        namespaces
            .declare(prefix, &uri)
            .map_err(|message| Flaw::new(attribute.local.start, message))?;
    }
    if namespaces.depth() > before {
        attributes.retain(|attribute| declared(attribute).is_none());
    }
    Ok(())
}

/// XML 1.0 section 3.3.3: references are replaced, and white space that is written as such is a space.
fn unescaped<'a>(raw: &'a str, attribute: &Attribute) -> Result<Cow<'a, str>, Flaw> {
    let value = &raw[attribute.value.clone()];
    if attribute.is_plain {
        return Ok(Cow::Borrowed(value));
    }
    let mut text = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = rest.find(['&', '\t', '\n']) {
        text.push_str(&rest[..at]);
        let special = &rest[at..];
        if !special.starts_with('&') {
            text.push(' ');
            rest = &special[1..];
            continue;
        }
        let offset = attribute.value.end - special.len();
        let end = special
            .find(';')
            .ok_or_else(|| Flaw::new(offset, "a reference does not end"))?;
        push_referenced(&special[1..end], &mut text)
            .map_err(|message| Flaw::new(offset, message))?;
        rest = &special[end + 1..];
    }
    text.push_str(rest);
    Ok(Cow::Owned(text))
}
