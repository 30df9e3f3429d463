//! `resend`: sends a broker the current resources, for consumers that rebuild an index. The broker's account does not
//! change. The position is in a file, from which it continues after a kill.

mod resources;

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use announce::state::open::create_directory;
use anyhow::{Context, bail, ensure};
use jiff::Timestamp;
use messaging::client::{Brokers, WAITS};
use messaging::message::{BrokerNotification, HashedPayload, INITIAL};
use messaging::settings::{BrokerHeader, BrokerSettings};
use resourcesync::capability::ChannelKind;
use resourcesync::change::Change;
use resourcesync::change_payload::ChangePayload;
use resourcesync::datetime::Datetime;
use resourcesync::payload::ChangeKind;
use resourcesync::uri::{Uri, rest_below};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use websub::answer::{Answer, BrokerRefusal};
use websub::secret::Secret;

use crate::cli::one_shot_scan::scan_once;
use crate::cli::options::ResendOptions;
use crate::cli::output::{counted, eprint_line, grouped};
use crate::cli::resend::resources::{
    LastEntries, ListError, ListFileVersion, OpenedList, SetList, SetLists, broker_sets,
};
use crate::cli::{Exit, no_broker_error};
use crate::config::Config;

/// Maximum resources of one transaction.
const BATCH: usize = 50;
/// Maximum attempts to read a list that changes meanwhile.
const READINGS: usize = 5;
/// Version of the file of a position.
const VERSION: u32 = 1;

pub fn resend(file: Option<&Path>, options: &ResendOptions) -> anyhow::Result<Exit> {
    let config = Config::load(file, &options.tree.overrides())?;
    let mut brokers = config.brokers.iter();
    let named = brokers.find(|broker| broker.name.as_str() == options.broker);
    let broker = named.ok_or_else(|| no_broker_error(&config, &options.broker))?;
    if !broker.channels.contains(&ChannelKind::Change) {
        bail!(
            "broker {} gets no changes of resources, and so no resources: add \"change\" to its channels",
            broker.name
        );
    }
    let mut settings = broker.settings()?;
    if let Some(destination) = &options.destination {
        settings.destination.clone_from(destination);
    }
    // What distinguishes these messages from others.
    settings.headers.push(BrokerHeader {
        name: INITIAL.to_owned(),
        value: Secret::new("true"),
        is_public: true,
    });
    let under = options.under.as_deref().map(Uri::parse).transpose()?;
    let request = SavedOptions {
        broker: options.broker.clone(),
        destination: settings.destination.clone(),
        under: options.under.clone(),
    };
    let name = format!("resend-{}.json", options.broker);
    let given = options.state.clone();
    let path = given.unwrap_or_else(|| config.state_dir.join(name));
    let batch = usize::try_from(options.rate.get()).map_or(BATCH, |rate| rate.min(BATCH));
    let file = PositionFile::open(path, request, batch)?;
    if file.position.sent > 0 {
        let sent = grouped(file.position.sent);
        eprint_line(format_args!(
            "continuing after {sent} resources, which were sent before"
        ));
    }
    let scan = scan_once(&config)?;
    scan.notices.iter().for_each(eprint_line);
    let sets = broker_sets(&scan.engine.reader(scan.now), broker)?;
    if sets.is_empty() {
        bail!(
            "no set has a channel for changes of resources that broker {} is told of",
            options.broker
        );
    }
    // Before anything is sent: each list can be read.
    for set in &sets {
        last_entries_of(set, None)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("cannot start the network threads")?;
    let mut resending = ResendRun {
        brokers: Brokers::new(vec![settings.clone()], runtime.handle()),
        runtime: &runtime,
        settings: &settings,
        rate: SendRate {
            rate: options.rate,
            not_before: Instant::now(),
        },
        under,
        file,
        batch: Vec::new(),
    };
    resending.file.save_start()?;
    let outcome = resending.run(&sets);
    let sent = counted(resending.file.position.sent, "resource");
    let Err(error) = outcome else {
        resending.file.remove()?;
        let (sets, destination) = (counted(sets.len(), "set"), &settings.destination);
        eprint_line(format_args!("sent {sent} of {sets} to {destination}"));
        return Ok(Exit::Fine);
    };
    let NotTakenByBroker { exit, reason } = error.downcast()?;
    let (name, address) = (&settings.name, &settings.address);
    eprint_line(format_args!(
        "broker {name} at {address} did not take the messages after {sent}: {reason}; the same command continues there"
    ));
    Ok(exit)
}

/// The error if the broker did not take a transaction.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
struct NotTakenByBroker {
    exit: Exit,
    reason: String,
}

/// A run that reads the lists one after the other, and sends their resources in transactions. In memory
/// is a transaction, and the key of each resource of the Change Lists of a set.
struct ResendRun<'a> {
    brokers: Brokers,
    runtime: &'a Runtime,
    settings: &'a BrokerSettings,
    rate: SendRate,
    under: Option<Uri>,
    file: PositionFile,
    batch: Vec<Change>,
}

impl ResendRun<'_> {
    fn run(&mut self, sets: &[SetLists]) -> anyhow::Result<()> {
        for set in sets {
            if set.lists.is_empty() {
                eprint_line(format_args!(
                    "{} has neither Resource Lists nor Change Lists: nothing is sent of it",
                    set.set
                ));
            }
            let mut current = last_entries_of(set, None)?;
            for list in &set.lists {
                if self.file.position.is_list_done(set, list) {
                    continue;
                }
                self.send_list(set, list, &mut current)?;
            }
        }
        Ok(())
    }

    /// Sends the resources of a list. One that is replaced meanwhile is read again from its start.
    fn send_list(
        &mut self,
        set: &SetLists,
        list: &SetList,
        current: &mut LastEntries,
    ) -> anyhow::Result<()> {
        let mut stale = list.uri.clone();
        for _ in 0..READINGS {
            let Err(error) = self.send_list_once(set, list, current) else {
                return Ok(());
            };
            match error.downcast::<ListError>() {
                Ok(error) if error.is_stale() => stale = error.uri,
                Ok(error) => return Err(error.into()),
                Err(error) => return Err(error),
            }
            self.batch.clear();
        }
        bail!("{stale} changes while it is read; the same command continues there")
    }

    /// Sends the resources of the version of a list that is there now.
    fn send_list_once(
        &mut self,
        set: &SetLists,
        list: &SetList,
        current: &mut LastEntries,
    ) -> anyhow::Result<()> {
        let mut file = list.open()?;
        let version = file.version();
        // Of another version, the entries are at other positions.
        if current.versions.get(&list.number) != Some(&version) {
            *current = self::last_entries_of(set, Some(&mut file))?;
        }
        let start = self.file.position.start_in(set, list, &version);
        let mut failure = None;
        let read = file.each_entry(|at, change| {
            if at >= start && failure.is_none() && current.is_current(list, at, &change) {
                failure = self.add_to_batch(set, at, change).err();
            }
        });
        if let Some(failure) = failure {
            return Err(failure);
        }
        read?;
        self.send_batch(set, u32::MAX)
    }

    /// Takes the resource at a position of the list.
    fn add_to_batch(&mut self, set: &SetLists, at: u32, change: Change) -> anyhow::Result<()> {
        let is_outside = |under: &Uri| rest_below(&change.loc, under.as_str()).is_none();
        if self.under.as_ref().is_some_and(is_outside) {
            return Ok(());
        }
        let lastmod = || Datetime::parse(change.lastmod.as_deref()?);
        self.batch.push(Change {
            kind: ChangeKind::Created,
            datetime: change.datetime.or_else(lastmod),
            ..change
        });
        if self.batch.len() >= self.file.position.batch {
            self.send_batch(set, at + 1)?;
        }
        Ok(())
    }

    /// Sends the taken resources, and saves the position of the next one.
    fn send_batch(&mut self, set: &SetLists, next: u32) -> anyhow::Result<()> {
        let count = self.batch.len() as u64;
        if count > 0 {
            let began = self.file.position.began;
            let payload = ChangePayload {
                up: Some(set.set.clone()),
                from: began,
                until: began,
                entries: std::mem::take(&mut self.batch),
            };
            let body = payload.render();
            let notification = BrokerNotification {
                source: &set.source,
                topic: set.topic.as_str(),
                kind: ChannelKind::Change,
                seq: self.file.position.transactions + 1,
                body: HashedPayload::new(&body, &[]),
            };
            self.submit(&notification, count)?;
            self.file.position.transactions += 1;
            self.file.position.sent += count;
        }
        self.file.position.next = next;
        self.file.save()
    }

    /// Sends a transaction of so many resources, not before the one before it allows that.
    fn submit(&mut self, notification: &BrokerNotification<'_>, count: u64) -> anyhow::Result<()> {
        let at = self.rate.reserve(count, Instant::now());
        self.runtime.block_on(async {
            tokio::time::sleep_until(at.into()).await;
            let mut waits = WAITS.into_iter();
            loop {
                let answer = self.brokers.submit(&self.settings.name, notification);
                let (exit, wait, reason) = match answer.await {
                    Answer::Receipts => return Ok(()),
                    Answer::BrokerError {
                        refusal: BrokerRefusal::Credentials | BrokerRefusal::Destination,
                        excerpt,
                    } => (Exit::Refused, None, excerpt),
                    Answer::Failed(reason)
                    | Answer::Status {
                        excerpt: reason, ..
                    }
                    | Answer::BrokerError {
                        excerpt: reason, ..
                    } => (Exit::Temporary, waits.next(), reason),
                };
                let Some(wait) = wait else {
                    return Err(NotTakenByBroker { exit, reason }.into());
                };
                eprint_line(format_args!(
                    "{}: {reason}; trying again in {wait} s",
                    self.settings.name
                ));
                tokio::time::sleep(Duration::from_secs(wait)).await;
            }
        })
    }
}

/// Reads the lists of a set, again if one is replaced meanwhile. One of them may be open.
fn last_entries_of<'a>(
    set: &'a SetLists,
    mut open: Option<&mut OpenedList<'a>>,
) -> Result<LastEntries, ListError> {
    for _ in 1..READINGS {
        match set.last_entries(open.as_deref_mut()) {
            Err(error) if error.is_stale() => {}
            read => return read,
        }
    }
    set.last_entries(open)
}

/// A rate, and the time before which it allows nothing more.
#[derive(Debug)]
struct SendRate {
    /// Resources per second.
    rate: NonZeroU32,
    not_before: Instant,
}

impl SendRate {
    /// Returns the time at which so many resources may be sent. An unused part of the rate is lost, so that nothing is
    /// sent in a burst.
    fn reserve(&mut self, count: u64, now: Instant) -> Instant {
        let at = self.not_before.max(now);
        let duration = Duration::from_secs_f64(count as f64 / f64::from(self.rate.get()));
        self.not_before = at + duration;
        at
    }
}

/// The options that make a run the same one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedOptions {
    pub broker: String,
    pub destination: String,
    pub under: Option<String>,
}

/// The first resource that is not known to be sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResendPosition {
    /// Start of the run, the default until it begins. Ids of messages depend on it, so that another run is no repeat.
    pub began: Timestamp,
    /// Number of resources in a transaction. Ids of messages depend on it.
    pub batch: usize,
    /// Number of transactions so far.
    pub transactions: u64,
    /// Number of resources so far.
    pub sent: u64,
    /// Source, set and list that are being sent; those before it are done.
    list: Option<(String, String, String)>,
    version: Option<ListFileVersion>,
    /// Position of the next resource in the list.
    pub next: u32,
}

/// The file of a position.
#[derive(Debug, Serialize, Deserialize)]
pub struct PositionFile {
    #[serde(skip)]
    path: PathBuf,
    version: u32,
    request: SavedOptions,
    pub position: ResendPosition,
}

impl ResendPosition {
    /// Returns true if a list is done.
    pub fn is_list_done(&self, set: &SetLists, list: &SetList) -> bool {
        self.list.as_ref().is_some_and(|sent| {
            let key = list_key(set, list);
            *sent > key || (*sent == key && self.next == u32::MAX)
        })
    }

    /// Begins a version of a list, or goes on with it. Returns the position of the next resource.
    pub fn start_in(&mut self, set: &SetLists, list: &SetList, version: &ListFileVersion) -> u32 {
        let key = list_key(set, list);
        let is_same = self.list.as_ref() == Some(&key) && self.version.as_ref() == Some(version);
        if !is_same {
            self.list = Some(key);
            self.version = Some(version.clone());
            self.next = 0;
        }
        self.next
    }
}

fn list_key(set: &SetLists, list: &SetList) -> (String, String, String) {
    (
        set.source.clone(),
        set.set.as_str().to_owned(),
        list.uri.as_str().to_owned(),
    )
}

impl PositionFile {
    /// Opens a file, with the position in it if there is one of the same request, or else with the first one.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is of another request, which is not done.
    pub fn open(
        path: PathBuf,
        request: SavedOptions,
        batch: usize,
    ) -> anyhow::Result<PositionFile> {
        let shown = path.display().to_string();
        let cannot_read = || format!("cannot read {shown}");
        let new = PositionFile {
            path,
            version: VERSION,
            request,
            position: ResendPosition {
                batch,
                ..ResendPosition::default()
            },
        };
        let text = match fs::read(&new.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(new),
            text => text.with_context(cannot_read)?,
        };
        let saved: PositionFile = serde_json::from_slice(&text).with_context(cannot_read)?;
        ensure!(
            saved.version == VERSION,
            "{shown} was written by another version of rsnotify"
        );
        if saved.request == new.request {
            let position = saved.position;
            return Ok(PositionFile { position, ..new });
        }
        // Of another run, the broker has taken nothing.
        ensure!(
            saved.position.transactions == 0,
            "{shown} is of a run to {} that did not end: run that again, remove the file, or name another with --state",
            saved.request.destination
        );
        Ok(new)
    }

    /// Writes the position before anything is sent, so that a run that is killed before the first receipt is gone on with,
    /// and not begun anew with other ids. A new run begins now: what is sent was read until then.
    pub fn save_start(&mut self) -> anyhow::Result<()> {
        if let Some(directory) = self.path.parent() {
            let created = create_directory(directory);
            created.with_context(|| format!("cannot create {}", directory.display()))?;
        }
        if self.position.began == Timestamp::default() {
            self.position.began = Timestamp::now();
        }
        self.save()
    }

    /// Replaces the file. A kill leaves the old one or the new one.
    pub fn save(&self) -> anyhow::Result<()> {
        let text = serde_json::to_vec(self)?;
        let new = self.path.with_added_extension("new");
        let replaced = fs::write(&new, text).and_then(|()| fs::rename(&new, &self.path));
        replaced.with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Removes the file of a run that is done.
    pub fn remove(&self) -> anyhow::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", self.path.display()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Instant, NonZeroU32, SendRate};

    #[test]
    fn transactions_are_even_and_a_pause_is_not_made_up_for() {
        let rate = NonZeroU32::new(100).unwrap();
        let start = Instant::now();
        let second = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let mut rate = SendRate {
            rate,
            not_before: start,
        };
        for (count, now, want) in [
            (50, 0.0, 0.0),
            (50, 0.1, 0.5),
            // It took longer than it may; then the broker was away.
            (10, 1.2, 1.2),
            (50, 90.0, 90.0),
            (50, 90.0, 90.5),
            (50, 90.5, 91.0),
        ] {
            assert_eq!(rate.reserve(count, second(now)), second(want), "at {now} s");
        }
    }
}
