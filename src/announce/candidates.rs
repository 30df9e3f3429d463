//! The names that may be documents (R1), decided before the file system is accessed, because a tree may hold a million
//! other files.

use std::fmt;

use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};
use resourcesync::uri::Uri;
use serde::{Deserialize, Serialize};

/// The include and exclude globs of a source. They see the path of a file below its mount, and the path of its URI.
/// Two are equal if their globs are. By default, no file is one.
#[derive(Clone, Default)]
pub struct Candidates {
    /// The globs as written, which the rest is made of.
    pub globs: Globs,
    /// The shapes of the last component of a candidate, one per include glob.
    tails: Vec<Tail>,
    include: GlobSet,
    exclude: GlobSet,
    /// Directories beneath which everything is excluded.
    prune: GlobSet,
}

/// The path under which a mount is published, unescaped, without the slashes around it; empty for a whole host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PublishedPath(Box<[u8]>);

/// Globs as the operator wrote them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Globs {
    pub include: Vec<String>,
    pub exclude: Vec<String>,
}

/// The reason why a file is no candidate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Exclusion {
    /// Its name, or one above it, is that of hidden or temporary files (R1).
    Hidden,
    /// This glob of `exclude` matches.
    Excluded(String),
    /// No glob of `include` matches. These would: the ones that there are, and one more.
    NotIncluded(Vec<String>),
}

impl std::error::Error for Exclusion {}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exclusion::Hidden => f.write_str(
                "the file there has the name of a hidden or temporary one, and those are never read: rename it",
            ),
            Exclusion::Excluded(glob) => write!(f, "`exclude` has {glob:?}, which matches the file there"),
            Exclusion::NotIncluded(include) => write!(
                f,
                "`include` does not match the file there: write include = {include:?}"
            ),
        }
    }
}

#[derive(Debug, Clone)]
struct Tail {
    shape: Shape,
    /// True if the name alone decides (`**/*.xml`).
    anywhere: bool,
}

#[derive(Debug, Clone)]
enum Shape {
    Suffix(Box<[u8]>),
    Exact(Box<[u8]>),
    Any,
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
            include: globs(include.iter().map(String::as_str))?,
            exclude: globs(exclude.iter().map(String::as_str))?,
            prune: globs(pruned.into_iter())?,
            globs: Globs { include, exclude },
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
        let above = ends.filter_map(|end| published.matching(&self.prune, &below[..end]));
        let itself = published.matching(&self.exclude, below);
        if let Some(glob) = above.chain(itself).next() {
            return Some(Exclusion::Excluded(self.globs.exclude[glob].clone()));
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
        self.globs.include.iter().cloned().chain([glob]).collect()
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
            || published.matches(&self.include, below))
            && !published.matches(&self.exclude, below)
    }

    /// Returns true if candidates may lie beneath this directory. `below` is its path, `name` the last part of it.
    pub fn may_enter(
        &self,
        published: &PublishedPath,
        name: &[u8],
        below: impl FnOnce() -> Vec<u8>,
    ) -> bool {
        !is_hidden(name) && (self.prune.is_empty() || !published.matches(&self.prune, &below()))
    }
}

impl PublishedPath {
    /// Returns the published path of a mount with this prefix.
    pub fn of(prefix: &Uri) -> PublishedPath {
        let text = prefix.as_str();
        let host = text.split_once("://").map_or(text, |(_, host)| host);
        let path = host.split_once('/').map_or("", |(_, path)| path);
        let path = path.trim_matches('/').as_bytes();
        let mut unescaped = Vec::with_capacity(path.len());
        let mut left = path;
        while let Some((&byte, after)) = left.split_first() {
            let escaped = after
                .get(..2)
                .filter(|_| byte == b'%')
                .and_then(hexadecimal);
            unescaped.push(escaped.unwrap_or(byte));
            left = if escaped.is_some() {
                &after[2..]
            } else {
                after
            };
        }
        PublishedPath(unescaped.into())
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

fn hexadecimal(digits: &[u8]) -> Option<u8> {
    let value = |digit: &u8| char::from(*digit).to_digit(16);
    let [high, low] = digits else { return None };
    u8::try_from(value(high)? << 4 | value(low)?).ok()
}

impl PartialEq for Candidates {
    fn eq(&self, other: &Candidates) -> bool {
        self.globs == other.globs
    }
}

impl Eq for Candidates {}

impl fmt::Debug for Candidates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.globs.fmt(f)
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
            let mut globs = names.globs.include.to_vec();
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
