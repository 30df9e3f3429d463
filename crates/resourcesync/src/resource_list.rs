//! The entries of a Resource List: the states of its resources in one pass, and some of them whole in another (core 1.1
//! section 10; C27, C28).

use std::io::Read;

use crate::capability::Capability;
use crate::change::{Change, normal_lastmod, normalized_digests};
use crate::change_list::{ChangeListError, EntriesReader, read_entries};
use crate::document::DeclaredSpan;

/// The entries of a Resource List in short.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedResources {
    /// The entries that count, in order of the list.
    pub entries: Vec<ListedResource>,
    /// Number of entries that do not count: they have no absolute URI.
    pub skipped: usize,
    /// The times of the list as its `rs:md` declares them.
    pub span: DeclaredSpan,
}

/// An entry of a Resource List (C27).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListedResource {
    /// Identity of the resource.
    pub resource: ResourceKey,
    /// State by which its versions are told apart.
    pub state: VersionDigest,
    /// Number of entries before it in the list.
    pub position: u32,
}

/// 128 bits of blake3 over the URI of a resource, as compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceKey(pub [u8; 16]);

/// What tells versions of a resource apart (C28): 32 bits each for its `lastmod` and `length`, and 64 each for its digests, in
/// order of 16 bits for their algorithms; of more than three digests the first. Zero stands for what is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct VersionDigest(pub [u8; 32]);

impl VersionDigest {
    /// Returns the state of an entry with these values, empty where it has none.
    fn of(lastmod: &str, length: &str, hash: &str) -> VersionDigest {
        let mut words = [[0; 8]; 4];
        let rest = [&*normal_lastmod(lastmod), length];
        for (half, value) in words[0].chunks_exact_mut(4).zip(rest) {
            if !value.is_empty() {
                half.copy_from_slice(&short_hash::<4>(value));
            }
        }
        for (word, digest) in words[1..].iter_mut().zip(normalized_digests(hash)) {
            let (algorithm, value) = digest.split_once(':').unwrap_or(("", &digest));
            *word = short_hash(value);
            let [first, second, ..] = short_hash::<8>(algorithm);
            (word[0], word[1]) = (first | 1, second);
        }
        let mut state = [0; 32];
        state.copy_from_slice(words.as_flattened());
        VersionDigest(state)
    }

    /// Returns true if they may be of one version: all digests by the same algorithms are equal, or where there are none,
    /// `lastmod` and `length` as far as both have them.
    pub fn may_be_same(&self, other: &VersionDigest) -> bool {
        let [rest, digests @ ..] = self.as_u64s();
        let [other_rest, others @ ..] = other.as_u64s();
        let digests = digests
            .iter()
            .flat_map(|one| others.iter().map(move |other| (*one, *other)))
            .filter(|(one, other)| one >> 48 == other >> 48);
        let halves = [rest >> 32, rest & u64::from(u32::MAX)].into_iter();
        let rest = halves.zip([other_rest >> 32, other_rest & u64::from(u32::MAX)]);
        self == other || common_are_equal(digests).or_else(|| common_are_equal(rest)) == Some(true)
    }

    fn as_u64s(&self) -> [u64; 4] {
        let (words, _) = self.0.as_chunks();
        std::array::from_fn(|at| u64::from_be_bytes(words[at]))
    }
}

/// Returns true if the values that both have are equal, and nothing if there are none.
fn common_are_equal(pairs: impl Iterator<Item = (u64, u64)>) -> Option<bool> {
    let mut common = pairs.filter(|(one, other)| *one != 0 && *other != 0);
    let (one, other) = common.next()?;
    Some(one == other && common.all(|(one, other)| one == other))
}

/// Reads the resources of a Resource List in one pass (C27).
///
/// # Errors
///
/// If it cannot be read, is malformed, or is no Resource List.
pub fn read_resources(source: impl Read) -> Result<ListedResources, ChangeListError> {
    let mut listed = ListedResources::default();
    let entries = EntriesReader::new(Capability::ResourceList.as_str());
    let read = read_entries(source, entries, |entries, position| {
        let draft = &entries.draft;
        match draft.uri_and_kind() {
            Ok((uri, _)) => listed.entries.push(ListedResource {
                resource: ResourceKey(short_hash(&uri)),
                state: VersionDigest::of(&draft.lastmod, &draft.length, &draft.hash),
                position,
            }),
            Err(_) => listed.skipped += 1,
        }
    })?;
    listed.span = read.span;
    Ok(listed)
}

/// Reads the entries of a Resource List at these positions, which ascend, as updates without a datetime (C28).
///
/// # Errors
///
/// If it cannot be read, is malformed, or is no Resource List.
pub fn read_resource_entries(
    source: impl Read,
    positions: &[u32],
) -> Result<Vec<Change>, ChangeListError> {
    let mut changes = Vec::new();
    let list = Capability::ResourceList.as_str();
    let entries = EntriesReader::with_all_fields(list, Some(positions));
    read_entries(source, entries, |entries, _| {
        changes.extend(entries.draft.finish());
    })?;
    Ok(changes)
}

/// Returns the first bytes of blake3 over the length of a text and the text.
fn short_hash<const N: usize>(text: &str) -> [u8; N] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(text.len() as u64).to_le_bytes());
    hasher.update(text.as_bytes());
    let mut short = [0; N];
    hasher.finalize_xof().fill(&mut short);
    short
}
