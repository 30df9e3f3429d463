//! The engine of rsnotify as steps over its database: it is to replace `crate::announce::engine`, which keeps all state
//! in memory *and* in SQLite. It takes the same events and has the same effects, but for `Save`.
//!
//! A [step](step::Step) takes a batch of events in one transaction; its effects follow the commit. All that grows with the
//! tree, the sets or the hubs is in the database alone, as `schema.sql` describes it; in
//! memory is what grows with the configuration or with what is under way ([`live`]).
//!
//! | part | content |
//! |---|---|
//! | [`state`] | the database, and its values in Rust |
//! | [`step`] | the order of a step, deadlines, effects; a plan that takes effect |
//! | [`documents`] | looks at documents, their versions, troubles |
//! | [`mounts`] | mounts, deletions, suspensions; [`root`], [`baseline`] and [`nested`] are parts of a mount |
//! | [`relations`] | indexes, sets, archives |
//! | [`owed`] | what hubs were told, as a difference from what is seen; what is due |
//! | [`channels`] | channels that open, retire, return and end; accounts that join and leave |
//! | [`cut`] | notifications and topics |
//! | [`delivery`] | submissions, answers, retries, fetches |
//! | [`report`] | what operators and programs read, as queries |
//! | [`change_sets`] | sets with a change channel: what makes their rounds due, and when |
//! | [`rounds`] | rounds that begin and end |
//! | [`lists`] | the lists of such a set, as far as they were taken |
//! | [`change_log`] | the notifications of change channels, and what each hub has of them |
//! | [`taken_rows`] | what was taken, for the reader of lists |
//!
//! Not there yet: findings but for those about channels and entries, `Explained`, the report, a failed step that puts
//! [`live`] back, and a bound for ticks with thousands of channels. Nothing uses it but its tests, which are those scenarios
//! of the other engine that look at the tree and the hubs alone.

pub mod baseline;
pub mod change_log;
pub mod change_sets;
pub mod channels;
pub mod cut;
pub mod delivery;
pub mod documents;
pub mod findings;
pub mod lists;
pub mod live;
pub mod mounts;
pub mod naming;
pub mod nested;
pub mod owed;
pub mod relations;
pub mod root;
pub mod rounds;
pub mod step;
pub mod taken_rows;
