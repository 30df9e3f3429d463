//! Why the reading of a document pauses: for more text, for a decision of its caller, or for good.

use crate::resourcesync::document::Malformed;

/// Why the reading of a text paused. What is not said to have been read is still to be taken.
#[derive(Debug)]
pub(crate) enum Pause {
    /// There is no more text.
    End,
    /// The next markup does not end in this text.
    Cut,
    /// The next markup is a DOCTYPE of this length.
    Doctype { length: usize },
    /// The start tag of a root that may be a capability document's was read.
    Root,
    /// The root is another.
    ForeignRoot,
    /// The next markup, or what lies so far after its start, is wrong.
    Flaw { at: usize, message: String },
    /// The document cannot be accepted for another reason.
    Malformed(Malformed),
}

impl Pause {
    #[cold]
    pub(crate) fn flaw(at: usize, message: impl Into<String>) -> Pause {
        let message = message.into();
        Pause::Flaw { at, message }
    }
}
