//! HTTP as WebSub and Framework Notification 1.0.1 section 4 use it.
