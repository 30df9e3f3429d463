-- The state file, schema 1. The one description of what is stored; each rule (R5, C7, …) is that of docs/how-it-decides.md.
--
-- Times are RFC 3339 in UTC, booleans 0 or 1, lists JSON. Unsigned numbers of 64 bits are stored as signed ones. A `mount`
-- is an `id` of `mounts`, a `channel` one of `channels`, a `capability_list` the URI that stands for a set of resources.
-- Every table has a declared key, so that VACUUM renumbers nothing.

-- Pages that become free are given back while nothing waits.
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA user_version = 1;

-- The last time saved, by the clock that nobody sets: the next run begins no earlier.
CREATE TABLE clock (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    now TEXT NOT NULL
) STRICT;

-- The tree.

-- A directory of a source with the URI prefix that it is published under (R13, R15).
CREATE TABLE mounts (
    id INTEGER PRIMARY KEY,
    source TEXT NOT NULL,
    directory BLOB NOT NULL,
    prefix TEXT NOT NULL,
    device INTEGER,                         -- of the root that was found last (R15)
    inode INTEGER,
    baselined INTEGER NOT NULL,             -- it was swept once: what comes now is new (R13)
    held_document INTEGER NOT NULL,         -- an empty root is not this mount (R15)
    swept TEXT,                             -- start of the last complete sweep (R19)
    include TEXT,                           -- candidates of that sweep: what later ones add was there before (R13)
    exclude TEXT
) STRICT;

-- A directory below the root of a mount where another file system begins, or began (R15).
CREATE TABLE nested_file_systems (
    mount INTEGER NOT NULL,
    path BLOB NOT NULL,                     -- from the root
    device INTEGER,                         -- where its documents were last seen; NULL: on that of the directory above
    is_link INTEGER NOT NULL,
    is_away INTEGER NOT NULL,               -- another one is there, or none, and documents are missing with it
    PRIMARY KEY (mount, path)
) STRICT, WITHOUT ROWID;

-- A document as it was last seen complete.
CREATE TABLE documents (
    uri TEXT PRIMARY KEY,
    mount INTEGER NOT NULL,
    path BLOB NOT NULL,                     -- below the root of the mount
    size INTEGER NOT NULL,                  -- this, `modified`, `changed` and `inode` as before: not read again (R4)
    modified TEXT NOT NULL,
    changed TEXT NOT NULL,
    inode INTEGER NOT NULL,
    capability TEXT NOT NULL,               -- with form and fingerprint: the version (R4, R14)
    form TEXT NOT NULL,                     -- list, index
    fingerprint BLOB NOT NULL,
    up TEXT,                                -- rel="up" (R7)
    named_index TEXT,                       -- rel="index" (R5)
    named_index_form TEXT,                  -- that the index had when this version was seen (R17)
    newly_indexed INTEGER NOT NULL,         -- its predecessor did not name that index, or the index changed form (R17)
    since TEXT NOT NULL,                    -- time of this version (R19)
    looked TEXT NOT NULL,                   -- when it was read last
    presence TEXT NOT NULL,                 -- present, missing, approved (missing, deletion accepted), gone (R15)
    absent_since TEXT,
    hold TEXT NOT NULL,                     -- free, waiting until it is listed, expired (R17)
    held_since TEXT,
    in_index TEXT,                          -- the index that it is a component of (R5)
    in_sets TEXT NOT NULL,                  -- Capability Lists of its sets (R7)
    archived INTEGER NOT NULL,              -- an archive lists it (R7)
    is_new_set INTEGER NOT NULL             -- a Capability List after the baseline, of which no hub was told yet (R13)
) STRICT, WITHOUT ROWID;

-- A file that was read and is no document; it is not read again while its stat data are the same (R2).
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

-- A candidate that cannot be read (R3).
CREATE TABLE troubles (
    uri TEXT PRIMARY KEY,
    mount INTEGER NOT NULL,
    path BLOB NOT NULL,
    since TEXT NOT NULL,
    reason TEXT NOT NULL,
    predates INTEGER NOT NULL               -- it was there at the baseline: its first version is an update (R13)
) STRICT, WITHOUT ROWID;

-- Channels, and what each hub was told on them.

-- What one set of resources is announced on (R9, C9).
CREATE TABLE channels (
    id INTEGER PRIMARY KEY,
    source TEXT NOT NULL,
    capability_list TEXT NOT NULL,
    topic TEXT NOT NULL,
    retired TEXT,                           -- since when the set has it no more (R11)
    seq INTEGER NOT NULL,                   -- number of the last notification
    body BLOB NOT NULL,                     -- served by the topic (R25)
    said TEXT NOT NULL,                     -- entries that the topic repeats for ping hubs (R25)
    untils TEXT NOT NULL,                   -- of the last notifications: each `until` is another one (R20)
    kind TEXT NOT NULL                      -- framework (documents), change (resources)
) STRICT;

-- The ledger of one hub or broker on one channel (R22, F1).
CREATE TABLE ledgers (
    channel INTEGER NOT NULL REFERENCES channels (id) ON DELETE CASCADE,
    hub TEXT NOT NULL,
    max_entries INTEGER,                    -- in the next notification, after a 413 (R23)
    accepted TEXT,                          -- when it last accepted something
    pinged TEXT,                            -- the last ping, and whether the topic was fetched since (R24, R26)
    fetched INTEGER,
    silence_reported INTEGER,
    tried TEXT,                             -- the last attempt: time, notification, answer, reason of a refusal (R23)
    tried_seq INTEGER,
    answer_status INTEGER,
    answer TEXT,
    refusal TEXT,
    reason TEXT,
    needs_operator INTEGER,
    until TEXT,                             -- of the last notification that it has: `from` of the next one (R20)
    left_since TEXT,                        -- since when it is advertised no more (R11)
    still_due TEXT,                         -- documents that are still due, once the channel retired or the hub left (R11)
    heard INTEGER NOT NULL,                 -- position in the log of a change channel (C21, C22)
    heard_entries INTEGER NOT NULL,
    skipped_to INTEGER,
    last_heard INTEGER,
    PRIMARY KEY (channel, hub)
) STRICT, WITHOUT ROWID;

-- The notification on its way to a hub. It never changes, but for `attempts`, `next_try`, `cut` and `until` (R22).
CREATE TABLE in_flight (
    channel INTEGER NOT NULL,
    hub TEXT NOT NULL,
    seq INTEGER NOT NULL,
    body BLOB NOT NULL,                     -- empty on a change channel: the log has it
    entries INTEGER NOT NULL,
    covers TEXT NOT NULL,                   -- versions that count as told once it is accepted
    cut TEXT NOT NULL,
    attempts INTEGER NOT NULL,              -- that were answered, or failed
    next_try TEXT NOT NULL,                 -- (R23)
    until TEXT,
    part_first INTEGER,                     -- entries of the logged notification that are sent (C23)
    part_whole INTEGER,
    part_bytes INTEGER,
    PRIMARY KEY (channel, hub),
    FOREIGN KEY (channel, hub) REFERENCES ledgers (channel, hub) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- The version of a document that a hub was last told of.
CREATE TABLE told (
    channel INTEGER NOT NULL,
    hub TEXT NOT NULL,
    uri TEXT NOT NULL,
    capability TEXT NOT NULL,
    form TEXT NOT NULL,
    fingerprint BLOB,                       -- NULL: it existed, with unknown content (R13)
    PRIMARY KEY (channel, hub, uri),
    FOREIGN KEY (channel, hub) REFERENCES ledgers (channel, hub) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- Every hub and broker that was ever configured: which are new, and which replace another (R13).
CREATE TABLE hubs (
    url TEXT PRIMARY KEY,
    mode TEXT NOT NULL,                     -- content, ping, content-query, embedded, broker (R24)
    configured INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Changes of resources.

-- A set with a change channel (C10).
CREATE TABLE change_sets (
    capability_list TEXT PRIMARY KEY,
    learned INTEGER NOT NULL,               -- first contents that count as taken: 0 none, 1 Change Lists, 2 Resource Lists
    retiring_channel INTEGER                -- retiring channel that is still to be told what was fresh (C12)
) STRICT, WITHOUT ROWID;

-- A Change List, as far as its entries were taken (C6).
CREATE TABLE change_lists (
    capability_list TEXT NOT NULL REFERENCES change_sets (capability_list) ON DELETE CASCADE,
    list TEXT NOT NULL,
    fingerprint BLOB,                       -- version that was taken as a whole
    listed INTEGER NOT NULL,                -- entries that count
    taken INTEGER NOT NULL,                 -- of these, entries that were taken
    closed TEXT,                            -- it was closed: no other version since (C7)
    last TEXT,                              -- time of its last entry
    PRIMARY KEY (capability_list, list)
) STRICT, WITHOUT ROWID;

-- Keys of entries that were taken, 16 bytes each (C6).
CREATE TABLE change_keys (
    capability_list TEXT NOT NULL,
    list TEXT NOT NULL,
    first INTEGER NOT NULL,
    keys BLOB NOT NULL,
    vanished TEXT,                          -- since when the list is without these entries (C7)
    PRIMARY KEY (capability_list, list, first),
    FOREIGN KEY (capability_list, list) REFERENCES change_lists (capability_list, list) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- Resources of Resource Lists, which are compared with those before (C27 to C29).
CREATE TABLE change_inventory (
    capability_list TEXT NOT NULL REFERENCES change_sets (capability_list) ON DELETE CASCADE,
    resource BLOB NOT NULL,
    state BLOB NOT NULL,
    uri TEXT NOT NULL,
    missing TEXT,                           -- since when no list has it (C29)
    PRIMARY KEY (capability_list, resource)
) STRICT, WITHOUT ROWID;

-- Notifications of change channels: numbered, never changed, the same for each hub (C21).
CREATE TABLE change_log (
    channel INTEGER NOT NULL REFERENCES channels (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    since TEXT NOT NULL,                    -- `from` (C14)
    until TEXT NOT NULL,
    entries INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    cut TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (channel, seq)
) STRICT, WITHOUT ROWID;

-- The hub.

-- A verified subscription, and how far it was served.
CREATE TABLE subscriptions (
    topic TEXT NOT NULL,
    callback TEXT NOT NULL,
    secret TEXT,
    expires TEXT NOT NULL,
    heard INTEGER NOT NULL,                 -- the last of `relays` that it took
    attempts INTEGER NOT NULL DEFAULT 0,    -- at the next one
    next_try TEXT,
    PRIMARY KEY (topic, callback)
) STRICT, WITHOUT ROWID;

-- A notification that subscribers are still owed.
CREATE TABLE relays (
    id INTEGER PRIMARY KEY,
    topic TEXT NOT NULL,
    seq INTEGER NOT NULL,
    content_type TEXT NOT NULL,             -- headers that it is relayed with (S2)
    capability_list TEXT,
    size INTEGER NOT NULL,                  -- of the whole body
    digest BLOB NOT NULL,                   -- of the whole body
    beginning BLOB NOT NULL                 -- the first 64 KiB of the body
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

-- A topic that was published at `rsnotify hub` (S1, S3).
CREATE TABLE published_topics (
    topic TEXT PRIMARY KEY,
    publisher TEXT NOT NULL,
    seq INTEGER NOT NULL,
    digest BLOB,                            -- of the last body: a repeat is not relayed (S1)
    published TEXT NOT NULL,
    etag TEXT,
    pinged TEXT
) STRICT, WITHOUT ROWID;

-- One row if this is the state of `rsnotify hub`; that of `rsnotify run` has none.
CREATE TABLE daemon (
    kind TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;
