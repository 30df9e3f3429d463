//! The documentation is correct: its links, flags and keys exist, and its commands print what it shows.
//!
//! Each page is a story. Its `sh` blocks run in order, each by bash in the page's own directory, and a `text`
//! block must be equal to the output; a `diff` block must be a part of it. `setup/PAGE.sh` creates what the page
//! assumes. HTML comments before a block, which the rendered page does not show, control the rest:
//!
//! | comment | meaning |
//! |---|---|
//! | `<!-- not run: REASON -->` | this `sh` block is not run |
//! | `<!-- needs: TOOL -->` | this `sh` block is skipped if the tool is not installed; without this mark the whole page would be |
//! | `<!-- not compared: REASON -->` | this `text` block is not the output of a command here |
//! | `<!-- terminal: NAME -->` | the command keeps running in its own terminal; before `text`, the output of that terminal so far |
//! | `<!-- wait for: TEXT -->` | with `terminal`: the story continues once it shows this |
//! | `<!-- ctrl-c: NAME -->` | before the block, Ctrl-C is pressed in that terminal |
//! | `<!-- exits with: N -->` | the block's exit code, if it is not 0 |
//!
//! In a `text` block, `…` stands for any text, and alone in a line for any lines; times and durations are not compared.

#![expect(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

mod commands;
mod extent;
mod limits;
mod links;
mod messages;
#[path = "../support/needs.rs"]
mod needs;
mod output;
mod page;
mod sandbox;
mod story;
mod terminal;
mod words;

/// Timeout for a command, or for its output. Generous, because the machine may be busy.
pub const DEADLINE: std::time::Duration = std::time::Duration::from_secs(120);
