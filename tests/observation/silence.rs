//! What changes nothing is not announced.
