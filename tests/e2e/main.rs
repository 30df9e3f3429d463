//! Stories with the real binary: real files, real sockets, a hub that can refuse, hang, cut off and lie.

#![expect(clippy::unwrap_used, reason = "a test that fails should say where")]

mod advertise;
mod control;
mod crash;
mod daemon;
mod delivery;
mod documents;
mod embedded;
mod hub;
mod looking;
mod offline;
mod publishing;
mod python;
mod resync;

/// How long an event is awaited before a test fails. Generous: the machine may be busy.
pub const DEADLINE: std::time::Duration = std::time::Duration::from_secs(30);
