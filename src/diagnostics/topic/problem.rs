//! Problems with the reply of a topic, each with the remedy in the web server in front.

use resourcesync::payload::PAYLOAD_TYPE;
use websub::probe::{FailureCause, ProbeError};

/// A problem with the replies of a topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(super) enum TopicReplyProblem {
    /// The method, and the failure.
    #[error("no answer to {0} ({1})")]
    NoAnswer(&'static str, ProbeError),
    #[error("{0}, a redirection to {1}")]
    Redirected(u16, RedirectTarget),
    /// Our own server answered that there is no such topic.
    #[error("404 from rsnotify itself, which serves no such topic")]
    Unknown,
    /// Another server answered 404 or 410, with this type.
    #[error("{0} with {1}, which is not from rsnotify")]
    NotPassedOn(u16, String),
    #[error("{0}, credentials are required")]
    NotAllowed(u16),
    #[error("{0} from the web server in front")]
    NoUpstream(u16),
    #[error("{0} instead of 200")]
    Status(u16),
    /// Another server answered 200 with content of its own, of this type.
    #[error("200 with {0}, which is not from rsnotify")]
    Foreign(String),
    #[error("{0} instead of {PAYLOAD_TYPE}")]
    Type(String),
    /// The expected type with parameters.
    #[error("Content-Type {PAYLOAD_TYPE} with {0} after it")]
    Parameters(String),
    #[error("Content-Encoding {0}, which was not requested")]
    Encoded(String),
    #[error("there is no Link header with the topic and its hubs")]
    NoLinks,
    #[error("the Link header {}", own_link(.0))]
    OwnLink(Vec<String>),
    #[error("the Link header {} (rel=\"hub\")", hub_links(missing, foreign))]
    HubLinks {
        missing: Vec<String>,
        foreign: Vec<String>,
    },
    #[error("the Link header does not name the Capability List (rel=\"resourcesync\")")]
    NoListLink,
    #[error("the body is no payload: {0}")]
    NoPayload(String),
    /// Status of `HEAD` where `GET` has another.
    #[error("HEAD answers {0}, and GET does not")]
    HeadStatus(u16),
    #[error("HEAD answers with another {0} than GET")]
    HeadHeader(&'static str),
}

/// Target of a redirection, compared with the topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(super) enum RedirectTarget {
    #[error("the same address with a slash at its end")]
    WithSlash,
    #[error("the same address without the slash at its end")]
    WithoutSlash,
    #[error("the same address by https")]
    Https,
    /// The same path at this other origin.
    #[error("the same path at {0}")]
    SamePath(String),
    #[error("{0}")]
    Elsewhere(String),
    #[error("nowhere: the Location is missing or invalid")]
    Nowhere,
}

fn own_link(links: &[String]) -> String {
    match links {
        [] => "has no rel=\"self\"".to_owned(),
        links => format!("calls it {} (rel=\"self\")", links.join(", ")),
    }
}

fn hub_links(missing: &[String], foreign: &[String]) -> String {
    let parts = [("lacks", missing), ("should not have", foreign)];
    let parts = parts.iter().filter(|(_, hubs)| !hubs.is_empty());
    let parts = parts.map(|(verb, hubs)| format!("{verb} {}", hubs.join(", ")));
    parts.collect::<Vec<_>>().join(", and ")
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
