//! Operations without a change of content are not announced (R4).

mod about;
mod passing;
mod rewritten;

const PATH: &str = "a/changelist.xml";
