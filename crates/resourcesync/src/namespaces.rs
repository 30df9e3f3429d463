//! Prefixes and the namespaces they are bound to (Namespaces in XML 1.0).

/// The namespace of Sitemaps (core 1.1 section 6).
pub(crate) const SITEMAP: &str = "http://www.sitemaps.org/schemas/sitemap/0.9";
/// The namespace of the ResourceSync terms (core 1.1 section 6).
pub(crate) const RS: &str = "http://www.openarchives.org/rs/terms/";
const XML: &str = "http://www.w3.org/XML/1998/namespace";

/// Most declarations in scope, to keep memory bounded.
const MAX_DECLARATIONS: usize = 1_000;
/// Longest namespace with its prefix, so that all in scope stay below 64 MiB.
const LONGEST_NAMESPACE: usize = 32 << 10;

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
            uri => Namespace::Other(self.other(uri)),
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
    pub(crate) fn has_terms(&self) -> bool {
        let mut declared = self.bindings.iter();
        declared.any(|(_, namespace)| self.uri(*namespace).contains("openarchives.org/rs/"))
    }

    fn other(&mut self, uri: &str) -> usize {
        match self.others.iter().position(|known| known == uri) {
            Some(index) => index,
            None => {
                self.others.push(uri.to_owned());
                self.others.len() - 1
            }
        }
    }
}
