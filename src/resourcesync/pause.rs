//! Why the reading of a document pauses: for more text, for a decision of its caller, or for good.

use crate::resourcesync::document::Other;

/// Why the reading of a text paused. What is not said to have been read is still to be taken.
#[derive(Debug)]
pub(crate) enum Pause {
    /// There is no more text.
    End,
    /// The next markup does not end in this text.
    Cut,
    /// The next markup is a DOCTYPE of this length.
    Doctype { length: usize },
    /// The next markup is of this length, and what lies so far after its start is wrong. Before the root, it is not
    /// known yet whether that matters.
    Refused {
        length: usize,
        at: usize,
        message: String,
    },
    /// The start tag of a root that may be a capability document's was read.
    Root,
    /// The file is no document of ours.
    Other(Other),
    /// The next markup, or what lies so far after its start, is wrong.
    Flaw { at: usize, message: String },
}

impl Pause {
    #[cold]
    pub(crate) fn flaw(at: usize, message: impl Into<String>) -> Pause {
        let message = message.into();
        Pause::Flaw { at, message }
    }
}
