//! The engine against a plain model: random trees, operations, crashes and answers.
//!
//! The model knows no channels' accounts, windows or holds. It keeps what the tree holds, as far as it could
//! be read, and what every hub heard; and it knows what may be said of the two. `RSNOTIFY_MODEL_CASES` sets
//! how many cases are tried; a failure prints its operations, reduced, and the `RSNOTIFY_MODEL_SEED` to try
//! it again.

#![expect(clippy::unwrap_used, reason = "a test may fail, its helpers too")]

mod documents;
mod model;
#[expect(dead_code, unused_imports, reason = "the scenarios use the rest")]
#[path = "../scenario/world/mod.rs"]
mod world;

use std::time::Duration;

use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use proptest::test_runner::{Config, RngSeed};
use world::Reply;

use documents::DOCUMENTS;
use model::{Model, Op, Settings};

fn cases() -> u32 {
    let cases = std::env::var("RSNOTIFY_MODEL_CASES");
    cases.map_or(256, |cases| cases.parse().unwrap())
}

/// Printed, so that it is read when a case fails.
fn seed() -> RngSeed {
    let seed = std::env::var("RSNOTIFY_MODEL_SEED");
    let seed = seed.map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("RSNOTIFY_MODEL_SEED={seed}");
    RngSeed::Fixed(seed)
}

fn reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        3 => Just(Reply::Accept),
        1 => Just(Reply::Slow(3)),
        1 => Just(Reply::Status(503)),
        1 => Just(Reply::Status(403)),
        1 => Just(Reply::Hang),
        1 => Just(Reply::Deny),
        1 => Just(Reply::AtMost(1)),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let document = 0..DOCUMENTS.len();
    prop_oneof![
        8 => (document.clone(), 0..4_u32, any::<u8>()).prop_map(|(document, version, shape)| {
            Op::Write { document, version, shape }
        }),
        2 => document.clone().prop_map(Op::Delete),
        1 => document.clone().prop_map(Op::Touch),
        1 => document.prop_map(Op::Break),
        3 => (0..5_000_u64).prop_map(|millis| Op::Wait(Duration::from_millis(millis))),
        2 => (0..500_u64).prop_map(|seconds| Op::Wait(Duration::from_secs(seconds))),
        1 => Just(Op::Crash),
        1 => Just(Op::Freeze),
        2 => Just(Op::Start),
        2 => (any::<bool>(), reply()).prop_map(|(other, reply)| Op::Script { other, reply }),
        1 => Just(Op::Accept),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    (any::<bool>(), 0..4_u64, 1..5_usize, any::<bool>()).prop_map(
        |(all_components, quiet, max_entries, announce_existing)| Settings {
            all_components,
            quiet: Duration::from_secs(quiet),
            max_entries,
            announce_existing,
        },
    )
}

proptest! {
    #![proptest_config(Config {
        cases: cases(),
        rng_seed: seed(),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    })]

    #[test]
    fn every_hub_hears_the_difference_and_nothing_else(
        settings in settings(),
        tree in proptest::collection::vec(proptest::option::of((0..4_u32, any::<u8>())), DOCUMENTS.len()),
        ops in proptest::collection::vec(op(), 0..60),
    ) {
        let mut model = Model::new(&settings, &tree);
        for op in &ops {
            model.perform(op);
        }
        model.rest();
        model.check_the_end();
    }
}
