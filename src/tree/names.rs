//! Which names may be documents (R1): decided before anything is asked of the file system, because a tree
//! may hold a million other files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::tree::TreeError;

/// The include and exclude globs of a source.
#[derive(Debug)]
pub struct Candidates {
    /// What the last component of a candidate looks like, one per include glob.
    tails: Vec<Tail>,
    include: GlobSet,
    exclude: GlobSet,
    /// Directories beneath which everything is excluded.
    prune: GlobSet,
}

#[derive(Debug)]
struct Tail {
    shape: Shape,
    /// Whether the name alone decides (`**/*.xml`).
    anywhere: bool,
}

#[derive(Debug)]
enum Shape {
    Suffix(Box<[u8]>),
    Exact(Box<[u8]>),
    Any,
}

impl Candidates {
    pub fn new(include: &[String], exclude: &[String]) -> Result<Candidates, TreeError> {
        let pruned: Vec<&str> = exclude
            .iter()
            .map(|glob| glob.strip_suffix("/**").unwrap_or(glob))
            .collect();
        Ok(Candidates {
            tails: include.iter().map(|glob| Tail::of(glob)).collect(),
            include: globs(include.iter().map(String::as_str))?,
            exclude: globs(exclude.iter().map(String::as_str))?,
            prune: globs(pruned.into_iter())?,
        })
    }

    /// Whether the file at this path below its mount is a candidate: each directory above it may be entered.
    pub fn accepts(&self, below: &[u8]) -> bool {
        let ends = (0..below.len()).filter(|&at| below[at] == b'/');
        let mut start = 0;
        for end in ends {
            let name = &below[start..end];
            if name.is_empty() || !self.may_enter(name, || below[..end].to_vec()) {
                return false;
            }
            start = end + 1;
        }
        let name = &below[start..];
        !name.is_empty() && self.may_be(name) && self.is_candidate(below)
    }

    /// Whether a file of this name, in some directory, can be a candidate.
    pub(super) fn may_be(&self, name: &[u8]) -> bool {
        !is_hidden(name) && !is_temporary(name) && self.tails.iter().any(|tail| tail.matches(name))
    }

    /// Whether the file at this path below its mount is a candidate, given that its name
    /// [may be](Candidates::may_be) one.
    pub(super) fn is_candidate(&self, below: &[u8]) -> bool {
        let name = below.rsplit(|&byte| byte == b'/').next().unwrap_or(below);
        let path = Path::new(OsStr::from_bytes(below));
        (self
            .tails
            .iter()
            .any(|tail| tail.anywhere && tail.matches(name))
            || self.include.is_match(path))
            && (self.exclude.is_empty() || !self.exclude.is_match(path))
    }

    /// Whether candidates may lie beneath this directory. `below` is its path, `name` the last part of it.
    pub(super) fn may_enter(&self, name: &[u8], below: impl FnOnce() -> Vec<u8>) -> bool {
        !is_hidden(name)
            && (self.prune.is_empty() || !self.prune.is_match(OsStr::from_bytes(&below())))
    }
}

/// R1: neither files nor directories of such a name are looked at; rsync's `.name.XXXXXX` is one.
pub(super) fn is_hidden(name: &[u8]) -> bool {
    name.first() == Some(&b'.') && name != b".well-known"
}

/// Temporary and editors' names of files (R1).
fn is_temporary(name: &[u8]) -> bool {
    const ENDS: [&[u8]; 5] = [b"~", b".tmp", b".part", b".swp", b".swx"];
    ENDS.iter().any(|end| name.ends_with(end))
        || (name.len() > 1 && name.starts_with(b"#") && name.ends_with(b"#"))
}

impl Tail {
    fn of(glob: &str) -> Tail {
        let is_plain = |text: &str| !text.contains(['*', '?', '[', ']', '{', '}', '\\']);
        let (above, last) = glob.rsplit_once('/').unwrap_or(("", glob));
        let shape = match last.strip_prefix('*') {
            Some(suffix) if is_plain(suffix) => Shape::Suffix(suffix.as_bytes().into()),
            None if is_plain(last) && !above.contains(['{', '[']) => {
                Shape::Exact(last.as_bytes().into())
            }
            _ => Shape::Any,
        };
        Tail {
            anywhere: above == "**" && !matches!(shape, Shape::Any),
            shape,
        }
    }

    fn matches(&self, name: &[u8]) -> bool {
        match &self.shape {
            Shape::Suffix(suffix) => name.ends_with(suffix),
            Shape::Exact(exact) => name == &**exact,
            Shape::Any => true,
        }
    }
}

fn globs<'a>(globs: impl Iterator<Item = &'a str>) -> Result<GlobSet, TreeError> {
    let failed = |glob: &str| {
        let glob = glob.to_owned();
        |source| TreeError::Glob { glob, source }
    };
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        let glob = GlobBuilder::new(glob)
            .literal_separator(true)
            .build()
            .map_err(failed(glob))?;
        set.add(glob);
    }
    set.build().map_err(failed("include and exclude together"))
}

#[cfg(test)]
mod tests {
    use super::Candidates;
    use crate::announce::plan::DEFAULT_INCLUDE;

    #[test]
    fn names_are_candidates_as_r1_says() {
        let include = DEFAULT_INCLUDE.map(str::to_owned);
        let names =
            Candidates::new(&include, &["private/**".into(), "**/old-*.xml".into()]).unwrap();
        for yes in [
            &b"a.xml"[..],
            b"a/b.xml",
            b".well-known/resourcesync",
            b"a/.well-known/resourcesync",
            b".well-known/x.xml",
            b"a/\xff\n.xml",
            b"private.xml",
            b"4913/a.xml",
            b"a.part/b.tmp/c~/#d#/a.xml",
        ] {
            assert!(names.accepts(yes), "{}", yes.escape_ascii());
        }
        for no in [
            &b"a.txt"[..],
            b".a.xml",
            b".git/a.xml",
            b".a.xml.Xy12Zq",
            b"a.xml~",
            b"a.xml.tmp",
            b".#a.xml",
            b"#a.xml#",
            b"resourcesync",
            b"",
            b"a/",
            b"/a.xml",
            b"a/resourcesync",
            b"private/a.xml",
            b"private/b/a.xml",
            b"c/old-1.xml",
        ] {
            assert!(!names.accepts(no), "{}", no.escape_ascii());
        }
    }

    #[test]
    fn nothing_included_is_nothing_accepted() {
        let names = Candidates::new(&[], &[]).unwrap();
        assert!(!names.accepts(b"a.xml"));
    }
}
