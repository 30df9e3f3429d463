//! State files of earlier versions are migrated.

use std::collections::BTreeSet;
use std::path::Path;

use resourcesync::change_list::{ResourceKey, ResourceState};
use resourcesync::uri::{Hub, Uri};
use rsnotify::announce::changes::inventory::InventoryRow;
use rsnotify::announce::ids::ChannelId;
use rsnotify::announce::state::{ChangeSetRow, ListKind, Save};
use rsnotify::store::Store;
use websub::hub::{RelayHeaders, SavedHub};

use crate::{everything, some, uri};

#[test]
fn a_state_of_the_second_schema_is_taken_over_but_for_its_last_failure() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path()).unwrap();
    let mut save = everything();
    store.save(&save, &[], &[]).unwrap();
    drop(store);
    let database = of_the_third_schema(directory.path());
    // What the third migration did, undone.
    for column in [
        "tried",
        "tried_seq",
        "answer_status",
        "answer",
        "refusal",
        "reason",
        "needs_person",
    ] {
        let drop = format!("ALTER TABLE ledgers DROP COLUMN {column}");
        database.execute_batch(&drop).unwrap();
    }
    database
        .execute_batch(
            "ALTER TABLE in_flight ADD COLUMN last_failure TEXT; UPDATE in_flight SET last_failure = 'no'; \
             PRAGMA user_version = 2;",
        )
        .unwrap();
    drop(database);
    let upgraded = Store::open(directory.path()).unwrap().load().unwrap();
    as_after_the_fourth(&mut save);
    let mut wanted = save.ledgers;
    for ledger in wanted.values_mut().flatten() {
        ledger.last = None;
    }
    assert_eq!(some(upgraded.ledgers), wanted);
    assert_eq!(some(upgraded.channels), save.channels);
}

/// A state with what the eighth migration and the later ones did, undone.
fn of_the_seventh_schema(directory: &Path) -> rusqlite::Connection {
    let database = rusqlite::Connection::open(directory.join("state.sqlite")).unwrap();
    database
        .execute_batch(
            "ALTER TABLE mounts DROP COLUMN knows_nested;
             ALTER TABLE change_sets DROP COLUMN last_words_on;
             ALTER TABLE change_lists DROP COLUMN closed;
             ALTER TABLE change_lists DROP COLUMN last;
             DROP TABLE relay_parts;
             DROP TABLE relays;
             CREATE TABLE relays (
                 id INTEGER PRIMARY KEY, topic TEXT NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL
             ) STRICT;
             DROP TABLE published_topics;
             CREATE TABLE published_topics (
                 topic TEXT PRIMARY KEY, publisher TEXT NOT NULL, seq INTEGER NOT NULL, digest BLOB,
                 published TEXT NOT NULL, content_type TEXT NOT NULL, capability_list TEXT, etag TEXT, pinged TEXT
             ) STRICT, WITHOUT ROWID;
             DROP TABLE nested_file_systems;
             PRAGMA user_version = 7;",
        )
        .unwrap();
    database
}

#[test]
fn what_the_hub_owed_by_the_seventh_schema_has_the_headers_of_its_topic() {
    let directory = tempfile::tempdir().unwrap();
    drop(Store::open(directory.path()).unwrap());
    let database = of_the_seventh_schema(directory.path());
    database
        .execute_batch(
            "INSERT INTO relays VALUES (1, 'https://e.org/published', 1, x'61'), (2, 'https://e.org/own', 1, x'62'),
                 (3, 'https://e.org/unknown', 1, x'63');
             INSERT INTO published_topics VALUES
                 ('https://e.org/published', 'library', 9, NULL, '2026-11-20T12:00:00Z', 'application/xml; charset=utf-8',
                  'https://e.org/a/cl.xml', NULL, '2026-11-20T12:00:01Z');
             INSERT INTO channels VALUES
                 (1, 'main', 'https://e.org/b/cl.xml', 'https://e.org/own', NULL, NULL, 1, x'', '[]', '', 'framework');",
        )
        .unwrap();
    drop(database);
    let store = Store::open(directory.path()).unwrap();
    let relays = store.load_relays().unwrap();
    let headers = relays.iter().map(|relay| {
        let RelayHeaders {
            content_type,
            capability_list,
        } = &relay.headers;
        (
            content_type.as_str(),
            capability_list.as_ref().map(Uri::as_str),
        )
    });
    assert_eq!(
        headers.collect::<Vec<_>>(),
        [
            (
                "application/xml; charset=utf-8",
                Some("https://e.org/a/cl.xml")
            ),
            ("application/xml", Some("https://e.org/b/cl.xml")),
            ("application/xml", None),
        ]
    );
    let published = store.load_published_topics().unwrap();
    assert_eq!((&*published[0].publisher, published[0].seq), ("library", 9));
    assert!(published[0].pinged.is_some());
}

/// A state with what the fifth migration and the later ones did, undone.
fn of_the_fourth_schema(directory: &Path) -> rusqlite::Connection {
    let database = of_the_seventh_schema(directory);
    database
        .execute_batch(
            "DROP TABLE published_topics;
             DROP TABLE daemon;
             DROP TABLE change_log;
             DROP TABLE change_keys;
             DROP TABLE change_inventory;
             DROP TABLE change_lists;
             DROP TABLE change_sets;
             ALTER TABLE in_flight DROP COLUMN part_first;
             ALTER TABLE in_flight DROP COLUMN part_whole;
             ALTER TABLE in_flight DROP COLUMN part_bytes;
             ALTER TABLE ledgers DROP COLUMN heard;
             ALTER TABLE ledgers DROP COLUMN heard_entries;
             ALTER TABLE ledgers DROP COLUMN skipped_to;
             ALTER TABLE ledgers DROP COLUMN last_heard;
             ALTER TABLE channels DROP COLUMN kind;
             ALTER TABLE documents DROP COLUMN is_new_set;
             ALTER TABLE channels ADD COLUMN until TEXT;
             UPDATE channels SET until = substr(untils, -30) WHERE untils != '';
             ALTER TABLE channels DROP COLUMN untils;
             ALTER TABLE ledgers DROP COLUMN until;
             ALTER TABLE ledgers DROP COLUMN left_since;
             ALTER TABLE ledgers DROP COLUMN last_words;
             ALTER TABLE in_flight DROP COLUMN until;
             DROP TABLE hubs;
             PRAGMA user_version = 4;",
        )
        .unwrap();
    database
}

/// The fifth migration leaves unknown columns unset and keeps the last `until`.
fn as_after_the_fourth(save: &mut Save) {
    for channel in save.channels.values_mut().flatten() {
        channel.untils = channel.untils.pop().into_iter().collect();
    }
    for ledger in save.ledgers.values_mut().flatten() {
        ledger.until = None;
        ledger.left = None;
        ledger.last_words.clear();
        if let Some(flight) = &mut ledger.flight {
            flight.until = None;
        }
    }
    for document in save.documents.values_mut().flatten() {
        std::sync::Arc::make_mut(document).is_new_set = false;
    }
}

#[test]
fn a_state_of_the_fourth_schema_is_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path()).unwrap();
    let mut save = everything();
    store.save(&save, &[], &[]).unwrap();
    drop(store);
    drop(of_the_fourth_schema(directory.path()));
    let upgraded = Store::open(directory.path()).unwrap().load().unwrap();
    as_after_the_fourth(&mut save);
    assert_eq!(some(upgraded.documents), save.documents);
    assert_eq!(some(upgraded.ledgers), save.ledgers);
    assert_eq!(some(upgraded.channels), save.channels);
    assert!(upgraded.hubs.is_empty());
}

/// A state with what the fourth migration did, undone.
fn of_the_third_schema(directory: &Path) -> rusqlite::Connection {
    let database = of_the_fourth_schema(directory);
    database
        .execute_batch(
            "ALTER TABLE subscriptions DROP COLUMN heard;
             ALTER TABLE subscriptions DROP COLUMN attempts;
             ALTER TABLE subscriptions DROP COLUMN next_try;
             DROP TABLE relays;
             CREATE TABLE relays (digest BLOB PRIMARY KEY, body BLOB NOT NULL) STRICT, WITHOUT ROWID;
             CREATE TABLE deliveries (
                 id INTEGER PRIMARY KEY, topic TEXT NOT NULL, callback TEXT NOT NULL, seq INTEGER NOT NULL,
                 digest BLOB NOT NULL REFERENCES relays (digest), attempts INTEGER NOT NULL, next_try TEXT NOT NULL
             ) STRICT;
             PRAGMA user_version = 3;",
        )
        .unwrap();
    database
}

#[test]
fn what_subscribers_were_owed_by_the_third_schema_is_owed_still() {
    let directory = tempfile::tempdir().unwrap();
    drop(Store::open(directory.path()).unwrap());
    let database = of_the_third_schema(directory.path());
    database
        .execute_batch(
            "INSERT INTO subscriptions VALUES ('https://e.org/t', 'http://127.0.0.1/both', NULL, '2999-01-01T00:00:00Z');
             INSERT INTO subscriptions VALUES ('https://e.org/t', 'http://127.0.0.1/last', NULL, '2999-01-01T00:00:00Z');
             INSERT INTO subscriptions VALUES ('https://e.org/t', 'http://127.0.0.1/none', NULL, '2999-01-01T00:00:00Z');
             INSERT INTO relays VALUES (x'01', x'6f6e65'), (x'02', x'74776f');
             INSERT INTO deliveries VALUES
                 (5, 'https://e.org/t', 'http://127.0.0.1/both', 1, x'01', 3, '2026-11-20T12:00:00Z'),
                 (6, 'https://e.org/t', 'http://127.0.0.1/both', 2, x'02', 0, '2026-11-20T12:00:00Z'),
                 (7, 'https://e.org/t', 'http://127.0.0.1/last', 2, x'02', 0, '2026-11-20T12:00:00Z');",
        )
        .unwrap();
    drop(database);
    let store = Store::open(directory.path()).unwrap();
    let relays = store.load_relays().unwrap();
    let SavedHub { subscriptions, .. } = store.load_hub().unwrap();
    let heard = subscriptions
        .iter()
        .map(|(subscription, progress)| (subscription.callback.as_str(), progress.heard.0));
    assert_eq!(
        heard.collect::<Vec<_>>(),
        [
            ("http://127.0.0.1/both", 4),
            ("http://127.0.0.1/last", 5),
            ("http://127.0.0.1/none", 6)
        ]
    );
    let owed = relays
        .iter()
        .map(|relay| (relay.id.0, relay.seq, &relay.body[..]));
    assert_eq!(
        owed.collect::<Vec<_>>(),
        [(5, 1, &b"one"[..]), (6, 2, &b"two"[..])]
    );
}

#[test]
fn a_set_whose_resources_earlier_versions_stored_learned_resource_lists() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path()).unwrap();
    let set = Uri::parse("https://example.org/cl.xml").unwrap();
    let (before, later) = (Some(ListKind::ChangeLists), Some(ListKind::ResourceLists));
    for (learned, stored, has_resources, want) in [
        (None, 0, false, None),
        (before, 1, false, before),
        (before, 1, true, later),
        (later, 2, false, later),
        (later, 2, true, later),
        (None, 0, true, None),
    ] {
        let row = ChangeSetRow {
            learned,
            last_words_on: None,
        };
        let resource = InventoryRow {
            state: ResourceState([1; 16]),
            uri: "https://example.org/r".into(),
            missing: None,
        };
        let mut save = Save::default();
        save.forget_inventory(&set);
        save.change_sets.insert(set.clone(), Some(row));
        if has_resources {
            let key = (set.clone(), ResourceKey([1; 16]));
            save.inventory.insert(key, Some(resource));
        }
        store.save(&save, &[], &[]).unwrap();
        let loaded = store.load().unwrap().change_sets[&set];
        assert_eq!(loaded.learned, want, "{stored} {has_resources}");
        let file = directory.path().join("state.sqlite");
        let database = rusqlite::Connection::open(file).unwrap();
        let number: i64 = database
            .query_row("SELECT learned FROM change_sets", [], |row| row.get(0))
            .unwrap();
        assert_eq!(number, stored);
    }
}

#[test]
fn last_words_that_an_earlier_version_kept_with_the_channel_are_those_of_each_account() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path()).unwrap();
    let save = everything();
    store.save(&save, &[], &[]).unwrap();
    let database = rusqlite::Connection::open(directory.path().join("state.sqlite")).unwrap();
    let last_words = |store: &Store| {
        let ledgers = store.load().unwrap().ledgers;
        let ledger = ledgers.get(&(ChannelId(3), Hub::new("https://hub.example/")));
        ledger.unwrap().last_words.clone()
    };
    database
        .execute_batch("UPDATE channels SET last_words = '[\"https://e.org/d1.xml\"]';")
        .unwrap();
    assert_eq!(last_words(&store), BTreeSet::from([uri("d0.xml")]));
    database
        .execute_batch("UPDATE ledgers SET last_words = NULL;")
        .unwrap();
    assert_eq!(last_words(&store), BTreeSet::from([uri("d1.xml")]));
    // The channel is saved before the account is.
    let channels = Save {
        channels: save.channels.clone(),
        ..Save::default()
    };
    store.save(&channels, &[], &[]).unwrap();
    assert_eq!(last_words(&store), BTreeSet::from([uri("d1.xml")]));
    let mut ledgers = Save {
        ledgers: save.ledgers.clone(),
        ..Save::default()
    };
    for ledger in ledgers.ledgers.values_mut().flatten() {
        ledger.last_words.clear();
    }
    store.save(&ledgers, &[], &[]).unwrap();
    assert_eq!(last_words(&store), BTreeSet::new());
}
