//! What the state of the engine holds, as far as tests ask for it.

use announce::delivery::KeptAnswer;
use announce::event::SuspendedDeletions;
use announce::finding::Finding;
use announce::state::HubId;
use announce::steps::live::MountPhase;
use announce::steps::owed::Version;
use jiff::Timestamp;

use crate::world::{World, tree};

/// A channel.
#[derive(Debug)]
pub struct KnownChannel {
    pub id: u64,
    pub set: String,
    pub topic: String,
    pub is_retired: bool,
}

/// What one hub is due on one channel.
#[derive(Debug)]
pub struct KnownAccount {
    /// Documents with a change that is due, those in flight included.
    pub due: usize,
    pub in_flight: Option<u64>,
    pub sending: bool,
    pub needs_operator: bool,
    pub fetch_confirmed: Option<bool>,
}

impl World {
    fn count(&self, sql: &str) -> usize {
        let count = self.db().first::<usize>(sql, ());
        count.unwrap().unwrap_or_default()
    }

    pub fn findings(&self) -> Vec<Finding> {
        let reader = self.engine().reader(self.now);
        Vec::from_iter(rsnotify::report::findings::all(&reader).unwrap())
    }

    /// Makes each document that a list names, and of which there is no file, a finding of its own.
    pub fn find_each(&mut self) {
        self.engine.as_mut().unwrap().live.find_each = true;
    }

    /// Returns why the deletions of a source are suspended, if they are.
    pub fn suspension(&self, source: usize) -> Option<SuspendedDeletions> {
        let engine = self.engine();
        announce::steps::deletions::suspension(
            engine.db(),
            &engine.plan.sources[source].name,
            &engine.live.sources[source],
        )
        .unwrap()
    }

    /// Returns the number of missing documents of the first source.
    pub fn missing(&self) -> usize {
        let source = self.engine().live.sources[0].id;
        announce::steps::deletions::load_missing(self.db(), source)
            .unwrap()
            .len()
    }

    /// Returns whether each mount is there; nothing while nobody has looked.
    pub fn presence(&self) -> Vec<Option<bool>> {
        let sources = self.engine().live.sources.iter();
        let mounts = sources.flat_map(|source| source.mounts.values());
        let states = mounts.map(|mount| match mount.state {
            MountPhase::Unknown => None,
            MountPhase::Sweeping | MountPhase::Ready => Some(true),
            MountPhase::Absent => Some(false),
        });
        states.collect()
    }

    pub fn is_settled(&self) -> bool {
        let mut sources = self.engine().live.sources.iter();
        sources.all(|source| source.is_swept())
    }

    /// Returns the number of candidates that cannot be read.
    pub fn troubles(&self) -> usize {
        self.count("SELECT count(*) FROM trouble")
    }

    /// Returns when the last complete sweep of each mount began.
    pub fn sweeps(&self) -> Vec<Option<Timestamp>> {
        let sql = "SELECT swept FROM mount ORDER BY id";
        self.db().all::<Vec<_>>(sql, ()).unwrap()
    }

    /// Returns true if nothing that is known need be compared with the configuration, as far as mounts say.
    pub fn is_as_configured(&self) -> bool {
        let sources = self.engine().live.sources.iter();
        let mut mounts = sources.flat_map(|source| source.mounts.values());
        mounts.all(|mount| mount.baseline.is_swept_as_configured())
    }

    pub fn directories(&self) -> Vec<String> {
        self.texts("SELECT directory FROM mount ORDER BY id")
    }

    /// Returns where file systems below the root of the first mount held documents.
    pub fn nested_directories(&self) -> Vec<String> {
        self.texts("SELECT below FROM nested_file_system WHERE mount = 0 ORDER BY below")
    }

    fn texts(&self, sql: &str) -> Vec<String> {
        let texts = self.db().all::<Vec<Vec<u8>>>(sql, ()).unwrap();
        let texts = texts.iter().map(|bytes| String::from_utf8_lossy(bytes));
        texts.map(|text| text.into_owned()).collect()
    }

    /// Returns all channels, in the order of their numbers.
    pub fn channels(&self) -> Vec<KnownChannel> {
        let sql = "SELECT c.id, d.uri, c.topic, c.retired IS NOT NULL FROM channel c JOIN document d ON d.id = c.set_id \
                   ORDER BY c.id";
        let channels = self.db().all::<Vec<_>>(sql, ()).unwrap().into_iter();
        let channels = channels.map(|(id, set, topic, is_retired)| KnownChannel {
            id,
            set,
            topic,
            is_retired,
        });
        channels.collect()
    }

    /// Returns what a hub is due on the channel of a topic, if it is told on it.
    pub fn account(&self, topic: &str, hub: &str) -> Option<KnownAccount> {
        let sql = "SELECT (SELECT count(*) FROM (SELECT document FROM owed o WHERE o.channel = a.channel AND o.hub = a.hub \
                   AND o.due IS NOT NULL UNION SELECT document FROM flight_entry f WHERE f.channel = a.channel \
                   AND f.hub = a.hub)), a.seq, a.sending IS NOT NULL, a.last, a.pinged, a.fetched, a.unfetched_reported, \
                   a.hub FROM channel c JOIN account a ON a.channel = c.id \
                   JOIN hub h ON h.id = a.hub WHERE c.topic = ?1 AND h.uri = ?2";
        let topic = tree::absolute(topic);
        type Try = (Option<u64>, bool, Option<KeptAnswer>);
        type Ping = (Option<Timestamp>, bool, bool);
        let account = self
            .db()
            .first::<(usize, Try, Ping, HubId)>(sql, (topic.as_str(), hub));
        let (due, (in_flight, sending, last), ping, hub) = account.unwrap()?;
        let refusal = last.and_then(|last| last.refusal);
        let outage = self.engine().live.hubs[&hub].queue.outage.as_ref();
        Some(KnownAccount {
            due,
            in_flight,
            sending,
            needs_operator: in_flight.is_some()
                && refusal.is_some_and(|refusal| refusal.needs_operator)
                || outage.is_some_and(|outage| outage.refusal.needs_operator),
            fetch_confirmed: match ping {
                (Some(_), true, _) => Some(true),
                (Some(_), false, true) => Some(false),
                _ => None,
            },
        })
    }

    /// Returns the number of documents that a hub is due on the channel of a set.
    pub fn due(&self, set: &str, hub: &str) -> usize {
        self.account(&format!("{set}/framework/"), hub).unwrap().due
    }

    /// Returns the number of accounts of hubs that are advertised no more.
    pub fn accounts_that_left(&self) -> usize {
        self.count("SELECT count(*) FROM account WHERE left_at IS NOT NULL")
    }

    /// Returns the number of documents that are still due on retired channels, and to hubs that left.
    pub fn still_due(&self) -> usize {
        self.count(
            "SELECT count(*) FROM owed o JOIN channel c ON c.id = o.channel JOIN account a ON a.channel = o.channel \
             AND a.hub = o.hub WHERE o.due IS NOT NULL AND (c.retired IS NOT NULL OR a.left_at IS NOT NULL)",
        )
    }

    /// Returns the largest number of entries that are kept for those who fetch a topic.
    pub fn most_said(&self) -> usize {
        self.count("SELECT max(n) FROM (SELECT count(*) AS n FROM said GROUP BY channel)")
    }

    /// Returns the hubs that accept nothing.
    pub fn failing_hubs(&self) -> Vec<String> {
        let hubs = self.engine().live.hubs.values();
        let failing = hubs.filter(|hub| hub.queue.outage.is_some());
        failing.map(|hub| hub.hub.to_string()).collect()
    }

    /// Returns the last notifications that are remembered, each with what became of it.
    pub fn remembered(&self) -> Vec<String> {
        let notifications = self.engine().history.notifications.iter().rev();
        notifications
            .map(|(_, it)| format!("{:?}", (&it.topic, it.seq, &it.hubs)))
            .collect()
    }

    /// Returns the versions that a hub was told of, where they are not what is seen.
    pub fn told_to(&self, hub: &str) -> Vec<(String, Option<Version>)> {
        let sql = "SELECT d.uri, o.told_capability, o.told_form, o.told_fingerprint FROM owed o JOIN document d \
                   ON d.id = o.document JOIN hub h ON h.id = o.hub WHERE h.uri = ?1 ORDER BY o.channel, d.uri";
        let told = self.db().all::<Vec<(_, Option<Version>)>>(sql, hub);
        told.unwrap()
    }

    /// Returns true if the state holds anything about a document.
    pub fn remembers(&self, name: &str) -> bool {
        let sql = "SELECT 1 FROM document WHERE uri = ?1 AND presence > 0";
        self.db().exists(sql, tree::absolute(name)).unwrap()
    }
}
