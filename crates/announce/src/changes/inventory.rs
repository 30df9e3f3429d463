//! Changes of a set without Change Lists: what differs between its Resource Lists and those before (C27 to C29).
//!
//! All resources are compared in order of their keys, list against rows, so that memory is bounded by a few words for
//! each resource.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::change::Change;
use resourcesync::datetime::Datetime;
use resourcesync::payload::ChangeKind;
use resourcesync::resource_list::{ListedResource, ListedResources, ResourceKey, VersionDigest};

use crate::changes::round::{
    AHEAD, FreshChange, ListTally, RoundRequest, TakenNow, read_in_given_order,
};
use crate::plan::MassDeletionLimit;
use crate::time::later;

/// Time for which no Resource List of a set may change before they count as one inventory (C27).
pub const INVENTORY_QUIET: Duration = Duration::from_secs(30);
/// Resources that are learned in one round, so that no transaction is too large.
const LEARNED: usize = 50_000;

/// A resource as it was listed last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InventoryRow {
    pub state: VersionDigest,
    /// URI as it is listed.
    pub uri: Box<str>,
    /// The time since which no list has it, by the clock of
    /// [`WatchTime`](crate::changes::round::WatchTime).
    pub missing: Option<Timestamp>,
}

/// The rules by which a resource that is not listed any more counts as deleted (C29).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeletionRules {
    pub mass_deletion: MassDeletionLimit,
    /// What is missing since then at the latest is deleted, as an operator wants, and nothing else now.
    pub accepted: Option<Timestamp>,
}

/// Resources that are missing, of so many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MissingResourceCounts {
    pub missing: usize,
    pub of: usize,
    /// True if they are too many to be believed (R15).
    pub is_suspended: bool,
    /// The time at which the first counts as deleted, by the clock of
    /// [`WatchTime`](crate::changes::round::WatchTime).
    pub next: Option<Timestamp>,
}

/// Compares Resource Lists with the inventory before, which is in order of its keys, and takes what differs. `read`
/// returns the entries of a list at some positions, which ascend.
pub fn take_inventory<E>(
    request: &RoundRequest,
    rules: DeletionRules,
    listed: Vec<ListedResources>,
    stored: impl IntoIterator<Item = Result<(ResourceKey, InventoryRow), E>>,
    read: impl FnMut(usize, &[u32]) -> Result<Vec<Change>, E>,
) -> Result<TakenNow, E> {
    let time = time(request, &listed);
    let pairs = request.lists.iter().zip(&listed);
    let lists = pairs.map(|(list, of)| ListTally::new(list, of.entries.len(), of.skipped));
    let mut lists: Vec<ListTally> = lists.collect();
    let mut compared = compare(request, rules, merged_resources(listed), stored)?;
    let missing = &mut compared.missing;
    // R15, C29: no deletion is believed while too many resources are missing, unless an operator accepts them.
    let limit = rules.mass_deletion;
    let is_all = missing.missing == missing.of && limit != MassDeletionLimit::Never;
    let is_mass = limit.is_exceeded(missing.missing, missing.of) || is_all;
    missing.is_suspended = missing.missing > 0 && is_mass && rules.accepted.is_none();
    if missing.is_suspended {
        compared.deleted.clear();
    } else {
        compared.has_more |= compared.has_more_deleted;
        missing.missing -= compared.deleted.len();
    }
    let (mut differing, mut rows) = (compared.differing, compared.rows);
    differing.sort_unstable_by_key(|(list, resource, _)| (*list, resource.position));
    let entries = differing
        .iter()
        .map(|(list, resource, _)| (*list, resource.position));
    let read = read_in_given_order(entries, read)?;
    let mut changes = Vec::new();
    for ((list, resource, kind), mut change) in differing.into_iter().zip(read) {
        let row = InventoryRow {
            state: resource.state,
            uri: change.loc.clone(),
            missing: None,
        };
        rows.insert(resource.resource, Some(row));
        if !request.lists[list].is_learned {
            change.kind = kind;
            changes.push(FreshChange { change, time, list });
        }
    }
    rows.extend(compared.deleted.iter().map(|(key, _)| (*key, None)));
    changes.extend(compared.deleted.into_iter().map(|(_, uri)| FreshChange {
        change: Change::new(uri, ChangeKind::Deleted),
        time,
        list: 0,
    }));
    for (number, list) in lists.iter_mut().enumerate() {
        list.is_whole = !compared.has_more;
        list.told = changes.iter().filter(|fresh| fresh.list == number).count();
        list.latest = Some(time);
    }
    Ok(TakenNow {
        lists,
        changes,
        has_more: compared.has_more,
        inventory: rows,
        missing: Some(compared.missing),
        ..TakenNow::default()
    })
}

/// Returns the resources of all lists with the numbers of these, in order of their keys; of one that stands in several
/// places the first.
fn merged_resources(listed: Vec<ListedResources>) -> Vec<(u32, ListedResource)> {
    let mut resources = Vec::with_capacity(listed.iter().map(|list| list.entries.len()).sum());
    for (list, listed) in (0..).zip(listed) {
        resources.extend(listed.entries.into_iter().map(|entry| (list, entry)));
    }
    resources.sort_unstable_by_key(|(list, entry)| (entry.resource, *list, entry.position));
    resources.dedup_by_key(|(_, entry)| entry.resource);
    resources
}

/// Returns the time that the changes have: that of the latest list, if it can be true (C28).
fn time(request: &RoundRequest, listed: &[ListedResources]) -> Timestamp {
    let texts = listed.iter().filter_map(|list| list.span.at.as_deref());
    let times = texts.filter_map(|at| Some(Datetime::parse(at)?.at()));
    let latest = times.max().filter(|at| *at <= later(request.at, AHEAD));
    latest.unwrap_or(request.at)
}

/// The differences between Resource Lists and the inventory before.
#[derive(Default)]
struct InventoryComparison {
    /// Resources that are new, or in another state, with the numbers of their lists.
    differing: Vec<(usize, ListedResource, ChangeKind)>,
    deleted: Vec<(ResourceKey, Box<str>)>,
    /// Rows of resources that are missing or found, or have other metadata.
    rows: BTreeMap<ResourceKey, Option<InventoryRow>>,
    missing: MissingResourceCounts,
    has_more: bool,
    /// True if more are deleted than one round tells.
    has_more_deleted: bool,
}

fn compare<E>(
    request: &RoundRequest,
    rules: DeletionRules,
    resources: Vec<(u32, ListedResource)>,
    stored: impl IntoIterator<Item = Result<(ResourceKey, InventoryRow), E>>,
) -> Result<InventoryComparison, E> {
    let is_learned = request.lists.iter().any(|list| list.is_learned);
    let limit = if is_learned { LEARNED } else { request.limit };
    let watch = &request.watch;
    let mut compared = InventoryComparison::default();
    let (mut resources, mut stored) = (resources.into_iter().peekable(), stored.into_iter());
    loop {
        let row = stored.next().transpose()?;
        let next = row.as_ref().map(|(key, _)| *key);
        let is_before = |key: ResourceKey| next.is_none_or(|next| key < next);
        while let Some((list, new)) = resources.next_if(|(_, it)| is_before(it.resource)) {
            let new = (list as usize, new, ChangeKind::Created);
            compared.has_more |= !push_within(&mut compared.differing, limit, new);
        }
        let Some((key, row)) = row else {
            return Ok(compared);
        };
        let missing = &mut compared.missing;
        missing.of += 1;
        let noted = match resources.next_if(|(_, resource)| resource.resource == key) {
            Some((list, new)) if !new.state.may_be_same(&row.state) => {
                let new = (list as usize, new, ChangeKind::Updated);
                compared.has_more |= !push_within(&mut compared.differing, limit, new);
                continue;
            }
            Some((_, same)) if row.missing.is_some() || same.state != row.state => InventoryRow {
                state: same.state,
                missing: None,
                ..row
            },
            Some(_) => continue,
            None => {
                missing.missing += 1;
                let since = row.missing.unwrap_or(watch.now);
                let ends = watch.grace_end(since);
                let is_believed = match rules.accepted {
                    Some(accepted) => row.missing.is_some_and(|since| since <= accepted),
                    None => ends <= watch.now,
                };
                if is_believed {
                    let deleted = (key, row.uri);
                    let is_told = push_within(&mut compared.deleted, limit, deleted);
                    compared.has_more_deleted |= !is_told;
                    continue;
                }
                missing.next = Some(missing.next.map_or(ends, |next| next.min(ends)));
                if row.missing.is_some() {
                    continue;
                }
                InventoryRow {
                    missing: Some(since),
                    ..row
                }
            }
        };
        if compared.rows.len() < LEARNED {
            compared.rows.insert(key, Some(noted));
        } else {
            compared.has_more = true;
        }
    }
}

/// Adds an item to a list, unless it has as many as it may have. Returns false then.
fn push_within<T>(list: &mut Vec<T>, limit: usize, item: T) -> bool {
    let has_room = list.len() < limit;
    if has_room {
        list.push(item);
    }
    has_room
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    use jiff::Timestamp;
    use resourcesync::resource_list::{ResourceKey, read_resource_entries, read_resources};
    use rstest::rstest;

    use super::{DeletionRules, InventoryRow, take_inventory};
    use crate::changes::round::{RoundRequest, TakenNow};
    use crate::changes::selection::tests::{request, version};
    use crate::plan::MassDeletionLimit;

    fn time(text: &str) -> Timestamp {
        format!("2026-11-20T{text}Z").parse().unwrap()
    }

    /// A Resource List of `name=hash`, or of a name that is followed by `@`, its `lastmod`, and perhaps its digests,
    /// and its length after a `#`.
    fn list(resources: &[&str]) -> String {
        let entries = resources.iter().map(|resource| {
            let resource = resource.replace('=', "@ md5:");
            let (name, rest) = resource.split_once('@').unwrap();
            let (rest, length) = rest.split_once('#').unwrap_or((rest, ""));
            let (lastmod, digests) = rest.split_once(' ').unwrap_or((rest, ""));
            let md = format!("<rs:md hash=\"{digests}\" length=\"{length}\"/>");
            format!("<url><loc>https://e.org/{name}</loc><lastmod>{lastmod}</lastmod>{md}</url>")
        });
        let entries: String = entries.collect();
        format!(
            "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
             xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\
             <rs:md capability=\"resourcelist\" at=\"2026-11-20T09:00:00Z\"/>{entries}</urlset>"
        )
    }

    /// The resources of a set as they were listed last.
    #[derive(Default)]
    struct Inventory {
        rows: BTreeMap<ResourceKey, InventoryRow>,
        accepted: Option<Timestamp>,
    }

    impl Inventory {
        /// Learns lists.
        fn of(lists: &[&[&str]]) -> Inventory {
            let mut inventory = Inventory::default();
            let (told, _) = inventory.compare("10:00:00", lists, true);
            assert!(told.is_empty(), "what was there is learned");
            inventory
        }

        /// Takes what differs, and keeps it.
        fn take(&mut self, at: &str, lists: &[&[&str]]) -> (Vec<String>, TakenNow) {
            self.compare(at, lists, false)
        }

        /// Returns the changes that are told.
        fn told(&mut self, at: &str, lists: &[&[&str]]) -> Vec<String> {
            self.take(at, lists).0
        }

        fn compare(
            &mut self,
            at: &str,
            lists: &[&[&str]],
            is_learned: bool,
        ) -> (Vec<String>, TakenNow) {
            let texts: Vec<String> = lists.iter().map(|resources| list(resources)).collect();
            let name = |number| format!("{}{number}", if is_learned { "=" } else { "" });
            let versions = (0..lists.len()).map(|number| version(&name(number), ""));
            let rules = DeletionRules {
                mass_deletion: MassDeletionLimit::Percent(50),
                accepted: self.accepted,
            };
            let request = RoundRequest {
                inventory: Some(rules),
                ..request(versions.collect(), time(at), 100)
            };
            let listed = texts.iter().map(|text| read_resources(text.as_bytes()));
            let listed = listed.collect::<Result<_, _>>().unwrap();
            let rows = self.rows.clone().into_iter().map(Ok::<_, Infallible>);
            let read = |list: usize, positions: &[u32]| {
                Ok(read_resource_entries(texts[list].as_bytes(), positions).unwrap())
            };
            let Ok(taken) = take_inventory(&request, rules, listed, rows, read);
            for (resource, row) in taken.inventory.clone() {
                match row {
                    Some(row) => self.rows.insert(resource, row),
                    None => self.rows.remove(&resource),
                };
            }
            let told = taken.changes.iter().map(|fresh| {
                let name = fresh.change.loc.trim_start_matches("https://e.org/");
                format!("{} {name}", fresh.change.kind)
            });
            (told.collect(), taken)
        }
    }

    const NOTHING: [&str; 0] = [];

    #[test]
    fn what_differs_is_told_and_what_is_missing_waits_for_its_grace() {
        let mut inventory = Inventory::of(&[&["a=1", "b=1"], &["c@2026-01-01", "d=1"]]);
        assert_eq!(inventory.rows.len(), 4);

        let second: &[&[&str]] = &[&["a=1", "b=2"], &["c@2026-01-02", "e=1"]];
        let (told, taken) = inventory.take("10:01:00", second);
        let wanted = ["updated b", "updated c", "created e"];
        assert_eq!(told, wanted, "in their order");
        for fresh in &taken.changes {
            assert_eq!(fresh.change.datetime, None);
            assert_eq!(fresh.time, time("09:00:00"), "the lists' own time");
        }
        let missing = taken.missing.unwrap();
        assert_eq!((missing.missing, missing.of), (1, 4));
        assert_eq!(missing.next, Some(time("10:06:00")));

        assert_eq!(inventory.told("10:05:59", second), NOTHING);
        assert_eq!(inventory.told("10:06:00", second), ["deleted d"]);
        assert_eq!(inventory.told("10:30:00", second), NOTHING);
    }

    /// C28: each is what the resource was, and then what it is.
    #[rstest]
    #[case::another_zone("@2026-11-20T10:00:00Z", "@2026-11-20T11:00:00.0+01:00", false)]
    #[case::another_time("@2026-11-20T10:00:00Z", "@2026-11-20T10:00:00+01:00", true)]
    #[case::another_order("@ md5:a1 sha-256:b2", "@ sha-256:B2   MD5:a1", false)]
    #[case::one_digest_more("@ md5:a1", "@ sha-256:b2 md5:a1", false)]
    #[case::one_digest_less("@ sha-256:b2 md5:a1", "@ md5:a1", false)]
    #[case::another_digest("@ md5:a1 sha-256:b2", "@ md5:a1 sha-256:b3", true)]
    #[case::another_digest_by_one_of_them(
        "@2026-11-20 md5:a1",
        "@2026-11-20 md5:a2 sha-256:b2",
        true
    )]
    #[case::its_first_digest("@2026-11-20", "@2026-11-20T00:00:00Z md5:a1", false)]
    #[case::its_last_digest("@2026-11-20 md5:a1", "@2026-11-21", true)]
    #[case::other_algorithms("@2026-11-20 md5:a1", "@2026-11-20 sha-256:b2", false)]
    #[case::other_algorithms_at_another_time("@2026-11-20 md5:a1", "@2026-11-21 sha-256:b2", true)]
    #[case::other_algorithms_without_a_time("@ md5:a1", "@ sha-256:b2", true)]
    #[case::another_time_of_one_digest("@2026-11-20 md5:a1", "@2026-11-21 md5:a1", false)]
    #[case::two_digests_by_one_algorithm("@ md5:a1 md5:b2", "@ md5:b2 md5:a1", false)]
    #[case::nothing_to_tell_by("@", "@", false)]
    #[case::its_first_length("@2026-11-20", "@2026-11-20#5", false)]
    #[case::its_last_length("@2026-11-20#5", "@2026-11-20", false)]
    #[case::another_length("@2026-11-20#5", "@2026-11-20#6", true)]
    #[case::another_time_of_one_length("@2026-11-20#5", "@2026-11-21#5", true)]
    #[case::its_first_time("@#5", "@2026-11-20#5", false)]
    #[case::nothing_in_common("@#5", "@2026-11-20", true)]
    fn resources_are_compared_by_value(
        #[case] before: &str,
        #[case] after: &str,
        #[case] is_updated: bool,
    ) {
        let [before, after] = [before, after].map(|rest| format!("a{rest}"));
        let mut inventory = Inventory::of(&[&[&before]]);
        let told = inventory.told("10:01:00", &[&[&after]]);
        assert_eq!(told == ["updated a"], is_updated, "{told:?}");
        assert_eq!(inventory.told("10:02:00", &[&[&after]]), NOTHING);
        // What it gained counts from then on.
        let state = inventory.rows.values().next().unwrap().state;
        let listed = read_resources(list(&[&after]).as_bytes()).unwrap();
        assert_eq!(listed.entries[0].state, state);
    }

    #[test]
    fn a_resource_that_is_back_within_the_grace_was_never_away() {
        let (all, fewer) = (["a=1", "b=1", "c=1"], ["a=1", "b=1"]);
        let mut inventory = Inventory::of(&[&all]);
        inventory.told("10:01:00", &[&fewer]);
        assert_eq!(inventory.told("10:05:00", &[&all]), NOTHING);
        inventory.told("10:10:00", &[&fewer]);
        let told = inventory.told("10:14:00", &[&fewer]);
        assert_eq!(told, NOTHING, "its grace began anew");
    }

    fn names() -> [&'static str; 300] {
        std::array::from_fn(|number| &*format!("r{number}=1").leak())
    }

    #[test]
    fn many_deletions_wait_for_an_operator() {
        let names = names();
        let mut inventory = Inventory::of(&[&names]);
        let some: &[&[&str]] = &[&names[..140]];
        inventory.told("10:01:00", some);
        let (told, taken) = inventory.take("11:00:00", some);
        assert_eq!(told, NOTHING, "160 of 300, more than one round tells");
        assert!(taken.missing.unwrap().is_suspended);
        assert!(!taken.has_more, "nothing is to be done before lists change");
        inventory.accepted = Some(time("11:00:00"));
        let (told, taken) = inventory.take("11:01:00", some);
        assert!(told.len() == 100 && taken.has_more);
        assert!(told.iter().all(|told| told.starts_with("deleted ")));
    }

    #[test]
    fn what_is_found_missing_after_a_confirmation_is_judged_as_ever() {
        let names = names();
        let mut inventory = Inventory::of(&[&names]);
        inventory.told("10:01:00", &[&names[..290]]);
        inventory.accepted = Some(time("10:02:00"));
        // It lasts while a round leaves changes to another one.
        for (at, deleted) in [("10:03:00", 10), ("11:00:00", 0)] {
            let (told, taken) = inventory.take(at, &[&names[..100]]);
            assert_eq!(told.len(), deleted, "{at}");
            assert_eq!(taken.missing.unwrap().missing, 190);
        }
        inventory.accepted = None;
        let (told, taken) = inventory.take("11:00:00", &[&names[..100]]);
        assert!(told.is_empty() && taken.missing.unwrap().is_suspended);
    }

    #[test]
    fn few_deletions_are_believed_unless_nothing_is_left() {
        let mut inventory = Inventory::of(&[&["a=1", "b=1", "c=1"]]);
        inventory.told("10:01:00", &[&[]]);
        let (told, taken) = inventory.take("11:00:00", &[&[]]);
        assert!(told.is_empty() && taken.missing.unwrap().is_suspended);
        let mut told = inventory.told("11:01:00", &[&["a=1"]]);
        told.sort();
        assert_eq!(told, ["deleted b", "deleted c"]);
    }
}
