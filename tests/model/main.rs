//! The engine against a plain model: random trees, operations, crashes and answers.
//!
//! The model has no accounts, windows or holds. It keeps the content of the tree, as far as it could be read, and what
//! every hub received, and derives the permitted notifications from the two.
//!
//! Change channels have a model of their own, with a quarter of the cases, and so have topics that move.
//!
//! Every run tries the same 2,500 cases, divided among the tests: in a debug build, each is hundreds of transactions.
//! `RSNOTIFY_MODEL_CASES` sets their number, and `RSNOTIFY_MODEL_SEED` the seed: `random` uses a new one for each test. So,
//! at night: `RSNOTIFY_MODEL_SEED=random RSNOTIFY_MODEL_CASES=100000 cargo test --test model`. A failure prints its
//! operations, reduced, and its seed: give that to the test that failed, with at least as many cases.

#![expect(clippy::unwrap_used, reason = "a test may fail, its helpers too")]

mod changes;
mod documents;
mod hearing;
mod model;
mod running;
mod seeing;
mod topics;
#[expect(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "the scenarios use the rest"
)]
#[path = "../scenario/world/mod.rs"]
mod world;

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::test_runner::{Config, RngSeed, TestRunner};
use rstest::rstest;
use world::Reply;

use documents::DOCUMENTS;
use model::{Model, OTHERS, Op, Settings};

/// The number of tests that share the cases, so that they run in parallel.
const TESTS: u64 = 4;

fn cases() -> u32 {
    let cases = std::env::var("RSNOTIFY_MODEL_CASES");
    let cases: u32 = cases.map_or(2_500, |cases| cases.parse().unwrap());
    cases.div_ceil(TESTS as u32)
}

/// Printed, so that it is read when a case fails.
fn seed(part: u64) -> RngSeed {
    let seed = match std::env::var("RSNOTIFY_MODEL_SEED").as_deref() {
        Err(_) => part,
        Ok("random") => fastrand::u64(..),
        Ok(seed) => seed.parse().unwrap(),
    };
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
        1 => document.clone().prop_map(Op::Break),
        3 => (0..5_000_u64).prop_map(|millis| Op::Wait(Duration::from_millis(millis))),
        2 => (0..500_u64).prop_map(|seconds| Op::Wait(Duration::from_secs(seconds))),
        1 => Just(Op::Crash),
        1 => Just(Op::Freeze),
        1 => (document.clone(), 0..4_u32)
            .prop_map(|(document, version)| Op::KillAtWrite { document, version }),
        1 => (0..6_usize, 0..400_u64).prop_map(|(effects, seconds)| {
            Op::KillAfter { effects, wait: Duration::from_secs(seconds) }
        }),
        1 => Just(Op::DeleteAll),
        1 => (-5_000..5_000_i64).prop_map(Op::SetClock),
        2 => Just(Op::Start),
        2 => (any::<bool>(), reply()).prop_map(|(other, reply)| Op::Script { other, reply }),
        1 => Just(Op::Accept),
        1 => Just(Op::Retry),
        1 => (any::<bool>(), 0..2_usize).prop_map(|(other, set)| Op::Drop { other, set }),
        1 => Just(Op::Unmount),
        2 => Just(Op::Remount),
        2 => (0..OTHERS.len() + 1, any::<bool>()).prop_map(|(other, is_reload)| {
            Op::Configure { other: OTHERS.get(other).copied(), is_reload }
        }),
        1 => Just(Op::Reload),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    let switches = (any::<bool>(), any::<bool>(), any::<bool>());
    (switches, 0..4_u64, 1..5_usize).prop_map(
        |((all_components, all_deletions, announce_existing), quiet, max_entries)| Settings {
            all_components,
            all_deletions,
            quiet: Duration::from_secs(quiet),
            max_entries,
            announce_existing,
        },
    )
}

/// Tries so many cases of a strategy.
fn try_cases<S: Strategy>(cases: u32, part: u64, strategy: &S, check: impl Fn(S::Value)) {
    let mut runner = TestRunner::new(Config {
        cases,
        rng_seed: seed(part),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    });
    let outcome = runner.run(strategy, |case| {
        check(case);
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

#[rstest]
fn every_hub_receives_the_difference_and_nothing_else(#[values(1, 2, 3, TESTS)] part: u64) {
    let document = proptest::option::of((0..4_u32, any::<u8>()));
    let tree = vec(document, DOCUMENTS.len());
    let strategy = (settings(), tree, vec(op(), 0..60));
    try_cases(cases(), part, &strategy, |(settings, tree, ops)| {
        let mut model = Model::new(&settings, &tree);
        for op in &ops {
            model.perform(op);
        }
        model.rest();
        model.check_the_end();
    });
}

#[rstest]
fn every_hub_receives_each_fresh_change_once_and_in_order(#[values(1, 2)] part: u64) {
    let lists = vec(vec(0..14_usize, 0..4), 0..3);
    let strategy = (1..6_usize, lists, vec(changes::op(), 0..40));
    let cases = cases().div_ceil(2);
    try_cases(cases, part, &strategy, |(max_entries, lists, ops)| {
        let mut model = changes::Model::new(max_entries, &lists);
        for op in &ops {
            model.perform(op);
        }
        model.rest();
        model.check_the_end();
    });
}

#[rstest]
fn every_change_is_told_on_the_topic_its_set_had_or_dropped_with_it(#[values(1, 2)] part: u64) {
    let ops = vec(topics::op(), 0..30);
    try_cases(cases().div_ceil(2), part, &ops, |ops| {
        let mut model = topics::Model::new();
        for op in &ops {
            model.perform(op);
        }
        model.check_the_end();
    });
}
