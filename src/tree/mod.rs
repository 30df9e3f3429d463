//! The file system: mounts, watches, sweeps, complete reads.
