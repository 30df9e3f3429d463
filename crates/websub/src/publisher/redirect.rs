//! The redirections that a submission follows: file content and foreign servers never decide where we
//! POST (R9, R23).

use url::Url;

/// Redirections that one submission follows.
pub const MAX_HOPS: u32 = 3;

/// Returns the address at which an answer to a request sent to `from`, after `hops` redirections, asks for the same request
/// again; nothing if this answer is the last. `configured` are the addresses of all configured hubs.
pub fn next_hop(
    status: u16,
    location: Option<&str>,
    from: &Url,
    hops: u32,
    configured: &[Url],
) -> Option<Url> {
    let target = from.join(location?.trim()).ok()?;
    let keeps_method = matches!(status, 307 | 308);
    (keeps_method && hops < MAX_HOPS && may_follow(from, &target, configured)).then_some(target)
}

/// Returns true if two addresses are one resource, whatever their queries: a `content-query` hub's carries the topic.
pub fn same_address(one: &Url, other: &Url) -> bool {
    one.origin() == other.origin() && one.path() == other.path()
}

fn may_follow(from: &Url, target: &Url, configured: &[Url]) -> bool {
    let is_http = matches!(target.scheme(), "http" | "https");
    let has_credentials = !target.username().is_empty() || target.password().is_some();
    is_http
        && !has_credentials
        && (from.origin() == target.origin()
            || configured.iter().any(|hub| same_address(hub, target)))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(307, "/b", 0, Some("https://hub.org/b"))]
    #[case(308, "b?x=1", 2, Some("https://hub.org/a/b?x=1"))]
    #[case(308, "https://hub.org:443/b", 0, Some("https://hub.org/b"))]
    #[case(308, "https://other.org/publish", 0, Some("https://other.org/publish"))]
    #[case(
        308,
        "https://other.org/publish?hub.mode=publish",
        0,
        Some("https://other.org/publish?hub.mode=publish")
    )]
    #[case(308, "https://other.org/elsewhere", 0, None)]
    #[case(308, "http://hub.org/b", 0, None)]
    #[case(308, "https://hub.org:8443/b", 0, None)]
    #[case(308, "https://user:pw@hub.org/b", 0, None)]
    #[case(308, "file:///etc/passwd", 0, None)]
    #[case(308, "//evil.org/", 0, None)]
    #[case(307, "/b", 3, None)]
    #[case(301, "/b", 0, None)]
    #[case(302, "/b", 0, None)]
    #[case(303, "/b", 0, None)]
    #[case(200, "/b", 0, None)]
    fn only_307_and_308_lead_to_the_same_origin_or_a_configured_hub(
        #[case] status: u16,
        #[case] location: &str,
        #[case] hops: u32,
        #[case] want: Option<&str>,
    ) {
        let from = Url::parse("https://hub.org/a/").unwrap();
        let configured = [Url::parse("https://other.org/publish").unwrap()];
        let want = want.map(|url| Url::parse(url).unwrap());
        assert_eq!(
            next_hop(status, Some(location), &from, hops, &configured),
            want
        );
        assert_eq!(next_hop(status, None, &from, hops, &configured), None);
    }
}
