//! Software of others: a WebSub hub, the reference library, a reader of feeds, web servers, and a validator of XML.
//!
//! `.ci/run` installs them from package registries. If one is missing, its tests are skipped.

mod atom;
mod changes;
mod flask_websub;
mod front;
mod payloads;
mod readers;
mod schema;
mod sent;
mod stories;
mod subscriber;
mod web_servers;
