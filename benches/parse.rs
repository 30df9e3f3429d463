//! Time and memory for parsing a large Resource List with its fingerprint, time for reading the changes of a Change List,
//! and the part that is read of a file that is none of ours. Prints figures beside targets and asserts nothing.

use std::fmt::Write as _;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use resourcesync::change_list::{read_changes, read_keys};
use resourcesync::parse::{parse, parse_with_keys};

const SIZE: usize = 50 << 20;
const ROUNDS: usize = 9;
/// Number of entries of a Change List as large as may be.
const CHANGES: usize = 50_000;

fn main() {
    // First, while the allocator holds nothing that it could use again.
    memory(
        Origin {
            content: resource_list(0).into_bytes(),
            at: 0,
        },
        "rs:md first",
    );
    let last = resource_list(0);
    let (head, rest) = last.split_once("  <rs:md").unwrap_or_default();
    let (description, rest) = rest.split_once('\n').unwrap_or_default();
    let rest = rest.trim_end().trim_end_matches("</urlset>");
    let content = format!("{head}{rest}  <rs:md{description}\n</urlset>\n").into_bytes();
    memory(Origin { content, at: 0 }, "rs:md last");
    for (name, list) in [
        ("50 MB, entries of 330 bytes", resource_list(0)),
        ("50 MB, 50,000 entries of 1 kB", resource_list(7)),
        (
            "50 MB, CRLF and &amp;",
            resource_list(0)
                .replace('\n', "\r\n")
                .replace("/data/", "/?a&amp;b=/"),
        ),
    ] {
        measure(name, list.as_bytes());
    }
    let utf16: Vec<u8> = [0xff, 0xfe]
        .into_iter()
        .chain(resource_list(0).encode_utf16().flat_map(u16::to_le_bytes))
        .collect();
    measure("100 MB, UTF-16", &utf16);
    for (name, list) in [
        ("dated", change_list("datetime=\"2026-11-20T10:05:00Z\"")),
        ("undated", change_list("")),
    ] {
        measure_changes(name, list.as_bytes());
    }

    let mut foreign =
        "<?xml version=\"1.0\"?>\n<html xmlns=\"http://www.w3.org/1999/xhtml\">".to_owned();
    foreign.push_str(&"<p>none of ours</p>".repeat(1 << 20));
    let mut origin = Origin {
        content: foreign.into_bytes(),
        at: 0,
    };
    let content = parse(&mut origin);
    println!(
        "unrelated file: {} bytes read (target 65536 at most), {content:?}",
        origin.at
    );
}

/// A Resource List of about 50 MiB whose entries have this many duplicates elsewhere.
fn resource_list(duplicates: usize) -> String {
    let mut list = String::with_capacity(SIZE + 4096);
    list.push_str(concat!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n",
        "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\"\n",
        "        xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\n",
        "  <rs:ln rel=\"up\" href=\"http://example.com/dataset1/capabilitylist.xml\"/>\n",
        "  <rs:md capability=\"resourcelist\" at=\"2013-01-03T09:00:00Z\"/>\n",
    ));
    let mut number = 0;
    while list.len() < SIZE {
        let entry = write!(
            list,
            concat!(
                "  <url>\n",
                "    <loc>http://example.com/data/resources/{number:08}.pdf</loc>\n",
                "    <lastmod>2013-01-02T13:00:00Z</lastmod>\n",
                "    <rs:md hash=\"md5:1584abdf8ebdc9802ac0c6a7{number:08}\"\n",
                "           length=\"8876\" type=\"application/pdf\"/>\n",
                "    <rs:ln rel=\"describedby\" href=\"http://example.com/data/{number:08}.xml\"/>\n",
            ),
            number = number
        );
        for mirror in 0..duplicates {
            let duplicate = writeln!(
                list,
                "    <rs:ln rel=\"duplicate\" pri=\"{mirror}\" href=\"http://mirror{mirror}.example.com/res{number:08}.pdf\"/>",
            );
            assert!(duplicate.is_ok());
        }
        assert!(entry.is_ok());
        list.push_str("  </url>\n");
        number += 1;
    }
    list.push_str("</urlset>\n");
    list
}

/// A Change List of about 12 MB.
fn change_list(datetime: &str) -> String {
    let mut list = String::with_capacity(16 << 20);
    list.push_str(concat!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n",
        "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\"\n",
        "        xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\n",
        "  <rs:ln rel=\"up\" href=\"http://example.com/dataset1/capabilitylist.xml\"/>\n",
        "  <rs:md capability=\"changelist\" from=\"2026-11-20T00:00:00Z\"/>\n",
    ));
    for number in 0..CHANGES {
        let entry = writeln!(
            list,
            concat!(
                "  <url>\n",
                "    <loc>http://example.com/data/resources/{number:08}.pdf</loc>\n",
                "    <lastmod>2026-11-20T10:04:58Z</lastmod>\n",
                "    <rs:md change=\"updated\" {datetime}\n",
                "           hash=\"md5:1584abdf8ebdc9802ac0c6a7{number:08}\"\n",
                "           length=\"8876\" type=\"application/pdf\"/>\n",
                "  </url>",
            ),
            number = number,
            datetime = datetime
        );
        assert!(entry.is_ok());
    }
    list.push_str("</urlset>\n");
    list
}

/// Compares the passes over a Change List.
fn measure_changes(name: &str, list: &[u8]) {
    let last: Vec<u32> = (CHANGES as u32 - 1_000..CHANGES as u32).collect();
    let fingerprint = median(|| matches!(parse(list), Ok(Ok(_))));
    let keys = median(|| read_keys(list).is_ok_and(|listed| listed.entries.len() == CHANGES));
    let both = median(|| matches!(parse_with_keys(list, true), Ok((Ok(_), Some(_)))));
    let changes = median(|| read_changes(list, &last).is_ok_and(|changes| changes.len() == 1_000));
    let all: Vec<u32> = (0..CHANGES as u32).collect();
    let whole = median(|| read_changes(list, &all).is_ok_and(|changes| changes.len() == CHANGES));
    let ratio = both.as_secs_f64() / fingerprint.as_secs_f64();
    println!(
        "{:.1} MB, {CHANGES} {name} changes: fingerprint {fingerprint:.1?}, with keys {both:.1?} ({ratio:.2} times, target \
         1.4), keys alone {keys:.1?}, the last 1,000 whole {changes:.1?}, all {whole:.1?}",
        list.len() as f64 / 1e6
    );
}

/// The median time of something that has to succeed.
fn median(mut read: impl FnMut() -> bool) -> Duration {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            let is_right = read();
            let time = start.elapsed();
            assert!(is_right, "the list was not read");
            time
        })
        .collect();
    times.sort();
    times[ROUNDS / 2]
}

fn measure(name: &str, list: &[u8]) {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            let content = parse(list);
            let time = start.elapsed();
            if !matches!(content, Ok(Ok(_))) {
                println!("{name}: {content:?}");
            }
            time
        })
        .collect();
    times.sort();
    let rate = |time: Duration| list.len() as f64 / 1e6 / time.as_secs_f64();
    println!(
        "{name}: best {:.0} MB/s, median {:.0} MB/s (target 300, goal 500)",
        rate(times[0]),
        rate(times[ROUNDS / 2])
    );
}

/// Reads content and counts what was read.
struct Origin {
    content: Vec<u8>,
    at: usize,
}

impl Read for Origin {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = (&self.content[self.at..]).read(buffer)?;
        self.at += read;
        Ok(read)
    }
}

/// The largest resident size during one parse, less that before it; Linux only.
fn memory(origin: Origin, name: &str) {
    if std::fs::write("/proc/self/clear_refs", "5").is_err() {
        return println!("{name}: extra memory cannot be measured here");
    }
    let before = resident("VmRSS:");
    let content = parse(origin);
    let extra = resident("VmHWM:").saturating_sub(before);
    println!(
        "{name}: {extra} KiB of extra memory (target below 32768), a document: {}",
        matches!(content, Ok(Ok(_)))
    );
}

fn resident(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|value| value.split_whitespace().next())
        .and_then(|value| value.parse().ok())
        .unwrap_or_default()
}
