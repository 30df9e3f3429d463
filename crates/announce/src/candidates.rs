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
pub struct CandidateGlobs {
    /// The globs as the operator wrote them, which the rest is made of.
    pub include: Vec<String>,
    pub exclude: Vec<String>,
    /// The ends of candidates' names, one per include glob.
    tails: Vec<NameEnding>,
    included: GlobSet,
    excluded: GlobSet,
    /// Directories beneath which everything is excluded.
    pruned: GlobSet,
}

/// The path under which a mount is published, unescaped, without the slashes around it; empty for a whole host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountUrlPath(Box<[u8]>);

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
struct NameEnding {
    end: Box<[u8]>,
    /// True if that is the whole name.
    is_whole: bool,
    /// True if the name alone decides (`**/*.xml`).
    anywhere: bool,
}

impl CandidateGlobs {
    /// Makes candidates of globs. A file is one if one of its two paths matches one of `include`, and neither of them one of
    /// `exclude`; a directory that matches one of `exclude` is not entered.
    pub fn new(
        include: Vec<String>,
        exclude: Vec<String>,
    ) -> Result<CandidateGlobs, globset::Error> {
        let pruned: Vec<&str> = exclude
            .iter()
            .map(|glob| glob.strip_suffix("/**").unwrap_or(glob))
            .collect();
        Ok(CandidateGlobs {
            tails: include.iter().map(|glob| NameEnding::of(glob)).collect(),
            included: globs(include.iter().map(String::as_str))?,
            excluded: globs(exclude.iter().map(String::as_str))?,
            pruned: globs(pruned.into_iter())?,
            include,
            exclude,
        })
    }

    /// Returns true if the file at this path below its mount is a candidate: each directory above it may be entered.
    pub fn accepts(&self, published: &MountUrlPath, below: &[u8]) -> bool {
        self.exclusion(published, below).is_none()
    }

    /// Returns why the file at this path below its mount is no candidate; nothing if it is one.
    pub fn exclusion(&self, published: &MountUrlPath, below: &[u8]) -> Option<Exclusion> {
        if is_unread(below) {
            return Some(Exclusion::Hidden);
        }
        let ends = (0..below.len()).filter(|&at| below[at] == b'/');
        let mut above = ends.filter_map(|end| published.matching_glob(&self.pruned, &below[..end]));
        let excluding = above.next();
        if let Some(glob) = excluding.or_else(|| published.matching_glob(&self.excluded, below)) {
            return Some(Exclusion::Excluded(self.exclude[glob].clone()));
        }
        let is_included = self.includes(published, below);
        (!is_included).then(|| Exclusion::NotIncluded(self.include_also_matching(below)))
    }

    /// Returns true if a glob includes a file, each part of whose path has a name.
    fn includes(&self, published: &MountUrlPath, below: &[u8]) -> bool {
        let mut names = below.split(|&byte| byte == b'/');
        let name = names.clone().next_back().unwrap_or(below);
        let mut tails = self.tails.iter().filter(|tail| tail.matches(name));
        names.all(|name| !name.is_empty())
            && (tails.clone().any(|tail| tail.anywhere)
                || tails.next().is_some()
                    && published.matching_glob(&self.included, below).is_some())
    }

    /// Returns the include globs with one more that accepts the file at this path, and others like it.
    fn include_also_matching(&self, below: &[u8]) -> Vec<String> {
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
    pub fn is_candidate_name(&self, name: &[u8]) -> bool {
        !is_unread(name) && self.tails.iter().any(|tail| tail.matches(name))
    }

    /// Returns true if the file at this path below its mount is a candidate, given that its name
    /// [may be](CandidateGlobs::is_candidate_name) one.
    pub fn is_candidate(&self, published: &MountUrlPath, below: &[u8]) -> bool {
        self.includes(published, below) && published.matching_glob(&self.excluded, below).is_none()
    }

    /// Returns true if candidates may lie beneath this directory. `below` is its path, `name` the last part of it.
    pub fn may_enter(
        &self,
        published: &MountUrlPath,
        name: &[u8],
        below: impl FnOnce() -> Vec<u8>,
    ) -> bool {
        let is_pruned = || published.matching_glob(&self.pruned, &below()).is_some();
        !is_hidden(name) && (self.pruned.is_empty() || !is_pruned())
    }
}

impl MountUrlPath {
    /// Returns the published path of a mount with this prefix.
    pub fn of_uri(prefix: &Uri) -> MountUrlPath {
        let text = prefix.as_str();
        let host = text.split_once("://").map_or(text, |(_, host)| host);
        let path = host.split_once('/').map_or("", |(_, path)| path);
        let path = percent_decode(path.trim_matches('/').as_bytes());
        MountUrlPath(path.collect())
    }

    /// Returns the first glob that matches what lies at `below`, by the one path or the other.
    fn matching_glob(&self, globs: &GlobSet, below: &[u8]) -> Option<usize> {
        if globs.is_empty() {
            return None;
        }
        let matching = |path: &[u8]| {
            let matching = globs.matches_candidate(&Candidate::from_bytes(path));
            matching.first().copied()
        };
        let published = || (!self.0.is_empty()).then(|| [&self.0, below].join(&b'/'));
        matching(below).or_else(|| matching(&published()?))
    }
}

impl PartialEq for CandidateGlobs {
    fn eq(&self, other: &CandidateGlobs) -> bool {
        (&self.include, &self.exclude) == (&other.include, &other.exclude)
    }
}

impl Eq for CandidateGlobs {}

impl fmt::Debug for CandidateGlobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (&self.include, &self.exclude).fmt(f)
    }
}

/// R1: returns true for names of which neither files nor directories are looked at; rsync's `.name.XXXXXX` is one, and what
/// `fsck` finds in a file system is nobody's.
pub fn is_hidden(name: &[u8]) -> bool {
    name.first() == Some(&b'.') && name != b".well-known" || name == b"lost+found"
}

/// R1: returns true for paths of files that are never read, because they, or directories above them, are hidden, or they
/// are temporary ones of editors or others.
fn is_unread(below: &[u8]) -> bool {
    const ENDS: [&[u8]; 5] = [b"~", b".tmp", b".part", b".swp", b".swx"];
    let names = below.split(|&byte| byte == b'/');
    let name = names.clone().next_back().unwrap_or(below);
    names.clone().any(is_hidden)
        || ENDS.iter().any(|end| name.ends_with(end))
        || (name.len() > 1 && name.starts_with(b"#") && name.ends_with(b"#"))
}

impl NameEnding {
    fn of(glob: &str) -> NameEnding {
        let is_plain = |text: &str| !text.contains(['*', '?', '[', ']', '{', '}', '\\']);
        let (above, last) = glob.rsplit_once('/').unwrap_or(("", glob));
        let end = match last.strip_prefix('*') {
            Some(suffix) if is_plain(suffix) => Some((suffix, false)),
            None if is_plain(last) && !above.contains(['{', '[']) => Some((last, true)),
            _ => None,
        };
        let (text, is_whole) = end.unwrap_or_default();
        NameEnding {
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
    use rstest::rstest;

    use super::{CandidateGlobs, Exclusion, MountUrlPath};
    use crate::plan::DEFAULT_INCLUDE;

    const DEFAULT_EXCLUDE: [&str; 2] = ["private/**", "**/old-*.xml"];

    fn candidates(include: &[&str], exclude: &[&str]) -> CandidateGlobs {
        let [include, exclude] =
            [include, exclude].map(|globs| globs.iter().map(|&glob| glob.to_owned()).collect());
        CandidateGlobs::new(include, exclude).unwrap()
    }

    #[test]
    fn names_are_candidates_as_r1_says() {
        let names = candidates(&DEFAULT_INCLUDE, &DEFAULT_EXCLUDE);
        let is_accepted = |below: &[u8]| names.accepts(&MountUrlPath::default(), below);
        let yes = "a.xml a/b.xml .well-known/resourcesync a/.well-known/resourcesync .well-known/x.xml private.xml \
                   4913/a.xml a.part/b.tmp/c~/#d#/a.xml";
        for yes in yes.split(' ') {
            assert!(is_accepted(yes.as_bytes()), "{yes}");
        }
        assert!(is_accepted(b"a/\xff\n.xml"));
        let no = "a.txt .a.xml .git/a.xml .a.xml.Xy12Zq a.xml~ a.xml.tmp .#a.xml #a.xml# resourcesync a/ /a.xml \
                  lost+found/a.xml a/lost+found/a.xml a/resourcesync private/a.xml private/b/a.xml c/old-1.xml";
        for no in no.split(' ').chain([""]) {
            assert!(!is_accepted(no.as_bytes()), "{no}");
        }
        assert!(!CandidateGlobs::default().accepts(&MountUrlPath::default(), b"a.xml"));
    }

    #[rstest]
    #[case::accepted(&DEFAULT_INCLUDE, "a/rl.xml", None)]
    #[case::packed(&DEFAULT_INCLUDE, "a/rl.xml.gz", Some("**/*.xml.gz"))]
    #[case::in_upper_case(&DEFAULT_INCLUDE, "rl.XML", Some("**/*.XML"))]
    #[case::without_extension(&DEFAULT_INCLUDE, "a/resource[1]", Some("a/resource[[]1[]]"))]
    #[case::in_another_directory(&["set/*.xml"], "other/rl.xml", Some("other/*.xml"))]
    #[case::in_the_root(&["set/*.xml"], "rl.xml", Some("*.xml"))]
    fn an_exclusion_says_which_globs_would_accept(
        #[case] include: &[&str],
        #[case] below: &str,
        #[case] more: Option<&str>,
    ) {
        let (root, below) = (MountUrlPath::default(), below.as_bytes());
        let globs: Vec<&str> = include.iter().copied().chain(more).collect();
        let owned = || globs.iter().map(|&glob| glob.to_owned()).collect();
        let exclusion = more.map(|_| Exclusion::NotIncluded(owned()));
        let names = candidates(include, &DEFAULT_EXCLUDE);
        assert_eq!(names.exclusion(&root, below), exclusion);
        assert!(candidates(&globs, &[]).accepts(&root, below));
    }

    #[rstest]
    #[case("private/b/a.xml", Exclusion::Excluded("private/**".to_owned()))]
    #[case("a/old-1.xml", Exclusion::Excluded("**/old-*.xml".to_owned()))]
    #[case(".git/a.xml", Exclusion::Hidden)]
    #[case("a/.a.xml", Exclusion::Hidden)]
    #[case("a.xml~", Exclusion::Hidden)]
    fn an_exclusion_names_the_glob_or_the_kind_of_name(
        #[case] below: &str,
        #[case] exclusion: Exclusion,
    ) {
        let names = candidates(&DEFAULT_INCLUDE, &DEFAULT_EXCLUDE);
        let found = names.exclusion(&MountUrlPath::default(), below.as_bytes());
        assert_eq!(found, Some(exclusion));
    }

    #[rstest]
    #[case(&DEFAULT_INCLUDE, &[], "https://e.org/.well-known/", "resourcesync", true)]
    #[case(&DEFAULT_INCLUDE, &[], "https://e.org/%2Ewell-known/", "resourcesync", true)]
    #[case(&DEFAULT_INCLUDE, &[], "https://e.org/a/.well-known/", "resourcesync", true)]
    #[case(&DEFAULT_INCLUDE, &[], "https://e.org/.well-known/", ".well-known/resourcesync", true)]
    #[case(&DEFAULT_INCLUDE, &[], "https://e.org/.well-known/", "d/resourcesync", false)]
    #[case(&DEFAULT_INCLUDE, &[], "https://e.org/", "resourcesync", false)]
    #[case(&DEFAULT_INCLUDE, &[], "https://e.org/.well-known", "a.txt", false)]
    #[case(&["a b/*.x"], &[], "https://e.org/a%20b/", "1.x", true)]
    #[case(&["a b/*.x"], &[], "https://e.org/a%20b/", "d/1.x", false)]
    #[case(&["*.x"], &[], "https://e.org/a%20b/", "1.x", true)]
    #[case(&["100%/*.x"], &[], "https://e.org/100%/", "1.x", true)]
    #[case(&["**/*.x"], &["p/**"], "https://e.org/p/", "1.x", false)]
    #[case(&["**/*.x"], &["p/d/**"], "https://e.org/p/", "d/e/1.x", false)]
    #[case(&["**/*.x"], &["d/**"], "https://e.org/p/", "d/1.x", false)]
    #[case(&["**/*.x"], &["p/d/**"], "https://e.org/p/", "e/1.x", true)]
    fn a_glob_sees_the_path_below_the_mount_and_the_path_of_the_uri(
        #[case] include: &[&str],
        #[case] exclude: &[&str],
        #[case] prefix: &str,
        #[case] below: &str,
        #[case] want: bool,
    ) {
        let published = MountUrlPath::of_uri(&Uri::parse(prefix).unwrap());
        let names = candidates(include, exclude);
        assert_eq!(names.accepts(&published, below.as_bytes()), want);
    }
}
