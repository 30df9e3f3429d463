//! Bytes become a document and its fingerprint in one pass, with bounded memory.
