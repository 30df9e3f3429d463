//! Problems with the reply of a topic, each with the remedy in the web server in front.

use std::fmt;

use resourcesync::payload::PAYLOAD_TYPE;
use websub::probe::{FailureCause, ProbeError};

/// A problem with the replies of a topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TopicReplyProblem {
    /// The method, and the failure.
    NoAnswer(&'static str, ProbeError),
    Redirected(u16, RedirectTarget),
    /// Our own server answered that there is no such topic.
    Unknown,
    /// Another server answered 404 or 410, with this type.
    NotPassedOn(u16, String),
    NotAllowed(u16),
    NoUpstream(u16),
    Status(u16),
    /// Another server answered 200 with content of its own, of this type.
    Foreign(String),
    Type(String),
    /// The expected type with parameters.
    Parameters(String),
    Encoded(String),
    NoLinks,
    OwnLink(Vec<String>),
    HubLinks {
        missing: Vec<String>,
        foreign: Vec<String>,
    },
    NoListLink,
    NoPayload(String),
    /// Status of `HEAD` where `GET` has another.
    HeadStatus(u16),
    HeadHeader(&'static str),
}

/// Target of a redirection, compared with the topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RedirectTarget {
    WithSlash,
    WithoutSlash,
    Https,
    /// The same path at this other origin.
    SamePath(String),
    Elsewhere(String),
    Nowhere,
}

impl fmt::Display for RedirectTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            RedirectTarget::SamePath(origin) => return write!(f, "the same path at {origin}"),
            RedirectTarget::WithSlash => "the same address with a slash at its end",
            RedirectTarget::WithoutSlash => "the same address without the slash at its end",
            RedirectTarget::Https => "the same address by https",
            RedirectTarget::Elsewhere(location) => location,
            RedirectTarget::Nowhere => "nowhere: the Location is missing or invalid",
        };
        f.write_str(words)
    }
}

impl fmt::Display for TopicReplyProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TopicReplyProblem::NoAnswer(method, error) => {
                write!(f, "no answer to {method} ({error})")
            }
            TopicReplyProblem::Redirected(status, target) => {
                write!(f, "{status}, a redirection to {target}")
            }
            TopicReplyProblem::Unknown => {
                f.write_str("404 from rsnotify itself, which serves no such topic")
            }
            TopicReplyProblem::NotPassedOn(status, kind) => {
                write!(f, "{status} with {kind}, which is not from rsnotify")
            }
            TopicReplyProblem::NotAllowed(status) => {
                write!(f, "{status}, credentials are required")
            }
            TopicReplyProblem::NoUpstream(status) => {
                write!(f, "{status} from the web server in front")
            }
            TopicReplyProblem::Status(status) => write!(f, "{status} instead of 200"),
            TopicReplyProblem::Foreign(kind) => {
                write!(f, "200 with {kind}, which is not from rsnotify")
            }
            TopicReplyProblem::Type(kind) => write!(f, "{kind} instead of {PAYLOAD_TYPE}"),
            TopicReplyProblem::Parameters(parameters) => {
                write!(f, "Content-Type {PAYLOAD_TYPE} with {parameters} after it")
            }
            TopicReplyProblem::Encoded(encoding) => {
                write!(f, "Content-Encoding {encoding}, which was not requested")
            }
            TopicReplyProblem::NoLinks => {
                f.write_str("there is no Link header with the topic and its hubs")
            }
            TopicReplyProblem::OwnLink(links) if links.is_empty() => {
                f.write_str("the Link header has no rel=\"self\"")
            }
            TopicReplyProblem::OwnLink(links) => {
                write!(
                    f,
                    "the Link header calls it {} (rel=\"self\")",
                    links.join(", ")
                )
            }
            TopicReplyProblem::HubLinks { missing, foreign } => {
                let parts = [("lacks", missing), ("should not have", foreign)];
                let parts = parts.iter().filter(|(_, hubs)| !hubs.is_empty());
                let parts: Vec<String> = parts
                    .map(|(verb, hubs)| format!("{verb} {}", hubs.join(", ")))
                    .collect();
                write!(f, "the Link header {} (rel=\"hub\")", parts.join(", and "))
            }
            TopicReplyProblem::NoListLink => f.write_str(
                "the Link header does not name the Capability List (rel=\"resourcesync\")",
            ),
            TopicReplyProblem::NoPayload(reason) => write!(f, "the body is no payload: {reason}"),
            TopicReplyProblem::HeadStatus(status) => {
                write!(f, "HEAD answers {status}, and GET does not")
            }
            TopicReplyProblem::HeadHeader(name) => {
                write!(f, "HEAD answers with another {name} than GET")
            }
        }
    }
}

impl TopicReplyProblem {
    /// Returns the usual cause and the remedy.
    pub(super) fn remedy(&self) -> &'static str {
        match self {
            TopicReplyProblem::NoAnswer(_, error) => no_answer(error.cause),
            TopicReplyProblem::Redirected(
                _,
                RedirectTarget::WithSlash | RedirectTarget::WithoutSlash,
            ) => {
                "the web server in front treats it as its own directory or file; let it pass the topic on \
                 to server.listen as it is, before any rule that redirects: `rsnotify snippet nginx`, `apache` or \
                 `caddy` prints the lines that do"
            }
            TopicReplyProblem::Redirected(_, RedirectTarget::Https) => {
                "the web server in front requires https; set public_url, or what the Capability List advertises, \
                 to the https address"
            }
            TopicReplyProblem::Redirected(..) => {
                "topic URIs are compared exactly, so they must answer at their own address; let the \
                 web server in front pass them on to server.listen before any rule that redirects, or set \
                 public_url to where this leads"
            }
            TopicReplyProblem::Unknown => {
                "the web server in front changes path, query or Host on the way: let it pass them on unchanged; \
                 or rsnotify has not swept the whole tree yet: retry; or the configuration was edited since the \
                 start: restart it"
            }
            TopicReplyProblem::NotPassedOn(..) | TopicReplyProblem::Foreign(_) => {
                "the web server in front answers itself; let it pass the topic on to server.listen, path and \
                 query unchanged: `rsnotify snippet nginx`, `apache` or `caddy` prints the lines that do"
            }
            TopicReplyProblem::NotAllowed(_) => {
                "hubs and Destinations have none; let the web server in front serve topics without authentication"
            }
            TopicReplyProblem::NoUpstream(_) => {
                "it cannot reach rsnotify; let it pass the topic on to server.listen of the machine \
                 where rsnotify runs: `rsnotify snippet nginx`, `apache` or `caddy` prints the lines that do"
            }
            TopicReplyProblem::Status(_) => {
                "the log of the web server in front should have the reason"
            }
            TopicReplyProblem::Type(_) => {
                "some Destinations refuse that; let the web server in front pass Content-Type on as it is"
            }
            TopicReplyProblem::Parameters(_) => {
                "some hubs refuse that; let the web server in front add no charset (nginx: charset off, \
                 Apache: AddDefaultCharset Off)"
            }
            TopicReplyProblem::Encoded(_) => {
                "let the web server in front compress only for clients that send Accept-Encoding"
            }
            TopicReplyProblem::NoLinks | TopicReplyProblem::NoListLink => {
                "let the web server in front pass the Link header on; without it clients cannot find the hub"
            }
            TopicReplyProblem::OwnLink(_) => {
                "the web server in front changes path, query or Host on the way: let it pass them on unchanged"
            }
            TopicReplyProblem::HubLinks { .. } => {
                "if the configuration was edited since rsnotify was started, restart it; else the web server in \
                 front changes the header"
            }
            TopicReplyProblem::NoPayload(_) => {
                "the web server in front changes what rsnotify sends; let it pass bodies on as they are"
            }
            TopicReplyProblem::HeadStatus(_) | TopicReplyProblem::HeadHeader(_) => {
                "hubs and Destinations may use either; let the web server in front pass on both alike"
            }
        }
    }
}

fn no_answer(cause: FailureCause) -> &'static str {
    match cause {
        FailureCause::Name => {
            "the host name cannot be resolved; correct public_url, or this machine's name server"
        }
        FailureCause::Refused => {
            "nothing listens there; start the web server in front, or correct public_url"
        }
        FailureCause::Timeout => {
            "a firewall or the web server in front drops the connection; if a machine cannot reach its own \
             public address, try `curl -I` from another one"
        }
        FailureCause::UnknownIssuer | FailureCause::SelfSignedAuthority => {
            "Destinations will not trust that certificate either; let the web server in front send the whole \
             chain, or make the system trust your own authority"
        }
        FailureCause::Expired => "renew the certificate of the web server in front",
        FailureCause::NotYetValid => "its certificate is not valid yet; compare the clocks",
        FailureCause::OtherName => {
            "the web server in front has a certificate for other names; correct it, or public_url"
        }
        FailureCause::NoTls => {
            "there seems to be no TLS at that port; correct public_url, or the web server in front"
        }
        FailureCause::Unknown => "the log of the web server in front should have the reason",
    }
}
