//! The only loop: it takes an event, steps the engine, saves, and only then sends.
