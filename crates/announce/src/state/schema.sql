-- The state: what was seen of the tree, what each hub was told, what is in flight. Everything that grows with the tree,
-- the sets or the subscribers is here and nowhere else. Times are nanoseconds since 1970 by the one clock, except those
-- that are said, which are by the wall clock. Kinds are numbers.
--
-- Tables with bodies have rowids: without one, SQLite reads whole rows to find a row. No statement names a rowid, since files
-- of before have none there, and indexes end with the primary key, as all do of a table without rowid.

CREATE TABLE clock (                        -- the last time saved: the next run begins no earlier
  id INTEGER PRIMARY KEY CHECK (id = 1), now INTEGER NOT NULL, said INTEGER NOT NULL) STRICT;

CREATE TABLE source (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
  routed TEXT) STRICT;                      -- the hash of the plan under which the channels of its sets were last settled

CREATE TABLE mount (                        -- R1, R13, R15
  id INTEGER PRIMARY KEY, source INTEGER NOT NULL REFERENCES source, directory BLOB NOT NULL, prefix TEXT NOT NULL,
  device INTEGER, inode INTEGER,            -- the root that held documents, or the last one found
  baselined INTEGER NOT NULL, held_document INTEGER NOT NULL,
  swept INTEGER,                            -- the start of the last complete sweep
  include TEXT, exclude TEXT,               -- the candidates of that sweep
  unseen TEXT) STRICT;                      -- where it saw nothing: prefixes of others inside, unread directories

CREATE TABLE nested_file_system (           -- R15: file systems below a root that held documents
  mount INTEGER NOT NULL REFERENCES mount ON DELETE CASCADE, below BLOB NOT NULL, device INTEGER,
  is_link INTEGER NOT NULL, is_away INTEGER NOT NULL, PRIMARY KEY (mount, below)) STRICT, WITHOUT ROWID;

-- Also URIs that are only mentioned. No row is ever deleted, so that what grows with the tree names its rows unchecked.
CREATE TABLE document (
  id INTEGER PRIMARY KEY, uri TEXT NOT NULL,
  source INTEGER,                           -- nothing if only mentioned
  mount INTEGER, path BLOB,
  size INTEGER, modified INTEGER, changed INTEGER, inode INTEGER,                       -- R4
  capability INTEGER, form INTEGER, fingerprint BLOB,
  up INTEGER,                               -- R7: a document
  names_index INTEGER,                      -- R5: a document
  named_form INTEGER,                       -- R17: the form that this index had when this version was seen
  newly_indexed INTEGER NOT NULL DEFAULT 0, -- R17
  dated INTEGER, looked INTEGER,            -- R19; the last look that read it
  presence INTEGER NOT NULL DEFAULT 0 CHECK (presence BETWEEN 0 AND 4), -- mentioned, present, missing, accepted, gone
  absent_since INTEGER,                     -- R15: when a look did not find it
  grace_ends INTEGER, look_at INTEGER,      -- R15: nothing unless this run saw it absent; the next look at it
  is_replaced INTEGER NOT NULL DEFAULT 0,   -- R14: something else lies at its path
  hold INTEGER NOT NULL DEFAULT 0 CHECK (hold BETWEEN 0 AND 2), held_until INTEGER,     -- R17: free, held, expired
  index_parent INTEGER,                     -- R5: a document; kept when gone
  archived INTEGER NOT NULL DEFAULT 0,      -- R7
  orphan INTEGER NOT NULL DEFAULT 0,        -- R8: belongs to no set, and is announced with none
  is_new_set INTEGER NOT NULL DEFAULT 0,    -- R13: came after the baseline, and no hub was told of it
  baseline INTEGER NOT NULL DEFAULT 0 CHECK (baseline BETWEEN 0 AND 2), -- R13: no, its version is told, its content is unclear
  touched INTEGER NOT NULL DEFAULT 0 CHECK (touched BETWEEN 0 AND 3),   -- since its source last settled: not, its relations,
                                            -- its presence, its version
  was_capability INTEGER, was_form INTEGER, was_fingerprint BLOB) STRICT; -- if its version: the one before, or of a baseline
CREATE UNIQUE INDEX document_by_uri ON document (uri);
CREATE INDEX document_by_mount ON document (mount) WHERE mount IS NOT NULL;
CREATE INDEX document_by_up ON document (up) WHERE up IS NOT NULL;
CREATE INDEX document_by_index ON document (names_index) WHERE names_index IS NOT NULL;
-- A partial index is used only if a statement has its condition: hence `touched > 0 AND touched = 3`.
CREATE INDEX document_touched ON document (source) WHERE touched > 0;
CREATE INDEX document_missing ON document (source, presence) WHERE presence IN (2, 3);
CREATE INDEX document_look ON document (look_at) WHERE look_at IS NOT NULL;
CREATE INDEX document_held ON document (held_until) WHERE held_until IS NOT NULL;
CREATE INDEX document_special ON document (source, capability) WHERE capability IN (0, 1);

-- Documents of each mount by all that their state depends on, so that neither a step (R15) nor a report counts them. Who
-- inserts a row that is more than mentioned counts it.
CREATE TABLE census (mount INTEGER NOT NULL, capability INTEGER NOT NULL, form INTEGER NOT NULL, presence INTEGER NOT NULL,
  held INTEGER NOT NULL, archived INTEGER NOT NULL, orphan INTEGER NOT NULL, count INTEGER NOT NULL,
  PRIMARY KEY (mount, capability, form, presence, held, archived, orphan)) STRICT, WITHOUT ROWID;

CREATE TRIGGER census_left AFTER UPDATE OF presence, mount, capability, form, hold, archived, orphan ON document
WHEN OLD.presence BETWEEN 1 AND 3
  AND (OLD.presence, OLD.mount, OLD.capability, OLD.form, OLD.hold = 1, OLD.archived, OLD.orphan)
    IS NOT (NEW.presence, NEW.mount, NEW.capability, NEW.form, NEW.hold = 1, NEW.archived, NEW.orphan) BEGIN
  UPDATE census SET count = count - 1 WHERE mount = OLD.mount AND capability = OLD.capability AND form = OLD.form
    AND presence = OLD.presence AND held = (OLD.hold = 1) AND archived = OLD.archived AND orphan = OLD.orphan; END;
CREATE TRIGGER census_entered AFTER UPDATE OF presence, mount, capability, form, hold, archived, orphan ON document
WHEN NEW.presence BETWEEN 1 AND 3
  AND (OLD.presence, OLD.mount, OLD.capability, OLD.form, OLD.hold = 1, OLD.archived, OLD.orphan)
    IS NOT (NEW.presence, NEW.mount, NEW.capability, NEW.form, NEW.hold = 1, NEW.archived, NEW.orphan) BEGIN
  INSERT INTO census
    VALUES (NEW.mount, NEW.capability, NEW.form, NEW.presence, NEW.hold = 1, NEW.archived, NEW.orphan, 1)
    ON CONFLICT (mount, capability, form, presence, held, archived, orphan) DO UPDATE SET count = count + 1; END;

-- The only way to another version is `see`, which first writes what is owed of it.
CREATE TABLE seeing (document INTEGER PRIMARY KEY) STRICT;
CREATE TRIGGER document_seen BEFORE UPDATE OF capability, form, fingerprint, presence ON document
WHEN OLD.presence > 0 AND (NEW.capability IS NOT OLD.capability OR NEW.form IS NOT OLD.form
      OR NEW.fingerprint IS NOT OLD.fingerprint OR (NEW.presence IN (0, 4)) IS NOT (OLD.presence IN (0, 4)))
  AND NOT EXISTS (SELECT 1 FROM seeing WHERE document = OLD.id)
BEGIN SELECT RAISE (ABORT, 'a version was changed without what is owed of it'); END;

CREATE TABLE mention (                      -- the entries of structural documents
  list INTEGER NOT NULL, document INTEGER NOT NULL,
  PRIMARY KEY (list, document)) STRICT, WITHOUT ROWID;
CREATE INDEX mention_by_document ON mention (document, list);

CREATE TABLE advertised (                   -- R9: the channels that a Capability List advertises, in order
  document INTEGER NOT NULL REFERENCES document, position INTEGER NOT NULL, kind INTEGER NOT NULL, topic TEXT NOT NULL,
  hubs TEXT NOT NULL, PRIMARY KEY (document, position)) STRICT, WITHOUT ROWID;

CREATE TABLE member (                       -- R7: documents of sets; kept when gone
  document INTEGER NOT NULL, set_id INTEGER NOT NULL,
  PRIMARY KEY (document, set_id)) STRICT, WITHOUT ROWID;
CREATE INDEX member_by_set ON member (set_id, document);

CREATE TABLE other_file (                   -- R2: XML files that are no documents
  mount INTEGER NOT NULL, path BLOB NOT NULL, size INTEGER NOT NULL, modified INTEGER NOT NULL, changed INTEGER NOT NULL,
  inode INTEGER NOT NULL, looked INTEGER NOT NULL, PRIMARY KEY (mount, path)) STRICT, WITHOUT ROWID;

CREATE TABLE trouble (                      -- R3: candidates that cannot be read
  uri TEXT PRIMARY KEY, source INTEGER NOT NULL, mount INTEGER NOT NULL, path BLOB NOT NULL, since INTEGER NOT NULL,
  reason TEXT NOT NULL, predates INTEGER NOT NULL,
  reported INTEGER NOT NULL, report_at INTEGER) STRICT, WITHOUT ROWID;
CREATE INDEX trouble_by_mount ON trouble (mount);
CREATE INDEX trouble_by_source ON trouble (source);
CREATE INDEX trouble_report ON trouble (report_at) WHERE report_at IS NOT NULL;

CREATE TABLE hub (id INTEGER PRIMARY KEY, uri TEXT NOT NULL UNIQUE, mode TEXT NOT NULL, configured INTEGER NOT NULL) STRICT;

CREATE TABLE channel (                      -- R9, R11
  id INTEGER PRIMARY KEY AUTOINCREMENT, source INTEGER NOT NULL REFERENCES source, kind INTEGER NOT NULL,
  set_id INTEGER NOT NULL REFERENCES document, topic TEXT NOT NULL UNIQUE,
  retired INTEGER, ends INTEGER,            -- R11: since when, and until when its topic is served
  window_first INTEGER, deadline INTEGER,   -- R16: the open window, and when the next notification is cut
  seq INTEGER NOT NULL DEFAULT 0,
  untils BLOB NOT NULL DEFAULT x'',         -- R20: the last ones, the newest last
  body BLOB NOT NULL DEFAULT x'',           -- R25
  page_until INTEGER,                       -- R20: until when a topic that is fetched has all changes
  UNIQUE (set_id, kind, topic)) STRICT;
CREATE INDEX channel_by_set ON channel (set_id, kind);
CREATE INDEX channel_by_source ON channel (source, kind);
CREATE INDEX channel_deadline ON channel (source, deadline) WHERE deadline IS NOT NULL;
CREATE INDEX channel_ends ON channel (ends) WHERE ends IS NOT NULL;

CREATE TABLE said (                         -- R25: entries for hubs that fetch the topic
  channel INTEGER NOT NULL REFERENCES channel ON DELETE CASCADE, uri TEXT NOT NULL, change INTEGER NOT NULL,
  capability INTEGER NOT NULL, at INTEGER NOT NULL, datetime INTEGER, index_uri TEXT,
  PRIMARY KEY (channel, uri, change, capability)) STRICT, WITHOUT ROWID;

CREATE TABLE account (                      -- R22: one hub on one channel
  channel INTEGER NOT NULL REFERENCES channel ON DELETE CASCADE, hub INTEGER NOT NULL REFERENCES hub,
  left_at INTEGER, ends INTEGER,            -- R11: advertised no more
  until INTEGER,                            -- R20: the `until` of the last notification that the hub has
  max_entries INTEGER,                      -- R23: after a 413
  accepted INTEGER, pinged INTEGER, fetched INTEGER NOT NULL DEFAULT 0, unfetched_reported INTEGER NOT NULL DEFAULT 0,
  ping_due INTEGER,                         -- R24, R26: when to look whether the topic was fetched
  last TEXT,                                -- the outcome of the last attempt, as JSON
  seq INTEGER, entries INTEGER, cut INTEGER, attempts INTEGER, retry_at INTEGER,  -- what is in flight
  body BLOB, flight_until INTEGER,          -- nothing on a change channel: it is in the log, from `log_position.entries` on
  in_doubt INTEGER NOT NULL DEFAULT 0,      -- the hub may have taken what is in flight
  sending INTEGER,                          -- the number under way: of what is in flight, or of what was dropped meanwhile
  is_answer_old INTEGER NOT NULL DEFAULT 0, -- the answer to come is to a submission as the hub was reached before
  acceptances INTEGER, is_at_fault INTEGER NOT NULL DEFAULT 0, -- R23: those of the hub in this run at the last refusal
  PRIMARY KEY (channel, hub)) STRICT;
CREATE INDEX account_retry ON account (retry_at, channel, hub) WHERE retry_at IS NOT NULL;
CREATE INDEX account_ping ON account (ping_due, channel, hub) WHERE ping_due IS NOT NULL;
CREATE INDEX account_ends ON account (ends, channel, hub) WHERE ends IS NOT NULL;
CREATE INDEX account_by_hub ON account (hub, channel);
CREATE INDEX account_open ON account (hub, channel) WHERE seq IS NOT NULL OR unfetched_reported = 1;

CREATE TABLE owed (                         -- what a hub was told, where that is not what is seen
  channel INTEGER NOT NULL, hub INTEGER NOT NULL, document INTEGER NOT NULL,
  told_capability INTEGER, told_form INTEGER, told_fingerprint BLOB,   -- all nothing: told nothing; no fingerprint: unclear
  due INTEGER,                              -- since when it may be announced; nothing if held or missing
  dormant INTEGER NOT NULL DEFAULT 0,       -- R11: told on a channel that retired, or to a hub that left
  PRIMARY KEY (channel, hub, document),
  FOREIGN KEY (channel, hub) REFERENCES account (channel, hub) ON DELETE CASCADE ON UPDATE CASCADE) STRICT, WITHOUT ROWID;
CREATE INDEX owed_by_document ON owed (document);
CREATE INDEX owed_due ON owed (channel, hub) WHERE due IS NOT NULL;

CREATE TABLE flight_entry (                 -- R22: what is in flight, and counts as told once it is accepted
  channel INTEGER NOT NULL, hub INTEGER NOT NULL, document INTEGER NOT NULL,
  capability INTEGER, form INTEGER, fingerprint BLOB, PRIMARY KEY (channel, hub, document),
  FOREIGN KEY (channel, hub) REFERENCES account (channel, hub) ON DELETE CASCADE ON UPDATE CASCADE) STRICT, WITHOUT ROWID;
CREATE INDEX flight_by_document ON flight_entry (document);

-- Changes of resources (C1 to C29).

CREATE TABLE change_set (                   -- a set with a change channel, and its rounds
  id INTEGER PRIMARY KEY REFERENCES document, source INTEGER NOT NULL REFERENCES source,
  learned INTEGER NOT NULL DEFAULT 0 CHECK (learned BETWEEN 0 AND 2), -- C10, C27: nothing yet, its Change Lists, its Resource Lists
  learned_until INTEGER,                    -- C10: the latest datetime that was learned
  retiring INTEGER,                         -- C12: the channel that is still to be told what was fresh when it retired
  told_until INTEGER,                       -- C12: the end of the last interval on a channel that ended
  wake INTEGER,                             -- when to look whether a round is due
  first_trigger INTEGER, last_trigger INTEGER, not_before INTEGER,  -- C20, C8
  delays INTEGER NOT NULL DEFAULT 0,        -- C8: rounds put off since something was taken
  round INTEGER, is_partial INTEGER NOT NULL DEFAULT 0,             -- the round under way, and whether it leaves lists out
  last_round INTEGER,                       -- the last one that took something, if nothing was done to lists and keys since
  must_take_others INTEGER NOT NULL DEFAULT 0,                      -- C8: before a stale list is asked for again
  watched_since INTEGER,                    -- C7, C29: since when this run sees all its lists
  missing INTEGER NOT NULL DEFAULT 0, missing_until INTEGER,        -- C29: missing resources; when the first counts as deleted
  accepted INTEGER) STRICT;                 -- C29: when an operator believed their deletion
CREATE INDEX change_set_wake ON change_set (source, wake);
CREATE INDEX change_set_watched ON change_set (source) WHERE watched_since IS NOT NULL;
CREATE INDEX change_set_learning ON change_set (id) WHERE learned = 0;

CREATE TABLE change_list (                  -- a list of a set, as far as its entries were taken (C6)
  set_id INTEGER NOT NULL REFERENCES change_set ON DELETE CASCADE, list INTEGER NOT NULL REFERENCES document,
  to_learn INTEGER NOT NULL DEFAULT 0,      -- C10, R13: what it has when it is read next counts as taken
  fingerprint BLOB,                         -- the version that was taken as a whole
  listed INTEGER NOT NULL DEFAULT 0, taken INTEGER NOT NULL DEFAULT 0,  -- entries that count; those of them that were taken
  closed INTEGER, last INTEGER,             -- C7: closed, and no other version since; the time of its last entry
  version BLOB,                             -- the version that was read last
  left_first INTEGER, left_count INTEGER,   -- C13: its entries for a later round
  waits INTEGER NOT NULL DEFAULT 0, waits_until INTEGER,                -- C1, C7: its entries that another list may have
  skipped INTEGER NOT NULL DEFAULT 0, back_dated INTEGER NOT NULL DEFAULT 0, ahead INTEGER NOT NULL DEFAULT 0,
  rewritten INTEGER,                        -- C2, C15, C7: its entries that are reported
  ended INTEGER,                            -- C7: since when it is no Change List, or its deletion began its grace
  PRIMARY KEY (set_id, list)) STRICT, WITHOUT ROWID;
CREATE INDEX change_list_by_list ON change_list (list);
CREATE INDEX change_list_to_learn ON change_list (set_id) WHERE to_learn = 1;

CREATE TABLE stale_list (                   -- C8: a list that was not the version that was asked for
  set_id INTEGER NOT NULL REFERENCES change_set ON DELETE CASCADE, list INTEGER NOT NULL,
  stat TEXT NOT NULL, times INTEGER NOT NULL, until INTEGER NOT NULL,   -- that version is not asked for again before
  PRIMARY KEY (set_id, list)) STRICT, WITHOUT ROWID;

CREATE TABLE change_key (                   -- C6: keys of entries that were taken, 16 bytes each
  set_id INTEGER NOT NULL, list INTEGER NOT NULL, first INTEGER NOT NULL, keys BLOB NOT NULL,
  vanished INTEGER,                         -- C7: since when the list is without these entries
  PRIMARY KEY (set_id, list, first),
  FOREIGN KEY (set_id, list) REFERENCES change_list (set_id, list) ON DELETE CASCADE) STRICT;

CREATE TABLE inventory (                    -- C27 to C29: resources as they were listed last
  set_id INTEGER NOT NULL REFERENCES change_set ON DELETE CASCADE, resource BLOB NOT NULL, state BLOB NOT NULL,
  uri TEXT NOT NULL, missing INTEGER,       -- since when no list has it
  PRIMARY KEY (set_id, resource)) STRICT, WITHOUT ROWID;

CREATE TABLE change_log (                   -- C21: notifications of change channels, the same for each hub
  channel INTEGER NOT NULL REFERENCES channel ON DELETE CASCADE, seq INTEGER NOT NULL,
  since INTEGER NOT NULL, until INTEGER NOT NULL,                       -- C14
  entries INTEGER NOT NULL, total INTEGER NOT NULL,                     -- its entries; all up to it, forgotten ones too
  bytes INTEGER NOT NULL, cut INTEGER NOT NULL, body BLOB NOT NULL,
  outside TEXT,                             -- C15: a line for each datetime that was left out: its entry, and the datetime
  PRIMARY KEY (channel, seq)) STRICT;

CREATE TABLE log_position (                 -- how much of the log the hub of an account was told (C21 to C23, C26)
  channel INTEGER NOT NULL, hub INTEGER NOT NULL,
  heard INTEGER NOT NULL,                   -- the last notification that it has, or that counts as told
  entries INTEGER NOT NULL DEFAULT 0,       -- C23: entries of the next one that it has
  skipped_to INTEGER,                       -- C22: all up to it counts as told once what is in flight is answered
  last INTEGER,                             -- C26: the last one for it, as it is advertised no more
  PRIMARY KEY (channel, hub),
  FOREIGN KEY (channel, hub) REFERENCES account (channel, hub) ON DELETE CASCADE ON UPDATE CASCADE) STRICT, WITHOUT ROWID;
CREATE TABLE unfetched (                    -- R25: documents of the last accepted ping, until the topic should be fetched
  channel INTEGER NOT NULL, hub INTEGER NOT NULL, document INTEGER NOT NULL,
  PRIMARY KEY (channel, hub, document),
  FOREIGN KEY (channel, hub) REFERENCES account (channel, hub) ON DELETE CASCADE ON UPDATE CASCADE) STRICT, WITHOUT ROWID;

CREATE TABLE finding (                      -- R8
  about TEXT NOT NULL, what TEXT NOT NULL,  -- the document, set, list or file, and what tells the finding from others
  said TEXT NOT NULL,                       -- the whole finding as JSON
  part INTEGER NOT NULL,                    -- about the document, its channel, the file, the entries
  source INTEGER NOT NULL REFERENCES source, kind TEXT NOT NULL, count INTEGER NOT NULL,
  document TEXT,                            -- what a Capability List names, and is no document
  tell_at INTEGER,                          -- when it has lasted; nothing once it was told
  PRIMARY KEY (about, part, what)) STRICT, WITHOUT ROWID;
CREATE INDEX finding_by_kind ON finding (source, kind);
CREATE INDEX finding_tell ON finding (tell_at) WHERE tell_at IS NOT NULL;

-- The hub.

CREATE TABLE subscription (                 -- a verified subscription, and how far it was served; its secret with escapes
  topic TEXT NOT NULL, callback TEXT NOT NULL, secret TEXT, expires INTEGER NOT NULL,
  heard INTEGER NOT NULL,                   -- the last relay that it took
  attempts INTEGER NOT NULL DEFAULT 0, next_try INTEGER,                                -- at the next one
  PRIMARY KEY (topic, callback)) STRICT, WITHOUT ROWID;

CREATE TABLE unverified (                   -- requests that were accepted and not verified when the hub stopped, in order
  position INTEGER PRIMARY KEY, topic TEXT NOT NULL, callback TEXT NOT NULL,
  requested TEXT NOT NULL,                  -- the topic as given
  lease INTEGER, secret TEXT) STRICT;       -- in seconds; nothing of an unsubscription

CREATE TABLE relay (                        -- a notification that subscribers are still owed
  id INTEGER PRIMARY KEY, topic TEXT NOT NULL, seq INTEGER NOT NULL,
  content_type TEXT NOT NULL, capability_list TEXT,                                     -- S2
  size INTEGER NOT NULL, digest BLOB NOT NULL,                                          -- of the whole body
  beginning BLOB NOT NULL) STRICT;                                                      -- its first 64 KiB
CREATE INDEX relay_by_topic ON relay (topic, id, size);                                 -- a start reads nothing else

CREATE TABLE relay_part (                   -- the rest of longer bodies, 64 KiB a row
  relay INTEGER NOT NULL REFERENCES relay ON DELETE CASCADE, part INTEGER NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY (relay, part)) STRICT;

CREATE TABLE published_topic (              -- S1, S3: a topic that was published at `rsnotify hub`
  topic TEXT PRIMARY KEY, publisher TEXT NOT NULL, seq INTEGER NOT NULL,
  digest BLOB,                              -- of the last body: a repeat is not relayed
  published INTEGER NOT NULL, etag TEXT, pinged INTEGER) STRICT, WITHOUT ROWID;

CREATE TABLE daemon (kind TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;                      -- one row if this is the state of `rsnotify hub`
