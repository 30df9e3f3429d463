//! Each input of the fuzz targets' corpus passes their checks (`fuzz/corpus`, `fuzz/checks/rsnotify.rs`).

#[path = "../../fuzz/checks/rsnotify.rs"]
mod checks;

use std::fs;
use std::path::Path;

use rstest::rstest;

#[rstest]
#[case::message("message", checks::message)]
#[case::config("config", checks::config)]
#[case::subscription("subscription", checks::subscription)]
#[case::stomp("stomp", checks::stomp)]
fn what_was_fuzzed_holds(#[case] target: &str, #[case] check: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
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
