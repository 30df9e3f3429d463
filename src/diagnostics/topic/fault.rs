//! What can be wrong with a topic by its public address, which fault of the web server in front that looks
//! like, and what to do about it.

use std::fmt;

use crate::announce::delivery::PAYLOAD_TYPE;
use crate::diagnostics::Cause;

/// What is wrong with what a topic answers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// To this method, in the system's words.
    NoAnswer(&'static str, String),
    Redirected(u16, Target),
    /// Our own server has answered, and does not know the topic.
    Unknown,
    /// Another server has answered that there is nothing, with this type.
    NotPassedOn(u16, String),
    NotAllowed(u16),
    NoUpstream(u16),
    Status(u16),
    /// Another server has answered with something of its own, with this type.
    Foreign(String),
    Type(String),
    /// The right type with parameters.
    Parameters(String),
    Encoded(String),
    NoLinks,
    OwnLink(Vec<String>),
    HubLinks {
        missing: Vec<String>,
        foreign: Vec<String>,
    },
    NoListLink,
    Body(String),
    /// `HEAD` answers this, and `GET` something else.
    HeadStatus(u16),
    HeadHeader(&'static str),
}

/// Where a redirection leads, compared with the topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    WithSlash,
    WithoutSlash,
    Https,
    /// On another server, of this origin.
    SamePath(String),
    Elsewhere(String),
    Nowhere,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Target::SamePath(origin) => return write!(f, "the same path at {origin}"),
            Target::WithSlash => "the same address with a slash at its end",
            Target::WithoutSlash => "the same address without the slash at its end",
            Target::Https => "the same address by https",
            Target::Elsewhere(location) => location,
            Target::Nowhere => "nowhere: there is no Location that can be read",
        };
        f.write_str(words)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NoAnswer(method, words) => write!(f, "no answer to {method} ({words})"),
            Fault::Redirected(status, target) => write!(f, "{status}, a redirection to {target}"),
            Fault::Unknown => f.write_str("404 from rsnotify itself, which serves no such topic"),
            Fault::NotPassedOn(status, kind) => {
                write!(f, "{status} with {kind}, which is not from rsnotify")
            }
            Fault::NotAllowed(status) => write!(f, "{status}, it wants credentials"),
            Fault::NoUpstream(status) => write!(f, "{status} from the web server in front"),
            Fault::Status(status) => write!(f, "{status} instead of 200"),
            Fault::Foreign(kind) => write!(f, "200 with {kind}, which is not from rsnotify"),
            Fault::Type(kind) => write!(f, "{kind} instead of {PAYLOAD_TYPE}"),
            Fault::Parameters(parameters) => {
                write!(f, "Content-Type {PAYLOAD_TYPE} with {parameters} after it")
            }
            Fault::Encoded(encoding) => {
                write!(f, "Content-Encoding {encoding}, which was not asked for")
            }
            Fault::NoLinks => f.write_str("there is no Link header with the topic and its hubs"),
            Fault::OwnLink(own) if own.is_empty() => {
                f.write_str("the Link header has no rel=\"self\"")
            }
            Fault::OwnLink(own) => {
                write!(
                    f,
                    "the Link header calls it {} (rel=\"self\")",
                    own.join(", ")
                )
            }
            Fault::HubLinks { missing, foreign } => {
                let parts = [("lacks", missing), ("should not have", foreign)];
                let parts = parts.iter().filter(|(_, hubs)| !hubs.is_empty());
                let parts: Vec<String> = parts
                    .map(|(verb, hubs)| format!("{verb} {}", hubs.join(", ")))
                    .collect();
                write!(f, "the Link header {} (rel=\"hub\")", parts.join(", and "))
            }
            Fault::NoListLink => f.write_str(
                "the Link header does not name the Capability List (rel=\"resourcesync\")",
            ),
            Fault::Body(reason) => write!(f, "the body is no payload: {reason}"),
            Fault::HeadStatus(status) => write!(f, "HEAD answers {status}, and GET does not"),
            Fault::HeadHeader(name) => write!(f, "HEAD answers with another {name} than GET"),
        }
    }
}

impl Fault {
    /// What usually causes it, and what to do.
    pub(super) fn remedy(&self) -> &'static str {
        match self {
            Fault::NoAnswer(_, words) => no_answer(words),
            Fault::Redirected(_, Target::WithSlash | Target::WithoutSlash) => {
                "the web server in front takes it for a directory or file of its own; let it pass the topic on \
                 to server.listen as it is, before any rule that redirects: `rsnotify snippet nginx`, `apache` or \
                 `caddy` prints the lines that do"
            }
            Fault::Redirected(_, Target::Https) => {
                "the web server in front wants https; set public_url, or what the Capability List advertises, \
                 to the https address"
            }
            Fault::Redirected(..) => {
                "addresses of topics are compared to the letter, so they must answer where they are; let the \
                 web server in front pass them on to server.listen before any rule that redirects, or set \
                 public_url to where this leads"
            }
            Fault::Unknown => {
                "the web server in front changes path, query or Host on the way: let it pass them on unchanged; \
                 or rsnotify has not looked at the whole tree yet: try again; or the configuration was edited \
                 since it was started: restart it"
            }
            Fault::NotPassedOn(..) | Fault::Foreign(_) => {
                "the web server in front answers itself; let it pass the topic on to server.listen, path and \
                 query unchanged: `rsnotify snippet nginx`, `apache` or `caddy` prints the lines that do"
            }
            Fault::NotAllowed(_) => {
                "hubs and Destinations have none; let the web server in front pass topics on for everybody"
            }
            Fault::NoUpstream(_) => {
                "it passes the topic on and reaches nobody; let it pass on to server.listen of the machine \
                 where rsnotify runs: `rsnotify snippet nginx`, `apache` or `caddy` prints the lines that do"
            }
            Fault::Status(_) => "the log of the web server in front should say why",
            Fault::Type(_) => {
                "some Destinations refuse that; let the web server in front pass Content-Type on as it is"
            }
            Fault::Parameters(_) => {
                "some hubs refuse that; let the web server in front add no charset (nginx: charset off, \
                 Apache: AddDefaultCharset Off)"
            }
            Fault::Encoded(_) => {
                "let the web server in front compress only for those who send Accept-Encoding"
            }
            Fault::NoLinks | Fault::NoListLink => {
                "let the web server in front pass the Link header on; without it nobody finds the hub"
            }
            Fault::OwnLink(_) => {
                "the web server in front changes path, query or Host on the way: let it pass them on unchanged"
            }
            Fault::HubLinks { .. } => {
                "if the configuration was edited since rsnotify was started, restart it; else the web server in \
                 front changes the header"
            }
            Fault::Body(_) => {
                "the web server in front changes what rsnotify sends; let it pass bodies on as they are"
            }
            Fault::HeadStatus(_) | Fault::HeadHeader(_) => {
                "hubs and Destinations may ask by either; let the web server in front pass on both alike"
            }
        }
    }
}

fn no_answer(words: &str) -> &'static str {
    match Cause::of(words) {
        Cause::Name => {
            "this machine knows no host of that name; correct public_url, or this machine's name server"
        }
        Cause::Refused => {
            "nothing listens there; start the web server in front, or correct public_url"
        }
        Cause::Timeout => {
            "a firewall or the web server in front swallows it; where a machine cannot reach its own public \
             address, try `curl -I` from another one"
        }
        Cause::UnknownIssuer | Cause::SelfSignedAuthority => {
            "Destinations will not trust that certificate either; let the web server in front send the whole \
             chain, or make the system trust your own authority"
        }
        Cause::Expired => "renew the certificate of the web server in front",
        Cause::NotYetValid => "its certificate is for later; compare the clocks",
        Cause::OtherName => {
            "the web server in front has a certificate for other names; correct it, or public_url"
        }
        Cause::NoTls => {
            "there seems to be no TLS at that port; correct public_url, or the web server in front"
        }
        Cause::Unknown => "the log of the web server in front should say why",
    }
}
