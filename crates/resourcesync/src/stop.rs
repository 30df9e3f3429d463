//! Reasons to stop reading: for more text, for a decision of the caller, or for good.

use crate::document::NotADocument;

/// The reason why the reader stopped. Markup of which a length is given is still to be skipped.
#[derive(Debug)]
pub(crate) enum Stop {
    /// There is no more text.
    End,
    /// The next markup does not end in this text.
    Cut,
    /// The next markup is a DOCTYPE of this length.
    Doctype { length: usize },
    /// The next markup is of this length and has an error at this offset, before the root: it matters only if the root
    /// turns out to be a capability document's.
    Refused {
        length: usize,
        at: usize,
        message: String,
    },
    /// The root's start tag was read, and may be a capability document's.
    Root,
    /// The file is no capability document.
    Other(NotADocument),
    /// There is an error at this offset after the next markup's start.
    Syntax { at: usize, message: String },
}

impl Stop {
    #[cold]
    pub(crate) fn syntax(at: usize, message: impl Into<String>) -> Stop {
        let message = message.into();
        Stop::Syntax { at, message }
    }
}
