//! Each input of the fuzz targets' corpus passes their checks (`fuzz/corpus`, `fuzz/checks/resourcesync.rs`).

#![expect(clippy::unwrap_used, reason = "a test that fails should say where")]

#[path = "../../../../fuzz/checks/resourcesync.rs"]
mod checks;
#[path = "../../../../tests/support/needs.rs"]
mod needs;
mod round_trip;
mod well_formed;

use std::fs;
use std::path::Path;

use rstest::rstest;

#[rstest]
#[case::parse("parse", checks::parse)]
#[case::changes("changes", checks::changes)]
#[case::payload("payload", checks::payload)]
#[case::uri("uri", checks::uri)]
fn what_was_fuzzed_holds(#[case] target: &str, #[case] check: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut tried = 0;
    for entry in fs::read_dir(&directory).expect("a corpus") {
        let path = entry.expect("an entry").path();
        println!("{}", path.display());
        check(&fs::read(&path).expect("an input"));
        tried += 1;
    }
    assert!(tried > 0, "{} is empty", directory.display());
}
