//! Tests of hub diagnostics.

use rstest::rstest;
use websub::probe::{BodyKind, ProbeReply};

use crate::diagnostics::Severity;
use crate::diagnostics::tests::{failure, reply};

use super::*;

const HUB: &str = "https://hub.example/websub/";

fn probe(head: ProbeResult) -> HubProbe {
    HubProbe {
        hub: Hub::new(HUB),
        publish_url: HUB.parse().unwrap(),
        head,
        accepts: false,
    }
}

fn shown(found: Option<Diagnostic>) -> String {
    found.map_or("nothing".to_owned(), |found| {
        format!("{:?} {}", found.severity, found.line())
    })
}

#[rstest]
fn a_hub_need_not_know_head(
    #[values(200, 204, 304, 400, 405, 411, 415, 429, 501)] status: u16,
    #[values(false, true)] accepts: bool,
) {
    let probe = HubProbe {
        accepts,
        ..probe(Ok(reply(status)))
    };
    assert_eq!(diagnose_probe(&probe, &[]), None);
}

#[rstest]
#[case(401, "401 to HEAD, credentials are missing or wrong")]
#[case(403, "403 to HEAD, credentials are missing or wrong")]
#[case(404, "404 to HEAD, no hub at this address: compare url")]
#[case(410, "410 to HEAD, no hub at this address: compare url")]
#[case(407, "407, the proxy")]
#[case(500, "500 to HEAD")]
#[case(503, "503 to HEAD")]
fn a_hub_must_be_there_unless_it_accepts_notifications(#[case] status: u16, #[case] want: &str) {
    let mut probe = probe(Ok(reply(status)));
    let found = shown(diagnose_probe(&probe, &[]));
    let is_found = found.starts_with(&format!("Finding {HUB}: {want}"));
    assert!(is_found, "{found}");

    probe.accepts = true;
    let found = shown(diagnose_probe(&probe, &[]));
    let want = want.split(": compare").next().unwrap();
    assert!(found.starts_with(&format!("Note {HUB}: {want}")), "{found}");
}

#[rstest]
#[case(FailureCause::Name, "host name cannot be resolved")]
#[case(FailureCause::Refused, "nothing listens there")]
#[case(FailureCause::Timeout, "firewall")]
#[case(FailureCause::UnknownIssuer, "ca_file")]
#[case(FailureCause::SelfSignedAuthority, "basicConstraints")]
#[case(FailureCause::Expired, "has expired")]
#[case(FailureCause::NotYetValid, "clock")]
#[case(FailureCause::OtherName, "for other names")]
#[case(FailureCause::NoTls, "no TLS")]
#[case(FailureCause::Unknown, "operator")]
fn a_hub_that_cannot_be_reached_is_found_with_its_remedy(
    #[case] cause: FailureCause,
    #[case] want: &str,
) {
    let found = diagnose_probe(&probe(Err(failure(cause, "words"))), &[]).unwrap();
    assert_eq!(found.severity, Severity::Finding);
    assert!(found.message.contains("words"), "{found:?}");
    assert!(found.remedy.contains(want), "{found:?}");
}

#[test]
fn a_redirection_is_reported_with_its_target() {
    let configured = ["https://o.example/in".parse().unwrap()];
    for (status, location, want) in [
        (308, "/b", "Note … /b: it is followed"),
        (307, "/b?key=k", "Note … hub.example/b?…: it is followed"),
        (
            308,
            "https://o.example/in",
            "Note … //o.example/in: it is followed",
        ),
        (
            308,
            "https://e.example/",
            "Finding … //e.example/: it is not followed",
        ),
        (301, "/b", "Finding … //hub.example/b: only 307 and 308"),
        (
            302,
            "/login?to=x",
            "Finding … hub.example/login?…: only 307 and 308",
        ),
        (
            302,
            "https://u:p@hub.example/",
            "Finding … https://hub.example/: only 307",
        ),
        (302, "", "Finding … without a valid Location"),
    ] {
        let redirects = ProbeReply {
            location: (!location.is_empty()).then(|| location.to_owned()),
            ..reply(status)
        };
        let found = shown(diagnose_probe(&probe(Ok(redirects)), &configured));
        let (severity, words) = want.split_once(" … ").unwrap();
        assert!(
            found.starts_with(severity) && found.contains(words),
            "{found}"
        );
    }
}

#[test]
fn a_secret_address_is_never_shown() {
    let statuses = [200, 302, 308, 401, 404, 503];
    let mut replies: Vec<ProbeResult> = statuses.map(|status| Ok(reply(status))).into();
    replies.push(Err(failure(FailureCause::Timeout, "timed out")));
    for location in [
        "/hunter2/in",
        "?key=hunter2",
        "https://hunter2@hub.example/",
    ] {
        let redirects = |status| ProbeReply {
            location: Some(location.to_owned()),
            ..reply(status)
        };
        replies.extend([301, 308].map(|status| Ok(redirects(status))));
    }
    for head in replies {
        let probe = HubProbe {
            publish_url: "https://hub.example/hunter2/?key=hunter2".parse().unwrap(),
            ..probe(head)
        };
        let found = shown(diagnose_probe(&probe, &[]));
        assert!(!found.contains("hunter2"), "{found}");
    }
}

#[test]
fn an_unverified_certificate_is_found() {
    let found = verification_off(&Hub::new(HUB));
    assert_eq!(found.severity, Severity::Finding);
    assert!(found.line().contains("ca_file"), "{found:?}");
}

#[test]
fn the_embedded_hub_should_be_reached_where_it_is_advertised() {
    let ours = ProbeReply {
        body: BodyKind::read(HUB_GREETING.as_bytes()),
        ..reply(405)
    };
    let hub = Hub::new("https://e.org/hub");
    assert_eq!(embedded(&hub, &Ok(ours), "public_url"), None);
    for answer in [
        Ok(reply(405)),
        Ok(reply(404)),
        Err(failure(FailureCause::Timeout, "timed out")),
    ] {
        for key in ["public_url", "hub.url"] {
            let found = shown(embedded(&hub, &answer, key));
            let want = "Finding https://e.org/hub: the advertised address";
            assert!(found.starts_with(want), "{found}");
            assert!(found.ends_with(&format!("correct {key}")), "{found}");
        }
    }
}

fn refused(refusal: BrokerRefusal) -> Result<Option<String>, BrokerFailure> {
    let text = "bad".to_owned();
    Err(BrokerFailure::Refused { refusal, text })
}

#[rstest]
#[case(
    Ok(Some("ActiveMQ/5".to_owned())),
    Severity::Note,
    "connected to ActiveMQ/5 at mq:61613"
)]
#[case(Ok(None), Severity::Note, "connected to a broker without a name")]
#[case(
    refused(BrokerRefusal::Credentials),
    Severity::Finding,
    "password_file"
)]
#[case(
    refused(BrokerRefusal::Other),
    Severity::Finding,
    "no connection to mq:61613 (bad)"
)]
#[case(
    Err(BrokerFailure::Timeout),
    Severity::Finding,
    "(timed out): correct url"
)]
fn the_answer_of_a_broker_is_said(
    #[case] answer: Result<Option<String>, BrokerFailure>,
    #[case] severity: Severity,
    #[case] words: &str,
) {
    let diagnostic = broker(&Hub::new("repository"), "mq:61613", &answer);
    assert_eq!(diagnostic.severity, severity);
    assert!(diagnostic.line().contains(words), "{}", diagnostic.line());
}
