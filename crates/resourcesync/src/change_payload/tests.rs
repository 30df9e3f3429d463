//! Payloads as they are sent, and their parts and unions.

use std::ops::RangeInclusive;

use insta::assert_snapshot;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use rstest::rstest;

use super::{ChangePayload, TICK, entry_len, merge_latest, part};
use crate::change::{Change, RelatedLink};
use crate::datetime::Datetime;
use crate::payload::ChangeKind;
use crate::uri::Uri;

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn change(loc: &str, datetime: Option<&str>) -> Change {
    Change {
        loc: loc.into(),
        lastmod: None,
        kind: ChangeKind::Deleted,
        datetime: datetime.map(|datetime| Datetime::parse(datetime).unwrap()),
        hash: None,
        length: None,
        mime_type: None,
        encoding: None,
        links: Vec::new(),
    }
}

fn payload(from: &str, until: &str, entries: Vec<Change>) -> ChangePayload {
    ChangePayload {
        up: Some(Uri::parse("https://e.org/capabilitylist.xml").unwrap()),
        from: time(from),
        until: time(until),
        entries,
    }
}

fn text(body: Vec<u8>) -> String {
    String::from_utf8(body).unwrap()
}

#[test]
fn links_and_description_come_before_the_entries_and_no_text_is_markup() {
    let updated = Change {
        lastmod: Some("2026-11-20T10:04:58Z".into()),
        kind: ChangeKind::Updated,
        hash: Some("md5:0cc175b9c0f1b6a831c399e269772661".into()),
        length: Some(8876),
        mime_type: Some("text/plain".into()),
        encoding: Some("gzip".into()),
        links: vec![RelatedLink {
            attributes: vec![("type", "application/xml".into()), ("pri", "\"<>".into())],
            rel: "a\"b".into(),
            href: "urn:<&>".into(),
        }],
        ..change("https://e.org/1.txt", Some("2026-11-20T11:05:00+01:00"))
    };
    let deleted = change(
        "https://e.org/?a=1&b=<2>\"'\tx",
        Some("2026-11-20T10:05:31.50Z"),
    );
    let until = "2026-11-20T10:05:31.5Z";
    let payload = payload("2026-11-20T10:00:00Z", until, vec![updated, deleted]);
    assert_snapshot!(text(payload.render()), @r#"
    <?xml version="1.0" encoding="UTF-8"?>
    <urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
      <rs:ln rel="up" href="https://e.org/capabilitylist.xml"/>
      <rs:md capability="change-notification" from="2026-11-20T10:00:00Z" until="2026-11-20T10:05:31.500000Z"/>
      <url>
        <loc>https://e.org/1.txt</loc>
        <lastmod>2026-11-20T10:04:58Z</lastmod>
        <rs:md change="updated" datetime="2026-11-20T10:05:00Z" hash="md5:0cc175b9c0f1b6a831c399e269772661" length="8876" type="text/plain" encoding="gzip"/>
        <rs:ln rel="a&quot;b" href="urn:&lt;&amp;&gt;" type="application/xml" pri="&quot;&lt;&gt;"/>
      </url>
      <url>
        <loc>https://e.org/?a=1&amp;b=&lt;2&gt;&quot;'&#9;x</loc>
        <rs:md change="deleted" datetime="2026-11-20T10:05:31.50Z"/>
      </url>
    </urlset>
    "#);
}

#[test]
fn other_payloads_are_none() {
    let entries = vec![change("https://e.org/", None)];
    let good = payload("2026-11-20T10:00:00Z", "2026-11-20T10:05:00Z", entries);
    let good = text(good.render());
    for other in [
        good.replace("change-notification", "changelist"),
        good.replace(" from=", " since="),
        good.replace("2026-11-20T10:05:00Z", "soon"),
        good.replace("</urlset>", ""),
        good.replace("urlset", "feed"),
        good.replace("urlset", "sitemapindex"),
    ] {
        assert_eq!(ChangePayload::parse(other.as_bytes()), None, "{other}");
        assert_eq!(part(other.as_bytes(), 0..1), None, "{other}");
        assert_eq!(merge_latest([&other].into_iter(), 9, 9999), None, "{other}");
    }
}

/// Returns interval and datetimes of a part.
fn shown(body: &[u8], entries: std::ops::Range<usize>) -> String {
    let part = ChangePayload::parse(&part(body, entries).unwrap()).unwrap();
    let datetimes = part.entries.iter().map(|change| match change.datetime {
        Some(datetime) => datetime.to_string(),
        None => "-".to_owned(),
    });
    let interval = [part.from.to_string(), part.until.to_string()].into_iter();
    let times: Vec<String> = interval.chain(datetimes).collect();
    times
        .join(" ")
        .replace("2026-11-20T10:", "")
        .replace('Z', "")
}

#[rstest]
// Distinct times.
#[case(["01:00", "02:00", "03:00", "04:00"], "04:00", ["00:00 02:00 01:00 02:00", "02:00 04:00 03:00 04:00"])]
// One time for all: a second stands for all of it.
#[case(["05:00", "05:00", "05:00", "05:00"], "05:00.000004", ["00:00 05:00.000001 05:00 05:00", "05:00.000001 05:00.000004 05:00 05:00"])]
// The end leaves a microsecond to each that follows.
#[case(["05:00", "05:00", "05:00", "05:00"], "05:00", ["00:00 04:59.999998 - -", "04:59.999998 05:00 05:00 05:00"])]
#[case(["-", "-", "-", "-"], "05:00", ["00:00 00:00.000002 - -", "00:00.000002 05:00 - -"])]
// Nanoseconds lie within too.
#[case(["-", "01:00.1234567", "01:00.1234567", "-"], "05:00", ["00:00 01:00.123457 - 01:00.1234567", "01:00.123457 05:00 - -"])]
fn a_part_ends_with_the_time_of_its_last_entry(
    #[case] datetimes: [&str; 4],
    #[case] until: &str,
    #[case] halves: [&str; 2],
) {
    let entries = datetimes.map(|datetime| {
        let datetime = (datetime != "-").then(|| format!("2026-11-20T10:{datetime}Z"));
        change("https://e.org/", datetime.as_deref())
    });
    let until = format!("2026-11-20T10:{until}Z");
    let body = payload("2026-11-20T10:00:00Z", &until, entries.into()).render();
    assert_eq!([shown(&body, 0..2), shown(&body, 2..4)], halves);
}

#[test]
fn there_are_no_other_parts() {
    let entries = vec![change("https://e.org/", None); 3];
    let until = |until| payload("2026-11-20T10:00:00Z", until, entries.clone()).render();
    let body = until("2026-11-20T10:05:00Z");
    assert_eq!(part(&body, 0..3).as_ref(), Some(&body));
    for range in [0..0, 3..3, 2..4, 3..9, usize::MAX..usize::MAX] {
        assert_eq!(part(&body, range.clone()), None, "{range:?}");
    }
    assert_eq!(part(&until("2026-11-20T10:00:00.000002Z"), 0..1), None);
}

#[test]
fn the_last_consecutive_notifications_that_fit_are_merged() {
    let body = |from: &str, until: &str, loc: &str| {
        let time = |time: &str| format!("2026-11-20T10:{time}Z");
        let entry = change(loc, None);
        payload(&time(from), &time(until), vec![entry.clone(), entry]).render()
    };
    let bodies = [
        body("00:00", "01:00", "https://e.org/0"),
        body("01:30", "02:00", "https://e.org/1"),
        body("02:00", "03:00", "https://e.org/2"),
        body("03:00", "04:00", "https://e.org/3"),
    ];
    let merged = |max_entries, max_bytes| {
        let merged = merge_latest(bodies.iter(), max_entries, max_bytes).unwrap();
        let merged = ChangePayload::parse(&merged).unwrap();
        assert_eq!(merged.until, time("2026-11-20T10:04:00Z"));
        let entries = merged.entries.iter();
        let locs: String = entries.map(|change| &change.loc[14..]).collect();
        format!("{} {locs}", merged.from.strftime("%M:%S"))
    };
    assert_eq!(merged(99, 99_999), "01:30 112233");
    assert_eq!(merged(6, 99_999), "01:30 112233");
    assert_eq!(merged(5, 99_999), "02:00 2233");
    assert_eq!(merged(1, 99_999), "03:00 33");
    let all = merge_latest(bodies.iter(), 99, 99_999).unwrap().len();
    assert_eq!(merged(99, all), "01:30 112233");
    assert_eq!(merged(99, all - 1), "02:00 2233");
    assert_eq!(merged(99, 1), "03:00 33");
    // No more are read than are merged, and one.
    let mut read = 0;
    assert!(merge_latest(bodies.iter().inspect(|_| read += 1), 5, 99_999).is_some());
    assert_eq!(read, 3);
    assert_eq!(merge_latest(std::iter::empty::<&[u8]>(), 9, 9), None);
    assert_eq!(
        merge_latest(bodies[3..].iter(), 9, 9).as_ref(),
        Some(&bodies[3])
    );
}

fn any_text() -> impl Strategy<Value = Box<str>> {
    "[!-~é\u{202e}]([ -~\t\n\ré]{0,20}[!-~])?".prop_map(Box::from)
}

fn any_uri() -> impl Strategy<Value = Box<str>> {
    "https?://[a-zA-Z.]{1,9}(:[0-9]{1,4})?/([ -~\t\n\ré]{0,40}[!-~])?".prop_map(Box::from)
}

fn any_datetime() -> impl Strategy<Value = Datetime> {
    (0..400_i64, 0..1_000_000_000_i32, 0..=9_usize).prop_map(|(second, nanosecond, digits)| {
        let second = time("2026-11-20T10:00:00Z") + SignedDuration::from_secs(second);
        let at = second + SignedDuration::from_nanos(nanosecond.into());
        Datetime::parse(&format!("{at:.digits$}")).unwrap()
    })
}

/// A value that matches, or none.
fn any_value(pattern: &'static str) -> impl Strategy<Value = Option<Box<str>>> {
    prop::option::of(pattern.prop_map(Box::from))
}

const HASH: &str = "md5:[!-~]{1,20}";
const TYPE: &str = "[a-z]{1,9}/[a-z+]{1,9}(;[ -~]{0,9}[!-~])?";
const ENCODING: &str = "gzip(, br)?";

fn any_number(range: RangeInclusive<u64>) -> impl Strategy<Value = Option<Box<str>>> {
    prop::option::of(range.prop_map(|number| number.to_string().into()))
}

fn any_time() -> impl Strategy<Value = Option<Box<str>>> {
    prop::option::of(any_datetime().prop_map(|time| time.to_string().into()))
}

prop_compose! {
    fn any_link()(
        rel in any_text(),
        href in any_uri(),
        (hash, length, modified) in (any_value(HASH), any_number(0..=u64::MAX), any_time()),
        (pri, media, encoding) in (any_number(1..=999_999), any_value(TYPE), any_value(ENCODING)),
        profile in prop::option::of(any_uri()),
    ) -> RelatedLink {
        let names = ["hash", "length", "modified", "pri", "type", "encoding", "profile"];
        let values = [hash, length, modified, pri, media, encoding, profile];
        let attributes = names.into_iter().zip(values);
        let attributes = attributes.filter_map(|(name, value)| Some((name, value?))).collect();
        RelatedLink { rel, href, attributes }
    }
}

prop_compose! {
    fn any_change()(
        loc in any_uri(),
        lastmod in any_time(),
        kind in prop::sample::select(ChangeKind::ALL.to_vec()),
        datetime in prop::option::of(any_datetime()),
        (hash, length) in (any_value(HASH), any::<Option<u64>>()),
        (mime_type, encoding) in (any_value(TYPE), any_value(ENCODING)),
        links in prop::collection::vec(any_link(), 0..3),
    ) -> Change {
        Change { loc, lastmod, kind, datetime, hash, length, mime_type, encoding, links }
    }
}

proptest! {
    #[test]
    fn what_is_rendered_reads_back(
        up in prop::option::of(any_uri()),
        from in 0..4_102_444_800_000_000_i64,
        until in 0..4_102_444_800_000_000_i64,
        entries in prop::collection::vec(any_change(), 0..5),
    ) {
        let time = |time| Timestamp::from_microsecond(time).unwrap();
        let up = up.map(|up| Uri::parse(&up).unwrap());
        let (from, until) = (time(from), time(until));
        let payload = ChangePayload { up, from, until, entries };
        let rendered = payload.render();
        let length: usize = payload.entries.iter().map(entry_len).sum();
        let empty = ChangePayload { entries: Vec::new(), ..payload.clone() };
        prop_assert_eq!(rendered.len(), empty.render().len() + length);
        let read = ChangePayload::parse(&rendered).unwrap();
        prop_assert_eq!(&read, &payload);
        prop_assert_eq!(read.render(), rendered);
    }

    #[test]
    fn parts_are_the_whole(
        datetimes in prop::collection::vec(prop::option::of(any_datetime()), 1..12),
        cuts in prop::collection::btree_set(1..12_usize, 0..6),
        length in 0..600_000_000_i64,
    ) {
        let entries: Vec<Change> = (0..).zip(&datetimes).map(|(number, datetime)| Change {
            datetime: *datetime,
            ..change(&format!("https://e.org/{number}"), None)
        }).collect();
        let from = time("2026-11-20T10:00:00Z");
        let until = from + SignedDuration::from_micros(length + entries.len() as i64);
        let whole = ChangePayload { up: None, from, until, entries };
        let body = whole.render();
        let count = datetimes.len();
        let ends = cuts.into_iter().filter(|cut| *cut < count).chain([count]);
        let mut start = 0;
        let mut next = from;
        for end in ends {
            let part = part(&body, start..end).unwrap();
            let part = ChangePayload::parse(&part).unwrap();
            prop_assert_eq!(part.from, next);
            prop_assert!(part.until >= part.from + TICK * (end - start) as i32);
            prop_assert_eq!(part.entries.len(), end - start);
            for (number, change) in (start..).zip(&part.entries) {
                prop_assert_eq!(&*change.loc, format!("https://e.org/{number}"));
                if let Some(datetime) = change.datetime {
                    prop_assert_eq!(Some(datetime), datetimes[number]);
                    prop_assert!(datetime.at() <= part.until && datetime.end() > part.from);
                }
            }
            (start, next) = (end, part.until);
        }
        prop_assert_eq!((start, next), (count, until));
    }

    #[test]
    fn merged_parts_are_the_whole(count in 1..9_usize, cut in 1..9_usize) {
        let entries = vec![change("https://e.org/", None); count];
        let whole = payload("2026-11-20T10:00:00Z", "2026-11-20T10:05:00Z", entries).render();
        let cut = cut.min(count);
        let parts: Vec<_> = [part(&whole, 0..cut), part(&whole, cut..count)].into_iter().flatten().collect();
        let merged = merge_latest(parts.iter().map(Vec::as_slice), count, whole.len());
        prop_assert_eq!(merged, Some(whole));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = part(&bytes, 0..1);
        let _ = merge_latest([&bytes[..]].into_iter(), 1, 1);
    }
}
