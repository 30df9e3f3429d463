//! Indexes, in whatever order they and their components are written.
