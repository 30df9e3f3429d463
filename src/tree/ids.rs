//! Numbers of directories and files: queues and timers refer to these, and may outlive what they stand for.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct DirectoryId(pub(super) u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct FileId(pub(super) u32);
