//! A simulated tree of files, by the URIs that they are published as.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use announce::observation::{DocumentPath, FileId, Found, Incomplete, Stat, WhyAbsent};
use announce::plan::Plan;
use jiff::Timestamp;
use resourcesync::document::{Document, Malformed, NotADocument};
use resourcesync::parse::{ReadError, parse};
use resourcesync::uri::Uri;

use crate::world::plan::SITE;

#[derive(Debug, Default)]
pub struct FakeTree {
    files: BTreeMap<String, File>,
    /// Directories that are not there.
    unmounted: BTreeSet<PathBuf>,
    /// Root inodes other than the first.
    inodes: BTreeMap<PathBuf, u64>,
    last_inode: u64,
}

#[derive(Debug, Clone)]
struct File {
    /// Nothing if it cannot be read.
    text: Option<Vec<u8>>,
    stat: Stat,
    /// The result of reading `text`, once it was read.
    content: OnceCell<Result<Result<Document, NotADocument>, Malformed>>,
}

/// Files that were taken away, as they were.
#[derive(Debug, Default)]
pub struct Aside(BTreeMap<String, File>);

/// The URI of a name that may begin with `/`.
pub fn absolute(name: &str) -> String {
    match name.starts_with('/') {
        true => format!("{SITE}{name}"),
        false => name.to_owned(),
    }
}

pub fn uri(name: &str) -> Uri {
    Uri::parse(&absolute(name)).unwrap()
}

/// Returns the URI that the file at a path is published as.
pub fn uri_of(plan: &Plan, path: &DocumentPath) -> Uri {
    let (_, source) = plan.source_of(path.mount).unwrap();
    source.uri_of(path).unwrap()
}

/// Returns the path of a candidate under a plan, and the directory of its mount.
pub fn path_of(plan: &Plan, name: &str) -> Option<(DocumentPath, PathBuf)> {
    let uri = uri(name);
    let sources = plan.sources.iter();
    let (source, mount) = sources
        .filter_map(|source| Some((source, source.mount_of(&uri)?)))
        .next()?;
    let below = uri.as_str().strip_prefix(mount.prefix.as_str()).unwrap();
    if !source
        .candidates
        .accepts(&mount.url_path(), below.as_bytes())
    {
        return None;
    }
    let path = DocumentPath {
        mount: mount.id,
        below: below.as_bytes().into(),
    };
    Some((path, mount.directory.clone()))
}

/// Returns the result of a look at a file whose mount is absent.
pub fn not_mounted() -> Found {
    Found::Incomplete(Incomplete::Denied("no such directory".to_owned()))
}

impl FakeTree {
    pub fn write(&mut self, name: &str, text: Option<&[u8]>, now: Timestamp) {
        self.last_inode += 1;
        let stat = Stat {
            size: text.map_or(0, |text| text.len() as u64),
            modified: now,
            changed: now,
            inode: self.last_inode,
        };
        let file = File {
            text: text.map(<[u8]>::to_vec),
            stat,
            content: OnceCell::new(),
        };
        self.files.insert(absolute(name), file);
    }

    pub fn delete(&mut self, name: &str) {
        self.files.remove(&absolute(name)).unwrap();
    }

    pub fn take_away(&mut self, prefix: &str) -> Aside {
        let files = std::mem::take(&mut self.files).into_iter();
        let (away, left) = files.partition(|(name, _)| name.starts_with(prefix));
        self.files = left;
        Aside(away)
    }

    pub fn bring_back(&mut self, aside: Aside) {
        self.files.extend(aside.0);
    }

    pub fn update(&mut self, name: &str, now: Timestamp) {
        let text = self.files[&absolute(name)].text.clone().unwrap();
        let text = String::from_utf8(text).unwrap();
        let mark = " at=\"2026-01-01T00:00:00.";
        let (head, tail) = text.split_once(mark).unwrap();
        let (count, tail) = tail.split_at(3);
        let count: u32 = count.parse().unwrap();
        let text = format!("{head}{mark}{:03}{tail}", count + 1);
        self.write(name, Some(text.as_bytes()), now);
    }

    pub fn set_modified(&mut self, name: &str, modified: Timestamp) {
        self.files.get_mut(&absolute(name)).unwrap().stat.modified = modified;
    }

    pub fn touch(&mut self, name: &str, now: Timestamp) {
        let text = self.files[&absolute(name)].text.clone();
        self.write(name, text.as_deref(), now);
    }

    pub fn names(&self) -> BTreeSet<String> {
        self.files.keys().cloned().collect()
    }

    pub fn stat(&self, name: &str) -> Option<Stat> {
        Some(self.files.get(&absolute(name))?.stat)
    }

    /// Returns the content of a file that can be read.
    pub fn text(&self, name: &str) -> Option<&[u8]> {
        self.files.get(&absolute(name))?.text.as_deref()
    }

    pub fn look(&self, name: &str) -> Found {
        let Some(file) = self.files.get(&absolute(name)) else {
            return Found::Missing;
        };
        let stat = file.stat;
        let Some(text) = &file.text else {
            return Found::Incomplete(Incomplete::Denied("permission denied".to_owned()));
        };
        match file.content.get_or_init(|| read(text)).clone() {
            Ok(Ok(parsed)) => Found::Document {
                parsed: parsed.into(),
                stat,
            },
            Ok(Err(reason)) => Found::Other { reason, stat },
            Err(malformed) => Found::Incomplete(Incomplete::Malformed(malformed)),
        }
    }

    /// Returns why there is no document at a path, whatever is included.
    pub fn explain(&self, plan: &Plan, path: &DocumentPath) -> Option<WhyAbsent> {
        let (_, source) = plan.source_of(path.mount).unwrap();
        let uri = uri_of(plan, path).to_string();
        let mount = source.mount_of(&uri_of(plan, path)).unwrap();
        let exclusion = source.candidates.exclusion(&mount.url_path(), &path.below);
        match (self.look(&uri), exclusion) {
            (Found::Missing, _) => Some(WhyAbsent::Nothing),
            (_, Some(exclusion)) => Some(WhyAbsent::Excluded(exclusion)),
            (Found::Document { .. }, None) => None,
            (Found::Other { reason, .. }, None) => Some(WhyAbsent::Other(reason)),
            (Found::Incomplete(reason), None) => Some(WhyAbsent::Broken(reason.to_string())),
        }
    }

    pub fn mount(&mut self, directory: &Path, inode: u64) {
        self.unmounted.remove(directory);
        self.inodes.insert(directory.to_owned(), inode);
    }

    pub fn unmount(&mut self, directory: &Path) {
        self.unmounted.insert(directory.to_owned());
    }

    pub fn is_mounted(&self, directory: &Path) -> bool {
        !self.unmounted.contains(directory)
    }

    pub fn identity(&self, directory: &Path) -> FileId {
        FileId {
            device: 1,
            inode: self.inodes.get(directory).copied().unwrap_or(2),
        }
    }
}

fn read(text: &[u8]) -> Result<Result<Document, NotADocument>, Malformed> {
    match parse(text) {
        Ok(content) => Ok(content),
        Err(ReadError::Malformed(malformed)) => Err(malformed),
        Err(ReadError::Io(error)) => panic!("{error}"),
    }
}
