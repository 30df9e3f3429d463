//! Which names may be documents (R1): decided before anything is asked of the file system, because a tree
//! may hold a million other files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::tree::{DEFAULT_INCLUDE, TreeError};

/// The include and exclude globs of a source.
#[derive(Debug)]
pub(super) struct Names {
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

impl Names {
    pub(super) fn new(include: &[String], exclude: &[String]) -> Result<Names, TreeError> {
        let defaults = DEFAULT_INCLUDE.map(str::to_owned);
        let include = if include.is_empty() {
            &defaults
        } else {
            include
        };
        let pruned: Vec<&str> = exclude
            .iter()
            .map(|glob| glob.strip_suffix("/**").unwrap_or(glob))
            .collect();
        Ok(Names {
            tails: include.iter().map(|glob| Tail::of(glob)).collect(),
            include: globs(include.iter().map(String::as_str))?,
            exclude: globs(exclude.iter().map(String::as_str))?,
            prune: globs(pruned.into_iter())?,
        })
    }

    /// Whether a file of this name, in some directory, can be a candidate.
    pub(super) fn may_be(&self, name: &[u8]) -> bool {
        !is_never(name) && self.tails.iter().any(|tail| tail.matches(name))
    }

    /// Whether the file at this path below its mount is a candidate, given that its name
    /// [may be](Names::may_be) one.
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
        !is_never(name)
            && (self.prune.is_empty() || !self.prune.is_match(OsStr::from_bytes(&below())))
    }
}

/// Hidden, temporary and editors' names (R1). rsync's `.name.XXXXXX` is hidden too.
pub(super) fn is_never(name: &[u8]) -> bool {
    const TEMPORARY: [&[u8]; 5] = [b"~", b".tmp", b".part", b".swp", b".swx"];
    (name.first() == Some(&b'.') && name != b".well-known")
        || TEMPORARY.iter().any(|end| name.ends_with(end))
        || (name.len() > 1 && name.starts_with(b"#") && name.ends_with(b"#"))
        || name == b"4913"
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
    use super::Names;

    #[test]
    fn names_are_candidates_as_r1_says() {
        let names = Names::new(&[], &["private/**".into(), "**/old-*.xml".into()]).unwrap();
        let is_candidate = |below: &[u8]| {
            let mut at = 0;
            let enters = below.iter().enumerate().all(|(end, &byte)| {
                byte != b'/' || {
                    let name = &below[at..end];
                    at = end + 1;
                    names.may_enter(name, || below[..end].to_vec())
                }
            });
            enters && names.may_be(&below[at..]) && names.is_candidate(below)
        };
        for yes in [
            &b"a.xml"[..],
            b"a/b.xml",
            b".well-known/resourcesync",
            b"a/.well-known/resourcesync",
            b".well-known/x.xml",
            b"a/\xff\n.xml",
            b"private.xml",
        ] {
            assert!(is_candidate(yes), "{}", yes.escape_ascii());
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
            b"a/resourcesync",
            b"private/a.xml",
            b"private/b/a.xml",
            b"c/old-1.xml",
        ] {
            assert!(!is_candidate(no), "{}", no.escape_ascii());
        }
    }
}
