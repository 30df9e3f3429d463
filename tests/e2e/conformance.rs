//! The embedded hub of the real binary against the WebSub Recommendation of 2018-01-23 (`w…`) and Framework
//! Notification 1.0.1 section 4 (`f…`); each test is named after a clause.

pub mod callback;
mod delivery;
mod leases;
mod requests;
pub mod source;
mod verification;
