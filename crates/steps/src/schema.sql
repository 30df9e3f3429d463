-- The state: what was seen of the tree, what each hub was told, what is in flight. Everything that grows with the tree,
-- the sets or the subscribers is here and nowhere else. Times are nanoseconds since 1970 by the one clock, except those
-- that are said, which are by the wall clock. Kinds are numbers; the views at the end have words for operators.

CREATE TABLE clock (                        -- the last time saved: the next run begins no earlier
  id INTEGER PRIMARY KEY CHECK (id = 1), now INTEGER NOT NULL, said INTEGER NOT NULL) STRICT;

CREATE TABLE source (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;

CREATE TABLE mount (                        -- R1, R13, R15
  id INTEGER PRIMARY KEY, source INTEGER NOT NULL REFERENCES source, directory BLOB NOT NULL, prefix TEXT NOT NULL,
  device INTEGER, inode INTEGER,            -- the root that held documents, or the last one found
  baselined INTEGER NOT NULL, held_document INTEGER NOT NULL,
  swept INTEGER,                            -- the start of the last complete sweep
  include TEXT, exclude TEXT) STRICT;       -- the candidates of that sweep

CREATE TABLE nested_file_system (           -- R15: file systems below a root that held documents
  mount INTEGER NOT NULL REFERENCES mount ON DELETE CASCADE, below BLOB NOT NULL, device INTEGER,
  is_link INTEGER NOT NULL, is_away INTEGER NOT NULL, PRIMARY KEY (mount, below)) STRICT, WITHOUT ROWID;

CREATE TABLE document (                     -- also URIs that are only mentioned
  id INTEGER PRIMARY KEY, uri TEXT NOT NULL,
  source INTEGER REFERENCES source,         -- nothing if only mentioned
  mount INTEGER, path BLOB,
  size INTEGER, modified INTEGER, changed INTEGER, inode INTEGER,                       -- R4
  capability INTEGER, form INTEGER, fingerprint BLOB,
  up INTEGER REFERENCES document,           -- R7
  names_index INTEGER REFERENCES document,  -- R5
  named_form INTEGER,                       -- R17: the form that this index had when this version was seen
  newly_indexed INTEGER NOT NULL DEFAULT 0, -- R17
  dated INTEGER, looked INTEGER,            -- R19; the last look that read it
  presence INTEGER NOT NULL DEFAULT 0 CHECK (presence BETWEEN 0 AND 4), -- mentioned, present, missing, accepted, gone
  absent_since INTEGER,                     -- R15: when a look did not find it
  grace_ends INTEGER, look_at INTEGER,      -- R15: nothing unless this run saw it absent; the next look at it
  is_replaced INTEGER NOT NULL DEFAULT 0,   -- R14: something else lies at its path
  hold INTEGER NOT NULL DEFAULT 0 CHECK (hold BETWEEN 0 AND 2), held_until INTEGER,     -- R17: free, held, expired
  index_parent INTEGER REFERENCES document, -- R5; kept when gone
  archived INTEGER NOT NULL DEFAULT 0,      -- R7
  is_new_set INTEGER NOT NULL DEFAULT 0,    -- R13: came after the baseline, and no hub was told of it
  baseline INTEGER NOT NULL DEFAULT 0 CHECK (baseline BETWEEN 0 AND 2), -- R13: no, its version is told, its content is unclear
  touched INTEGER NOT NULL DEFAULT 0) STRICT;                           -- its relations are to be resolved
CREATE UNIQUE INDEX document_by_uri ON document (uri);
CREATE INDEX document_by_path ON document (mount, path) WHERE mount IS NOT NULL;
CREATE INDEX document_by_up ON document (up) WHERE up IS NOT NULL;
CREATE INDEX document_by_index ON document (names_index) WHERE names_index IS NOT NULL;
CREATE INDEX document_touched ON document (source) WHERE touched = 1;
CREATE INDEX document_missing ON document (source, presence) WHERE presence IN (2, 3);
CREATE INDEX document_look ON document (look_at) WHERE look_at IS NOT NULL;
CREATE INDEX document_held ON document (held_until) WHERE held_until IS NOT NULL;
CREATE INDEX document_special ON document (source, capability) WHERE capability IN (0, 1);

-- R15: documents of each mount by presence, Capability Lists apart, so that no step counts them.
CREATE TABLE census (mount INTEGER NOT NULL, is_set INTEGER NOT NULL, presence INTEGER NOT NULL, count INTEGER NOT NULL,
  PRIMARY KEY (mount, is_set, presence)) STRICT, WITHOUT ROWID;

CREATE TRIGGER census_in AFTER INSERT ON document WHEN NEW.presence BETWEEN 1 AND 3 BEGIN
  INSERT INTO census VALUES (NEW.mount, NEW.capability = 1 AND NEW.form = 0, NEW.presence, 1)
    ON CONFLICT (mount, is_set, presence) DO UPDATE SET count = count + 1; END;
CREATE TRIGGER census_out AFTER DELETE ON document WHEN OLD.presence BETWEEN 1 AND 3 BEGIN
  UPDATE census SET count = count - 1
    WHERE mount = OLD.mount AND is_set = (OLD.capability = 1 AND OLD.form = 0) AND presence = OLD.presence; END;
CREATE TRIGGER census_left AFTER UPDATE OF presence, mount, capability, form ON document
WHEN OLD.presence BETWEEN 1 AND 3 BEGIN
  UPDATE census SET count = count - 1
    WHERE mount = OLD.mount AND is_set = (OLD.capability = 1 AND OLD.form = 0) AND presence = OLD.presence; END;
CREATE TRIGGER census_entered AFTER UPDATE OF presence, mount, capability, form ON document
WHEN NEW.presence BETWEEN 1 AND 3 BEGIN
  INSERT INTO census VALUES (NEW.mount, NEW.capability = 1 AND NEW.form = 0, NEW.presence, 1)
    ON CONFLICT (mount, is_set, presence) DO UPDATE SET count = count + 1; END;

-- The only way to another version is `see`, which first writes what is owed of it.
CREATE TABLE seeing (document INTEGER PRIMARY KEY) STRICT;
CREATE TRIGGER document_seen BEFORE UPDATE OF capability, form, fingerprint, presence ON document
WHEN (NEW.capability IS NOT OLD.capability OR NEW.form IS NOT OLD.form OR NEW.fingerprint IS NOT OLD.fingerprint
      OR (NEW.presence IN (0, 4)) IS NOT (OLD.presence IN (0, 4)))
  AND NOT EXISTS (SELECT 1 FROM seeing WHERE document = OLD.id)
BEGIN SELECT RAISE (ABORT, 'a version was changed without what is owed of it'); END;

CREATE TABLE mention (                      -- the entries of structural documents
  list INTEGER NOT NULL REFERENCES document, document INTEGER NOT NULL REFERENCES document,
  PRIMARY KEY (list, document)) STRICT, WITHOUT ROWID;
CREATE INDEX mention_by_document ON mention (document, list);

CREATE TABLE advertised (                   -- R9: the channels that a Capability List advertises, in order
  document INTEGER NOT NULL REFERENCES document, position INTEGER NOT NULL, kind INTEGER NOT NULL, topic TEXT NOT NULL,
  hubs TEXT NOT NULL, PRIMARY KEY (document, position)) STRICT, WITHOUT ROWID;

CREATE TABLE member (                       -- R7: documents of sets; kept when gone
  document INTEGER NOT NULL REFERENCES document, set_id INTEGER NOT NULL REFERENCES document,
  PRIMARY KEY (document, set_id)) STRICT, WITHOUT ROWID;
CREATE INDEX member_by_set ON member (set_id, document);

CREATE TABLE other_file (                   -- R2: XML files that are no documents
  mount INTEGER NOT NULL, path BLOB NOT NULL, size INTEGER NOT NULL, modified INTEGER NOT NULL, changed INTEGER NOT NULL,
  inode INTEGER NOT NULL, looked INTEGER NOT NULL, PRIMARY KEY (mount, path)) STRICT, WITHOUT ROWID;

CREATE TABLE trouble (                      -- R3: candidates that cannot be read
  uri TEXT PRIMARY KEY, source INTEGER NOT NULL, mount INTEGER NOT NULL, path BLOB NOT NULL, since INTEGER NOT NULL,
  reason TEXT NOT NULL, predates INTEGER NOT NULL,
  reported INTEGER NOT NULL, report_at INTEGER) STRICT, WITHOUT ROWID;

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
CREATE INDEX channel_deadline ON channel (deadline) WHERE deadline IS NOT NULL;
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
  seq INTEGER, body BLOB, entries INTEGER, flight_until INTEGER, cut INTEGER, attempts INTEGER, retry_at INTEGER,
  in_doubt INTEGER NOT NULL DEFAULT 0,      -- the hub may have taken what is in flight
  PRIMARY KEY (channel, hub)) STRICT, WITHOUT ROWID;
CREATE INDEX account_retry ON account (retry_at) WHERE retry_at IS NOT NULL;
CREATE INDEX account_ping ON account (ping_due) WHERE ping_due IS NOT NULL;
CREATE INDEX account_ends ON account (ends) WHERE ends IS NOT NULL;
CREATE INDEX account_by_hub ON account (hub);

CREATE TABLE owed (                         -- what a hub was told, where that is not what is seen
  channel INTEGER NOT NULL, hub INTEGER NOT NULL, document INTEGER NOT NULL REFERENCES document,
  told_capability INTEGER, told_form INTEGER, told_fingerprint BLOB,   -- all nothing: told nothing; no fingerprint: unclear
  due INTEGER,                              -- since when it may be announced; nothing if held or missing
  dormant INTEGER NOT NULL DEFAULT 0,       -- R11: told on a channel that retired, or to a hub that left
  PRIMARY KEY (channel, hub, document),
  FOREIGN KEY (channel, hub) REFERENCES account (channel, hub) ON DELETE CASCADE ON UPDATE CASCADE) STRICT, WITHOUT ROWID;
CREATE INDEX owed_by_document ON owed (document);
CREATE INDEX owed_due ON owed (channel, hub) WHERE due IS NOT NULL;

CREATE TABLE flight_entry (                 -- R22: what is in flight, and counts as told once it is accepted
  channel INTEGER NOT NULL, hub INTEGER NOT NULL, document INTEGER NOT NULL REFERENCES document,
  capability INTEGER, form INTEGER, fingerprint BLOB, PRIMARY KEY (channel, hub, document),
  FOREIGN KEY (channel, hub) REFERENCES account (channel, hub) ON DELETE CASCADE ON UPDATE CASCADE) STRICT, WITHOUT ROWID;
CREATE INDEX flight_by_document ON flight_entry (document);
