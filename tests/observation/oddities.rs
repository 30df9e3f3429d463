//! Files that cannot be read, or should not be, and names of every kind.
