//! Tests of the pages with much and with hostile content.

use askama::Template;
use jiff::{SignedDuration, Timestamp};
use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::{Hub, Topic, Uri};
use websub::hub::subscriptions::view::{
    HubStatus, LastAttempt, SubscriptionList, SubscriptionView,
};

use crate::admin::page::SubscriptionsPage;
use crate::admin::page::channels::{ChannelPage, ChannelsPage};
use crate::admin::page::overview::Overview;
use crate::announce::history::{NotificationView, Outcome, OutcomeView, PayloadText};
use crate::announce::observation::UnreadableDirectory;
use crate::report::status::{
    BrokenView, Condition, ConfigurationStatus, DaemonView, FellBehindView, FindingGroup,
    IntervalView, MountStatus, RefusedConfiguration, SourceStatus, Status, UnreachedHub,
};
use crate::report::tests::channel_view;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
/// Markup that would escape from its context if it were not escaped.
const HOSTILE: &str =
    "</title></pre></script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>";

/// Returns a status in which every text is `words`.
fn status(channels: usize, words: &str) -> Status {
    let uri = |path: &str| Uri::parse(&format!("https://e.org/{path}/{words}")).unwrap();
    let hub = Hub::new(format!("https://h.example/{words}"));
    let told = NotificationView {
        kind: ChannelKind::Framework,
        topic: Topic::new(format!("javascript:0//{words}")),
        seq: 1,
        cut: NOW,
        changes: Some(1),
        hubs: vec![OutcomeView {
            hub: hub.clone(),
            outcome: Outcome::Refused,
            at: Some(NOW),
            attempts: Some(3),
            reason: Some(words.to_owned()),
        }],
        bytes: Some(1 << 20),
        payload: Some(PayloadText::from(words.repeat((1 << 20) / words.len()))),
    };
    let broken = BrokenView {
        source: words.to_owned(),
        path: words.to_owned(),
        uri: uri("broken"),
        reason: words.to_owned(),
        since: NOW,
        known: true,
        lasting: true,
    };
    let unreadable = UnreadableDirectory {
        below: Vec::new(),
        directory: words.to_owned(),
        reason: words.to_owned(),
        remedy: Some(words.to_owned()),
        since: NOW,
    };
    let subscription = SubscriptionView {
        topic: Topic::new(format!("javascript:0//{words}")),
        callback: words.to_owned(),
        digest: words.to_owned(),
        expires: NOW,
        signed: true,
        owed: 1,
        next: None,
        attempts: 1,
        next_try: Some(NOW),
        last: Some(LastAttempt {
            at: NOW,
            status: None,
            failure: Some(words.into()),
        }),
    };
    let interval = IntervalView {
        from: NOW,
        delivered: 7,
        failed: 2,
        retries: 3,
        pending: 1,
        starts: 1,
    };
    Status {
        at: NOW,
        unsaved: Some(words.to_owned()),
        sources: vec![SourceStatus {
            name: words.to_owned(),
            settled: true,
            suspended: true,
            suspension: Some(words.to_owned()),
            documents: 41_200,
            without_document: Some(words.to_owned()),
            missing: 1,
            missing_in: Vec::new(),
            more_missing_in: 0,
            broken: 1,
            mounts: vec![MountStatus {
                directory: words.to_owned(),
                url: uri("mount"),
                present: Some(false),
                unreadable: vec![unreadable; 20],
                more_unreadable: 7,
                reason: Some(words.to_owned()),
            }],
        }],
        channels: (0..channels)
            .map(|number| channel_view(number, words))
            .collect(),
        unreached: vec![UnreachedHub {
            hub: Hub::new(format!("javascript:1//{words}")),
            since: NOW,
            reason: words.to_owned(),
            is_refused: false,
        }],
        fell_behind: vec![FellBehindView {
            hub,
            topic: Topic::new(format!("javascript:0//{words}")),
            changes: 1_000,
            last: NOW,
        }],
        embedded_hub: Some(HubStatus {
            subscriptions: 1_007,
            failing: 1_000,
            failure: Some(words.to_owned()),
            ..HubStatus::default()
        }),
        broken: vec![broken; 100],
        more_broken: 7,
        findings: vec![words.to_owned(); 100],
        more_findings: 900,
        finding_groups: vec![
            FindingGroup {
                kind: "unrouted".to_owned(),
                count: 1_000,
                examples: vec![words.to_owned(); 3],
                acknowledged: false,
            },
            FindingGroup {
                kind: "unclean".to_owned(),
                count: 4,
                examples: vec![words.to_owned(); 3],
                acknowledged: true,
            },
        ],
        notifications: vec![told; 50],
        last_day: vec![interval; 96],
        daemon: Some(DaemonView {
            host: words.to_owned(),
            version: "0.1.0".to_owned(),
            began: NOW - SignedDuration::from_secs(7_500),
        }),
        configuration: Some(ConfigurationStatus {
            loaded: NOW,
            refused: Some(RefusedConfiguration {
                at: NOW,
                error: words.to_owned(),
            }),
            effective: words.repeat(10_000),
        }),
        subscriptions: SubscriptionList {
            subscriptions: vec![subscription; 1_000],
            more: 7,
        },
        ..Status::default()
    }
}

/// Returns all pages of a status with their names.
fn pages(status: &Status) -> [(&'static str, String); 4] {
    let topic = status.channels[0].topic.as_str().to_owned();
    let query = [("text".to_owned(), status.sources[0].name.clone())];
    let channel = ChannelPage::new(status, &topic).unwrap();
    [
        ("status", Overview::new(status, false).render().unwrap()),
        (
            "channels",
            ChannelsPage::new(status, &query).render().unwrap(),
        ),
        ("channel", channel.render().unwrap()),
        (
            "subscriptions",
            SubscriptionsPage::new(status).render().unwrap(),
        ),
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
    assert!(channels.contains("Page 1 of 10"));
    assert!(channels.contains("page=2\" rel=\"next\""));
    // What waits on several channels alike is shown once.
    let few = self::status(3, "words");
    let page = Overview::new(&few, false).render().unwrap();
    assert!(page.contains("30 more are not shown here"), "{page}");
}

#[test]
fn channels_are_filtered_by_text_and_by_state() {
    let mut status = status(250, "words");
    status.channels[7].hubs.clear();
    status.channels[7].retired = Some(NOW);
    status.channels[8].pending.clear();
    status.channels[8].more_pending = 0;
    let shown = |query: &[(&str, &str)]| {
        let query: Vec<_> = query
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let page = ChannelsPage::new(&status, &query).render().unwrap();
        let rows = page.matches("scope=\"row\"").count();
        let (_, about) = page.split_once("</form>").unwrap();
        let (about, _) = about.split_once("</p>").unwrap();
        let about = about.trim().trim_start_matches("<p>");
        (rows, about.split(". ").next().unwrap().to_owned())
    };
    for (query, rows, about) in [
        (&[][..], 100, "250 channels, failing ones first."),
        (&[("text", "javascript:24")], 11, "11 of 250 channels"),
        (&[("state", "retired")], 1, "1 of 250 channels"),
        (&[("state", "trouble")], 100, "249 of 250 channels"),
        (
            &[("state", "trouble"), ("page", "3")],
            49,
            "249 of 250 channels",
        ),
        (&[("page", "99")], 50, "250 channels, failing ones first."),
        (
            &[("page", "-1"), ("state", "?")],
            100,
            "250 channels, failing ones first.",
        ),
        (&[("text", "no such channel")], 0, "0 of 250 channels"),
    ] {
        assert_eq!(shown(query), (rows, about.to_owned()), "{query:?}");
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
        hub.state = Condition::Fine;
    }
    assert!(is_shown(&status, "retired") && !is_shown(&status, "fine"));
}

#[test]
fn the_last_day_is_a_picture_with_a_text() {
    let page = Overview::new(&status(1, "words"), false).render().unwrap();
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
    assert!(!refreshes(&Overview::new(&status, true).render().unwrap()));
}
