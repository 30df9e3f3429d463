//! Diagnostics of hubs, by their reply to a `HEAD`, which has no effect, and of message brokers.

use messaging::refusal::BrokerFailure;
use resourcesync::uri::Hub;
use url::Url;
use websub::answer::BrokerRefusal;
use websub::hub::publication::PUBLIC_HUB_GREETING;
use websub::hub::request::HUB_GREETING;
use websub::probe::{FailureCause, ProbeReply, ProbeResult};
use websub::publisher::reason::RefusalKind;
use websub::publisher::verdict::next_hop;

use crate::diagnostics::Diagnostic;
use crate::report::status::AccountCondition;
use crate::report::status::alerts::HubTrouble;
use crate::report::status::words::counted;
use announce::plan::is_broker_name;

/// A hub with its reply at the address for notifications, which may be secret.
#[derive(Debug, Clone)]
pub struct HubProbe {
    pub hub: Hub,
    pub publish_url: Url,
    pub head: ProbeResult,
    /// True if the hub accepted the last notification; its answer to `HEAD` then matters little.
    pub accepts: bool,
}

/// Diagnoses a hub. `configured` are the addresses of all hubs, where a redirection may lead (R23).
pub fn diagnose_probe(probe: &HubProbe, configured: &[Url]) -> Option<Diagnostic> {
    let hub = &probe.hub;
    let reply = match &probe.head {
        Ok(reply) => reply,
        Err(error) => {
            let message = format!("{hub}: no answer ({error})");
            return Some(Diagnostic::finding(message, no_answer_remedy(error.cause)));
        }
    };
    let (message, remedy) = match reply.status {
        301..=303 | 307 | 308 => return Some(redirection(probe, reply, configured)),
        status @ (401 | 403) => (
            format!("{hub}: {status} to HEAD, credentials are missing or wrong"),
            "set bearer_token_file, or username and password_file, or headers, or client_cert and client_key",
        ),
        status @ (404 | 410) => (
            format!("{hub}: {status} to HEAD, no hub at this address"),
            "compare url and publish_url with the hub's documentation; a hub that supports only POST may \
             answer the same, until it has accepted a first notification",
        ),
        407 => (
            format!("{hub}: 407, the proxy requires credentials"),
            "add them to the proxy in the environment, or set NO_PROXY",
        ),
        status @ (500 | 502..=504) => (
            format!("{hub}: {status} to HEAD"),
            "the hub is failing or starting; if that lasts, contact its operator",
        ),
        _ => return None,
    };
    Some(if probe.accepts {
        let only_head = "but it accepted the last notification, so only HEAD fails";
        Diagnostic::note(message, only_head)
    } else {
        Diagnostic::finding(message, remedy)
    })
}

/// Diagnoses the delivery of the last notifications to a hub, by the saved state.
pub fn delivery_trouble(hub: &Hub, trouble: &HubTrouble<'_>) -> Diagnostic {
    let channels = counted(trouble.channels, "channel");
    let reason = trouble.reason;
    let message =
        format!("{hub}: it did not accept the last notifications of {channels}: {reason}");
    let usual_cause = |kind: RefusalKind| kind.usual_cause(is_broker_name(hub));
    let remedy = trouble.kind.map_or("", usual_cause);
    match trouble.state {
        AccountCondition::Failing => Diagnostic::note(message, remedy),
        AccountCondition::Unfetched => Diagnostic::finding(
            format!("{hub}: it was pinged and did not fetch {channels}"),
            "check that the hub can reach the topic at its URI",
        ),
        _ => Diagnostic::finding(message, remedy),
    }
}

/// Reports a hub that would refuse the notifications of this Source.
pub fn report_expected_refusal(hub: &Hub, status: u16, reason: &str) -> Diagnostic {
    let remedy = match status {
        400 => "correct the topic in the Capability List or in [[channel]]",
        401 => "set bearer_token_file to the token that the hub's operator has given",
        403 => {
            "let the hub's operator add the topic to a prefix of this publisher, and let the topic advertise the hub by its URI"
        }
        _ => "check again later; if it lasts, contact the hub's operator",
    };
    let message = format!("{hub}: it would refuse notifications, with {status}: {reason}");
    Diagnostic::finding(message, remedy)
}

/// Reports a hub whose certificate is not verified.
pub fn verification_off(hub: &Hub) -> Diagnostic {
    let message = format!(
        "{hub}: danger_accept_invalid_certs = true, so the hub's certificate is not verified"
    );
    let remedy = "name the authority that signed its certificate by ca_file, and remove that line";
    Diagnostic::finding(message, remedy)
}

/// Diagnoses a hub of this configuration by the reply to a `GET` at its advertised address, which comes from `key`.
pub fn embedded(hub: &Hub, get: &ProbeResult, key: &str) -> Option<Diagnostic> {
    let what = match get {
        Ok(reply)
            if reply.status == 405
                && (reply.body.is_exactly(HUB_GREETING)
                    || reply.body.is_exactly(PUBLIC_HUB_GREETING)) =>
        {
            return None;
        }
        Ok(reply) => format!("answers {}, which is not from rsnotify", reply.status),
        Err(error) => format!("cannot be reached ({error})"),
    };
    Some(Diagnostic::finding(
        format!("{hub}: the advertised address of this hub {what}"),
        format!(
            "subscriptions are impossible; let the web server in front pass it on to server.listen, or correct {key}"
        ),
    ))
}

fn redirection(probe: &HubProbe, reply: &ProbeReply, configured: &[Url]) -> Diagnostic {
    let (hub, status, location) = (&probe.hub, reply.status, reply.location.as_deref());
    let target = location.and_then(|location| probe.publish_url.join(location.trim()).ok());
    let Some(target) = target else {
        return Diagnostic::finding(
            format!("{hub}: {status}, a redirection without a valid Location"),
            "compare url and publish_url with the hub's documentation",
        );
    };
    let shown = masked_target(&target, probe);
    let message = format!("{hub}: {status}, a redirection to {shown}");
    match next_hop(status, location, &probe.publish_url, 0, configured) {
        Some(_) => Diagnostic::note(
            message,
            "it is followed; set publish_url to it to save a request",
        ),
        None if matches!(status, 307 | 308) => Diagnostic::finding(
            message,
            "it is not followed, since no configured hub is there; correct url or publish_url",
        ),
        None => Diagnostic::finding(
            message,
            "only 307 and 308 preserve the request, so it is not followed; correct url or publish_url",
        ),
    }
}

/// Returns the target of a redirection without what may be a key: queries, and paths after a secret address.
fn masked_target(target: &Url, probe: &HubProbe) -> String {
    let is_public = probe.publish_url.as_str() == probe.hub.as_str()
        || Url::parse(probe.hub.as_str()).is_ok_and(|hub| hub == probe.publish_url);
    let origin = target.origin().ascii_serialization();
    match (is_public, target.query()) {
        (false, _) => format!("{origin}/…"),
        (true, None) => format!("{origin}{}", target.path()),
        (true, Some(_)) => format!("{origin}{}?…", target.path()),
    }
}

fn no_answer_remedy(cause: FailureCause) -> &'static str {
    match cause {
        FailureCause::Name => {
            "the host name cannot be resolved; correct url or publish_url, or the name server"
        }
        FailureCause::Refused => {
            "nothing listens there; correct url or publish_url, or tell the hub's operator"
        }
        FailureCause::Timeout => {
            "a firewall drops the connection, a proxy is required (HTTPS_PROXY), or the hub hangs"
        }
        FailureCause::UnknownIssuer => {
            "its certificate is self-signed, or signed by an authority that this machine does not know; if you trust \
             it, name its certificate by ca_file"
        }
        FailureCause::SelfSignedAuthority => {
            "`openssl req -x509 -addext basicConstraints=critical,CA:FALSE …` makes one that can be named in ca_file"
        }
        FailureCause::Expired => {
            "its certificate has expired, or this machine's clock is wrong; tell the hub's operator"
        }
        FailureCause::NotYetValid => {
            "its certificate is not valid yet, or this machine's clock is wrong"
        }
        FailureCause::OtherName => "its certificate is for other names; correct url or publish_url",
        FailureCause::NoTls => "there seems to be no TLS at that port; correct url or publish_url",
        FailureCause::Unknown => "if it lasts, ask the hub's operator",
    }
}

/// Diagnoses a message broker, by its answer to a connection, which has no effect: its name and version, if it states
/// them; or the reason why there is no connection. An answer is reported too: nothing else shows that the credentials are
/// right.
pub fn broker(name: &Hub, at: &str, answer: &Result<Option<String>, BrokerFailure>) -> Diagnostic {
    let error = match answer {
        Ok(server) => {
            let server = server.as_deref().unwrap_or("a broker without a name");
            let message = format!("{name}: connected to {server} at {at}");
            return Diagnostic::note(message, "");
        }
        Err(error) => error,
    };
    let remedy = match error {
        BrokerFailure::Refused {
            refusal: BrokerRefusal::Credentials,
            ..
        } => "correct username, password_file or vhost, or create the user on the broker",
        BrokerFailure::Refused { .. } => "the log of the broker should tell the reason",
        _ => {
            "correct url, or tell the broker's operator; it needs a listener for STOMP, which ActiveMQ calls a \
             transportConnector and RabbitMQ a plugin"
        }
    };
    let message = format!("{name}: no connection to {at} ({error})");
    Diagnostic::finding(message, remedy)
}

#[cfg(test)]
mod tests;
