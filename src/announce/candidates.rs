//! The names that may be documents (R1), decided before the file system is accessed, because a tree may hold a million
//! other files.

use std::fmt;

use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};
use percent_encoding::percent_decode;
use resourcesync::uri::Uri;
use serde::{Deserialize, Serialize};

/// The include and exclude globs of a source. They see the path of a file below its mount, and the path of its URI.
/// Two are equal if their globs are. By default, no file is one.
#[derive(Clone, Default)]
pub struct Candidates {
    /// The globs as the operator wrote them, which the rest is made of.
    pub include: Vec<String>,
    pub exclude: Vec<String>,
    /// The ends of candidates' names, one per include glob.
    tails: Vec<Tail>,
    included: GlobSet,
    excluded: GlobSet,
    /// Directories beneath which everything is excluded.
    pruned: GlobSet,
}

/// The path under which a mount is published, unescaped, without the slashes around it; empty for a whole host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PublishedPath(Box<[u8]>);

/// The reason why a file is no candidate.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error,
)]
pub enum Exclusion {
    /// Its name, or one above it, is that of hidden or temporary files (R1).
    #[error(
        "the file there has the name of a hidden or temporary one, and those are never read: rename it"
    )]
    Hidden,
    /// This glob of `exclude` matches.
    #[error("`exclude` has {0:?}, which matches the file there")]
    Excluded(String),
    /// No glob of `include` matches. These would: the ones that there are, and one more.
    #[error("`include` does not match the file there: write include = {0:?}")]
    NotIncluded(Vec<String>),
}

/// The end of a candidate's name, as far as a glob tells.
#[derive(Debug, Clone)]
struct Tail {
    end: Box<[u8]>,
    /// True if that is the whole name.
    is_whole: bool,
    /// True if the name alone decides (`**/*.xml`).
    anywhere: bool,
}

impl Candidates {
    /// Makes candidates of globs. A file is one if one of its two paths matches one of `include`, and neither of them one of
    /// `exclude`; a directory that matches one of `exclude` is not entered.
    pub fn new(include: Vec<String>, exclude: Vec<String>) -> Result<Candidates, globset::Error> {
        let pruned: Vec<&str> = exclude
            .iter()
            .map(|glob| glob.strip_suffix("/**").unwrap_or(glob))
            .collect();
        Ok(Candidates {
            tails: include.iter().map(|glob| Tail::of(glob)).collect(),
            included: globs(include.iter().map(String::as_str))?,
            excluded: globs(exclude.iter().map(String::as_str))?,
            pruned: globs(pruned.into_iter())?,
            include,
            exclude,
        })
    }

    /// Returns true if the file at this path below its mount is a candidate: each directory above it may be entered.
    pub fn accepts(&self, published: &PublishedPath, below: &[u8]) -> bool {
        let ends = (0..below.len()).filter(|&at| below[at] == b'/');
        let mut start = 0;
        for end in ends {
            let name = &below[start..end];
            if name.is_empty() || !self.may_enter(published, name, || below[..end].to_vec()) {
                return false;
            }
            start = end + 1;
        }
        let name = &below[start..];
        !name.is_empty() && self.may_be(name) && self.is_candidate(published, below)
    }

    /// Returns why the file at this path below its mount is no candidate; nothing if it is one.
    pub fn exclusion(&self, published: &PublishedPath, below: &[u8]) -> Option<Exclusion> {
        let mut names = below.split(|&byte| byte == b'/');
        let is_unread = |name: &[u8]| is_hidden(name) || is_temporary(name);
        if names.clone().any(is_hidden) || names.next_back().is_none_or(is_unread) {
            return Some(Exclusion::Hidden);
        }
        let ends = (0..below.len()).filter(|&at| below[at] == b'/');
        let above = ends.filter_map(|end| published.matching(&self.pruned, &below[..end]));
        let itself = published.matching(&self.excluded, below);
        if let Some(glob) = above.chain(itself).next() {
            return Some(Exclusion::Excluded(self.exclude[glob].clone()));
        }
        (!self.accepts(published, below)).then(|| Exclusion::NotIncluded(self.including(below)))
    }

    /// Returns the include globs with one more that accepts the file at this path, and others like it.
    fn including(&self, below: &[u8]) -> Vec<String> {
        let below = String::from_utf8_lossy(below);
        let (directory, name) = below.rsplit_once('/').unwrap_or(("", &below));
        let packed = name.strip_suffix(".gz").unwrap_or(name);
        let extension = packed.rfind('.').filter(|&at| at > 0);
        let may_be = self.tails.iter().any(|tail| tail.matches(name.as_bytes()));
        let glob = match extension {
            None => globset::escape(&below),
            Some(at) if !may_be => format!("**/*{}", globset::escape(&name[at..])),
            Some(at) => {
                let above = match directory {
                    "" => String::new(),
                    directory => format!("{}/", globset::escape(directory)),
                };
                format!("{above}*{}", globset::escape(&name[at..]))
            }
        };
        self.include.iter().cloned().chain([glob]).collect()
    }

    /// Returns true if a file of this name, in some directory, can be a candidate.
    pub fn may_be(&self, name: &[u8]) -> bool {
        !is_hidden(name) && !is_temporary(name) && self.tails.iter().any(|tail| tail.matches(name))
    }

    /// Returns true if the file at this path below its mount is a candidate, given that its name
    /// [may be](Candidates::may_be) one.
    pub fn is_candidate(&self, published: &PublishedPath, below: &[u8]) -> bool {
        let name = below.rsplit(|&byte| byte == b'/').next().unwrap_or(below);
        let mut tails = self.tails.iter();
        (tails.any(|tail| tail.anywhere && tail.matches(name))
            || published.matches(&self.included, below))
            && !published.matches(&self.excluded, below)
    }

    /// Returns true if candidates may lie beneath this directory. `below` is its path, `name` the last part of it.
    pub fn may_enter(
        &self,
        published: &PublishedPath,
        name: &[u8],
        below: impl FnOnce() -> Vec<u8>,
    ) -> bool {
        !is_hidden(name) && (self.pruned.is_empty() || !published.matches(&self.pruned, &below()))
    }
}

impl PublishedPath {
    /// Returns the published path of a mount with this prefix.
    pub fn of(prefix: &Uri) -> PublishedPath {
        let text = prefix.as_str();
        let host = text.split_once("://").map_or(text, |(_, host)| host);
        let path = host.split_once('/').map_or("", |(_, path)| path);
        let path = percent_decode(path.trim_matches('/').as_bytes());
        PublishedPath(path.collect())
    }

    /// Returns the first glob that matches what lies at `below`, by the one path or the other.
    fn matching(&self, globs: &GlobSet, below: &[u8]) -> Option<usize> {
        let matching = |path: &[u8]| {
            let matching = globs.matches_candidate(&Candidate::from_bytes(path));
            matching.first().copied()
        };
        let published = || (!self.0.is_empty()).then(|| [&self.0, below].join(&b'/'));
        matching(below).or_else(|| matching(&published()?))
    }

    /// Returns true if a glob matches what lies at `below`, by the one path or the other.
    fn matches(&self, globs: &GlobSet, below: &[u8]) -> bool {
        if globs.is_empty() {
            return false;
        }
        let matches = |path: &[u8]| globs.is_match_candidate(&Candidate::from_bytes(path));
        matches(below) || !self.0.is_empty() && matches(&[&self.0, below].join(&b'/'))
    }
}

impl PartialEq for Candidates {
    fn eq(&self, other: &Candidates) -> bool {
        (&self.include, &self.exclude) == (&other.include, &other.exclude)
    }
}

impl Eq for Candidates {}

impl fmt::Debug for Candidates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (&self.include, &self.exclude).fmt(f)
    }
}

/// R1: returns true for names of which neither files nor directories are looked at; rsync's `.name.XXXXXX` is one, and what
/// `fsck` finds in a file system is nobody's.
pub fn is_hidden(name: &[u8]) -> bool {
    name.first() == Some(&b'.') && name != b".well-known" || name == b"lost+found"
}

/// Returns true for temporary and editors' names of files (R1).
fn is_temporary(name: &[u8]) -> bool {
    const ENDS: [&[u8]; 5] = [b"~", b".tmp", b".part", b".swp", b".swx"];
    ENDS.iter().any(|end| name.ends_with(end))
        || (name.len() > 1 && name.starts_with(b"#") && name.ends_with(b"#"))
}

impl Tail {
    fn of(glob: &str) -> Tail {
        let is_plain = |text: &str| !text.contains(['*', '?', '[', ']', '{', '}', '\\']);
        let (above, last) = glob.rsplit_once('/').unwrap_or(("", glob));
        let end = match last.strip_prefix('*') {
            Some(suffix) if is_plain(suffix) => Some((suffix, false)),
            None if is_plain(last) && !above.contains(['{', '[']) => Some((last, true)),
            _ => None,
        };
        let (text, is_whole) = end.unwrap_or_default();
        Tail {
            end: text.as_bytes().into(),
            is_whole,
            anywhere: above == "**" && end.is_some(),
        }
    }

    fn matches(&self, name: &[u8]) -> bool {
        name.ends_with(&self.end) && (!self.is_whole || name.len() == self.end.len())
    }
}

fn globs<'a>(globs: impl Iterator<Item = &'a str>) -> Result<GlobSet, globset::Error> {
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        set.add(GlobBuilder::new(glob).literal_separator(true).build()?);
    }
    set.build()
}

#[cfg(test)]
mod tests {
    use resourcesync::uri::Uri;

    use super::{Candidates, Exclusion, PublishedPath};
    use crate::announce::plan::DEFAULT_INCLUDE;

    #[test]
    fn names_are_candidates_as_r1_says() {
        let exclude = ["private/**", "**/old-*.xml"].map(str::to_owned);
        let names =
            Candidates::new(DEFAULT_INCLUDE.map(str::to_owned).into(), exclude.into()).unwrap();
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
            assert!(
                names.accepts(&PublishedPath::default(), yes),
                "{}",
                yes.escape_ascii()
            );
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
            b"lost+found/a.xml",
            b"a/lost+found/a.xml",
            b"a/resourcesync",
            b"private/a.xml",
            b"private/b/a.xml",
            b"c/old-1.xml",
        ] {
            assert!(
                !names.accepts(&PublishedPath::default(), no),
                "{}",
                no.escape_ascii()
            );
        }
    }

    #[test]
    fn an_exclusion_says_which_globs_would_accept() {
        let root = PublishedPath::default();
        let new = |include: &[&str], exclude: &[&str]| {
            let owned = |globs: &[&str]| globs.iter().map(|glob| (*glob).to_owned()).collect();
            Candidates::new(owned(include), owned(exclude)).unwrap()
        };
        let default = new(&DEFAULT_INCLUDE, &["private/**", "**/old-*.xml"]);
        let some = new(&["set/*.xml"], &[]);
        for (names, below, want) in [
            (&default, "a/rl.xml", None),
            (&default, "a/rl.xml.gz", Some("**/*.xml.gz")),
            (&default, "rl.XML", Some("**/*.XML")),
            (&default, "a/resource[1]", Some("a/resource[[]1[]]")),
            (&some, "other/rl.xml", Some("other/*.xml")),
            (&some, "rl.xml", Some("*.xml")),
        ] {
            let mut globs = names.include.clone();
            globs.extend(want.map(str::to_owned));
            let exclusion = want.map(|_| Exclusion::NotIncluded(globs.clone()));
            assert_eq!(
                names.exclusion(&root, below.as_bytes()),
                exclusion,
                "{below}"
            );
            let included = Candidates::new(globs, Vec::new()).unwrap();
            assert!(included.accepts(&root, below.as_bytes()), "{below}");
        }
        for (below, glob) in [
            ("private/b/a.xml", "private/**"),
            ("a/old-1.xml", "**/old-*.xml"),
        ] {
            let excluded = Exclusion::Excluded(glob.to_owned());
            assert_eq!(
                default.exclusion(&root, below.as_bytes()),
                Some(excluded),
                "{below}"
            );
        }
        for below in [".git/a.xml", "a/.a.xml", "a.xml~"] {
            assert_eq!(
                default.exclusion(&root, below.as_bytes()),
                Some(Exclusion::Hidden),
                "{below}"
            );
        }
    }

    #[test]
    fn nothing_included_is_nothing_accepted() {
        let names = Candidates::default();
        assert!(!names.accepts(&PublishedPath::default(), b"a.xml"));
    }

    #[test]
    fn a_glob_sees_the_path_below_the_mount_and_the_path_of_the_uri() {
        let published = |prefix: &str| PublishedPath::of(&Uri::parse(prefix).unwrap());
        let default = DEFAULT_INCLUDE.map(str::to_owned).to_vec();
        let of = |include: &[&str], exclude: &[&str]| {
            let [include, exclude] =
                [include, exclude].map(|globs| globs.iter().map(|&glob| glob.to_owned()).collect());
            Candidates::new(include, exclude).unwrap()
        };
        let default = Candidates::new(default, Vec::new()).unwrap();
        for (names, prefix, below, want) in [
            (
                &default,
                "https://e.org/.well-known/",
                &b"resourcesync"[..],
                true,
            ),
            (
                &default,
                "https://e.org/%2Ewell-known/",
                b"resourcesync",
                true,
            ),
            (
                &default,
                "https://e.org/a/.well-known/",
                b"resourcesync",
                true,
            ),
            (
                &default,
                "https://e.org/.well-known/",
                b".well-known/resourcesync",
                true,
            ),
            (
                &default,
                "https://e.org/.well-known/",
                b"d/resourcesync",
                false,
            ),
            (&default, "https://e.org/", b"resourcesync", false),
            (&default, "https://e.org/.well-known", b"a.txt", false),
            (&of(&["a b/*.x"], &[]), "https://e.org/a%20b/", b"1.x", true),
            (
                &of(&["a b/*.x"], &[]),
                "https://e.org/a%20b/",
                b"d/1.x",
                false,
            ),
            (&of(&["*.x"], &[]), "https://e.org/a%20b/", b"1.x", true),
            (&of(&["100%/*.x"], &[]), "https://e.org/100%/", b"1.x", true),
            (
                &of(&["**/*.x"], &["p/**"]),
                "https://e.org/p/",
                b"1.x",
                false,
            ),
            (
                &of(&["**/*.x"], &["p/d/**"]),
                "https://e.org/p/",
                b"d/e/1.x",
                false,
            ),
            (
                &of(&["**/*.x"], &["d/**"]),
                "https://e.org/p/",
                b"d/1.x",
                false,
            ),
            (
                &of(&["**/*.x"], &["p/d/**"]),
                "https://e.org/p/",
                b"e/1.x",
                true,
            ),
        ] {
            let is_accepted = names.accepts(&published(prefix), below);
            assert_eq!(is_accepted, want, "{prefix} {}", below.escape_ascii());
        }
    }
}
