//! A Source: `cargo run --example publish -- DIRECTORY https://example.org/` writes a Source Description, a Capability List
//! and a Resource List of all files below a directory into it. A web server then publishes the directory at the URL.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use resourcesync::capability::Capability;
use resourcesync::document::{Form, MAX_ENTRIES};
use resourcesync::listing::{ListedEntry, ListedLink, Listing};
use resourcesync::writer::DocumentWriter;

const RESOURCE_LIST: &str = "resourcelist.xml";
const CAPABILITY_LIST: &str = "capabilitylist.xml";
/// Well-known path (core 1.1 section 8).
const SOURCE_DESCRIPTION: &str = ".well-known/resourcesync";

/// The bytes that are escaped in the path of a URI: all but `/` and unreserved characters (RFC 3986 section 2.3).
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(directory), Some(url)) = (arguments.next(), arguments.next()) else {
        return Err("usage: publish DIRECTORY URL".into());
    };
    let count = publish(Path::new(&directory), &url, Timestamp::now())?;
    println!("published {count} resources at {url}");
    Ok(())
}

/// Writes the documents, and returns the number of resources. `url` is that of the directory, and ends in `/`.
pub fn publish(directory: &Path, url: &str, now: Timestamp) -> Result<usize, Box<dyn Error>> {
    let documents = [RESOURCE_LIST, CAPABILITY_LIST, SOURCE_DESCRIPTION];
    let mut files = Vec::new();
    find(directory, &mut files)?;
    files.retain(|file| !documents.iter().any(|name| directory.join(name) == *file));
    files.sort();
    if files.len() > MAX_ENTRIES {
        return Err("a Resource List cannot have so many: write several, and an index".into());
    }
    let mut resources = Vec::new();
    for file in &files {
        let metadata = fs::metadata(file)?;
        let path = file.strip_prefix(directory)?;
        let path = path.to_str().ok_or("a name is not UTF-8")?;
        let lastmod = Timestamp::try_from(metadata.modified()?)?;
        resources.push(ListedEntry {
            loc: Some(format!("{url}{}", utf8_percent_encode(path, PATH))),
            lastmod: Some(format!("{lastmod:.0}")),
            length: Some(metadata.len().to_string()),
            ..ListedEntry::default()
        });
    }
    let list = |capability, up: &str| {
        let mut list = Listing::new(Form::List);
        list.capability = Some(Capability::to_string(&capability));
        let up = [("rel", "up".to_owned()), ("href", format!("{url}{up}"))];
        list.links = vec![ListedLink::from(
            up.map(|(name, value)| (name.to_owned(), value)),
        )];
        list
    };
    let listed = |capability, name| ListedEntry {
        loc: Some(format!("{url}{name}")),
        capability: Some(Capability::to_string(&capability)),
        ..ListedEntry::default()
    };
    let mut resource_list = list(Capability::ResourceList, CAPABILITY_LIST);
    resource_list.at = Some(format!("{now:.0}"));
    write(&directory.join(RESOURCE_LIST), &resource_list, resources)?;
    let capability_list = list(Capability::CapabilityList, SOURCE_DESCRIPTION);
    let entry = listed(Capability::ResourceList, RESOURCE_LIST);
    write(&directory.join(CAPABILITY_LIST), &capability_list, [entry])?;
    let mut description = list(Capability::SourceDescription, "");
    description.links.clear();
    let entry = listed(Capability::CapabilityList, CAPABILITY_LIST);
    fs::create_dir_all(directory.join(".well-known"))?;
    write(&directory.join(SOURCE_DESCRIPTION), &description, [entry])?;
    Ok(files.len())
}

/// Writes a document beside its place, and moves it there once it is complete: readers never see a part of it.
fn write(
    path: &Path,
    root: &Listing,
    entries: impl IntoIterator<Item = ListedEntry>,
) -> io::Result<()> {
    let beside = path.with_extension("tmp");
    let mut document = DocumentWriter::new(BufWriter::new(File::create(&beside)?), root)?;
    for entry in entries {
        document.write(&entry)?;
    }
    document.finish()?.into_inner()?.sync_all()?;
    fs::rename(beside, path)
}

fn find(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        match entry.file_type()? {
            kind if kind.is_dir() => find(&entry.path(), files)?,
            kind if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
    Ok(())
}
