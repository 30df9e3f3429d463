//! rsnotify announces the changes of a ResourceSync Source to Destinations, from the files that it publishes.
//!
//! Five crates come before this one: [`resourcesync`] has the specification's terms and documents, pure; [`websub`] has
//! publishing, the hub, topics and a subscriber, decisions apart from HTTP; [`messaging`] has the messages of brokers and
//! their transport, STOMP; [`announce`] decides which changes are due to which hub, and when: one engine, events in, effects
//! out, and its state, one SQLite database; [`destination`] is `listen`. Then, in reading order, each part of which describes
//! itself further:
//!
//! | part | content |
//! |---|---|
//! | [`report`] | the daemon's status as operators and programs read it; pure |
//! | [`diagnostics`] | the findings of `check`, derived from facts that adaptors bring; pure |
//! | [`tree`] | the file system: mounts, watches, sweeps, complete reads |
//! | [`admin`] | the admin listener: health, metrics, status page |
//! | [`control`] | requests of commands to a running daemon, over a socket |
//! | [`config`] | the configuration: one definition per key, then values that are valid |
//! | [`daemon`] | the event loop: takes an event, steps the engine, saves, then sends |
//! | [`cli`] | the commands, and what they share |
//!
//! Invariants, held by `tests/tidy.rs` where a machine can: the pure parts have no clock, disk,
//! network, randomness or logging; adaptors (`tree`, `admin`, `control`, and those of the crates) never use
//! each other; nothing is sent before it is saved; the changes to announce are always the difference *seen − told*.
//!
//! A decision belongs in a pure part, its input and output in an adaptor, and [`daemon`] joins them.
//! ARCHITECTURE.md names the places for the usual additions.

pub mod admin;
pub mod cli;
pub mod config;
pub mod control;
pub mod daemon;
pub mod diagnostics;
pub mod report;
pub mod tree;
