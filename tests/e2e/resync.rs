//! Trees written by the reference library, which nobody here wrote, and our payloads read by it.
