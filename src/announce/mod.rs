//! The engine: decides which changes are announced to which hub, and when. Pure: no clock, disk, network, randomness or
//! logging; time and chance arrive as arguments, and what is to be done leaves as effects.
//!
//! In reading order: a [`plan`] has the configuration, [`observation`]s the content of the tree, [`event`]s go in and
//! effects come out of the [`steps`], whose state is the database. [`difference`] names the change types, [`delivery`]
//! decides when a hub is sent what, and [`changes`] compares Change Lists with what was taken of them.

pub mod candidates;
pub mod changes;
pub mod delivery;
pub mod difference;
pub mod event;
pub mod finding;
pub mod history;
pub mod ids;
pub mod observation;
pub mod plan;
pub mod span;
pub mod steps;
pub mod time;
pub mod topic;
