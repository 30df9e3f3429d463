//! The documentation is true: its links lead somewhere, its flags and keys exist, and its commands do what it says.
//!
//! Each page is a story. Its `sh` blocks run in order, each by bash in a directory of the page's own, and what a `text`
//! block shows must be what came out; a `diff` block, a part of it. What the page supposes that its reader has is made
//! by `setup/PAGE.sh`. Comments before a block, which nobody sees in the rendered page, say the rest:
//!
//! | comment | meaning |
//! |---|---|
//! | `<!-- not run: REASON -->` | this `sh` block is not run |
//! | `<!-- needs: TOOL -->` | this `sh` block is left out where the tool is not installed; otherwise the page would be |
//! | `<!-- not compared: REASON -->` | this `text` block shows what no command here printed |
//! | `<!-- terminal: NAME -->` | the command runs on in a terminal of its own; before `text`, what that one shows by now |
//! | `<!-- wait for: TEXT -->` | with `terminal`: the story goes on once it shows this |
//! | `<!-- ctrl-c: NAME -->` | before the block, Ctrl-C is pressed in that terminal |
//! | `<!-- exits with: N -->` | the block's exit code, where it is not 0 |
//!
//! In a `text` block, `…` stands for any text, and alone in a line for any lines; times and durations are not compared.

#![expect(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

mod commands;
mod links;
mod messages;
#[path = "../needs/mod.rs"]
mod needs;
mod output;
mod page;
mod place;
mod story;
mod terminal;
mod words;

/// How long a command may take, or what it shows be awaited, before a test fails. Generous: the machine may be busy.
pub const DEADLINE: std::time::Duration = std::time::Duration::from_secs(120);
