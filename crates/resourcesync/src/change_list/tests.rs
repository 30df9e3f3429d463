//! Entries that count and that do not, keys, and values that are passed on (C2, C3, C6, C16).

use std::io::{BufReader, Cursor, Read};

use proptest::prelude::*;

use super::{
    ByteSpanReader, ChangeListError, ListedChanges, READ_SIZE, each_entry, read_changes,
    read_changes_at, read_keys,
};
use crate::capability::Capability;
use crate::change::{Change, ChangeKey, RelatedLink};
use crate::change_payload::entry_len;
use crate::payload::ChangeKind;

fn list(children: &str) -> String {
    format!(
        "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' \
         xmlns:rs='http://www.openarchives.org/rs/terms/'>\
         <rs:md capability='changelist' from='2026-11-20T10:00:00Z'/>{children}</urlset>"
    )
}

fn keys(list: &str) -> ListedChanges {
    read_keys(list.as_bytes()).unwrap()
}

/// Returns the one key of a list with one entry.
fn key(entry: &str) -> ChangeKey {
    let listed = keys(&list(entry));
    assert_eq!(listed.entries.len(), 1, "{entry}");
    listed.entries[0].place.key
}

fn positions(listed: &ListedChanges) -> Vec<u32> {
    let places = listed.entries.iter().map(|entry| entry.place);
    places.map(|place| place.position).collect()
}

fn changes(list: &str) -> Vec<Change> {
    read_at(list, &positions(&keys(list)))
}

fn read_at(list: &str, positions: &[u32]) -> Vec<Change> {
    let read = read_changes(list.as_bytes(), positions).unwrap();
    read.into_iter().map(|(_, change)| change).collect()
}

fn change(entry: &str) -> Change {
    let mut changes = changes(&list(entry));
    assert_eq!(changes.len(), 1, "{entry}");
    changes.remove(0)
}

const DATED: &str = "<url><loc>https://e.org/1.txt</loc>\
    <rs:md change='updated' datetime='2026-11-20T10:05:00Z'/></url>";
const UNDATED: &str = "<url><loc>https://e.org/1.txt</loc><lastmod>2026-11-20</lastmod>\
    <rs:md change='updated' hash='md5:1 sha-1:2' length='3'/></url>";

#[test]
fn other_entries_do_not_count() {
    let loc = "<loc>https://e.org/</loc>";
    let no_loc = "it has no loc";
    let no_change = "it has no rs:md with a change";
    let relative = "its loc \"1.txt\" is not an absolute URI";
    for (entry, reason) in [
        ("<rs:md change='updated'/>", no_loc),
        ("<loc> </loc><rs:md change='updated'/>", no_loc),
        ("<x>LOC</x><rs:md change='updated'/>", no_loc),
        ("<loc>1.txt</loc><rs:md change='updated'/>", relative),
        ("LOC", no_change),
        ("LOC<rs:md/>", no_change),
        ("LOC<rs:md change=' '/>", no_change),
        ("LOC<md change='updated'/>", no_change),
        ("LOC<rs:md rs:change='updated'/>", no_change),
        (
            "LOC<rs:md change='moved'/><rs:md change='updated'/>",
            "its change \"moved\" is none of created, updated and deleted",
        ),
    ] {
        let entry = entry.replace("LOC", loc);
        let list = list(&format!("\n{DATED}\n\n <url>{entry}</url>\n<url/>{DATED}"));
        let listed = keys(&list);
        let skipped = listed.first_skipped.as_ref().unwrap();
        assert_eq!((listed.skipped, skipped.line), (2, 4), "{entry}");
        assert_eq!(skipped.reason, reason, "{entry}");
        assert_eq!(positions(&listed), [0, 3], "{entry}");
        assert_eq!(read_at(&list, &[0, 1, 2, 3, 9]).len(), 2, "{entry}");
    }
}

#[test]
fn elements_beside_entries_are_none() {
    let other = "<x><loc>https://e.org/</loc><rs:md change='updated'/></x>";
    let listed = keys(&list(&format!("{other}{DATED}{other}")));
    assert_eq!((listed.entries.len(), listed.skipped), (1, 0));
}

#[test]
fn the_first_description_with_a_change_counts() {
    let change = change(
        "<url><rs:md type='text/html' length='1'/><loc> https://e.org/1.txt\n</loc><loc>https://e.org/2</loc>\
         <rs:md change=' Created ' datetime='2026-11-20T11:05:00.5+01:00' encoding='gzip'/>\
         <rs:md change='deleted' hash='md5:1'/></url>",
    );
    let expected = Change {
        loc: "https://e.org/1.txt".into(),
        lastmod: None,
        kind: ChangeKind::Created,
        datetime: change.datetime,
        hash: None,
        length: None,
        mime_type: None,
        encoding: Some("gzip".into()),
        links: Vec::new(),
    };
    assert_eq!(change, expected);
    assert_eq!(
        change.datetime.unwrap().to_string(),
        "2026-11-20T10:05:00.5Z"
    );
}

#[test]
fn declared_span_and_invalid_datetimes_are_reported() {
    let [soon, empty] = ["soon", ""].map(|other| DATED.replace("2026-11-20T10:05:00Z", other));
    let listed = keys(&list(&format!("{DATED}{soon}{empty}{UNDATED}")));
    assert_eq!(listed.invalid, 1);
    let from = listed.declared.from.as_deref();
    assert_eq!(from, Some("2026-11-20T10:00:00Z"));
    assert_eq!(listed.declared.until, None);
    let datetime = listed.entries[0].datetime.unwrap();
    assert_eq!(datetime.to_string(), "2026-11-20T10:05:00Z");
}

#[test]
fn form_and_additions_make_no_other_key() {
    let dated = key(DATED);
    for same in [
        "<url>\n  <loc>\n HTTPS://E.ORG:443/%31.txt#a </loc>\n\
         <rs:md\n change=' UPDATED ' datetime='2026-11-20T11:05:00.00+01:00'/>\n</url>",
        "<url><r:md xmlns:r='http://www.openarchives.org/rs/terms/' datetime='2026-11-20T10:05Z' \
         change='updated'/><!-- one --><loc>https://e.org/1.txt</loc></url>",
        "<url><loc><![CDATA[https://e.org/1.txt]]></loc><lastmod>2026-11-20</lastmod>\
         <rs:md change='updated' datetime='2026-11-20T10:05:00' hash='md5:1' length='3' type='text/html'/>\
         <rs:ln rel='describedby' href='https://e.org/x'/></url>",
    ] {
        assert_eq!(key(same), dated, "{same}");
    }
    let undated = key(UNDATED);
    for same in [
        UNDATED.replace("md5:1 sha-1:2", "\n md5:1\n  sha-1:2 "),
        UNDATED
            .replace("<lastmod>", "<lastmod>\n ")
            .replace("'3'", "' 3'"),
        UNDATED.replace(
            "/></url>",
            " type='text/html'/><rs:ln rel='up' href='https://e.org/'/></url>",
        ),
        UNDATED.replace("change=", "datetime='' change="),
        UNDATED.replace("change=", "datetime='soon' change="),
    ] {
        assert_eq!(key(&same), undated, "{same}");
    }
}

#[test]
fn another_change_has_another_key() {
    let entries = [
        DATED.to_owned(),
        DATED.replace("1.txt", "2.txt"),
        DATED.replace("updated", "deleted"),
        DATED.replace(":00Z", ":00.1Z"),
        UNDATED.to_owned(),
        UNDATED.replace("2026-11-20", "2026-11-21"),
        UNDATED.replace("2026-11-20", "yesterday"),
        UNDATED.replace("md5:1", "md5:2"),
        UNDATED.replace("'3'", "'4'"),
        UNDATED.replace(" length='3'", ""),
        UNDATED.replace("updated", "created"),
    ];
    let keys: Vec<_> = entries.iter().map(|entry| key(entry)).collect();
    for (at, key) in keys.iter().enumerate() {
        assert!(!keys[..at].contains(key), "{}", entries[at]);
    }
}

/// Which those are is tried in full beside `change`.
#[test]
fn values_that_a_reader_could_refuse_are_left_out() {
    let entry = |lastmod: &str, attributes: &str| {
        format!(
            "<url><loc>https://e.org/1.txt</loc><lastmod>{lastmod}</lastmod>\
             <rs:md change='updated' {attributes}/></url>"
        )
    };
    let bare = change(&entry("", ""));
    let long = "x".repeat(2000);
    let long = format!("hash='md5:{long}' type='text/{long}' encoding='{long}'");
    for (lastmod, attributes) in [
        ("soon", "hash='1' length='many' type='text' encoding=''"),
        (
            "2026-11-20T10:00:00",
            "hash='' length='' type='' datetime=''",
        ),
        ("2026-02-30", "length='-1' datetime='2026-02-30' path='/a'"),
        ("", "encoding='a b'"),
        ("", &long),
    ] {
        let entry = entry(lastmod, attributes);
        assert_eq!(change(&entry), bare, "{entry}");
    }
}

#[test]
fn known_attributes_of_links_are_passed_on() {
    let with = |links: &str| change(&UNDATED.replace("<loc>", &format!("{links}<loc>"))).links;
    let full = RelatedLink {
        rel: "http://www.openarchives.org/rs/terms/patch".into(),
        href: "https://e.org/1.patch?a&b".into(),
        attributes: vec![
            ("hash", "md5:1".into()),
            ("length", "73".into()),
            ("modified", "2026-11-20T10:05:00+01:00".into()),
            ("pri", "1".into()),
            ("type", "application/json-patch+json".into()),
            ("encoding", "gzip".into()),
            ("profile", "urn:profile".into()),
        ],
    };
    let links = with(
        "<rs:ln rel=' http://www.openarchives.org/rs/terms/patch' href='https://e.org/1.patch?a&amp;b ' \
         hash='md5:1' length='73' modified='2026-11-20T10:05:00+01:00' pri='1' path='/a' x='y' \
         type='application/json-patch+json' encoding='gzip' profile='urn:profile'/>",
    );
    assert_eq!(links, [full]);
    for without in [
        "<rs:ln href='https://e.org/'/>",
        "<rs:ln rel='' href='https://e.org/'/>",
        "<rs:ln rel='via'/>",
        "<rs:ln rel='via' href=' '/>",
        "<rs:ln rel='via' href='../1.txt'/>",
        "<ln rel='via' href='https://e.org/'/>",
    ] {
        assert_eq!(with(without), [], "{without}");
    }
    let bare = with("<rs:ln rel='via' href='https://e.org/'/>");
    for attributes in [
        "hash='' length='' modified='' pri='' type='' encoding='' profile=''",
        "hash='1' length='1.5' modified='2026-11-20' pri='0' type='x' profile='a' path='a/'",
    ] {
        let links = with(&format!(
            "<rs:ln rel='via' href='https://e.org/' {attributes}/>"
        ));
        assert_eq!(links, bare, "{attributes}");
    }
}

#[test]
fn an_entry_too_long_goes_without_links_or_not_at_all() {
    let loc = |length: usize| format!("https://e.org/{}", "&quot;".repeat(length / 6));
    let entry = |loc: &str, href: &str| {
        format!(
            "<url><loc>{loc}</loc><rs:md change='updated'/>\
             <rs:ln rel='via' href='https://e.org/'/><rs:ln rel='via' href='{href}'/></url>"
        )
    };
    let short = change(&entry("https://e.org/", "https://e.org/2"));
    assert_eq!(short.links.len(), 2);
    let links = change(&entry("https://e.org/", &loc(70 << 10)));
    assert_eq!((&*links.loc, links.links.len()), ("https://e.org/", 0));
    let together = change(&entry(&loc(40 << 10), &loc(40 << 10)));
    assert_eq!(together.links, []);
    let longest = change(&entry(&loc(47 << 10), ""));
    assert!((47 << 10..64 << 10).contains(&entry_len(&longest)));
    let list = list(&entry(&loc(49 << 10), ""));
    assert_eq!(
        keys(&list).first_skipped.unwrap().reason,
        "its loc is too long"
    );
    assert_eq!(read_at(&list, &[0]), []);
}

#[test]
fn other_documents_have_no_changes() {
    let good = list(DATED);
    let read = |list: &str| {
        let changes = read_changes(list.as_bytes(), &[0]);
        [read_keys(list.as_bytes()).map(drop), changes.map(drop)]
    };
    for other in [
        good.replace("changelist", "resourcelist"),
        good.replace("capability=", "capacity="),
        good.replace("urlset", "sitemapindex"),
        good.replace("urlset", "feed"),
        "text".to_owned(),
    ] {
        for read in read(&other) {
            let is_other = matches!(read, Err(ChangeListError::NotAChangeList));
            assert!(is_other, "{other}");
        }
    }
    for broken in [
        &good[..good.len() - 1],
        &format!("<!DOCTYPE urlset>{good}"),
        "",
    ] {
        for read in read(broken) {
            assert!(matches!(read, Err(ChangeListError::Read(_))), "{broken}");
        }
    }
    let md = "<rs:md capability='changelist' from='2026-11-20T10:00:00Z'/>";
    for same in [
        good.replace("'changelist'", "' changelist '"),
        good.replace(md, "")
            .replace("</urlset>", &format!("{md}</urlset>")),
    ] {
        assert_eq!(keys(&same).entries.len(), 1, "{same}");
    }
}

/// Parts of lists, good and bad, separated by bars.
const PARTS: &str = "<url>|</url>|<url><loc>https://e.org/|</loc>|<loc>|<lastmod>2026-11-20T10:00:00Z</lastmod>|\
    <lastmod>soon</lastmod>|<rs:md change='updated'/>|<rs:md change='deleted' datetime='2026-11-20T10:05:00.25Z'/>|\
    <rs:md change='created' datetime='2026' hash='md5:1' length='5' type='a/b+c'/>|\
    <rs:ln rel='via' href='https://e.org/?a=&quot;' pri='7'/>|<rs:ln rel='' href='x'/>|1.txt|%c3%a9|\
    é &amp; &#9; <![CDATA[<]]>|#|\n|<!-- - -->|</url><url>|</loc><rs:md change='updated'/></url>|\
    </loc><rs:md change='moved'/></url>|https://e.org/|\u{202e}|<x>";

proptest! {
    #[test]
    fn both_passes_skip_the_same_entries(
        parts in prop::collection::vec(prop::sample::select(Vec::from_iter(PARTS.split('|'))), 0..40),
        chosen: u16,
    ) {
        let list = list(&parts.concat());
        let Ok(listed) = read_keys(list.as_bytes()) else {
            prop_assert!(read_changes(list.as_bytes(), &[0]).is_err());
            return Ok(());
        };
        let all = (listed.entries.len() + listed.skipped) as u32;
        let positions: Vec<u32> = (0..all).collect();
        let read = read_changes(list.as_bytes(), &positions).unwrap();
        let (keys, changes): (Vec<_>, Vec<_>) = read.into_iter().unzip();
        let wanted: Vec<_> = listed.entries.iter().map(|entry| entry.place.key).collect();
        prop_assert_eq!(keys, wanted);
        let datetimes: Vec<_> = changes.iter().map(|change| change.datetime).collect();
        let wanted: Vec<_> = listed.entries.iter().map(|entry| entry.datetime).collect();
        prop_assert_eq!(datetimes, wanted);
        if !listed.entries.is_empty() {
            let indices = (0..changes.len()).filter(|at| chosen & (1 << (at % 16)) != 0);
            let indices: Vec<usize> = indices.collect();
            let some: Vec<_> = indices.iter().map(|at| changes[*at].clone()).collect();
            let places: Vec<_> = indices.iter().map(|at| listed.entries[*at].place).collect();
            let positions: Vec<u32> = places.iter().map(|place| place.position).collect();
            prop_assert_eq!(read_at(&list, &positions), some.clone());
            let read = read_changes_at(Cursor::new(&list), &listed.byte_span(), &places);
            prop_assert_eq!(read, Some(some));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn skipped_entries_are_named_by_line_in_any_window(
        before in 0..3_000_usize,
        comment in 0..200_000_usize,
        inside in 0..200_000_usize,
    ) {
        let text = "é\n".repeat(inside / 3);
        let begin = list(&format!("{}<!--{}-->", format!("{DATED}\r\n").repeat(before), "x\n".repeat(comment / 2)));
        let begin = begin.trim_end_matches("</urlset>");
        let list = format!("{begin}<url><x>{text}</x></url>{DATED}</urlset>");
        let line = 1 + begin.matches('\n').count() as u64;
        let listed = keys(&list);
        prop_assert_eq!(listed.first_skipped.as_ref().unwrap().line, line);
        prop_assert_eq!((listed.entries.len(), listed.skipped), (before + 1, 1));
        let plain = list.replace('\r', "");
        let place = [listed.entries[before].place];
        let last = read_changes_at(Cursor::new(&plain), &listed.byte_span(), &place);
        prop_assert_eq!(last.as_ref().map(Vec::len), Some(1));
        // Where CR LF stands for LF, entries are not where their offsets say.
        let displaced = read_changes_at(Cursor::new(&list), &listed.byte_span(), &place);
        prop_assert!(displaced.is_none() || displaced == last);
    }
}

/// C2: of a part of a file, entries that do not count are read too.
#[test]
fn an_entry_is_read_at_its_place_although_those_before_it_do_not_count() {
    let list = list(&format!("<url/><url/>{DATED}{UNDATED}"));
    let listed = keys(&list);
    let place = [listed.entries[0].place];
    let read = read_changes_at(Cursor::new(&list), &listed.byte_span(), &place);
    assert_eq!(read.map(|read| read.len()), Some(1));
}

#[test]
fn entries_are_small_and_handed_over_as_a_whole_reading_returns_them() {
    assert_eq!(size_of::<super::ListedKey>(), 48);
    let skipped = "<url><loc>2.txt</loc><rs:md change='updated'/></url>";
    let list = list(&format!("{DATED}{skipped}{UNDATED}"));
    let mut positions = Vec::new();
    let mut taken = Vec::new();
    let mut take = |position, change| {
        positions.push(position);
        taken.push(change);
    };
    each_entry(list.as_bytes(), Capability::ChangeList, &mut take).unwrap();
    assert_eq!(positions, [0, 2]);
    assert_eq!(taken, changes(&list));
    for (positions, wanted) in [
        (&[][..], &taken[2..]),
        (&[2], &taken[1..]),
        (&[0], &taken[..1]),
    ] {
        let read = read_changes(list.as_bytes(), positions).unwrap();
        let read: Vec<_> = read.into_iter().map(|(_, change)| change).collect();
        assert_eq!(read, wanted);
    }
    let mut nothing = |_, change| panic!("{change:?}");
    let error = each_entry(list.as_bytes(), Capability::ResourceList, &mut nothing).unwrap_err();
    assert!(matches!(error, ChangeListError::NotAChangeList));
}

proptest! {
    #[test]
    fn the_bytes_of_the_spans_are_read(
        bytes in prop::collection::vec(any::<u8>(), 0..30_000),
        bounds in prop::collection::btree_set(0_u64..32_000, 0..20),
    ) {
        let bounds: Vec<u64> = bounds.into_iter().collect();
        let spans: Vec<_> = bounds.chunks_exact(2).map(|pair| pair[0]..pair[1]).collect();
        let inside = |at: usize| spans.iter().any(|span| span.contains(&(at as u64)));
        let wanted = bytes.iter().enumerate().filter(|(at, _)| inside(*at));
        let wanted: Vec<u8> = wanted.map(|(_, byte)| *byte).collect();
        let mut read = Vec::new();
        let mut reader = ByteSpanReader {
            file: BufReader::with_capacity(READ_SIZE, Cursor::new(&bytes)),
            current: 0..0,
            following: spans.clone().into_iter(),
        };
        reader.read_to_end(&mut read).unwrap();
        prop_assert_eq!(read, wanted);
    }
}
