//! HTTP as the publisher and the embedded hub both use it, without any I/O: [`answer`]s, [`retry`] times, [`form`]s,
//! [`link`] headers, [`host`] checks and [`secret`]s. Pure.

pub mod answer;
pub mod form;
pub mod host;
pub mod link;
pub mod retry;
pub mod secret;
