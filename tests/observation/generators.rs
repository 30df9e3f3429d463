//! What real generators write, run after run.
