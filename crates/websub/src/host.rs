//! The check of `Host` and `Origin` headers against DNS rebinding and cross-origin requests.

// The address alone: `core` has no sockets.
use core::net::IpAddr;

/// Returns true if a request with this `Host`, and this `Origin` if it has one, is addressed to a server with these host
/// names. IP addresses and `localhost` always are. Only browsers send `Origin`, with requests that pages make.
pub fn is_addressed_to(hosts: &[String], host: &str, origin: Option<&str>) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let is_own = bare.unwrap_or(name).parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|host| host.eq_ignore_ascii_case(name));
    let is_same = |origin: &str| {
        let rest = origin.split_once("://").map(|(_, rest)| rest);
        rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
    };
    (is_own || name.is_empty()) && origin.is_none_or(is_same)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("127.0.0.1:8400", None, true)]
    #[case("[::1]:8400", None, true)]
    #[case("192.0.2.7", None, true)]
    #[case("localhost:8400", None, true)]
    #[case("LOCALHOST", None, true)]
    #[case("hub.example:80", None, true)]
    #[case("", None, true)]
    #[case("evil.example", None, false)]
    #[case("evil.example:8400", None, false)]
    #[case("localhost.evil.example:8400", None, false)]
    #[case("127.0.0.1.evil.example", None, false)]
    #[case("127.0.0.1:8400", Some("http://127.0.0.1:8400"), true)]
    #[case("127.0.0.1:8400", Some("http://127.0.0.1:3000"), false)]
    #[case("127.0.0.1:8400", Some("https://evil.example"), false)]
    #[case("127.0.0.1:8400", Some("null"), false)]
    #[case("127.0.0.1:8400", Some(""), false)]
    #[case("evil.example:8400", Some("http://evil.example:8400"), false)]
    fn only_requests_to_our_hosts_and_not_from_pages_of_other_origins_are_accepted(
        #[case] host: &str,
        #[case] origin: Option<&str>,
        #[case] want: bool,
    ) {
        let hosts = ["hub.example".to_owned()];
        assert_eq!(is_addressed_to(&hosts, host, origin), want);
    }
}
