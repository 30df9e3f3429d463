//! A start tag, read in one pass and without an allocation per attribute (XML 1.0 section 3.1), and the namespaces that its
//! prefixes are bound to (Namespaces in XML 1.0).

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

use crate::markup::{find_any, name_at, skip_space, unescaped};
use crate::reader::{ElementKind, ParseStop, element_named, syntax_error};

/// The namespace of Sitemaps (core 1.1 section 6).
pub(crate) const SITEMAP: &str = "http://www.sitemaps.org/schemas/sitemap/0.9";
/// The namespace of the ResourceSync terms (core 1.1 section 6).
pub(crate) const RS: &str = "http://www.openarchives.org/rs/terms/";
const XML: &str = "http://www.w3.org/XML/1998/namespace";
/// Most declarations in scope, to keep memory bounded.
const MAX_DECLARATIONS: usize = 1_000;
/// Longest namespace with its prefix, so that all in scope stay below 64 MiB.
const LONGEST_NAMESPACE: usize = 32 << 10;

/// An attribute of a tag; ranges are of the tag's text, from the `<`.
#[derive(Debug, Clone)]
pub(crate) struct Attribute {
    prefix: Range<usize>,
    local: Range<usize>,
    value: Range<usize>,
    /// True if the value needs neither unescaping nor normalising.
    is_plain: bool,
    pub(crate) namespace: Namespace,
}

/// A start tag, with its namespaces resolved.
#[derive(Debug)]
pub struct StartTag<'a> {
    /// Number of elements around it.
    pub depth: usize,
    pub element: ElementKind,
    pub namespace: Namespace,
    /// The whole name, as the end tag repeats it.
    pub(crate) name: &'a str,
    pub prefix: &'a str,
    pub local: &'a str,
    pub(crate) text: &'a str,
    /// Its attributes, in order of their resolved names.
    pub(crate) attributes: &'a [Attribute],
    pub(crate) is_empty_element: bool,
    /// The declarations in scope within the element.
    pub namespaces: &'a Namespaces,
    /// Offset of the tag in the text of the document.
    pub offset: u64,
}

impl<'a> StartTag<'a> {
    /// Reads the start tag at the start of a text, at the start of a document, and declares its namespaces. `attributes` is
    /// room for those of one tag.
    pub(crate) fn read(
        text: &'a str,
        attributes: &'a mut Vec<Attribute>,
        namespaces: &'a mut Namespaces,
    ) -> Result<StartTag<'a>, ParseStop> {
        attributes.clear();
        let bytes = text.as_bytes();
        let name = name_at(bytes, 1).ok_or_else(|| syntax_error(0, "a tag has no proper name"))?;
        // No attribute has a prefix or is `xmlns`.
        let mut is_simple = true;
        let mut at = name.end;
        let (length, is_empty_element) = loop {
            let start = skip_space(bytes, at);
            match bytes.get(start..) {
                Some([b'>', ..]) => break (start + 1, false),
                Some([b'/', b'>', ..]) => break (start + 2, true),
                None | Some([] | [b'/']) => return Err(ParseStop::Cut),
                Some(_) if start == at => {
                    return Err(syntax_error(at, "white space is missing in a tag"));
                }
                Some(_) => {}
            }
            let attribute = attribute_at(bytes, start)?;
            is_simple &= attribute.prefix.is_empty() && &bytes[attribute.local.clone()] != b"xmlns";
            // The closing quote follows the value.
            at = attribute.value.end + 1;
            attributes.push(attribute);
        };
        let tag = &text[..length];
        if !is_simple {
            take_declarations(tag, attributes, namespaces)?;
        }
        sort_attributes(tag, attributes, namespaces)?;
        let (prefix, local) = (&text[1..name.prefix_end], &text[name.local_start..name.end]);
        let namespace = namespaces
            .resolve(prefix)
            .ok_or_else(|| syntax_error(1, undeclared(prefix)))?;
        Ok(StartTag {
            depth: 0,
            element: element_named(namespace, local),
            namespace,
            name: &text[1..name.end],
            prefix,
            local,
            text: tag,
            attributes,
            is_empty_element,
            namespaces,
            offset: 0,
        })
    }

    /// Returns the local part of an attribute's name.
    pub(crate) fn local_name(&self, attribute: &Attribute) -> &'a str {
        &self.text[attribute.local.clone()]
    }

    /// Returns an attribute's value, unescaped.
    #[inline]
    pub(crate) fn value_of(&self, attribute: &Attribute) -> Result<Cow<'a, str>, ParseStop> {
        if attribute.is_plain {
            Ok(Cow::Borrowed(&self.text[attribute.value.clone()]))
        } else {
            unescaped(self.text, attribute.value.clone()).map(Cow::Owned)
        }
    }

    /// Returns the value of the attribute with this name and no prefix.
    pub fn value(&self, name: &str) -> Option<Cow<'a, str>> {
        self.attributes
            .iter()
            .find(|a| a.namespace == Namespace::None && self.local_name(a) == name)
            .and_then(|attribute| self.value_of(attribute).ok())
    }

    /// Returns that value without the white space around it, unless it is empty.
    pub(crate) fn filled(&self, name: &str) -> Option<String> {
        let value = self.value(name)?;
        let trimmed = value.trim();
        (!trimmed.is_empty()).then(|| trimmed.to_owned())
    }

    /// Returns true if `rel` has this relation type among others, in any case (RFC 8288 section 3.3).
    pub(crate) fn has_relation(&self, relation: &str) -> bool {
        self.value("rel").is_some_and(|rel| {
            let mut relations = rel.split_ascii_whitespace();
            relations.any(|one| one.eq_ignore_ascii_case(relation))
        })
    }
}

/// Returns the local part of the name of the tag at the start of a text, if more text cannot change it.
pub(crate) fn local_name(text: &str) -> Option<&str> {
    let name = name_at(text.as_bytes(), 1).filter(|name| name.end < text.len())?;
    Some(&text[name.local_start..name.end])
}

pub(crate) fn undeclared(prefix: &str) -> String {
    format!("the prefix {prefix} is not declared")
}

/// Sorts the attributes of a tag by their resolved names, none of which may occur twice.
fn sort_attributes(
    tag: &str,
    attributes: &mut [Attribute],
    namespaces: &Namespaces,
) -> Result<(), ParseStop> {
    let order = |a: &Attribute, b: &Attribute| {
        let by_namespace = if a.namespace == b.namespace {
            Ordering::Equal
        } else {
            namespaces.uri(a.namespace).cmp(namespaces.uri(b.namespace))
        };
        by_namespace.then_with(|| {
            let (a, b) = (&tag[a.local.clone()], &tag[b.local.clone()]);
            // Most names differ in their first byte, which is faster to compare.
            let first = a.as_bytes().first().cmp(&b.as_bytes().first());
            first.then_with(|| a.cmp(b))
        })
    };
    if attributes.is_sorted_by(|a, b| order(a, b).is_lt()) {
        return Ok(());
    }
    attributes.sort_unstable_by(order);
    for pair in attributes.windows(2) {
        if order(&pair[0], &pair[1]).is_eq() {
            let name = &tag[pair[0].local.clone()];
            let at = pair[0].local.start.max(pair[1].local.start);
            let message = format!("the attribute {name} occurs twice");
            return Err(syntax_error(at, message));
        }
    }
    Ok(())
}

fn attribute_at(bytes: &[u8], start: usize) -> Result<Attribute, ParseStop> {
    let name = name_at(bytes, start)
        .ok_or_else(|| syntax_error(start, "an attribute has no proper name"))?;
    let equals = skip_space(bytes, name.end);
    match bytes.get(equals) {
        Some(b'=') => {}
        Some(_) => return Err(syntax_error(equals, "an attribute has no value")),
        None => return Err(ParseStop::Cut),
    }
    let open = skip_space(bytes, equals + 1);
    let quote = match bytes.get(open) {
        Some(&quote @ (b'"' | b'\'')) => quote,
        Some(_) => {
            return Err(syntax_error(open, "an attribute's value is not quoted"));
        }
        None => return Err(ParseStop::Cut),
    };
    let mut is_plain = true;
    let mut close = open + 1;
    loop {
        close +=
            find_any(&bytes[close..], [quote, b'<', b'&', b'\t', b'\n']).ok_or(ParseStop::Cut)?;
        match bytes[close] {
            byte if byte == quote => break,
            b'<' => return Err(syntax_error(close, "an attribute's value contains <")),
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

/// Declares the namespaces that a tag does, removes the declarations from its attributes, and resolves the others.
fn take_declarations(
    raw: &str,
    attributes: &mut Vec<Attribute>,
    namespaces: &mut Namespaces,
) -> Result<(), ParseStop> {
    let part = |range: &Range<usize>| &raw[range.clone()];
    let declared = |attribute: &Attribute| match (part(&attribute.prefix), part(&attribute.local)) {
        ("", "xmlns") => Some(""),
        ("xmlns", prefix) => Some(prefix),
        _ => None,
    };
    let before = namespaces.bindings.len();
    for attribute in attributes.iter() {
        let Some(prefix) = declared(attribute) else {
            continue;
        };
        let mut declared = namespaces.bindings[before..].iter();
        if declared.any(|(bound, _)| bound == prefix) {
            let message = format!("the attribute xmlns:{prefix} occurs twice");
            return Err(syntax_error(attribute.local.start, message));
        }
        let uri = unescaped(raw, attribute.value.clone())?;
        namespaces
            .declare(prefix, &uri)
            .map_err(|message| syntax_error(attribute.local.start, message))?;
    }
    if namespaces.bindings.len() > before {
        attributes.retain(|attribute| declared(attribute).is_none());
    }
    for attribute in attributes.iter_mut().filter(|a| !a.prefix.is_empty()) {
        let prefix = part(&attribute.prefix);
        attribute.namespace = namespaces
            .resolve(prefix)
            .ok_or_else(|| syntax_error(attribute.prefix.start, undeclared(prefix)))?;
    }
    Ok(())
}

/// A namespace of one document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespace {
    None,
    Sitemap,
    Rs,
    /// An index into those that the document declares.
    Other(usize),
}

/// The declarations in scope, the innermost last.
#[derive(Debug)]
pub struct Namespaces {
    pub(crate) bindings: Vec<(String, Namespace)>,
    others: Vec<String>,
}

impl Namespaces {
    pub(crate) fn new() -> Namespaces {
        Namespaces {
            bindings: vec![("xml".to_owned(), Namespace::Other(0))],
            others: vec![XML.to_owned()],
        }
    }

    /// Declares a prefix, or with an empty one the default namespace.
    pub(crate) fn declare(&mut self, prefix: &str, uri: &str) -> Result<(), &'static str> {
        match prefix {
            "xmlns" => return Err("the prefix xmlns cannot be declared"),
            "xml" if uri != XML => return Err("the prefix xml cannot be declared anew"),
            "" => {}
            _ if uri.is_empty() => return Err("a prefix is declared with no namespace"),
            _ => {}
        }
        if uri.len() + prefix.len() > LONGEST_NAMESPACE {
            return Err("a namespace is too long");
        }
        if self.bindings.len() >= MAX_DECLARATIONS || self.others.len() >= MAX_DECLARATIONS {
            return Err("too many namespaces are declared");
        }
        let namespace = match uri {
            "" => Namespace::None,
            SITEMAP => Namespace::Sitemap,
            RS => Namespace::Rs,
            uri => {
                let known = self.others.iter().position(|known| known == uri);
                Namespace::Other(known.unwrap_or_else(|| {
                    self.others.push(uri.to_owned());
                    self.others.len() - 1
                }))
            }
        };
        self.bindings.push((prefix.to_owned(), namespace));
        Ok(())
    }

    /// Returns the namespace of a prefix, or with an empty one the default namespace.
    pub(crate) fn resolve(&self, prefix: &str) -> Option<Namespace> {
        // Prefixes are too short for a call of `memcmp` to pay.
        let is_it = |bound: &str| {
            bound.len() == prefix.len() && bound.bytes().zip(prefix.bytes()).all(|(a, b)| a == b)
        };
        let bound = self.bindings.iter().rev().find(|(bound, _)| is_it(bound));
        match bound {
            Some((_, namespace)) => Some(*namespace),
            None => prefix.is_empty().then_some(Namespace::None),
        }
    }

    /// Returns a prefix that is bound to a namespace, preferably `rs`; an empty one for the default namespace.
    pub(crate) fn prefix_of(&self, namespace: Namespace) -> Option<&str> {
        let bound = self.bindings.iter().map(|(prefix, _)| prefix.as_str());
        let prefixes = bound.filter(|prefix| self.resolve(prefix) == Some(namespace));
        prefixes.min_by_key(|prefix| *prefix != "rs")
    }

    /// Returns the URI of a namespace; empty for none.
    pub fn uri(&self, namespace: Namespace) -> &str {
        match namespace {
            Namespace::None => "",
            Namespace::Sitemap => SITEMAP,
            Namespace::Rs => RS,
            Namespace::Other(index) => &self.others[index],
        }
    }

    /// Returns true if a declared namespace is that of the ResourceSync terms, or was meant to be.
    pub(crate) fn declares_rs_terms(&self) -> bool {
        let mut declared = self.bindings.iter();
        declared.any(|(_, namespace)| self.uri(*namespace).contains("openarchives.org/rs/"))
    }
}
