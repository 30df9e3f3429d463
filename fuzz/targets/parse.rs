//! Fuzzes `checks::parse`.

#![no_main]

#[allow(dead_code, reason = "the other targets use the rest")]
#[path = "../checks/resourcesync.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|input: &[u8]| checks::parse(input));
