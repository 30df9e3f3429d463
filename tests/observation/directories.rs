//! Directories that come, go, move and are filled at once.
