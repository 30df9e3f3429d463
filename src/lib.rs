//! rsnotify tells Destinations what changes in a ResourceSync Source, from the files it publishes.
//!
//! The crate in reading order; each folder says more about itself:
//!
//! | folder | what it is |
//! |---|---|
//! | [`resourcesync`] | the specification's words and documents: bytes become a `Document`; pure |
//! | [`announce`] | what is owed to whom, and when: one engine, events in, effects out; pure |
//! | [`hub`] | the embedded hub's decisions: who may subscribe, what each subscriber is owed; pure |
//! | [`report`] | the daemon's state as operators and programs read it; pure |
//! | [`diagnostics`] | the findings of `check`, judged from facts that adaptors bring; pure |
//! | [`tree`] | the file system: mounts, watches, sweeps, complete reads |
//! | [`store`] | one SQLite file: what was seen, told, and is in flight |
//! | [`websub`] | HTTP: submitting to hubs, serving topics, the embedded hub, a subscriber |
//! | [`admin`] | health, metrics, status |
//! | [`control`] | what commands ask of a running daemon |
//! | [`config`] | the file as written, then as checked |
//! | [`daemon`] | the only loop: takes an event, steps the engine, saves, then sends |
//! | [`cli`] | one file per subcommand |
//!
//! Invariants, held by `tests/tidy.rs` where a machine can: the pure folders know no clock, disk,
//! network, randomness or logging; adaptors (`tree`, `store`, `websub`, `admin`, `control`) never use each other;
//! nothing is sent before it is saved; what to announce is always the difference *seen − told*.

pub mod admin;
pub mod announce;
pub mod cli;
pub mod config;
pub mod control;
pub mod daemon;
pub mod diagnostics;
pub mod hub;
pub mod report;
pub mod resourcesync;
pub mod store;
pub mod tree;
pub mod websub;
