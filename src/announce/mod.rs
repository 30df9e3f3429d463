//! The engine: decides which changes are announced to which hub, and when. Pure: no clock, disk, network, randomness or
//! logging; time and chance arrive as arguments, and what is to be done leaves as effects.
//!
//! In reading order: a [`plan`] has the configuration, [`observation`]s the content of the tree, [`event`]s go in and
//! effects come out of the [`engine`]. Inside it the [`catalog`] knows the documents and their relations, [`channel`]s
//! and [`ledger`]s keep what each hub was told, [`difference`] names the change types, [`notification`] cuts and
//! renders payloads, and [`delivery`] judges what a hub answered. [`changes`] does the same for the resources that
//! Change Lists name. A [`dry_run`] plays all of it forward.

pub mod candidates;
pub mod catalog;
pub mod changes;
pub mod channel;
pub mod delivery;
pub mod desired_channel;
pub mod difference;
pub mod dry_run;
pub mod due;
pub mod engine;
pub mod event;
pub mod finding;
pub mod history;
pub mod ids;
pub mod ledger;
pub mod naming;
pub mod notification;
pub mod observation;
pub mod plan;
pub mod small_set;
pub mod span;
pub mod state;
pub mod time;
pub mod topic;
