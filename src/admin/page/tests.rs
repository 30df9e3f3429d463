//! Tests of the pages with much and with hostile content.

use askama::Template;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use url::form_urlencoded;
use websub::hub::subscriptions::view::HubStatus;

use crate::admin::page::{ChannelPage, ChannelsPage, DayPicture, OverviewPage, SubscriptionsPage};
use crate::report::status::{AccountCondition, IntervalDeliveries, Status};
use crate::report::tests::channel_view;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
/// Markup that would escape from its context if it were not escaped.
const HOSTILE: &str =
    "</title></pre></script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>";

/// Returns a status in which every text is `words`.
fn status(channels: usize, words: &str) -> Status {
    let uri = |path: &str| format!("https://e.org/{path}/{words}");
    let (hub, topic) = (uri("hub"), format!("javascript:0//{words}"));
    let unreadable = json!({"directory": words, "reason": words, "remedy": words, "since": NOW});
    let told = json!({
        "topic": topic, "seq": 1, "cut": NOW, "changes": 1, "bytes": 1 << 20,
        "hubs": [{"hub": hub, "outcome": "refused", "at": NOW, "attempts": 3, "reason": words}],
        "payload": words.repeat((1 << 20) / words.len()),
    });
    let broken = json!({
        "source": words, "path": words, "uri": uri("broken"), "reason": words, "since": NOW, "known": true, "lasting": true,
    });
    let interval =
        json!({"from": NOW, "delivered": 7, "failed": 2, "retries": 3, "pending": 1, "starts": 1});
    let status = json!({
        "at": NOW, "unsaved": words,
        "sources": [{
            "name": words, "settled": true, "suspended": true, "suspension": words, "documents": 41_200,
            "without_document": words, "missing": 1, "missing_in": [], "more_missing_in": 0, "broken": 1,
            "mounts": [{
                "directory": words, "url": uri("mount"), "present": false, "reason": words,
                "unreadable": vec![unreadable; 20], "more_unreadable": 7,
            }],
        }],
        "unreached": [{"hub": format!("javascript:1//{words}"), "since": NOW, "reason": words}],
        "fell_behind": [{"hub": hub, "topic": topic, "changes": 1_000, "last": NOW}],
        "broken": vec![broken; 100], "more_broken": 7,
        "findings": vec![words; 100], "more_findings": 900,
        "finding_groups": [
            {"kind": "unrouted", "count": 1_000, "examples": vec![words; 3], "acknowledged": false},
            {"kind": "unclean", "count": 4, "examples": vec![words; 3], "acknowledged": true},
        ],
        "notifications": vec![told; 50],
        "last_day": vec![interval; 96],
        "daemon": {"host": words, "version": "0.1.0", "began": NOW - SignedDuration::from_secs(7_500)},
        "configuration": {"loaded": NOW, "refused": {"at": NOW, "error": words}, "in_force": words.repeat(10_000)},
    });
    let subscription = json!({
        "topic": topic, "callback": words, "digest": words, "expires": NOW, "signed": true, "owed": 1, "next": null,
        "attempts": 1, "next_try": NOW, "last": {"at": NOW, "status": null, "failure": words},
    });
    let subscriptions = json!({"subscriptions": vec![subscription; 1_000], "more": 7});
    let channels = (0..channels).map(|number| channel_view(number, words));
    Status {
        channels: channels.collect(),
        embedded_hub: Some(HubStatus {
            subscriptions: 1_007,
            failing: 1_000,
            failure: Some(words.to_owned()),
            ..HubStatus::default()
        }),
        subscriptions: serde_json::from_value(subscriptions).unwrap(),
        ..serde_json::from_value(status).unwrap()
    }
}

/// Returns all pages of a status with their names.
fn pages(status: &Status) -> [(&'static str, String); 4] {
    let topic = status.channels[0].topic.as_str().to_owned();
    let query = [("text".to_owned(), status.sources[0].name.clone())];
    let channel = ChannelPage::new(status, &topic).unwrap();
    let overview = OverviewPage::new(status, "/");
    let channels = ChannelsPage::new(status, &query);
    let address = "/subscriptions";
    let subscriptions = SubscriptionsPage { address, status };
    [
        ("status", overview.render().unwrap()),
        ("channels", channels.render().unwrap()),
        ("channel", channel.render().unwrap()),
        ("subscriptions", subscriptions.render().unwrap()),
    ]
}

#[test]
fn texts_of_files_and_hubs_are_never_markup() {
    for (name, page) in pages(&status(3, HOSTILE)) {
        assert!(page.contains("&#60;script&#62;alert(1)"), "{name}");
        for tag in ["<script", "<img", "href=\"javascript:", "<title></title>"] {
            assert!(!page.contains(tag), "{name} has {tag}");
        }
        for (opened, closed) in [
            ("<pre>", "</pre>"),
            ("<title>", "</title>"),
            ("<main", "</main>"),
        ] {
            let count = |tag| page.matches(tag).count();
            assert_eq!(count(opened), count(closed), "{name}: {opened}");
        }
    }
}

#[test]
fn a_thousand_channels_and_fifty_payloads_are_pages_of_bounded_size_which_count_what_they_omit() {
    let status = status(1_000, "words");
    for (name, page) in pages(&status) {
        assert!(page.len() < 700_000, "{name} has {} bytes", page.len());
    }
    let [(_, overview), (_, channels), _, (_, subscriptions)] = pages(&status);
    assert!(subscriptions.contains("907 more are not shown here"));
    for more in [
        "All 1,000 channels</a>: 980 are not shown here",
        "997 more of the kind",
    ] {
        assert!(overview.contains(more), "{overview}");
    }
    for part in ["Page 1 of 10", "page=2\" rel=\"next\""] {
        assert!(channels.contains(part), "{part}");
    }
    // What waits on several channels alike is shown once.
    let few = self::status(3, "words");
    let page = OverviewPage::new(&few, "/").render().unwrap();
    assert!(page.contains("30 more are not shown here"), "{page}");
}

#[test]
fn channels_are_filtered_by_text_and_by_state() {
    let mut status = status(250, "words");
    status.channels[7].hubs.clear();
    status.channels[7].retired = Some(NOW);
    status.channels[8].pending.clear();
    status.channels[8].more_pending = 0;
    let shown = |query: &str| {
        let query = form_urlencoded::parse(query.as_bytes()).into_owned();
        let query: Vec<_> = query.collect();
        let page = ChannelsPage::new(&status, &query).render().unwrap();
        let rows = page.matches("scope=\"row\"").count();
        let (_, about) = page.split_once("</form>").unwrap();
        let (about, _) = about.split_once("</p>").unwrap();
        let about = about.trim().trim_start_matches("<p>");
        (rows, about.split(". ").next().unwrap().to_owned())
    };
    for (query, rows, about) in [
        ("", 100, "250 channels, failing ones first."),
        ("text=javascript:24", 11, "11 of 250 channels"),
        ("state=retired", 1, "1 of 250 channels"),
        ("state=trouble", 100, "249 of 250 channels"),
        ("state=trouble&page=3", 49, "249 of 250 channels"),
        ("page=99", 50, "250 channels, failing ones first."),
        ("page=-1&state=?", 100, "250 channels, failing ones first."),
        ("text=no such channel", 0, "0 of 250 channels"),
    ] {
        assert_eq!(shown(query), (rows, about.to_owned()), "{query}");
    }
}

#[test]
fn a_retired_channel_does_not_hide_that_its_hub_refuses() {
    let mut status = status(1, "words");
    let is_shown = |status: &Status, state: &str| {
        let page = ChannelsPage::new(status, &[]);
        page.render().unwrap().contains(&format!("{state}</span>"))
    };
    status.channels[0].retired = Some(NOW);
    assert!(is_shown(&status, "retired") && is_shown(&status, "action required"));
    for hub in &mut status.channels[0].hubs {
        hub.state = AccountCondition::Fine;
    }
    assert!(is_shown(&status, "retired") && !is_shown(&status, "fine"));
}

#[test]
fn the_last_day_is_a_picture_with_a_text() {
    let page = OverviewPage::new(&status(1, "words"), "/")
        .render()
        .unwrap();
    assert_eq!(page.matches("<rect class=\"delivered\"").count(), 96);
    assert_eq!(page.matches("<rect class=\"failed\"").count(), 96);
    assert_eq!(page.matches("<polyline class=\"pending\"").count(), 1);
    assert_eq!(page.matches("<line class=\"start\"").count(), 96);
    for part in [
        "<rect class=\"delivered\" x=\"0\" y=\"23\" width=\"7\" height=\"77\"/>",
        "<rect class=\"failed\" x=\"0\" y=\"1\" width=\"7\" height=\"22\"/>",
        "Delivered: 672",
        "failed attempts: 192",
        "retries: 288",
        "starts of rsnotify: 96",
        "<time datetime=\"1969-12-31T18:15:00Z\">18:15</time>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn every_page_names_its_daemon_and_is_accessible_and_only_the_status_page_refreshes_itself() {
    let status = status(3, "words");
    let refreshes = |page: &str| page.contains("<meta http-equiv=\"refresh\" content=\"60\">");
    for (name, page) in pages(&status) {
        let (header, _) = page.split_once("</header>").unwrap();
        assert!(header.contains("words, version 0.1.0, up <time"), "{name}");
        assert!(header.contains(">2 h 5 min</time>"), "{name}: {header}");
        let count = |tag| page.matches(tag).count();
        assert!(count("<table") > 0, "{name}");
        assert_eq!(count("<table"), count("<caption"), "{name}");
        assert_eq!(count("<th "), count(" scope=\""), "{name}");
        assert_eq!(count("<h1"), 1, "{name}");
        assert_eq!(refreshes(&page), name == "status", "{name}");
    }
    assert!(!refreshes(
        &OverviewPage::new(&status, "/?refresh=no").render().unwrap()
    ));
}

fn interval(delivered: u64, failed: u64, pending: u64) -> IntervalDeliveries {
    IntervalDeliveries {
        delivered,
        failed,
        pending,
        ..IntervalDeliveries::default()
    }
}

#[test]
fn bars_end_at_the_right_and_are_scaled_to_the_highest() {
    let picture = DayPicture::new(&[interval(30, 10, 0), interval(0, 0, 5), interval(1, 0, 1)]);
    assert_eq!(picture.bars, [(744, 75, 25), (760, 2, 0)]);
    let pending = "744,100 752,100 752,0 760,0 760,80 768,80 ";
    assert_eq!(picture.pending, pending);
    assert_eq!((picture.delivered, picture.failed), (31, 10));
}

#[test]
fn starts_are_marked_and_each_quarter_of_the_day_has_its_time() {
    let started = IntervalDeliveries {
        from: "2026-11-20T10:07:00Z".parse().unwrap(),
        retries: 3,
        starts: 2,
        ..IntervalDeliveries::default()
    };
    let picture = DayPicture::new(&[started, interval(1, 0, 0), started]);
    assert_eq!(picture.starts, [744, 760]);
    assert_eq!((picture.started, picture.retries), (4, 6));
    let ticks = picture.ticks.iter().map(ToString::to_string);
    let ticks = ticks.collect::<Vec<_>>().join(" ");
    let want =
        "2026-11-19T10:15:00Z 2026-11-19T16:15:00Z 2026-11-19T22:15:00Z 2026-11-20T04:15:00Z";
    assert_eq!(ticks, want);
}

#[test]
fn nothing_is_drawn_of_nothing() {
    let picture = DayPicture::new(&[interval(0, 0, 0)]);
    assert!(picture.bars.is_empty() && picture.pending.is_empty());
    assert!(DayPicture::new(&[]).bars.is_empty());
    let large = DayPicture::new(&[interval(u64::MAX / 4, 1, u64::MAX)]);
    assert_eq!(large.bars.len(), 1);
}
