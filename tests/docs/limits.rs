//! The limits that the pages state are those of the hub.

use rsnotify::report::status::words::grouped;
use websub::hub::address::quota_networks;
use websub::hub::admission::HubLimits;

use crate::page::repository;

fn page() -> String {
    std::fs::read_to_string(repository().join("docs/hub.md")).unwrap()
}

#[test]
fn the_table_of_the_hub_s_limits_is_true() {
    let page = page();
    let (_, section) = page.split_once("\n## Limits\n").unwrap();
    let rows = section.lines().skip_while(|line| !line.starts_with("|---"));
    let rows = rows.skip(1).take_while(|line| line.starts_with('|'));
    let defaults = rows.map(|row| row.trim_matches('|').rsplit('|').next().unwrap().trim());
    let HubLimits {
        requests_per_minute,
        verifications,
        subscriptions,
        backlog_bytes,
    } = HubLimits::default();
    assert_eq!(backlog_bytes, 1 << 30);
    assert!(page.contains("`max_backlog` (1 GiB)"));
    assert_eq!(verifications.per_host, requests_per_minute);
    assert_eq!(verifications.per_address, requests_per_minute);
    assert_eq!(subscriptions.per_host, subscriptions.per_address);
    let [requests, one, all] = [
        requests_per_minute,
        subscriptions.per_address,
        subscriptions.in_all,
    ]
    .map(grouped);
    let want = [
        format!("{requests} a minute (`max_requests_per_minute`)"),
        "the same number (`max_requests_per_minute`)".to_owned(),
        grouped(verifications.in_all),
        format!("{one} (`max_subscriptions_per_address`, `max_subscriptions_per_host`)"),
        format!("{all} (`max_subscriptions`)"),
    ];
    assert_eq!(Vec::from_iter(defaults), want);
}

#[test]
fn networks_of_ipv6_have_the_limits_that_the_page_says() {
    let networks = quota_networks("2001:db8::1".parse().unwrap()).into_iter();
    let networks = networks.map(|(network, times)| (network.prefix_len(), times));
    assert!(networks.eq([(64, 1), (56, 2), (48, 4)]));
    let page = page().replace('\n', " ");
    let words = "for IPv6 the /64 counts, the /56 with twice the limit, and the /48 with four times the limit";
    assert!(page.contains(words));
}
