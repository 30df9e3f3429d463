//! The embedded hub's decisions: what a subscription request asks for, and what it is granted.
