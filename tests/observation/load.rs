//! Load: no queue is long enough, and nothing is lost.
