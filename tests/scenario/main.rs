//! Scenarios of the engine: changes of a tree go in, notifications of hubs come out.

#![expect(clippy::unwrap_used, reason = "a test may fail, its helpers too")]

mod world;

mod absence;
mod acceptance;
mod aggregation;
mod baseline;
mod brokers;
mod changes;
mod channels;
mod clock;
mod configuration;
mod crash;
mod deletion;
mod documents;
mod findings;
mod hold;
mod moves;
mod outage;
mod outbox;
mod payload;
mod recovery;
mod reload;
mod retired;
mod routing;
mod spans;
mod statements;
mod status;
mod topics;
