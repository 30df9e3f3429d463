//! The diagnostics of `check`: problems around rsnotify with their remedies, derived from facts that adaptors bring.
//!
//! [`topic`] and [`hub`] judge replies, [`clock`] compares clocks, and [`machine`] checks limits and permissions, and knows
//! the remedies for unreadable directories.

pub mod clock;
pub mod hub;
pub mod machine;
pub mod topic;

use url::Url;

/// A message to the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    /// The operation, its object and the result.
    pub message: String,
    /// Usual cause and remedy; empty if obvious.
    pub remedy: String,
    /// Number of findings that it stands for.
    pub count: usize,
}

/// Severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// A problem; `check` exits with 1.
    Finding,
    /// Information that does not change the exit code.
    Note,
}

impl Diagnostic {
    pub fn finding(message: impl Into<String>, remedy: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Finding,
            message: message.into(),
            remedy: remedy.into(),
            count: 1,
        }
    }

    pub fn note(message: impl Into<String>, remedy: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Note,
            count: 0,
            ..Diagnostic::finding(message, remedy)
        }
    }

    /// Returns message and remedy in one line.
    pub fn line(&self) -> String {
        match self.remedy.as_str() {
            "" => self.message.clone(),
            remedy => format!("{}: {remedy}", self.message),
        }
    }
}

/// Returns scheme, host and port of a URL.
pub fn origin(url: &str) -> String {
    match Url::parse(url) {
        Ok(url) => url.origin().ascii_serialization(),
        Err(_) => url.to_owned(),
    }
}

/// Returns true if the URL refers to the machine that resolves it.
pub fn is_local(url: &str) -> bool {
    match Url::parse(url).ok().as_ref().and_then(Url::host) {
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(url::Host::Ipv4(ip)) => ip.is_loopback() || ip.is_unspecified(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback() || ip.is_unspecified(),
        None => false,
    }
}

/// Returns true if the URL can be reached only from this machine or a private network.
fn is_private(url: &str) -> bool {
    match Url::parse(url).ok().as_ref().and_then(Url::host) {
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(url::Host::Ipv4(ip)) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        Some(url::Host::Ipv6(ip)) => {
            ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local()
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use websub::headers::Links;
    use websub::probe::{BodyKind, FailureCause, ProbeError, ProbeReply};

    use super::*;

    /// Returns a failure of this cause.
    pub fn failure(cause: FailureCause, message: &str) -> ProbeError {
        ProbeError {
            cause,
            message: message.to_owned(),
        }
    }

    /// Returns a reply with nothing but a status.
    pub fn reply(status: u16) -> ProbeReply {
        ProbeReply {
            status,
            location: None,
            content_type: None,
            content_encoding: None,
            date: None,
            age: None,
            links: Links::default(),
            body: BodyKind::Empty,
            at: "2026-11-20T12:00:00Z".parse().unwrap(),
        }
    }

    #[rstest]
    #[case("http://127.0.0.1:8400/", true)]
    #[case("http://[::1]/", true)]
    #[case("http://localhost:8400/", true)]
    #[case("http://10.1.2.3/", true)]
    #[case("http://[fd00::1]/", true)]
    #[case("https://example.org/", false)]
    #[case("https://192.0.2.1/", false)]
    #[case("no url", false)]
    fn a_private_address_is_known_by_its_host(#[case] url: &str, #[case] want: bool) {
        assert_eq!(is_private(url), want);
    }
}
