//! Software of others: a WebSub hub, the reference library, web servers, and a validator of XML.
//!
//! `.ci/run` installs them from package registries. If one is missing, its tests are skipped.

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
