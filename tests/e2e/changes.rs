//! Change channels with the real binary: what Change Lists report is told once, in order, in consecutive intervals.

pub mod channels;
mod falling_behind;
mod lists;
mod restarts;
pub mod story;
