//! What surrounds rsnotify, as an inspection found it, and what that means: each remark says what was seen and
//! what to do about it.
//!
//! The facts come from adaptors. [`topic`] and [`hub`] judge what was answered, [`clock`] what time it is
//! elsewhere, [`machine`] what the system allows, and [`access`] what hides a directory from a service.

pub mod access;
pub mod clock;
pub mod hub;
pub mod machine;
pub mod topic;

use jiff::Timestamp;
use url::Url;

use crate::resourcesync::payload::Payload;

/// What our own topic server says where it has no topic: an inspection knows it by that.
pub const NO_SUCH_TOPIC: &str = "no such topic\n";
/// What our own hub says to whom only looks at it.
pub const HUB_GREETING: &str = "this is a WebSub hub: POST a subscription form\n";

/// One thing to tell an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    pub weight: Weight,
    /// What was tried on what, and what came of it.
    pub seen: String,
    /// What usually causes that, and what to do; empty where it goes without saying.
    pub remedy: String,
}

/// Whether something is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    Finding,
    /// Worth knowing.
    Note,
}

impl Remark {
    pub fn finding(seen: impl Into<String>, remedy: impl Into<String>) -> Remark {
        Remark {
            weight: Weight::Finding,
            seen: seen.into(),
            remedy: remedy.into(),
        }
    }

    pub fn note(seen: impl Into<String>, remedy: impl Into<String>) -> Remark {
        Remark {
            weight: Weight::Note,
            ..Remark::finding(seen, remedy)
        }
    }

    /// In one line.
    pub fn line(&self) -> String {
        match self.remedy.as_str() {
            "" => self.seen.clone(),
            remedy => format!("{}: {remedy}", self.seen),
        }
    }
}

/// An answer to a `HEAD` or `GET` of ours, redirections not followed; or why there was none, in the system's
/// words.
pub type Answered = Result<Reply, String>;

/// What was answered. A header that came several times is joined by commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub location: Option<String>,
    pub content_type: Option<String>,
    pub content_encoding: Option<String>,
    pub date: Option<String>,
    pub age: Option<String>,
    pub links: Links,
    pub body: Body,
    /// When it arrived, on our clock.
    pub at: Timestamp,
}

/// The targets of a `Link` header, by relation, byte for byte.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Links {
    pub own: Vec<String>,
    pub hubs: Vec<String>,
    pub capability_lists: Vec<String>,
}

/// What is kept of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    Empty,
    Payload,
    /// Its beginning, and why it is no payload.
    Other {
        beginning: Vec<u8>,
        reason: String,
    },
}

impl Body {
    /// How much of a body tells enough about it: more than any payload has.
    pub const MOST: usize = (1 << 20) + 1;
    /// How much is kept of what is no payload.
    const KEPT: usize = 100;

    /// Reads a body, or as much of it as tells enough.
    pub fn read(body: &[u8]) -> Body {
        let reason = match body.len() {
            0 => return Body::Empty,
            Body::MOST.. => "it is longer than any".to_owned(),
            _ => match Payload::parse(body) {
                Ok(_) => return Body::Payload,
                Err(error) => error.to_string(),
            },
        };
        Body::Other {
            beginning: body[..body.len().min(Body::KEPT)].to_vec(),
            reason,
        }
    }

    /// Whether it is this text of ours.
    fn is(&self, text: &str) -> bool {
        matches!(self, Body::Other { beginning, .. } if beginning == text.as_bytes())
    }
}

/// What usually makes a request fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Name,
    Refused,
    Timeout,
    UnknownIssuer,
    SelfSignedAuthority,
    Expired,
    NotYetValid,
    OtherName,
    NoTls,
    Unknown,
}

impl Cause {
    /// Reads it from the words of the system and of the TLS library.
    fn of(words: &str) -> Cause {
        const KNOWN: [(&str, Cause); 13] = [
            ("dns error", Cause::Name),
            ("Connection refused", Cause::Refused),
            ("timed out", Cause::Timeout),
            ("UnknownIssuer", Cause::UnknownIssuer),
            (
                "is self-signed as an authority's own",
                Cause::SelfSignedAuthority,
            ),
            ("BadSignature", Cause::UnknownIssuer),
            ("certificate expired", Cause::Expired),
            ("not valid yet", Cause::NotYetValid),
            ("not valid for name", Cause::OtherName),
            ("NotValidForName", Cause::OtherName),
            ("InvalidContentType", Cause::NoTls),
            ("frame with invalid size", Cause::NoTls),
            ("tls handshake eof", Cause::NoTls),
        ];
        let known = KNOWN.iter().find(|(known, _)| words.contains(known));
        known.map_or(Cause::Unknown, |(_, cause)| *cause)
    }
}

/// The scheme, host and port of an address.
pub fn origin(url: &str) -> String {
    match Url::parse(url) {
        Ok(url) => url.origin().ascii_serialization(),
        Err(_) => url.to_owned(),
    }
}

/// Whether an address means this machine to everybody who reads it.
pub fn is_local(url: &str) -> bool {
    match Url::parse(url).ok().as_ref().and_then(Url::host) {
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(url::Host::Ipv4(ip)) => ip.is_loopback() || ip.is_unspecified(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback() || ip.is_unspecified(),
        None => false,
    }
}

/// Whether only this machine, or a network of its own, can reach an address.
fn is_private(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else {
        return false;
    };
    match url.host() {
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

    use super::*;

    /// An answer with nothing but its status.
    pub fn reply(status: u16) -> Reply {
        Reply {
            status,
            location: None,
            content_type: None,
            content_encoding: None,
            date: None,
            age: None,
            links: Links::default(),
            body: Body::Empty,
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

    #[test]
    fn little_is_kept_of_a_body() {
        assert_eq!(Body::read(b""), Body::Empty);
        assert_eq!(Body::read(&Payload::default().render()), Body::Payload);
        let long = vec![b'x'; Body::MOST];
        for (body, reason) in [(&long[..99], ""), (&long[..], "it is longer than any")] {
            let Body::Other {
                beginning,
                reason: own,
            } = Body::read(body)
            else {
                panic!("{} bytes are no payload", body.len());
            };
            assert!(own.contains(reason), "{own}");
            assert!(beginning.len() <= 100 && body.starts_with(&beginning));
        }
        assert!(Body::read(NO_SUCH_TOPIC.as_bytes()).is(NO_SUCH_TOPIC));
        assert!(Body::read(HUB_GREETING.as_bytes()).is(HUB_GREETING));
        assert!(!Body::Empty.is(NO_SUCH_TOPIC));
    }

    #[rstest]
    #[case("error sending request: dns error: failed to lookup", Cause::Name)]
    #[case("tcp connect error: Connection refused (os error 111)", Cause::Refused)]
    #[case("timed out", Cause::Timeout)]
    #[case("invalid peer certificate: UnknownIssuer", Cause::UnknownIssuer)]
    #[case("certificate expired: verification time 9 (UNIX)", Cause::Expired)]
    #[case(
        "certificate not valid yet: verification time 9 (UNIX)",
        Cause::NotYetValid
    )]
    #[case("certificate not valid for name \"a\"; certificate", Cause::OtherName)]
    #[case("received corrupt message of type InvalidContentType", Cause::NoTls)]
    #[case("client error (Connect): tls handshake eof", Cause::NoTls)]
    #[case("connection reset", Cause::Unknown)]
    fn a_cause_is_read_from_the_words(#[case] words: &str, #[case] want: Cause) {
        assert_eq!(Cause::of(words), want);
    }
}
