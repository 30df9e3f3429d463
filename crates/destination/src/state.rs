//! The state file of `listen`: the data by which a restart is the same subscriber.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use resourcesync::capability::ChannelKind;
use resourcesync::uri::{Hub, Topic};
use serde::{Deserialize, Serialize, Serializer};
use smart_default::SmartDefault;
use websub::http::lock;
use websub::secret::Secret;
use websub::subscriber::CallbackKey;

use crate::channels::ListenedChannel;
use crate::memory::Memory;

const VERSION: u32 = 1;
/// Time to wait for the lock: a command that is just being started holds it until it runs, even if the `listen` that
/// starts it was killed.
const LOCK_WAIT: Duration = Duration::from_millis(100);

/// The content of the file.
#[derive(Debug, Clone, PartialEq, Eq, SmartDefault, Serialize, Deserialize)]
pub struct SavedState {
    #[default(VERSION)]
    version: u32,
    /// The port at which callbacks are received.
    pub port: Option<u16>,
    /// By topic.
    pub subscriptions: BTreeMap<Topic, SavedSubscription>,
}

/// One subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedSubscription {
    /// The URL on the command line that led to the topic.
    pub asked: String,
    /// The Capability List that advertises the channel; none of a topic that was given itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertised_by: Option<String>,
    pub hub: Hub,
    /// Last segment of the callback.
    pub callback: String,
    #[serde(serialize_with = "serialize_secret")]
    pub secret: Secret,
    /// True if a hub has verified it.
    #[serde(default)]
    pub is_verified: bool,
    #[serde(flatten)]
    pub memory: Memory,
}

impl SavedState {
    /// Returns the memory of a channel whose topic has moved: the same kind, advertised by the same Capability List.
    pub fn memory_of_moved(
        &self,
        channel: &ListenedChannel,
        wanted: &BTreeMap<Topic, ListenedChannel>,
    ) -> Option<Memory> {
        let list = channel.advertising_list()?;
        let earlier = self.subscriptions.iter().find(|(topic, saved)| {
            saved.advertised_by.as_deref() == Some(list)
                && saved.memory.kind == channel.kind
                && !wanted.contains_key(*topic)
        });
        earlier.map(|(_, saved)| saved.memory.clone())
    }
}

impl SavedSubscription {
    /// Returns a new subscription, with a callback and a secret of its own.
    pub fn new(channel: &ListenedChannel, memory: Memory) -> SavedSubscription {
        let CallbackKey { id, secret } = CallbackKey::random();
        SavedSubscription {
            asked: channel.asked.clone(),
            advertised_by: channel.advertising_list().map(str::to_owned),
            hub: channel.hub.clone(),
            callback: id,
            secret,
            is_verified: false,
            memory,
        }
    }

    /// Returns true for the channels that are wanted: of one kind, unless the topic was given itself.
    pub fn is_wanted(&self, kind: Option<ChannelKind>) -> bool {
        kind.is_none_or(|kind| self.advertised_by.is_none() || self.memory.kind == Some(kind))
    }

    /// Records where the channel was found.
    pub fn with_channel(self, channel: &ListenedChannel) -> SavedSubscription {
        let list = channel.advertising_list().map(str::to_owned);
        SavedSubscription {
            asked: channel.asked.clone(),
            advertised_by: list.or(self.advertised_by),
            hub: channel.hub.clone(),
            ..self
        }
    }

    /// Returns the channel as it was found.
    pub fn channel(&self, topic: &Topic, hub: Option<&Hub>) -> ListenedChannel {
        ListenedChannel {
            asked: self.asked.clone(),
            topic: topic.clone(),
            hub: hub.unwrap_or(&self.hub).clone(),
            kind: self.advertised_by.as_ref().and(self.memory.kind),
            capability_list: self.advertised_by.clone().or(self.memory.up.clone()),
        }
    }
}

/// The state of all subscriptions, in memory and, if a file was named, in it.
#[derive(Debug)]
pub struct ListenState {
    /// The file; without one, the state ends with the process.
    pub path: Option<PathBuf>,
    /// Held until the process ends.
    _lock: Option<File>,
    /// The loaded state with all later changes.
    pub saved: Mutex<SavedState>,
}

impl ListenState {
    /// Loads the state. Without a file there is none yet.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or if another process uses it.
    pub fn load(path: Option<&Path>) -> anyhow::Result<ListenState> {
        let lock = path.map(lock_file).transpose()?;
        let saved = match path.map(fs::read) {
            Some(Ok(text)) => read(&text),
            Some(Err(error)) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            Some(Err(_)) | None => Ok(SavedState::default()),
        };
        let name = path.unwrap_or(Path::new("")).display();
        let saved = saved.with_context(|| format!("cannot read the state file {name}"))?;
        Ok(ListenState {
            path: path.map(Path::to_owned),
            _lock: lock,
            saved: Mutex::new(saved),
        })
    }

    /// Adds subscriptions, or replaces them. If they cannot be saved, the state stays as it was.
    pub fn add(&self, port: u16, new: Vec<(Topic, SavedSubscription)>) -> anyhow::Result<()> {
        let mut saved = lock(&self.saved);
        let mut next = saved.clone();
        next.port = Some(port);
        next.subscriptions.extend(new);
        self.write(&next)?;
        *saved = next;
        Ok(())
    }

    /// Changes one subscription, and saves it durably before it returns. If it cannot be saved, it stays changed: what was
    /// handed over was.
    pub fn update(
        &self,
        topic: &Topic,
        change: impl FnOnce(&mut SavedSubscription),
    ) -> anyhow::Result<()> {
        let mut saved = lock(&self.saved);
        if let Some(subscription) = saved.subscriptions.get_mut(topic) {
            change(subscription);
        }
        self.write(&saved)
    }

    fn write(&self, saved: &SavedState) -> anyhow::Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let text = serde_json::to_vec_pretty(saved)?;
        replace(path, &text)
            .with_context(|| format!("cannot write the state file {}", path.display()))
    }
}

/// Locks a state file by one beside it, because it is replaced itself at each change.
fn lock_file(path: &Path) -> anyhow::Result<File> {
    let (of_file, name) = (path.with_added_extension("lock"), path.display());
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).mode(0o600).open(&of_file);
    let file = file.with_context(|| format!("cannot write {}", of_file.display()))?;
    let until = Instant::now() + LOCK_WAIT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(TryLockError::WouldBlock) => {
                bail!("the state file {name} is used by another listen")
            }
            // A file system without locks.
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {
                return Ok(file);
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock the state file {name}"));
            }
        }
    }
}

fn serialize_secret<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.reveal())
}

fn read(text: &[u8]) -> anyhow::Result<SavedState> {
    let saved: SavedState = serde_json::from_slice(text)?;
    let version = saved.version;
    ensure!(
        version == VERSION,
        "its version is {version}, and not {VERSION}"
    );
    Ok(saved)
}

/// Replaces a file by one that only its owner can read: it has secrets.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_added_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&new)?;
    // A crash may have left one.
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let directory = path.parent().filter(|parent| *parent != Path::new(""));
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::{
        ChannelKind, Hub, ListenState, Memory, PermissionsExt, SavedSubscription, Secret, Topic,
        fs, lock,
    };

    fn subscription() -> SavedSubscription {
        let mut memory = Memory::new(None, Some("https://e.org/cl.xml"));
        memory.until = Some("2026-11-20T10:00:00Z".to_owned());
        SavedSubscription {
            asked: "https://e.org/t".to_owned(),
            advertised_by: None,
            hub: Hub::new("https://h.org/"),
            callback: "id".to_owned(),
            secret: Secret::new("hidden"),
            is_verified: true,
            memory,
        }
    }

    #[test]
    fn what_is_saved_is_loaded_by_one_at_a_time_and_only_its_owner_reads_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("listen.json");
        let state = ListenState::load(Some(&path)).unwrap();
        // Also before there is a file.
        assert!(ListenState::load(Some(&path)).is_err());
        let topic = Topic::new("https://e.org/t");
        state.add(8500, vec![(topic, subscription())]).unwrap();
        let saved = lock(&state.saved).clone();
        let error = ListenState::load(Some(&path)).unwrap_err().to_string();
        let is_named = error.ends_with("/listen.json is used by another listen");
        assert!(is_named, "{error}");
        drop(state);
        let loaded = ListenState::load(Some(&path)).unwrap();
        assert_eq!(*lock(&loaded.saved), saved);
        assert!(!format!("{loaded:?}").contains("hidden"), "{loaded:?}");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let left = fs::read_dir(directory.path()).unwrap();
        let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["listen.json", "listen.json.lock"]);
    }

    #[test]
    fn a_file_that_is_not_understood_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("listen.json");
        for text in ["", "{}", "{\"version\":2,\"port\":1,\"subscriptions\":{}}"] {
            fs::write(&path, text).unwrap();
            let error = ListenState::load(Some(&path)).unwrap_err().to_string();
            assert!(error.starts_with("cannot read the state file "), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_saved_is_not_added_and_what_is_there_is_changed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("listen.json");
        let obstacle = directory.path().join("listen.json.new");
        fs::create_dir(&obstacle).unwrap();
        let state = ListenState::load(Some(&path)).unwrap();
        let new = || vec![(Topic::new("https://e.org/t"), subscription())];
        assert!(state.add(1, new()).is_err());
        assert!(lock(&state.saved).subscriptions.is_empty());
        fs::remove_dir(&obstacle).unwrap();
        state.add(1, new()).unwrap();
        fs::create_dir(&obstacle).unwrap();
        let topic = Topic::new("https://e.org/t");
        let advertised_by = || Some("https://e.org/cl.xml".to_owned());
        let change = state.update(&topic, |it| it.advertised_by = advertised_by());
        assert!(change.is_err());
        let changed = lock(&state.saved).subscriptions[&topic].clone();
        assert_eq!(changed.advertised_by, advertised_by());
        fs::remove_dir(&obstacle).unwrap();
        state.update(&topic, |_| ()).unwrap();
        let saved = lock(&state.saved).clone();
        assert_eq!(saved.subscriptions.len(), 1);
        drop(state);
        assert_eq!(*lock(&ListenState::load(Some(&path)).unwrap().saved), saved);
    }

    #[test]
    fn only_advertised_channels_are_selected_by_kind() {
        let mut saved = subscription();
        let change = Some(ChannelKind::Change);
        assert!(saved.is_wanted(change));
        saved.advertised_by = Some("https://e.org/cl.xml".to_owned());
        assert!(!saved.is_wanted(change));
        saved.memory.kind = change;
        assert!(saved.is_wanted(change));
        assert!(saved.is_wanted(None));
    }

    #[test]
    fn without_a_file_nothing_is_kept() {
        let state = ListenState::load(None).unwrap();
        state.add(1, Vec::new()).unwrap();
        assert_eq!(
            (state.path.is_some(), lock(&state.saved).port),
            (false, Some(1))
        );
    }
}
