//! Each input of the fuzz targets' corpus passes their checks (`fuzz/corpus`, `fuzz/checks/resourcesync.rs`); and documents
//! of each kind as `resync` 2.0.1 writes them (`resync/`): what is read of them is all they have, and what is written is
//! read the same.

#![expect(clippy::unwrap_used, reason = "a test that fails should say where")]

#[path = "../../../../fuzz/checks/resourcesync.rs"]
mod checks;
#[path = "../../../../tests/support/needs.rs"]
mod needs;
mod well_formed;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use resourcesync::capability::Capability;
use resourcesync::document::{Document, Form};
use resourcesync::listing::Listing;
use resourcesync::parse::parse;
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

fn parsed(bytes: &[u8]) -> Document {
    match parse(bytes).unwrap() {
        Ok(document) => document,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn documents_of_another_library_are_written_as_they_were() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/resync");
    let mut kinds = BTreeSet::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        let listing = Listing::parse(&bytes).unwrap().unwrap();
        let written = listing.render();
        assert_eq!(Listing::parse(&written).unwrap().as_ref(), Some(&listing));
        // The fingerprint is that of every element, attribute and text.
        let path = path.display();
        assert_eq!(parsed(&written), parsed(&bytes), "{path}");
        kinds.insert((listing.known_capability().unwrap(), listing.form));
    }
    let lists = Capability::all().map(|capability| (capability, Form::List));
    let indexes = [Capability::ResourceList, Capability::ChangeList];
    let indexes = indexes.map(|capability| (capability, Form::Index));
    assert_eq!(kinds, lists.chain(indexes).collect());
}
