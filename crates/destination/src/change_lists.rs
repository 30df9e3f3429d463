//! Missed changes, read from the Change Lists of a set by way of its Capability List.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::capability::Capability;
use resourcesync::listing::{ListedEntry, Listing};
use resourcesync::receive::{ReceivedChange, time_span};
use tokio::time::Instant;
use websub::publisher::reason::error_chain;
use websub::subscriber::retrieve::{AllowedOrigins, RetrieveError, Retriever};

use crate::memory::{Memory, MissedChange, MissedSelection, NotificationAfterMissed};

/// Lists and indexes read at most.
const MAX_DOCUMENTS: usize = 1_000;
/// Missed changes kept at most.
const MAX_CHANGES: usize = 1_000_000;
/// Attempts before a document that is missing or malformed is given up: generators delete and rewrite them, in no order.
const ATTEMPTS: u32 = 5;
/// Time before it is given up: more than a generator needs to rewrite a set.
const PATIENCE: Duration = Duration::from_secs(5 * 60);

/// The reason why missed changes could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CatchUpError {
    #[error("no notification has named the Capability List of the set")]
    NoCapabilityList,
    #[error("{0} names no Change List")]
    NoChangeList(String),
    #[error(transparent)]
    Retrieve(#[from] RetrieveError),
    #[error("{url} is not readable: {reason}")]
    Document { url: String, reason: String },
    #[error(
        "there are more than {MAX_DOCUMENTS} Change Lists, or {MAX_CHANGES} missed changes, and the others are not read"
    )]
    TooMany,
    #[error(
        "the Change Lists begin at {0}, later than the last notification: they lack what changed in between"
    )]
    BeginLater(Timestamp),
    #[error("given up after {attempts} attempts")]
    GivenUp {
        attempts: u32,
        source: Box<CatchUpError>,
    },
}

/// Missed changes, as far as they could be read.
#[derive(Debug)]
pub struct MissedChanges {
    /// In order.
    pub missed: Vec<MissedChange>,
    /// Documents that can never be read, or were given up.
    pub unreadable: Vec<CatchUpError>,
}

/// Reads the changes that are later than the last `until` in `memory`, and not left to the notification that follows, in
/// order. Documents that are missing or malformed are waited for as long as `patience` says.
///
/// Documents are read only from the servers of the topic and the Capability List.
///
/// # Errors
///
/// If a document cannot be read now, and may be later: without it, its changes would be lost.
pub async fn missed(
    topic: &str,
    memory: &Memory,
    following: Option<&NotificationAfterMissed>,
    patience: &mut FailedAttempts,
) -> Result<MissedChanges, CatchUpError> {
    let nothing = |error| MissedChanges {
        missed: Vec::new(),
        unreadable: vec![error],
    };
    let Some(up) = memory.up.as_deref() else {
        return Ok(nothing(CatchUpError::NoCapabilityList));
    };
    let retriever = Retriever::new(AllowedOrigins::of([topic, up]))?;
    let lists = match change_list_entries(&retriever, up).await {
        Ok(lists) => lists,
        Err(error) => return Ok(nothing(error.give_up_or_retry(up, patience)?)),
    };
    patience.succeeded(up);
    let last = memory.known_until().and_then(time_span);
    let mut unread = DocumentQueue {
        last: last.map(|(start, _)| start),
        ..DocumentQueue::default()
    };
    unread.add(lists);
    let mut selection = MissedSelection::new(memory, following, Timestamp::now());
    let mut unreadable = Vec::new();
    // The others are read all the same, so that all that are missing are waited for at the same time.
    let mut awaited = None;
    let mut starts = Vec::new();
    while let Some(url) = unread.urls.pop_front() {
        let listing = match read_list(&retriever, &url).await {
            Ok(listing) => listing,
            Err(error) if !error.may_reappear() && error.is_temporary() => return Err(error),
            Err(error) => {
                match error.give_up_or_retry(&url, patience) {
                    Ok(error) => unreadable.push(error),
                    Err(error) => awaited = awaited.or(Some(error)),
                }
                continue;
            }
        };
        patience.succeeded(&url);
        if listing.is_urlset() && listing.known_capability() != Some(Capability::ChangeListArchive)
        {
            starts.push(listing.from.as_deref().and_then(time_span));
            let changes = listing.entries.into_iter().filter_map(ReceivedChange::of);
            selection.add(changes.collect());
            // The selected changes are handed over: another attempt would not read more.
            if selection.missed.len() > MAX_CHANGES {
                unread.is_cut = true;
                break;
            }
        } else {
            unread.add(listing.entries);
        }
    }
    if let Some(error) = awaited {
        return Err(error);
    }
    if unread.is_cut {
        unreadable.push(CatchUpError::TooMany);
    }
    // One that does not say where it begins may have everything. Without a later notification, nothing may have happened.
    let starts: Option<Vec<_>> = starts.into_iter().collect();
    if let Some((start, _)) = starts.and_then(|starts| starts.into_iter().min())
        && following.is_some()
        && unreadable.is_empty()
        && last.is_some_and(|(_, last)| start > last)
    {
        unreadable.push(CatchUpError::BeginLater(start));
    }
    Ok(MissedChanges {
        missed: selection.in_order(),
        unreadable,
    })
}

/// The documents that are still to be read, in the order in which they were named.
#[derive(Debug, Default)]
struct DocumentQueue {
    /// The time up to which nothing is missed.
    last: Option<Timestamp>,
    urls: VecDeque<String>,
    known: BTreeSet<String>,
    /// Number of documents read or to be read.
    taken: usize,
    /// True if there are more than are read.
    is_cut: bool,
}

impl DocumentQueue {
    /// Adds what a Capability List, index or archive names. Lists that ended before have nothing new: of an archive, most.
    /// If there are too many, the newest are added, as far as their times or their order say it.
    fn add(&mut self, entries: Vec<ListedEntry>) {
        let start = |text: &Option<String>| Some(time_span(text.as_deref()?)?.0);
        let mut added = Vec::new();
        for entry in entries {
            let ended = entry.until.as_deref().and_then(time_span);
            let is_old = matches!((ended, self.last), (Some((_, end)), Some(last)) if end <= last);
            let Some(loc) = entry.loc.filter(|_| !is_old) else {
                continue;
            };
            // One without a time may be open.
            let written = start(&entry.until).or_else(|| start(&entry.lastmod));
            if self.known.insert(loc.clone()) {
                added.push((written.unwrap_or(Timestamp::MAX), added.len(), loc));
            }
        }
        let room = MAX_DOCUMENTS.saturating_sub(self.taken);
        if added.len() > room {
            self.is_cut = true;
            added.sort_unstable();
            added.drain(..added.len() - room);
            added.sort_unstable_by_key(|(_, place, _)| *place);
        }
        self.taken += added.len();
        self.urls.extend(added.into_iter().map(|(_, _, loc)| loc));
    }
}

/// Reads the entries of the Change Lists, indexes and archives that a Capability List names.
async fn change_list_entries(
    retriever: &Retriever,
    up: &str,
) -> Result<Vec<ListedEntry>, CatchUpError> {
    let mut lists = read(retriever, up).await?.entries;
    if lists.is_empty() {
        return Err(CatchUpError::unreadable(up, "it has no entries"));
    }
    lists.retain(|entry| entry.loc.is_some() && is_of_change_lists(entry.known_capability()));
    if lists.is_empty() {
        return Err(CatchUpError::NoChangeList(up.to_owned()));
    }
    Ok(lists)
}

/// Reads a Change List, an index or an archive of them.
async fn read_list(retriever: &Retriever, url: &str) -> Result<Listing, CatchUpError> {
    let listing = read(retriever, url).await?;
    if !is_of_change_lists(listing.known_capability()) {
        return Err(CatchUpError::unreadable(url, "it is no Change List"));
    }
    Ok(listing)
}

/// Returns true for the capability of Change Lists, their indexes and their archives (Archives 0.9.1 section 3).
fn is_of_change_lists(capability: Option<Capability>) -> bool {
    matches!(
        capability,
        Some(Capability::ChangeList | Capability::ChangeListArchive)
    )
}

async fn read(retriever: &Retriever, url: &str) -> Result<Listing, CatchUpError> {
    let listing = Listing::parse(&retriever.get(url).await?)
        .map_err(|error| CatchUpError::unreadable(url, error_chain(&error)))?;
    listing.ok_or_else(|| CatchUpError::unreadable(url, "it is no ResourceSync document"))
}

impl CatchUpError {
    fn unreadable(url: &str, reason: impl Into<String>) -> CatchUpError {
        CatchUpError::Document {
            url: url.to_owned(),
            reason: reason.into(),
        }
    }

    /// Returns the wait before the next request that the server asks for.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            CatchUpError::Retrieve(error) => error.retry_after(),
            _ => None,
        }
    }

    /// Returns true if the same may succeed later.
    pub fn is_temporary(&self) -> bool {
        let is_retrieval = matches!(self, CatchUpError::Retrieve(error) if error.is_temporary());
        is_retrieval || self.may_reappear()
    }

    /// Returns true if a document is missing or not as expected, as it may be while a generator writes it again.
    fn may_reappear(&self) -> bool {
        match self {
            CatchUpError::Retrieve(error) => error.may_reappear(),
            error => matches!(error, CatchUpError::Document { .. }),
        }
    }

    /// Returns the error of a document that can never be read, or is given up.
    ///
    /// # Errors
    ///
    /// If the document is to be read again.
    fn give_up_or_retry(
        self,
        url: &str,
        patience: &mut FailedAttempts,
    ) -> Result<CatchUpError, CatchUpError> {
        if !self.is_temporary() {
            return Ok(self);
        }
        let is_missing = self.may_reappear();
        let attempts = is_missing.then(|| patience.count_failure(url, Instant::now()));
        let Some(attempts) = attempts.flatten() else {
            return Err(self);
        };
        let source = Box::new(self);
        Ok(CatchUpError::GivenUp { attempts, source })
    }
}

/// The documents that could not be used in the attempts so far, by URL. Each has its own time: one that is gone for good
/// shortens that of no other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FailedAttempts {
    /// The first failure, and the number of attempts.
    failing: BTreeMap<String, (Instant, u32)>,
}

impl FailedAttempts {
    /// Notes that a document could not be used. Returns the number of attempts if it is given up now.
    pub fn count_failure(&mut self, url: &str, now: Instant) -> Option<u32> {
        let (since, attempts) = self.failing.entry(url.to_owned()).or_insert((now, 0));
        *attempts = attempts.saturating_add(1);
        let has_waited = now.duration_since(*since) >= PATIENCE;
        (has_waited && *attempts >= ATTEMPTS).then_some(*attempts)
    }

    /// Notes that a document could be used.
    pub fn succeeded(&mut self, url: &str) {
        self.failing.remove(url);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::time::Duration;

    use rstest::rstest;

    use super::{
        ATTEMPTS, CatchUpError, DocumentQueue, FailedAttempts, Instant, ListedEntry, MAX_DOCUMENTS,
        Memory, MissedChanges, NotificationAfterMissed, PATIENCE, error_chain, missed,
    };

    /// Answers requests for these documents, of which `BASE` is the URL, and all others with 404. Returns the URL.
    fn serve(documents: Vec<(&'static str, String)>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let (own, found) = (base.clone(), "200 OK");
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(&stream).lines();
                let first = lines.next().unwrap().unwrap();
                while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
                let path = first.split(' ').nth(1).unwrap();
                let document = documents.iter().find(|(name, _)| *name == path);
                let (status, body) = match document {
                    Some((_, body)) => (found, body.replace("BASE", &own)),
                    None => ("404 Not Found", String::new()),
                };
                let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: ");
                let _ = write!(stream, "{head}{}\r\n\r\n{body}", body.len());
            }
        });
        base
    }

    /// A document of a capability with these entries.
    fn document(capability: &str, entries: &str) -> String {
        format!(
            "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
             xmlns:rs=\"http://www.openarchives.org/rs/terms/\"><rs:md capability=\"{capability}\"/>{entries}</urlset>"
        )
    }

    fn capability_list(lists: &[&str]) -> (&'static str, String) {
        let entries = lists.iter().map(|list| {
            format!("<url><loc>BASE/{list}</loc><rs:md capability=\"changelist\"/></url>")
        });
        let entries: String = entries.collect();
        ("/cl.xml", document("capabilitylist", &entries))
    }

    fn change_list() -> (&'static str, String) {
        let entries = "<url><loc>https://e.org/a</loc><rs:md change=\"updated\" datetime=\"2026-11-20T10:05:00Z\"/></url>";
        ("/a.xml", document("changelist", entries))
    }

    fn reasons(read: &MissedChanges) -> Vec<String> {
        read.unreadable
            .iter()
            .map(|error| error_chain(error))
            .collect()
    }

    async fn read(
        base: &str,
        following: Option<&NotificationAfterMissed>,
        patience: &mut FailedAttempts,
    ) -> Result<MissedChanges, CatchUpError> {
        let up = format!("{base}/cl.xml");
        let mut memory = Memory::new(None, Some(&up));
        memory.until = Some("2026-11-20T10:00:00Z".to_owned());
        missed(base, &memory, following, patience).await
    }

    #[rstest]
    #[case::no_capability_list("cl.xml", vec![change_list()], 0)]
    #[case::no_list_in_it("cl.xml", vec![capability_list(&[]), change_list()], 0)]
    #[case::a_missing_list("b.xml", vec![capability_list(&["b.xml", "a.xml"]), change_list()], 1)]
    #[case::another_document("b.xml", vec![
        capability_list(&["b.xml", "a.xml"]), change_list(), ("/b.xml", document("resourcelist", ""))
    ], 1)]
    #[case::a_malformed_list("b.xml", vec![
        capability_list(&["b.xml", "a.xml"]), change_list(), ("/b.xml", "<urlset".to_owned())
    ], 1)]
    #[tokio::test]
    async fn documents_are_waited_for_before_they_are_given_up(
        #[case] name: &str,
        #[case] documents: Vec<(&'static str, String)>,
        #[case] readable: usize,
    ) {
        let base = serve(documents);
        let mut patience = FailedAttempts::default();
        let error = read(&base, None, &mut patience).await.unwrap_err();
        assert!(error_chain(&error).contains(name), "{error:?}");

        let url = format!("{base}/{name}");
        let mut patience = FailedAttempts::default();
        let long_ago = Instant::now().checked_sub(Duration::from_secs(3600));
        for _ in 0..10 {
            patience.count_failure(&url, long_ago.unwrap());
        }
        let read = read(&base, None, &mut patience).await.unwrap();
        assert_eq!(read.missed.len(), readable);
        let reasons = reasons(&read);
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        let is_given_up = reasons[0].starts_with("given up after 11 attempts: ");
        assert!(is_given_up && reasons[0].contains(name), "{reasons:?}");
    }

    /// A Source whose changes come from its Resource Lists has none.
    #[tokio::test]
    async fn a_capability_list_with_other_lists_only_is_not_waited_for() {
        let entry = "<url><loc>BASE/r.xml</loc><rs:md capability=\"resourcelist\"/></url>";
        let base = serve(vec![("/cl.xml", document("capabilitylist", entry))]);
        let read = read(&base, None, &mut FailedAttempts::default())
            .await
            .unwrap();
        assert_eq!(
            reasons(&read),
            [format!("{base}/cl.xml names no Change List")]
        );
    }

    #[rstest]
    #[case::from_there(&["10:00:00"], true, false)]
    #[case::later(&["10:02:00", "10:03:00"], true, true)]
    #[case::another_has_it(&["10:02:00", "09:00:00"], true, false)]
    #[case::without_a_start(&["10:02:00", ""], true, false)]
    #[case::nothing_follows(&["10:02:00"], false, false)]
    #[tokio::test]
    async fn lists_that_begin_after_the_last_notification_are_not_enough(
        #[case] starts: &[&str],
        #[case] is_followed: bool,
        #[case] is_reported: bool,
    ) {
        let names = &["/a.xml", "/b.xml"][..starts.len()];
        let lists = names.iter().zip(starts).map(|(name, start)| {
            let from = match *start {
                "" => String::new(),
                start => format!("\" from=\"2026-11-20T{start}Z"),
            };
            (*name, document(&format!("changelist{from}"), ""))
        });
        let names: Vec<&str> = names.iter().map(|name| &name[1..]).collect();
        let base = serve(lists.chain([capability_list(&names)]).collect());
        let following = is_followed.then(|| NotificationAfterMissed {
            from: "2026-11-20T10:05:00Z".parse().unwrap(),
            keys: HashSet::new(),
        });
        let read = read(&base, following.as_ref(), &mut FailedAttempts::default()).await;
        let reasons = reasons(&read.unwrap());
        assert_eq!(!reasons.is_empty(), is_reported, "{reasons:?}");
    }

    #[tokio::test]
    async fn all_missing_documents_are_waited_for_at_the_same_time() {
        let base = serve(vec![
            capability_list(&["b.xml", "c.xml", "a.xml"]),
            change_list(),
        ]);
        let mut patience = FailedAttempts::default();
        assert!(read(&base, None, &mut patience).await.is_err());
        let now = Instant::now();
        let many: Vec<_> = ["b.xml", "c.xml"]
            .map(|name| {
                let url = format!("{base}/{name}");
                let later = now + Duration::from_secs(3600);
                (0..4)
                    .filter_map(|_| patience.count_failure(&url, later))
                    .count()
            })
            .into();
        assert_eq!(many, [1, 1], "the fifth attempt of each is the last");
    }

    /// Entries of lists with these names and ends.
    fn entries(lists: &[(usize, &str)]) -> Vec<ListedEntry> {
        let entries = lists.iter().map(|(name, until)| ListedEntry {
            loc: Some(name.to_string()),
            until: (!until.is_empty()).then(|| format!("2026-11-20T{until}Z")),
            ..ListedEntry::default()
        });
        entries.collect()
    }

    fn waiting() -> DocumentQueue {
        DocumentQueue {
            last: "2026-11-20T10:00:00Z".parse().ok(),
            ..DocumentQueue::default()
        }
    }

    #[test]
    fn lists_that_ended_before_are_not_read_and_none_is_read_twice() {
        let mut unread = waiting();
        unread.add(entries(&[(1, ""), (2, "09:00:00"), (3, "11:00:00")]));
        unread.add(entries(&[(4, "09:00:00"), (3, ""), (5, "")]));
        assert_eq!(unread.urls, ["1", "3", "5"]);
        assert!(!unread.is_cut);
    }

    #[test]
    fn of_too_many_lists_the_newest_are_read() {
        let mut closed: Vec<(usize, &str)> = vec![(0, "12:00:00"), (1, "11:00:00")];
        closed.extend((2..MAX_DOCUMENTS + 1).map(|name| (name, "12:00:00")));
        let mut some = waiting();
        some.add(entries(&closed));
        assert!(some.is_cut);
        assert_eq!(some.urls.len(), MAX_DOCUMENTS);
        let first = [&*some.urls[0], &*some.urls[1]];
        assert_eq!(first, ["0", "2"], "the oldest is left out");

        // Without times, those named last are the newest.
        let open: Vec<(usize, &str)> = (0..MAX_DOCUMENTS + 2).map(|name| (name, "")).collect();
        let mut some = waiting();
        some.add(entries(&open));
        assert_eq!((some.urls.len(), &*some.urls[0]), (MAX_DOCUMENTS, "2"));
    }

    #[test]
    fn a_document_is_given_up_after_several_attempts_and_some_minutes() {
        let start = Instant::now();
        let mut patience = FailedAttempts::default();
        for attempt in 1..ATTEMPTS * 2 {
            let now = start + Duration::from_secs(u64::from(attempt));
            assert_eq!(patience.count_failure("a", now), None, "{attempt} attempts");
        }
        let late = start + PATIENCE + Duration::from_secs(1);
        assert_eq!(patience.count_failure("a", late), Some(ATTEMPTS * 2));
        // Later ones have a time of their own, and a long one alone is not enough.
        for attempt in 1..ATTEMPTS {
            let now = late + PATIENCE * (attempt - 1);
            assert_eq!(patience.count_failure("b", now), None, "{attempt} attempts");
        }
        let last = patience.count_failure("b", late + PATIENCE * ATTEMPTS);
        assert_eq!(last, Some(ATTEMPTS));
        // One that was back meanwhile has all its time again.
        for _ in 1..ATTEMPTS {
            assert_eq!(patience.count_failure("c", start), None);
        }
        patience.succeeded("c");
        assert_eq!(patience.count_failure("c", late), None);
    }
}
