//! Content change messages, as the consumers of repositories' message brokers read them: one Atom feed per object, with
//! an entry for each of its items that changed. Pure.
//!
//! [`feed`] is a message as a value, which [`write`](mod@write) renders and [`read`] parses; [`objects`] makes the
//! messages of a change notification, with the properties and ids of [`message`]. Consumers written in Rust need
//! [`read`] alone:
//!
//! ```
//! use rsnotify::broker::feeds::feed::{Feed, Modification};
//!
//! let body = br#"<feed xmlns="http://www.w3.org/2005/Atom">
//!   <id>urn:uuid:11111111-2222-8333-8444-555555555555</id>
//!   <updated>2026-11-22T09:00:00Z</updated>
//!   <link rel="via" href="https://example.org/reports/"/>
//!   <entry>
//!     <link rel="via" href="https://example.org/reports/1.pdf"/>
//!     <content src="https://example.org/reports/1.pdf" type="application/pdf"/>
//!     <category scheme="changes:ITEM:CHANGE:TYPE" term="ADD"/>
//!   </entry>
//! </feed>"#;
//! let feed = Feed::parse(body)?;
//! assert_eq!(feed.object, "https://example.org/reports/");
//! assert_eq!(feed.items[0].modification, Some(Modification::Add));
//! # Ok::<(), rsnotify::broker::feeds::read::FeedError>(())
//! ```

pub mod feed;
pub mod identifier;
pub mod message;
pub mod objects;
pub mod read;
pub mod write;
