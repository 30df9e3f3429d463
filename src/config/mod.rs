//! The configuration: as written in `raw`, as checked here.
