//! The schema and its migrations. Operators may open the file with `sqlite3`.

use rusqlite::Connection;

/// Migrations in order; `user_version` counts those that ran. Never edit one that was released.
const MIGRATIONS: [&str; 13] = [
    "
CREATE TABLE mounts (
    id INTEGER PRIMARY KEY,
    source TEXT NOT NULL,
    directory BLOB NOT NULL,
    prefix TEXT NOT NULL,
    device INTEGER,
    inode INTEGER,
    baselined INTEGER NOT NULL,
    held_document INTEGER NOT NULL,
    swept TEXT
) STRICT;

CREATE TABLE documents (
    uri TEXT PRIMARY KEY,
    mount INTEGER NOT NULL,
    path BLOB NOT NULL,
    size INTEGER NOT NULL,
    modified TEXT NOT NULL,
    changed TEXT NOT NULL,
    inode INTEGER NOT NULL,
    capability TEXT NOT NULL,
    form TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    fingerprint_version INTEGER NOT NULL,
    up TEXT,
    named_index TEXT,
    named_index_form TEXT,
    newly_indexed INTEGER NOT NULL,
    since TEXT NOT NULL,
    looked TEXT NOT NULL,
    presence TEXT NOT NULL,
    absent_since TEXT,
    hold TEXT NOT NULL,
    held_since TEXT,
    in_index TEXT,
    in_sets TEXT NOT NULL,
    archived INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE others (
    mount INTEGER NOT NULL,
    path BLOB NOT NULL,
    size INTEGER NOT NULL,
    modified TEXT NOT NULL,
    changed TEXT NOT NULL,
    inode INTEGER NOT NULL,
    looked TEXT NOT NULL,
    PRIMARY KEY (mount, path)
) STRICT, WITHOUT ROWID;

CREATE TABLE troubles (
    uri TEXT PRIMARY KEY,
    mount INTEGER NOT NULL,
    path BLOB NOT NULL,
    since TEXT NOT NULL,
    reason TEXT NOT NULL,
    predates INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE channels (
    id INTEGER PRIMARY KEY,
    source TEXT NOT NULL,
    capability_list TEXT NOT NULL,
    topic TEXT NOT NULL,
    retired TEXT,
    last_words TEXT,
    seq INTEGER NOT NULL,
    until TEXT,
    body BLOB NOT NULL,
    said TEXT NOT NULL
) STRICT;

CREATE TABLE ledgers (
    channel INTEGER NOT NULL REFERENCES channels (id) ON DELETE CASCADE,
    hub TEXT NOT NULL,
    max_entries INTEGER,
    accepted TEXT,
    pinged TEXT,
    fetched INTEGER,
    silence_reported INTEGER,
    PRIMARY KEY (channel, hub)
) STRICT, WITHOUT ROWID;

CREATE TABLE in_flight (
    channel INTEGER NOT NULL,
    hub TEXT NOT NULL,
    seq INTEGER NOT NULL,
    body BLOB NOT NULL,
    entries INTEGER NOT NULL,
    covers TEXT NOT NULL,
    cut TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    next_try TEXT NOT NULL,
    last_failure TEXT,
    PRIMARY KEY (channel, hub),
    FOREIGN KEY (channel, hub) REFERENCES ledgers (channel, hub) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE told (
    channel INTEGER NOT NULL,
    hub TEXT NOT NULL,
    uri TEXT NOT NULL,
    capability TEXT NOT NULL,
    form TEXT NOT NULL,
    fingerprint BLOB,
    PRIMARY KEY (channel, hub, uri),
    FOREIGN KEY (channel, hub) REFERENCES ledgers (channel, hub) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE subscriptions (
    topic TEXT NOT NULL,
    callback TEXT NOT NULL,
    secret TEXT,
    expires TEXT NOT NULL,
    PRIMARY KEY (topic, callback)
) STRICT, WITHOUT ROWID;

CREATE TABLE relays (
    digest BLOB PRIMARY KEY,
    body BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE deliveries (
    id INTEGER PRIMARY KEY,
    topic TEXT NOT NULL,
    callback TEXT NOT NULL,
    seq INTEGER NOT NULL,
    digest BLOB NOT NULL REFERENCES relays (digest),
    attempts INTEGER NOT NULL,
    next_try TEXT NOT NULL
) STRICT;

CREATE INDEX deliveries_by_digest ON deliveries (digest);
",
    "
ALTER TABLE mounts ADD COLUMN include TEXT;
ALTER TABLE mounts ADD COLUMN exclude TEXT;
",
    "
ALTER TABLE ledgers ADD COLUMN tried TEXT;
ALTER TABLE ledgers ADD COLUMN tried_seq INTEGER;
ALTER TABLE ledgers ADD COLUMN answer_status INTEGER;
ALTER TABLE ledgers ADD COLUMN answer TEXT;
ALTER TABLE ledgers ADD COLUMN refusal TEXT;
ALTER TABLE ledgers ADD COLUMN reason TEXT;
ALTER TABLE ledgers ADD COLUMN needs_person INTEGER;
ALTER TABLE in_flight DROP COLUMN last_failure;
",
    "
ALTER TABLE subscriptions ADD COLUMN heard INTEGER NOT NULL DEFAULT 0;
ALTER TABLE subscriptions ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE subscriptions ADD COLUMN next_try TEXT;

ALTER TABLE relays RENAME TO bodies;

CREATE TABLE relays (
    id INTEGER PRIMARY KEY,
    topic TEXT NOT NULL,
    seq INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;

INSERT INTO relays
    SELECT min(id), topic, seq, body FROM deliveries JOIN bodies USING (digest) GROUP BY topic, seq;

UPDATE subscriptions SET heard = coalesce(
    (SELECT min(relays.id) - 1 FROM deliveries JOIN relays USING (topic, seq)
        WHERE deliveries.topic = subscriptions.topic AND deliveries.callback = subscriptions.callback),
    (SELECT max(id) FROM relays),
    0
);

DROP TABLE deliveries;
DROP TABLE bodies;
",
    "
ALTER TABLE documents ADD COLUMN is_new_set INTEGER NOT NULL DEFAULT 0;

ALTER TABLE channels ADD COLUMN untils TEXT NOT NULL DEFAULT '';
UPDATE channels SET untils = until WHERE until IS NOT NULL;
ALTER TABLE channels DROP COLUMN until;

ALTER TABLE ledgers ADD COLUMN until TEXT;
ALTER TABLE ledgers ADD COLUMN left_since TEXT;
ALTER TABLE ledgers ADD COLUMN last_words TEXT;

ALTER TABLE in_flight ADD COLUMN until TEXT;

CREATE TABLE hubs (
    url TEXT PRIMARY KEY,
    mode TEXT NOT NULL,
    configured INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
",
    "
ALTER TABLE channels ADD COLUMN kind TEXT NOT NULL DEFAULT 'framework';

ALTER TABLE ledgers ADD COLUMN heard INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ledgers ADD COLUMN heard_entries INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ledgers ADD COLUMN skipped_to INTEGER;
ALTER TABLE ledgers ADD COLUMN last_heard INTEGER;

ALTER TABLE in_flight ADD COLUMN part_first INTEGER;
ALTER TABLE in_flight ADD COLUMN part_whole INTEGER;
ALTER TABLE in_flight ADD COLUMN part_bytes INTEGER;

CREATE TABLE change_sets (
    capability_list TEXT PRIMARY KEY,
    learned INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE change_lists (
    capability_list TEXT NOT NULL REFERENCES change_sets (capability_list) ON DELETE CASCADE,
    list TEXT NOT NULL,
    fingerprint BLOB,
    listed INTEGER NOT NULL,
    taken INTEGER NOT NULL,
    PRIMARY KEY (capability_list, list)
) STRICT, WITHOUT ROWID;

CREATE TABLE change_keys (
    capability_list TEXT NOT NULL,
    list TEXT NOT NULL,
    first INTEGER NOT NULL,
    keys BLOB NOT NULL,
    vanished TEXT,
    PRIMARY KEY (capability_list, list, first),
    FOREIGN KEY (capability_list, list) REFERENCES change_lists (capability_list, list) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE change_inventory (
    capability_list TEXT NOT NULL REFERENCES change_sets (capability_list) ON DELETE CASCADE,
    resource BLOB NOT NULL,
    state BLOB NOT NULL,
    uri TEXT NOT NULL,
    missing TEXT,
    PRIMARY KEY (capability_list, resource)
) STRICT, WITHOUT ROWID;

CREATE TABLE change_log (
    channel INTEGER NOT NULL REFERENCES channels (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    since TEXT NOT NULL,
    until TEXT NOT NULL,
    entries INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    cut TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (channel, seq)
) STRICT, WITHOUT ROWID;
",
    "
CREATE TABLE published_topics (
    topic TEXT PRIMARY KEY,
    publisher TEXT NOT NULL,
    seq INTEGER NOT NULL,
    digest BLOB,
    published TEXT NOT NULL,
    content_type TEXT NOT NULL,
    capability_list TEXT,
    etag TEXT,
    pinged TEXT
) STRICT, WITHOUT ROWID;

CREATE TABLE daemon (
    kind TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;
",
    "
ALTER TABLE relays ADD COLUMN content_type TEXT NOT NULL DEFAULT 'application/xml';
ALTER TABLE relays ADD COLUMN capability_list TEXT;
UPDATE relays SET capability_list = (SELECT max(capability_list) FROM channels WHERE channels.topic = relays.topic);
UPDATE relays SET content_type = published_topics.content_type, capability_list = published_topics.capability_list
    FROM published_topics WHERE published_topics.topic = relays.topic;
ALTER TABLE published_topics DROP COLUMN content_type;
ALTER TABLE published_topics DROP COLUMN capability_list;
",
    "
ALTER TABLE change_lists ADD COLUMN closed TEXT;
ALTER TABLE change_lists ADD COLUMN last TEXT;
",
    "
CREATE TABLE nested_file_systems (
    mount INTEGER NOT NULL,
    path BLOB NOT NULL,
    device INTEGER,
    is_link INTEGER NOT NULL,
    is_away INTEGER NOT NULL,
    PRIMARY KEY (mount, path)
) STRICT, WITHOUT ROWID;
",
    "
ALTER TABLE change_sets ADD COLUMN last_words_on INTEGER;
",
    "
ALTER TABLE mounts ADD COLUMN knows_nested INTEGER NOT NULL DEFAULT 0;
",
    "
ALTER TABLE relays RENAME TO whole_relays;

CREATE TABLE relays (
    id INTEGER PRIMARY KEY,
    topic TEXT NOT NULL,
    seq INTEGER NOT NULL,
    content_type TEXT NOT NULL,
    capability_list TEXT,
    size INTEGER NOT NULL,
    digest BLOB NOT NULL,
    beginning BLOB NOT NULL
) STRICT;

-- A start reads nothing else of relays.
CREATE INDEX relays_by_topic ON relays (topic, id, size);

-- The rest of bodies that are longer than the beginning, 64 KiB a row.
CREATE TABLE relay_parts (
    relay INTEGER NOT NULL REFERENCES relays (id) ON DELETE CASCADE,
    part INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (relay, part)
) STRICT, WITHOUT ROWID;

INSERT INTO relays
    SELECT id, topic, seq, content_type, capability_list, length(body), zeroblob(32), substr(body, 1, 65536)
    FROM whole_relays;
WITH RECURSIVE number (part) AS (VALUES (1) UNION ALL SELECT part + 1 FROM number WHERE part < 4096)
    INSERT INTO relay_parts SELECT id, part, substr(body, part * 65536 + 1, 65536)
    FROM whole_relays JOIN number ON length(body) > part * 65536;
DROP TABLE whole_relays;
",
];

/// The version of this program's schema.
pub const VERSION: usize = MIGRATIONS.len();

/// Runs the migrations that are still to run, in one transaction: if one fails, the file stays as the earlier version of
/// the program knows it.
pub fn migrate(connection: &mut Connection, from: usize) -> rusqlite::Result<()> {
    if from >= VERSION {
        return Ok(());
    }
    let transaction = connection.transaction()?;
    for migration in MIGRATIONS.iter().skip(from) {
        transaction.execute_batch(migration)?;
    }
    let version = i64::try_from(VERSION).unwrap_or(i64::MAX);
    transaction.pragma_update(None, "user_version", version)?;
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use super::{Connection, migrate};

    #[test]
    fn a_migration_that_fails_leaves_the_file_as_it_was() {
        let mut connection = Connection::open_in_memory().unwrap();
        let in_the_way = "CREATE TABLE nested_file_systems (mount INTEGER) STRICT";
        connection.execute_batch(in_the_way).unwrap();
        assert!(migrate(&mut connection, 0).is_err());
        let number = |query: &str| connection.query_row(query, [], |row| row.get::<_, i64>(0));
        assert_eq!(number("PRAGMA user_version"), Ok(0));
        assert_eq!(number("SELECT count(*) FROM sqlite_schema"), Ok(1));
    }
}
