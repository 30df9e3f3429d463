//! Changes of resources, as Change Lists report them or Resource Lists differ: what is fresh, in which order it is
//! told, in which intervals, and which hub has heard how much (Change Notification 1.0.1; C1 to C29).
//!
//! Nothing of it is queued: [`fresh`] is the difference between what is listed and what was taken, [`inventory`] that
//! between Resource Lists and those before, and a log keeps the notifications until every hub has heard them.

pub mod fresh;
pub mod interval;
pub mod inventory;
pub mod round;
pub mod selection;
pub mod taken_keys;
