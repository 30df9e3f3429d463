//! Mass deletion: an emptied tree is suspected until somebody says so.
