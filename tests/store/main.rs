//! The state file: the saved state is loaded, and an unusable file is reported with the reason.

#![expect(clippy::unwrap_used, reason = "a test that fails should say where")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::capability::Capability;
use resourcesync::channel_kind::ChannelKind;
use resourcesync::document::Form;
use resourcesync::fingerprint::Fingerprint;
use resourcesync::payload::{ChangeKind, Entry};
use resourcesync::uri::{Hub, Topic, Uri};
use rsnotify::announce::candidates::Candidates;
use rsnotify::announce::changes::log::LogPosition;
use rsnotify::announce::delivery::attempt::{Attempt, Refusal};
use rsnotify::announce::ids::ChannelId;
use rsnotify::announce::observation::{DocumentPath, Identity, MountId, Stat};
use rsnotify::announce::plan::Mode;
use rsnotify::announce::small_set::SmallSet;
use rsnotify::announce::state::{
    ChannelRow, Flight, Hold, KnownHub, LedgerRow, MountRow, NestedRow, Ping, Presence, Record,
    Relations, Said, Save, Told, Trouble, Version,
};
use rsnotify::store::{Store, StoreError, is_in_use};
use websub::http::clock::Clock;
use websub::hub::publication::BodyDigest;
use websub::hub::{
    Callback, DeliveryProgress, HubRecord, PendingRelay, Relay, RelayHeaders, RelayId, SavedTopic,
    Subscription,
};
use websub::publisher::reason::RefusalKind;
use websub::secret::Secret;

mod integrity;

fn uri(path: &str) -> Uri {
    Uri::parse(&format!("https://e.org/{path}")).unwrap()
}

fn time(second: i64) -> Timestamp {
    Timestamp::new(1_800_000_000 + second, 123_456_789).unwrap()
}

fn stat() -> Stat {
    Stat {
        size: u64::MAX,
        modified: time(1),
        changed: time(2),
        inode: u64::MAX - 1,
    }
}

fn path(below: &[u8]) -> DocumentPath {
    DocumentPath {
        mount: MountId(1),
        below: Arc::from(below),
    }
}

fn record(presence: Presence, hold: Hold) -> Record {
    Record {
        path: path(b"a/\xff'\"\n.xml"),
        stat: stat(),
        version: Version {
            capability: Capability::ChangeList,
            form: Form::List,
            fingerprint: Fingerprint([7; 32]),
        },
        up: Some(uri("cl.xml")),
        named_index: Some(uri("index.xml")),
        named_index_form: Some(Form::Index),
        newly_indexed: true,
        changed: time(3),
        looked: time(4),
        presence,
        hold,
        relations: Relations {
            index: Some(uri("index.xml")),
            sets: SmallSet::from_iter([uri("cl.xml"), uri("cl2.xml")]),
            archived: true,
        },
        is_new_set: true,
    }
}

fn some<K: Ord, V>(rows: BTreeMap<K, V>) -> BTreeMap<K, Option<V>> {
    rows.into_iter()
        .map(|(key, row)| (key, Some(row)))
        .collect()
}

/// One row of everything, with every field set.
fn everything() -> Save {
    let mut save = Save::default();
    save.mounts.insert(
        MountId(1),
        Some(MountRow {
            source: "main".to_owned(),
            directory: "/srv/www".into(),
            prefix: uri(""),
            identity: Some(Identity {
                device: u64::MAX,
                inode: 2,
            }),
            baselined: true,
            held_document: true,
            swept: Some(time(5)),
            candidates: Some(
                Candidates::new(vec!["**/*.xml".into()], vec!["\"a\"/**".into()]).unwrap(),
            ),
            nested: BTreeMap::from([
                (
                    Arc::from(&b"d/\xff"[..]),
                    NestedRow {
                        device: Some(u64::MAX),
                        is_link: true,
                        is_away: false,
                    },
                ),
                (
                    Arc::from(&b"e"[..]),
                    NestedRow {
                        device: None,
                        is_link: false,
                        is_away: true,
                    },
                ),
            ]),
        }),
    );
    let presences = [
        Presence::Present,
        Presence::Missing {
            since: time(6),
            approved: false,
        },
        Presence::Missing {
            since: time(6),
            approved: true,
        },
        Presence::Gone { since: time(7) },
    ];
    let holds = [
        Hold::Free,
        Hold::Waiting { since: time(8) },
        Hold::Expired,
        Hold::Free,
    ];
    for (number, (presence, hold)) in presences.into_iter().zip(holds).enumerate() {
        save.documents.insert(
            uri(&format!("d{number}.xml")),
            Some(Arc::new(record(presence, hold))),
        );
    }
    save.other_files
        .insert(path(b"other.xml"), Some((stat(), time(9))));
    save.troubles.insert(
        uri("broken.xml"),
        Some(Trouble {
            path: path(b"broken.xml"),
            since: time(10),
            reason: "it is empty".to_owned(),
            predates: true,
            reported: false,
        }),
    );
    let told = Told {
        capability: Capability::ChangeList,
        form: Form::List,
        fingerprint: None,
    };
    let entry = Entry {
        uri: uri("d0.xml"),
        change: ChangeKind::Updated,
        capability: Capability::ChangeList,
        datetime: Some(time(11)),
        index: Some(uri("index.xml")),
    };
    save.channels.insert(
        ChannelId(3),
        Some(ChannelRow {
            source: "main".to_owned(),
            kind: ChannelKind::Framework,
            set: uri("cl.xml"),
            topic: Topic::new("https://e.org/Framework"),
            retired: Some(time(12)),
            seq: 9,
            untils: vec![time(13), time(12)],
            body: Arc::from(&b"<urlset/>"[..]),
            said: vec![Said {
                at: time(14),
                entry,
            }],
        }),
    );
    save.channels.insert(
        ChannelId(4),
        Some(ChannelRow::new(
            "main",
            ChannelKind::Framework,
            uri("living.xml"),
            Topic::new("https://e.org/Living"),
        )),
    );
    let hub = Hub::new("https://hub.example/");
    save.ledgers.insert(
        (ChannelId(3), hub.clone()),
        Some(LedgerRow {
            flight: Some(Flight {
                seq: 9,
                body: Arc::from(&b"<urlset/>"[..]),
                part: None,
                entries: 1,
                covers: vec![
                    (
                        uri("d0.xml"),
                        Some(Told {
                            fingerprint: Some(Fingerprint([8; 32])),
                            ..told
                        }),
                    ),
                    (uri("d3.xml"), None),
                ],
                until: Some(time(13)),
                cut: time(15),
                attempts: 4,
                next_try: time(16),
            }),
            until: Some(time(12)),
            left: Some(time(12)),
            still_due: Some(BTreeSet::from([uri("d0.xml")])),
            limit: Some(5),
            accepted: Some(time(17)),
            ping: Some(Ping {
                at: time(18),
                fetched: true,
                reported: false,
            }),
            last: Some(Attempt {
                at: time(19),
                seq: 9,
                status: Some(403),
                excerpt: "who are you?".to_owned(),
                refusal: Some(Refusal {
                    kind: RefusalKind::NotAllowed,
                    reason: "it wants credentials".to_owned(),
                    needs_operator: true,
                }),
            }),
            position: LogPosition::default(),
        }),
    );
    save.told
        .insert((ChannelId(3), hub.clone(), uri("d0.xml")), Some(told));
    save.hubs.insert(
        hub,
        KnownHub {
            mode: Mode::ContentQuery,
            is_configured: true,
        },
    );
    save
}

#[test]
fn no_run_begins_before_the_last_time_saved() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path()).unwrap();
    let right = Clock::start(store.load_clock().unwrap());
    let hour = Duration::from_secs(3_600);
    for (saved, begins) in [(right.began - hour, false), (right.began + hour, true)] {
        let save = Save {
            clock: Some(saved),
            ..Save::default()
        };
        store.save(&save, &[], &[]).unwrap();
        assert_eq!(store.load().unwrap().clock, Some(saved));
        let clock = Clock::start(store.load_clock().unwrap());
        assert_eq!(clock.began == saved, begins, "{saved}");
        assert!(clock.now() >= clock.began && clock.began >= right.began);
    }
}

#[test]
fn everything_that_is_saved_is_loaded_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let save = everything();
    let mut store = Store::open(directory.path()).unwrap();
    store.save(&save, &[], &[]).unwrap();
    drop(store);
    let state = Store::open(directory.path()).unwrap().load().unwrap();
    assert_eq!(some(state.mounts), save.mounts);
    assert_eq!(some(state.documents), save.documents);
    assert_eq!(some(state.other_files), save.other_files);
    assert_eq!(some(state.troubles), save.troubles);
    assert_eq!(some(state.channels), save.channels);
    assert_eq!(some(state.ledgers), save.ledgers);
    assert_eq!(state.hubs, save.hubs);
    let told: Vec<_> = state
        .told
        .into_iter()
        .flat_map(|((id, hub), told)| {
            told.into_iter()
                .map(move |(uri, told)| ((id, hub.clone(), uri), Some(told)))
        })
        .collect();
    assert_eq!(told, save.told.into_iter().collect::<Vec<_>>());
}

#[test]
fn an_attempt_without_an_answer_and_one_that_was_accepted_are_loaded_as_they_were() {
    let directory = tempfile::tempdir().unwrap();
    let accepted = Attempt {
        at: time(20),
        seq: 10,
        status: Some(204),
        excerpt: String::new(),
        refusal: None,
    };
    let unanswered = Attempt {
        status: None,
        refusal: Some(Refusal {
            kind: RefusalKind::NoAnswer,
            reason: "no answer: timed out".to_owned(),
            needs_operator: false,
        }),
        ..accepted.clone()
    };
    for attempt in [unanswered, accepted] {
        let mut save = everything();
        for ledger in save.ledgers.values_mut().flatten() {
            ledger.flight = None;
            ledger.last = Some(attempt.clone());
        }
        let mut store = Store::open(directory.path()).unwrap();
        store.save(&save, &[], &[]).unwrap();
        assert_eq!(some(store.load().unwrap().ledgers), save.ledgers);
    }
}

#[test]
fn what_is_in_flight_may_lose_its_until() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path()).unwrap();
    let mut save = everything();
    store.save(&save, &[], &[]).unwrap();
    let ledgers = save.ledgers.values_mut().flatten();
    for flight in ledgers.filter_map(|ledger| ledger.flight.as_mut()) {
        flight.until = None;
    }
    store.save(&save, &[], &[]).unwrap();
    assert_eq!(some(store.load().unwrap().ledgers), save.ledgers);
}

#[test]
fn what_was_saved_without_a_sync_is_loaded_and_the_next_save_is_synced() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path()).unwrap();
    let mut save = everything();
    store.save(&save, &[], &[]).unwrap();
    for ledger in save.ledgers.values_mut().flatten() {
        ledger.flight = None;
    }
    let answered = Save {
        ledgers: save.ledgers.clone(),
        ..Save::default()
    };
    store.save_unsynced(&answered).unwrap();
    let reader = Store::open_to_read(directory.path()).unwrap().unwrap();
    assert_eq!(some(reader.load().unwrap().ledgers), save.ledgers);
    store.save(&everything(), &[], &[]).unwrap();
    store.probe().unwrap();
    drop(store);
    let state = Store::open(directory.path()).unwrap().load().unwrap();
    assert_eq!(some(state.ledgers), everything().ledgers);
}

#[test]
fn only_answers_that_nothing_follows_may_be_lost_with_the_power() {
    let everything = everything();
    let mut answers = Save {
        told: everything.told.clone(),
        ..Save::default()
    };
    assert!(answers.only_notes_answers());
    answers.ledgers = everything.ledgers.clone();
    assert!(!answers.only_notes_answers(), "a notification is in flight");
    for ledger in answers.ledgers.values_mut().flatten() {
        ledger.flight = None;
    }
    assert!(answers.only_notes_answers());
    for ledger in answers.ledgers.values_mut() {
        *ledger = None;
    }
    assert!(!answers.only_notes_answers(), "an account ends");
    let with_rows: [fn(&mut Save, &Save); 4] = [
        |save, all| save.documents = all.documents.clone(),
        |save, all| save.channels = all.channels.clone(),
        |save, all| save.mounts = all.mounts.clone(),
        |save, all| save.hubs = all.hubs.clone(),
    ];
    for with_rows in with_rows {
        let mut save = Save::default();
        with_rows(&mut save, &everything);
        assert!(!save.only_notes_answers(), "{save:?}");
    }
}

#[test]
fn a_deleted_channel_takes_its_ledgers_and_what_was_told_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path()).unwrap();
    store.save(&everything(), &[], &[]).unwrap();
    let mut save = Save::default();
    save.channels.insert(ChannelId(3), None);
    save.channels.insert(ChannelId(4), None);
    store.save(&save, &[], &[]).unwrap();
    let state = store.load().unwrap();
    assert!(state.channels.is_empty() && state.ledgers.is_empty() && state.told.is_empty());
}

#[test]
fn an_account_that_ended_and_began_again_before_it_was_saved_holds_nothing_of_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path()).unwrap();
    store.save(&everything(), &[], &[]).unwrap();
    let account = (ChannelId(3), Hub::new("https://hub.example/"));
    let told = everything().told.into_values().next().unwrap();
    let with_told = |row: Option<LedgerRow>, name: &str| {
        let mut save = Save::default();
        let (id, hub) = account.clone();
        save.told
            .insert((id, hub, uri(name)), told.filter(|_| row.is_some()));
        save.ledgers.insert(account.clone(), row);
        save
    };
    let mut state = store.load().unwrap();
    let mut save = Save::default();
    save.merge(with_told(Some(LedgerRow::default()), "d1.xml"));
    save.merge(with_told(None, "d1.xml"));
    save.merge(with_told(Some(LedgerRow::default()), "d2.xml"));
    store.save(&save, &[], &[]).unwrap();
    state.apply(save);
    for state in [state, store.load().unwrap()] {
        assert_eq!(state.ledgers[&account], LedgerRow::default());
        let told: Vec<&Uri> = state.told[&account].keys().collect();
        assert_eq!(told, [&uri("d2.xml")]);
    }
}

#[test]
fn the_embedded_hub_finds_its_subscriptions_and_what_it_owes() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path()).unwrap();
    let topic = Topic::new("https://e.org/t");
    let subscription = Subscription {
        topic: topic.clone(),
        callback: Callback::new("http://127.0.0.1/1"),
        secret: Some(Secret::new("s")),
        expires: time(100),
    };
    let relay = |id: u64| Relay {
        id: RelayId(id),
        topic: topic.clone(),
        seq: id,
        body: Arc::from(&b"<urlset/>"[..]),
        headers: RelayHeaders {
            content_type: format!("application/xml; part={id}"),
            capability_list: Some(Uri::parse(&format!("https://e.org/{id}.xml")).unwrap()),
        },
    };
    let records = [HubRecord::Subscribed(subscription.clone(), RelayId(4))];
    store
        .save(&Save::default(), &records, &[relay(5), relay(6)])
        .unwrap();
    let tried = DeliveryProgress {
        heard: RelayId(5),
        attempts: 3,
        next_try: Some(time(2)),
    };
    let renewed = Subscription {
        secret: None,
        expires: time(200),
        ..subscription
    };
    let records = [
        HubRecord::Progressed(renewed.key(), tried),
        HubRecord::Subscribed(renewed.clone(), RelayId(6)),
        HubRecord::Ended(topic.clone(), RelayId(5)),
    ];
    store.save(&Save::default(), &records, &[]).unwrap();
    let saved = store.load_hub().unwrap();
    assert_eq!(saved.subscriptions, [(renewed.clone(), tried)]);
    assert_eq!(store.load_relays().unwrap(), [relay(6)]);
    let pending = PendingRelay {
        id: RelayId(6),
        size: 9,
    };
    let last = BodyDigest::of(b"<urlset/>");
    let want = SavedTopic {
        topic: topic.clone(),
        relays: vec![pending],
        last,
    };
    assert_eq!(saved.topics, [want]);
    assert_eq!(store.seq_after(&topic, RelayId(5)).unwrap(), Some(6));
    assert_eq!(store.seq_after(&topic, RelayId(6)).unwrap(), None);
    let ended = HubRecord::Unsubscribed(renewed.key());
    store.save(&Save::default(), &[ended], &[]).unwrap();
    assert_eq!(store.load_hub().unwrap().subscriptions, []);
}

#[test]
fn reading_a_state_at_rest_leaves_nothing_beside_it() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("a b?c#d%20e&ü");
    let mut store = Store::open(&directory).unwrap();
    store.save(&everything(), &[], &[]).unwrap();
    let saved = store.load().unwrap();
    drop(store);
    let names = || {
        let entries = std::fs::read_dir(&directory).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["lock", "state.sqlite"]);
    let reader = Store::open_to_read(&directory).unwrap().unwrap();
    assert_eq!(reader.load().unwrap(), saved);
    assert_eq!(names(), ["lock", "state.sqlite"]);
}

#[test]
fn a_second_instance_is_kept_out_and_a_reader_is_not() {
    let directory = tempfile::tempdir().unwrap();
    assert!(Store::open_to_read(directory.path()).unwrap().is_none());
    let mut store = Store::open(directory.path()).unwrap();
    store.save(&everything(), &[], &[]).unwrap();
    assert!(matches!(
        Store::open(directory.path()),
        Err(StoreError::InUse { .. })
    ));
    let reader = Store::open_to_read(directory.path()).unwrap().unwrap();
    assert_eq!(reader.load().unwrap(), store.load().unwrap());
}

#[test]
fn a_state_of_another_schema_is_refused_and_left_alone() {
    for version in [0, 2, 4_000] {
        let directory = tempfile::tempdir().unwrap();
        drop(Store::open(directory.path()).unwrap());
        let path = directory.path().join("state.sqlite");
        let database = rusqlite::Connection::open(&path).unwrap();
        database
            .pragma_update(None, "user_version", version)
            .unwrap();
        drop(database);
        let before = std::fs::read(&path).unwrap();
        for error in [
            Store::open(directory.path()).unwrap_err(),
            Store::open_to_read(directory.path()).unwrap_err(),
        ] {
            let error = error.to_string();
            assert_eq!(
                error,
                format!(
                    "the state file {} has schema {version}, and this rsnotify reads only schema 1; use the rsnotify that \
                     wrote it, or move the file away: everything that exists counts as known then",
                    path.display()
                )
            );
        }
        assert_eq!(std::fs::read(&path).unwrap(), before, "{version}");
    }
}

#[test]
fn a_damaged_state_is_an_error_that_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("state.sqlite"), vec![b'x'; 10_000]).unwrap();
    let error = Store::open(directory.path()).unwrap_err();
    assert!(error.to_string().contains("move it away"), "{error}");
}

#[test]
fn whether_a_state_is_in_use_is_seen_from_outside() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    assert!(!is_in_use(&state).unwrap());
    assert!(!state.exists(), "nothing was made");
    let store = Store::open(&state).unwrap();
    assert!(is_in_use(&state).unwrap());
    drop(store);
    assert!(!is_in_use(&state).unwrap());
    Store::open(&state).unwrap();
}

#[test]
fn looking_whether_a_state_is_in_use_keeps_nobody_out() {
    let directory = tempfile::tempdir().unwrap();
    Store::open(directory.path()).unwrap();
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| (0..20_000).all(|_| is_in_use(directory.path()).is_ok()));
        while !looking.is_finished() {
            Store::open(directory.path()).unwrap();
        }
        assert!(looking.join().unwrap());
    });
}

#[test]
fn a_probe_writes_and_leaves_all_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path()).unwrap();
    store.save(&everything(), &[], &[]).unwrap();
    let other = rusqlite::Connection::open(directory.path().join("state.sqlite")).unwrap();
    let version = |name| -> i64 {
        other
            .pragma_query_value(None, name, |row| row.get(0))
            .unwrap()
    };
    // This one changes whenever another connection has written.
    let before = (version("data_version"), version("user_version"));
    store.probe().unwrap();
    let after = (version("data_version"), version("user_version"));
    assert_ne!(after.0, before.0);
    assert_eq!(after.1, before.1);
}
