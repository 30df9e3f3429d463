//! Diagnostics of message brokers, by their answer to a connection, which has no effect.

use resourcesync::uri::Hub;
use websub::answer::BrokerRefusal;

use crate::diagnostics::Diagnostic;

/// A broker with its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerProbe {
    pub name: Hub,
    /// Host and port.
    pub address: String,
    /// Name and version of the broker, if it states them; or the reason why there is no connection, with the kind of an
    /// `ERROR`.
    pub answer: Result<Option<String>, (Option<BrokerRefusal>, String)>,
}

/// Diagnoses a broker. An answer is reported too: nothing else shows that the credentials are right.
pub fn diagnostic(probe: &BrokerProbe) -> Diagnostic {
    let (name, address) = (&probe.name, &probe.address);
    let (refusal, reason) = match &probe.answer {
        Ok(server) => {
            let server = server.as_deref().unwrap_or("a broker without a name");
            let message = format!("{name}: connected to {server} at {address}");
            return Diagnostic::note(message, "");
        }
        Err((refusal, reason)) => (refusal, reason),
    };
    let remedy = match refusal {
        Some(BrokerRefusal::Credentials) => {
            "correct username, password_file or vhost, or create the user on the broker"
        }
        Some(_) => "the log of the broker should tell the reason",
        None => {
            "correct url, or tell the broker's operator; it needs a listener for STOMP, which ActiveMQ calls a \
             transportConnector and RabbitMQ a plugin"
        }
    };
    let message = format!("{name}: no connection to {address} ({reason})");
    Diagnostic::finding(message, remedy)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::diagnostics::Severity;

    #[rstest]
    #[case(Ok(Some("ActiveMQ/5".into())), Severity::Note, "connected to ActiveMQ/5 at mq:61613")]
    #[case(Ok(None), Severity::Note, "connected to a broker without a name")]
    #[case(Err((Some(BrokerRefusal::Credentials), "bad".into())), Severity::Finding, "password_file")]
    #[case(Err((Some(BrokerRefusal::Other), "bad".into())), Severity::Finding, "no connection to mq:61613 (bad)")]
    #[case(Err((None, "timed out".into())), Severity::Finding, "correct url")]
    fn the_answer_of_a_broker_is_said(
        #[case] answer: Result<Option<String>, (Option<BrokerRefusal>, String)>,
        #[case] severity: Severity,
        #[case] words: &str,
    ) {
        let probe = BrokerProbe {
            name: Hub::new("repository"),
            address: "mq:61613".to_owned(),
            answer,
        };
        let diagnostic = diagnostic(&probe);
        assert_eq!(diagnostic.severity, severity);
        assert!(diagnostic.line().contains(words), "{}", diagnostic.line());
    }
}
