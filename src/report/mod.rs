//! The daemon's state as operators and programs read it: one report, for `/status.json`, the status page, the
//! commands and the metrics. Pure.

pub mod figures;
pub mod histogram;
pub mod status;
pub mod summary;
