//! Reads a document of any kind and length from its input, and prints each entry: `cargo run --example entries < FILE`.

use std::error::Error;
use std::io::{self, Read, Write};

use resourcesync::listing::Listing;

fn main() -> Result<(), Box<dyn Error>> {
    print(io::stdin().lock(), &mut io::stdout().lock())
}

/// Prints what an entry is, its time and URI, one to a line.
pub fn print(document: impl Read, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let mut written = Ok(());
    let root = Listing::each_entry(document, |root, entry| {
        let kind = entry.change.or(entry.capability);
        let kind = kind.or_else(|| root.capability.clone()).unwrap_or_default();
        let time = entry.datetime.or(entry.lastmod).unwrap_or_default();
        let line = writeln!(out, "{kind}\t{time}\t{}", entry.loc.unwrap_or_default());
        written = std::mem::replace(&mut written, Ok(())).and(line);
    })?;
    root.ok_or("it is no ResourceSync document")?;
    Ok(written?)
}
