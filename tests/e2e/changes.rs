//! Change channels with the real binary: what Change Lists report is told once, in order, in consecutive intervals.

mod channels;
mod falling_behind;
pub mod hubs;
mod lists;
mod restarts;
pub mod story;
