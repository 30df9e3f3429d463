//! What changes nothing is not announced.

mod about;
mod passing;
mod rewritten;

const PATH: &str = "a/changelist.xml";
