//! Roots that are replaced, late, gone or mounted over.
