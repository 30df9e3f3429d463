//! A list of 50 MB is written and read in bounded memory. Alone in its program, whose memory is measured.

use std::fs;
use std::io::{self, BufReader, BufWriter};
use std::thread;

use resourcesync::document::{Form, MAX_SIZE};
use resourcesync::listing::{ListedEntry, Listing};
use resourcesync::writer::DocumentWriter;

/// Largest memory of the program in KiB: a fifth of what the list has.
const MAX_MEMORY: u64 = 10 << 10;
/// Length of each URI: fewer entries then have the size.
const URI_LEN: usize = 5_000;

#[test]
fn a_list_of_the_largest_size_needs_little_memory() {
    let count = MAX_SIZE as usize / URI_LEN;
    let (reader, pipe) = io::pipe().unwrap();
    let written = thread::spawn(move || {
        let mut root = Listing::new(Form::List);
        root.capability = Some("resourcelist".to_owned());
        let mut list = DocumentWriter::new(BufWriter::new(pipe), &root).unwrap();
        for number in 0..count {
            let name = format!("https://example.org/{number:0URI_LEN$}");
            let entry = ListedEntry {
                loc: Some(name),
                ..ListedEntry::default()
            };
            list.write(&entry).unwrap();
        }
        list.finish().unwrap().into_inner().unwrap();
    });
    let mut number = 0;
    let root = Listing::each_entry(BufReader::new(reader), |root, entry| {
        assert_eq!(root.capability.as_deref(), Some("resourcelist"));
        let loc = entry.loc.unwrap();
        assert!(loc.ends_with(&format!("{number:0URI_LEN$}")), "{number}");
        number += 1;
    });
    written.join().unwrap();
    assert_eq!((root.unwrap().unwrap().entries.len(), number), (0, count));
    if let Ok(status) = fs::read_to_string("/proc/self/status") {
        let (_, peak) = status.split_once("VmHWM:").unwrap();
        let peak: u64 = peak.split_whitespace().next().unwrap().parse().unwrap();
        assert!(peak < MAX_MEMORY, "{peak} KiB");
    }
}
