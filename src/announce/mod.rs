//! The engine: decides which changes are announced to which hub, and when. Pure: no clock, disk, network, randomness or
//! logging; time and chance arrive as arguments, and what is to be done leaves as effects.
//!
//! In reading order: a [`plan`] has the configuration, [`observation`]s the content of the tree, [`event`]s go in and
//! effects come out of the [`steps`], whose state is the database. [`difference`] names the change types, [`delivery`]
//! decides when a hub is sent what, and [`changes`] compares Change Lists with what was taken of them.

pub mod candidates;
/// Changes of resources, as Change Lists report them or Resource Lists differ: what is fresh, in which order it is told, in which
/// intervals (Change Notification 1.0.1; C1 to C29).
///
/// Nothing of it is queued: [`changes::fresh`] is the difference between what is listed and what was taken,
/// [`changes::inventory`] that between Resource Lists and those before.
pub mod changes {
    pub mod fresh;
    pub mod interval;
    pub mod inventory;
    pub mod round;
    pub mod selection;
    pub mod taken_keys;
}
pub mod delivery;
pub mod difference;
pub mod event;
pub mod finding;
pub mod history;
pub mod observation;
pub mod plan;
pub mod steps;
pub mod time;
pub mod topic;
