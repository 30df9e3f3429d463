//! The state file: what is committed is there when it is opened again, and an unusable file is refused with the reason.

#![expect(clippy::unwrap_used, reason = "a test that fails should say where")]

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use announce::delivery::KeptAnswer;
use announce::observation::MountId;
use announce::state::hub::SavedRelayReader;
use announce::state::open::is_in_use;
use announce::state::open::{StateFile, StateFileError, copy_to_memory, open_to_read};
use announce::state::{
    ChannelId, Db, DocId, FromColumn, HubId, ToColumn, hub, last_day, last_time_saved,
    save_last_day, save_time,
};
use announce::steps::cut::{decode_times, encode_times};
use jiff::Timestamp;
use resourcesync::capability::{Capability, ChannelKind};
use resourcesync::document::Form;
use resourcesync::fingerprint::Fingerprint;
use resourcesync::uri::{Hub, Topic, Uri};
use rusqlite::Connection;
use websub::http::Clock;
use websub::hub::published_topics::{BodyDigest, PublishedTopic};
use websub::hub::request::{RequestedAction, SubscriptionRequest};
use websub::hub::{
    Callback, DeliveryProgress, HubRecord, Relay, RelayHeaders, RelayId, RelaySize,
    SavedTopicRelays, Subscription,
};
use websub::publisher::reason::{Refusal, RefusalKind};
use websub::secret::Secret;

mod integrity;

/// A row in every table, those of the hub apart.
const EVERYTHING: &str = r#"
INSERT INTO last_day VALUES (1, '[]');
INSERT INTO source VALUES (1, 'main', '0a');
INSERT INTO mount VALUES (1, 1, x'2f737276ff', 'https://e.org/', -1, 2, 1, 1, 5, '["**/*.xml"]', '["\"a\"/**"]', '[[], []]');
INSERT INTO nested_file_system VALUES (1, x'642fff', -1, 1, 0);
INSERT INTO document (id, uri, source, mount, path, size, modified, changed, inode, capability, form, fingerprint)
  VALUES (1, 'https://e.org/cl.xml', 1, 1, x'636c2e786d6c', -1, 1, 2, -2, 1, 0, zeroblob(32)),
    (2, 'https://e.org/d.xml', 1, 1, x'612fff27220a2e786d6c', -1, 1, 2, -2, 3, 0, zeroblob(32));
UPDATE document SET presence = CASE id WHEN 1 THEN 1 ELSE 4 END;
INSERT INTO seeing VALUES (3);
INSERT INTO mention VALUES (1, 2);
INSERT INTO advertised VALUES (1, 0, 0, 'https://e.org/t', '["https://hub.example/"]');
INSERT INTO member VALUES (2, 1);
INSERT INTO other_file VALUES (1, x'6f746865722e786d6c', -1, 1, 2, -2, 9);
INSERT INTO trouble VALUES ('https://e.org/broken.xml', 1, 1, x'62', 10, 'it is empty', 1, 0, NULL);
INSERT INTO hub VALUES (1, 'https://hub.example/', 'content', 1);
INSERT INTO channel (id, source, kind, set_id, topic, seq, body) VALUES (3, 1, 0, 1, 'https://e.org/t', 9, x'3c757226');
INSERT INTO said VALUES (3, 'https://e.org/d.xml', 1, 3, 14, 11, NULL);
INSERT INTO account (channel, hub, until, seq, body) VALUES (3, 1, 12, 9, x'3c757226');
INSERT INTO owed VALUES (3, 1, 2, 3, 0, NULL, 7, 0);
INSERT INTO flight_entry VALUES (3, 1, 2, NULL, NULL, NULL);
INSERT INTO change_set (id, source) VALUES (1, 1);
INSERT INTO change_list (set_id, list) VALUES (1, 2);
INSERT INTO stale_list VALUES (1, 2, '{}', 1, 20);
INSERT INTO change_key VALUES (1, 2, 0, zeroblob(16), NULL);
INSERT INTO inventory VALUES (1, zeroblob(16), zeroblob(16), 'https://e.org/r', NULL);
INSERT INTO change_log VALUES (3, 1, 20, 21, 1, 1, 4, 22, x'3c757226', NULL);
INSERT INTO log_position (channel, hub, heard) VALUES (3, 1, 0);
INSERT INTO unfetched VALUES (3, 1, 2);
INSERT INTO unverified VALUES (0, 'https://e.org/t', 'https://e.org/c', 'https://e.org/t', 300, '%FF');
INSERT INTO finding VALUES ('https://e.org/d.xml', '{}', '{}', 0, 1, 'no_file', 1, NULL, NULL);
"#;

fn time(second: i64) -> Timestamp {
    Timestamp::new(1_800_000_000 + second, 123_456_789).unwrap()
}

fn open(directory: &Path) -> (StateFile, Connection) {
    StateFile::open(directory).unwrap()
}

/// A state with a row of everything in it.
fn filled(directory: &Path) -> (StateFile, Connection) {
    let (file, mut connection) = open(directory);
    let transaction = connection.transaction().unwrap();
    transaction.execute_batch(EVERYTHING).unwrap();
    save_time(Db(&transaction), time(0), time(1)).unwrap();
    let records = [
        HubRecord::Subscribed(subscription(), RelayId(4)),
        HubRecord::Published(Box::new(published())),
    ];
    let body = vec![b'x'; 200_000].into();
    let relays = [relay(5), Relay { body, ..relay(6) }];
    hub::save_hub(Db(&transaction), &records, &relays).unwrap();
    transaction.commit().unwrap();
    (file, connection)
}

/// Writes something, as a step does.
fn write(connection: &Connection, second: i64) -> announce::state::Result<()> {
    save_time(Db(connection), time(second), time(second))
}

fn tables(connection: &Connection) -> Vec<String> {
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name";
    Db(connection).all(sql, ()).unwrap()
}

/// Every row of a table as text.
fn rows(connection: &Connection, table: &str) -> Vec<String> {
    let mut statement = connection
        .prepare(&format!("SELECT * FROM {table}"))
        .unwrap();
    let columns = statement.column_count();
    let rows = statement.query_map([], |row| {
        let values =
            (0..columns).map(|column| row.get_ref(column).map(|value| format!("{value:?}")));
        Ok(values.collect::<rusqlite::Result<Vec<_>>>()?.join(" "))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

/// Every row of every table.
fn contents(connection: &Connection) -> Vec<(String, Vec<String>)> {
    let tables = tables(connection).into_iter();
    tables
        .map(|table| (table.clone(), rows(connection, &table)))
        .collect()
}

fn is_empty(connection: &Connection) -> bool {
    contents(connection).iter().all(|(_, rows)| rows.is_empty())
}

fn subscription() -> Subscription {
    Subscription {
        topic: Topic::new("https://e.org/t"),
        callback: Callback::new("http://127.0.0.1/1"),
        secret: Some(Secret::of_bytes(b"\xff\0s".as_slice())),
        expires: time(100),
        requester: None,
    }
}

fn relay(id: u64) -> Relay {
    Relay {
        id: RelayId(id),
        topic: Topic::new("https://e.org/t"),
        seq: id,
        body: Arc::from(&b"<urlset/>"[..]),
        headers: RelayHeaders {
            content_type: format!("application/xml; part={id}"),
            capability_list: Some(Uri::parse(&format!("https://e.org/{id}.xml")).unwrap()),
        },
    }
}

fn published() -> PublishedTopic {
    PublishedTopic {
        topic: Topic::new("https://e.org/t"),
        publisher: "one".to_owned(),
        seq: u64::MAX,
        digest: Some(BodyDigest([7; 32])),
        published: time(3),
        etag: Some("\"a\"".to_owned()),
        pinged: Some(time(4)),
    }
}

#[test]
fn no_run_begins_before_the_last_time_saved() {
    let directory = tempfile::tempdir().unwrap();
    let (_file, connection) = open(directory.path());
    assert_eq!(last_time_saved(&connection).unwrap(), None);
    let right = Clock::start(None);
    let hour = Duration::from_secs(3_600);
    for (saved, begins) in [(right.began - hour, false), (right.began + hour, true)] {
        save_time(Db(&connection), saved, saved).unwrap();
        assert_eq!(last_time_saved(&connection).unwrap(), Some(saved));
        let clock = Clock::start(last_time_saved(&connection).unwrap());
        assert_eq!(clock.began == saved, begins, "{saved}");
        assert!(clock.now() >= clock.began && clock.began >= right.began);
    }
}

#[test]
fn everything_that_is_committed_is_there_when_it_is_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let (file, connection) = filled(directory.path());
    let saved = contents(&connection);
    for (table, rows) in &saved {
        assert_eq!(rows.is_empty(), table == "daemon", "{table}");
    }
    drop((connection, file));
    assert_eq!(contents(&open(directory.path()).1), saved);
}

#[test]
fn a_write_ahead_log_that_is_cut_anywhere_has_whole_transactions() {
    let directory = tempfile::tempdir().unwrap();
    let (_file, connection) = open(directory.path());
    let path = directory.path().join("state.sqlite");
    let mut last = 0;
    for second in 1..4 {
        let sql =
            "INSERT INTO published_topic (topic, publisher, seq, published) VALUES (?1, '', 0, 0)";
        connection.execute_batch("BEGIN").unwrap();
        connection.execute(sql, [second]).unwrap();
        write(&connection, second).unwrap();
        connection.execute_batch("COMMIT").unwrap();
        last = second;
    }
    let log = std::fs::read(directory.path().join("state.sqlite-wal")).unwrap();
    let mut seen = Vec::new();
    for length in (0..=log.len()).step_by(1_000).chain([log.len()]) {
        let copy = tempfile::tempdir().unwrap();
        std::fs::copy(&path, copy.path().join("state.sqlite")).unwrap();
        std::fs::write(copy.path().join("state.sqlite-wal"), &log[..length]).unwrap();
        let (_file, found) = open(copy.path());
        let saved = last_time_saved(&found).unwrap();
        let count = rows(&found, "published_topic").len();
        assert_eq!(saved, (count > 0).then(|| time(count as i64)), "{length}");
        seen.push(count);
    }
    assert!(
        seen.is_sorted() && seen.ends_with(&[last as usize]),
        "{seen:?}"
    );
}

/// Asserts that a value is read as it was written.
#[track_caller]
fn comes_back<T: FromColumn + ToColumn + Debug + PartialEq>(value: T) {
    let connection = Connection::open_in_memory().unwrap();
    let read = Db(&connection).first::<T>("SELECT ?1", &value);
    assert_eq!(read.unwrap(), Some(value));
}

#[test]
fn values_are_read_as_they_were_written() {
    let times = "2026-11-02T08:00:00Z 2026-11-02T08:00:00.123Z 2026-11-02T08:00:00.123456789Z \
        1969-12-31T23:59:59.999Z";
    for text in times.split(' ') {
        let time: Timestamp = text.parse().unwrap();
        comes_back(time);
        assert_eq!(decode_times(&encode_times(&[time, time])), [time, time]);
    }
    Capability::all().for_each(comes_back);
    ChannelKind::ALL.into_iter().for_each(comes_back);
    [Form::List, Form::Index].into_iter().for_each(comes_back);
    comes_back(DocId(i64::MAX));
    comes_back(HubId(1));
    comes_back(ChannelId(u64::MAX));
    comes_back(MountId(u32::MAX));
    comes_back(Uri::parse("https://e.org/a?b=%FF&c=%27").unwrap());
    comes_back(Topic::new("https://e.org/t"));
    comes_back(Hub::new("https://hub.example/"));
    comes_back(Fingerprint([0xff; 32]));
    comes_back(u64::MAX);
    comes_back(usize::MAX >> 1);
    [Some(true), None].into_iter().for_each(comes_back);
}

#[test]
fn rows_are_read_as_their_parameters_were_written() {
    let connection = Connection::open_in_memory().unwrap();
    let (both, none) = (Some((2_u64, 3_usize)), None::<(bool, u8)>);
    let row = (DocId(1), ("text".to_owned(), both), none, vec![4_u8]);
    let read = Db(&connection).first("SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7", row.clone());
    assert_eq!(read.unwrap(), Some(row));
    let half = Db(&connection).first("SELECT ?1, ?2", (1_i64, None::<i64>));
    assert_eq!(half.unwrap(), Some(None::<(i64, i64)>));
}

#[test]
fn a_statement_with_other_parameters_than_it_has_is_an_error() {
    let connection = Connection::open_in_memory().unwrap();
    let db = Db(&connection);
    assert!(db.exists("SELECT ?1, ?2", ("a", "b")).unwrap());
    for (sql, why) in [("SELECT ?1", "too many"), ("SELECT ?1, ?2, ?3", "too few")] {
        assert!(db.exists(sql, ("a", "b")).is_err(), "{why}");
    }
}

#[test]
fn attempts_are_read_as_they_were_written() {
    let refused = Refusal::new(RefusalKind::NotAllowed, "it wants credentials", true);
    let unanswered = Refusal::new(RefusalKind::NoAnswer, "timed out", false);
    let connection = Connection::open_in_memory().unwrap();
    for (status, excerpt, refusal) in [
        (Some(204), "", None),
        (Some(403), "who are you?", Some(refused)),
        (None, "", Some(unanswered)),
    ] {
        let attempt = KeptAnswer {
            at: time(20),
            seq: 10,
            status,
            excerpt: excerpt.to_owned(),
            refusal,
        };
        let text = serde_json::to_string(&attempt).unwrap();
        let read = Db(&connection).first::<Option<KeptAnswer>>("SELECT ?1", text);
        assert_eq!(read.unwrap(), Some(Some(attempt)));
    }
}

#[test]
fn what_was_committed_without_a_sync_is_read_and_the_next_commit_is_synced() {
    let directory = tempfile::tempdir().unwrap();
    let (mut file, connection) = open(directory.path());
    let synchronous = || -> i64 {
        connection
            .pragma_query_value(None, "synchronous", |row| row.get(0))
            .unwrap()
    };
    let (normal, full) = (1, 2);
    assert_eq!(synchronous(), full);
    file.sync_commits(&connection, false).unwrap();
    assert_eq!(synchronous(), normal);
    write(&connection, 1).unwrap();
    let reader = open_to_read(directory.path()).unwrap().unwrap();
    assert_eq!(last_time_saved(&reader).unwrap(), Some(time(1)));
    drop(reader);
    file.probe(&connection).unwrap();
    assert_eq!(synchronous(), full);
    write(&connection, 2).unwrap();
    drop((connection, file));
    let (_file, again) = open(directory.path());
    assert_eq!(last_time_saved(&again).unwrap(), Some(time(2)));
}

#[test]
fn temporary_files_are_not_needed() {
    let directory = tempfile::tempdir().unwrap();
    let (_file, connection) = open(directory.path());
    let temp_store = connection.pragma_query_value(None, "temp_store", |row| row.get::<_, i64>(0));
    let in_memory = 2;
    assert_eq!(temp_store, Ok(in_memory));
}

#[test]
fn rows_with_bodies_are_found_without_reading_them() {
    let directory = tempfile::tempdir().unwrap();
    let (_file, connection) = open(directory.path());
    // Without a rowid, SQLite reads whole rows to find one.
    let sql = "SELECT t.name FROM pragma_table_list t CROSS JOIN pragma_table_info(t.name) c \
               WHERE t.wr AND c.name IN ('body', 'beginning', 'keys')";
    let read = Db(&connection).all::<Vec<String>>(sql, ()).unwrap();
    assert_eq!(read, [""; 0]);
}

#[test]
fn a_deleted_channel_takes_its_accounts_and_what_was_told_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let (_file, connection) = filled(directory.path());
    connection.execute("DELETE FROM channel", []).unwrap();
    for table in "account change_log flight_entry log_position owed said unfetched".split(' ') {
        assert_eq!(rows(&connection, table), [""; 0], "{table}");
    }
}

#[test]
fn requests_that_were_not_verified_are_found_in_their_order_and_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let (file, connection) = open(directory.path());
    let subscription = subscription();
    let of = |action| {
        let request = SubscriptionRequest {
            action,
            topic: "https://e.org/t%41".to_owned(),
            callback: subscription.callback.clone(),
        };
        (subscription.key(), request)
    };
    let subscribe = RequestedAction::Subscribe {
        lease: Duration::from_secs(300),
        secret: subscription.secret.clone(),
    };
    let requests = vec![of(subscribe), of(RequestedAction::Unsubscribe)];
    let saved = SavedRelayReader::new(file.path.clone());
    for requests in [requests, Vec::new()] {
        let record = HubRecord::Unverified(requests.clone());
        hub::save_hub(Db(&connection), &[record], &[]).unwrap();
        assert_eq!(saved.unverified_requests().unwrap(), requests);
    }
}

#[test]
fn the_embedded_hub_finds_its_subscriptions_and_what_it_owes() {
    let directory = tempfile::tempdir().unwrap();
    let (_file, connection) = open(directory.path());
    let db = Db(&connection);
    let (subscription, topic) = (subscription(), subscription().topic);
    let records = [HubRecord::Subscribed(subscription.clone(), RelayId(4))];
    hub::save_hub(db, &records, &[relay(5), relay(6)]).unwrap();
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
    hub::save_hub(db, &records, &[]).unwrap();
    let saved = hub::load(db).unwrap();
    assert_eq!(saved.subscriptions, [(renewed.clone(), tried)]);
    assert_eq!(hub::load_relays(db).unwrap(), [relay(6)]);
    let pending = RelaySize {
        id: RelayId(6),
        size: 9,
    };
    let last = BodyDigest::of(b"<urlset/>");
    let want = SavedTopicRelays {
        topic: topic.clone(),
        relays: vec![pending],
        last,
    };
    assert_eq!(saved.topics, [want]);
    let next = |heard| hub::next_relay(db, &topic, RelayId(heard)).unwrap();
    let seq_after = |heard| next(heard).map(|relay| relay.seq);
    assert_eq!([5, 6].map(seq_after), [Some(6), None]);
    let ended = HubRecord::Unsubscribed(renewed.key());
    hub::save_hub(db, &[ended], &[]).unwrap();
    assert_eq!(hub::load(db).unwrap().subscriptions, []);
    hub::save_hub(db, &[HubRecord::Published(Box::new(published()))], &[]).unwrap();
    assert_eq!(hub::load_published_topics(db).unwrap(), [published()]);
}

#[test]
fn a_copy_in_memory_has_all_but_the_notifications_of_the_hub() {
    let directory = tempfile::tempdir().unwrap();
    assert!(copy_to_memory(directory.path()).unwrap().is_none());
    let (file, connection) = filled(directory.path());
    let mut saved = contents(&connection);
    for is_open in [true, false] {
        let copy = copy_to_memory(directory.path()).unwrap().unwrap();
        for (table, rows) in &mut saved {
            rows.retain(|_| !table.starts_with("relay"));
        }
        assert_eq!(contents(&copy), saved, "{is_open}");
        assert!(
            copy.execute("UPDATE document SET presence = 4", [])
                .is_err()
        );
        copy.execute("DELETE FROM channel", []).unwrap();
        assert!(rows(&copy, "account").is_empty());
    }
    drop((connection, file));
}

#[test]
fn reading_a_state_at_rest_leaves_nothing_beside_it() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("a b?c#d%20e&ü");
    let (file, connection) = filled(&directory);
    let saved = contents(&connection);
    drop((connection, file));
    let names = || {
        let entries = std::fs::read_dir(&directory).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["lock", "state.sqlite"]);
    let reader = open_to_read(&directory).unwrap().unwrap();
    assert_eq!(contents(&reader), saved);
    assert!(copy_to_memory(&directory).unwrap().is_some());
    assert_eq!(names(), ["lock", "state.sqlite"]);
}

#[test]
fn a_second_instance_is_kept_out_and_a_reader_is_not() {
    let directory = tempfile::tempdir().unwrap();
    assert!(open_to_read(directory.path()).unwrap().is_none());
    let (_file, connection) = filled(directory.path());
    assert!(matches!(
        StateFile::open(directory.path()),
        Err(StateFileError::InUse { .. })
    ));
    let reader = open_to_read(directory.path()).unwrap().unwrap();
    assert_eq!(contents(&reader), contents(&connection));
    assert!(write(&reader, 2).is_err());
}

/// Asserts that a state file is refused, and left alone.
#[track_caller]
fn is_refused(directory: &Path, why: &str) {
    let path = directory.join("state.sqlite");
    let before = std::fs::read(&path).unwrap();
    for error in [
        StateFile::open(directory).unwrap_err(),
        open_to_read(directory).unwrap_err(),
        copy_to_memory(directory).unwrap_err(),
    ] {
        let want = format!("the state file {} {why}", path.display());
        assert_eq!(error.to_string(), want);
    }
    assert_eq!(std::fs::read(&path).unwrap(), before, "{why}");
}

#[test]
fn a_state_without_the_last_day_gets_a_place_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let (file, connection) = filled(directory.path());
    connection.execute_batch("DROP TABLE last_day").unwrap();
    drop((connection, file));
    assert!(open_to_read(directory.path()).unwrap().is_some());
    let (_file, connection) = open(directory.path());
    let db = Db(&connection);
    assert_eq!(last_day(db).unwrap(), None);
    save_last_day(db, "[1]").unwrap();
    save_last_day(db, "[2]").unwrap();
    assert_eq!(last_day(db).unwrap().as_deref(), Some("[2]"));
}

#[test]
fn a_state_of_another_schema_is_refused_and_left_alone() {
    for version in [0, 2, 4_000] {
        let directory = tempfile::tempdir().unwrap();
        let (file, connection) = open(directory.path());
        connection
            .pragma_update(None, "user_version", version)
            .unwrap();
        drop((connection, file));
        is_refused(
            directory.path(),
            &format!(
                "has schema {version}, and this rsnotify reads only schema 1; use the rsnotify that wrote it, or move \
                 the file away: everything that exists counts as known then"
            ),
        );
    }
}

#[test]
fn a_state_of_a_version_that_was_never_released_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let database = Connection::open(directory.path().join("state.sqlite")).unwrap();
    let older = "CREATE TABLE documents (uri TEXT PRIMARY KEY); PRAGMA user_version = 1;";
    database.execute_batch(older).unwrap();
    drop(database);
    is_refused(
        directory.path(),
        "was not written by this rsnotify, but by another program or by a version that was never released; move it \
         away: everything that exists counts as known then",
    );
}

#[test]
fn a_damaged_state_is_an_error_that_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("state.sqlite"), vec![b'x'; 10_000]).unwrap();
    let error = StateFile::open(directory.path()).unwrap_err();
    assert!(error.to_string().contains("move it away"), "{error}");
}

#[test]
fn whether_a_state_is_in_use_is_seen_from_outside() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    assert!(!is_in_use(&state).unwrap());
    assert!(!state.exists(), "nothing was made");
    let held = open(&state);
    assert!(is_in_use(&state).unwrap());
    drop(held);
    assert!(!is_in_use(&state).unwrap());
    open(&state);
}

#[test]
fn looking_whether_a_state_is_in_use_keeps_nobody_out() {
    let directory = tempfile::tempdir().unwrap();
    open(directory.path());
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| (0..20_000).all(|_| is_in_use(directory.path()).is_ok()));
        while !looking.is_finished() {
            open(directory.path());
        }
        assert!(looking.join().unwrap());
    });
}

#[test]
fn a_step_waits_while_an_operators_command_holds_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let (_file, mut connection) = open(directory.path());
    let operator = Connection::open(directory.path().join("state.sqlite")).unwrap();
    operator.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(50)); // stall: the step comes while the file is held
            operator.execute_batch("COMMIT").unwrap();
        });
        let transaction = connection.transaction().unwrap();
        assert_eq!(last_time_saved(&transaction).unwrap(), None);
        write(&transaction, 1).unwrap();
        transaction.commit().unwrap();
    });
    assert_eq!(last_time_saved(&connection).unwrap(), Some(time(1)));
}

#[test]
fn a_probe_writes_and_leaves_all_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let (mut file, connection) = filled(directory.path());
    let other = Connection::open(directory.path().join("state.sqlite")).unwrap();
    let version = |name| -> i64 {
        other
            .pragma_query_value(None, name, |row| row.get(0))
            .unwrap()
    };
    let all = contents(&connection);
    // This one changes whenever another connection has written.
    let before = (version("data_version"), version("user_version"));
    file.probe(&connection).unwrap();
    let after = (version("data_version"), version("user_version"));
    assert_ne!(after.0, before.0);
    assert_eq!(after.1, before.1);
    assert_eq!(contents(&connection), all);
}
