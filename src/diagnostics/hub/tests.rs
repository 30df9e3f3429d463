//! Tests of hub diagnostics.

use rstest::rstest;
use websub::probe::{ProbeReply, ReplyBody};

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
#[case(200, "nothing")]
#[case(204, "nothing")]
#[case(304, "nothing")]
#[case(400, "nothing")]
#[case(405, "nothing")]
#[case(411, "nothing")]
#[case(415, "nothing")]
#[case(429, "nothing")]
#[case(501, "nothing")]
#[case(
    401,
    "Finding https://hub.example/websub/: 401 to HEAD, credentials are missing or wrong"
)]
#[case(
    403,
    "Finding https://hub.example/websub/: 403 to HEAD, credentials are missing or wrong"
)]
#[case(
    404,
    "Finding https://hub.example/websub/: 404 to HEAD, no hub at this address: compare url"
)]
#[case(
    410,
    "Finding https://hub.example/websub/: 410 to HEAD, no hub at this address: compare url"
)]
#[case(407, "Finding https://hub.example/websub/: 407, the proxy")]
#[case(500, "Finding https://hub.example/websub/: 500 to HEAD")]
#[case(503, "Finding https://hub.example/websub/: 503 to HEAD")]
fn a_hub_need_not_know_head_but_must_be_there(#[case] status: u16, #[case] want: &str) {
    let mut probe = probe(Ok(reply(status)));
    let found = shown(diagnostic(&probe, &[]));
    assert!(found.starts_with(want), "{found}");

    probe.accepts = true;
    let found = shown(diagnostic(&probe, &[]));
    let want = want.replace("Finding ", "Note ");
    let want = want.split(": compare").next().unwrap();
    assert!(found.starts_with(want), "{found}");
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
    let found = diagnostic(&probe(Err(failure(cause, "words"))), &[]).unwrap();
    assert_eq!(found.severity, Severity::Finding);
    assert!(found.message.contains("words"), "{found:?}");
    assert!(found.remedy.contains(want), "{found:?}");
}

#[rstest]
#[case(308, "/b", "Note", "/b: it is followed")]
#[case(307, "/b?key=k", "Note", "https://hub.example/b?…: it is followed")]
#[case(
    308,
    "https://other.example/in",
    "Note",
    "https://other.example/in: it is followed"
)]
#[case(
    308,
    "https://elsewhere.example/",
    "Finding",
    "https://elsewhere.example/: it is not followed"
)]
#[case(301, "/b", "Finding", "https://hub.example/b: only 307 and 308")]
#[case(
    302,
    "/login?to=x",
    "Finding",
    "https://hub.example/login?…: only 307 and 308"
)]
#[case(
    302,
    "https://u:p@hub.example/",
    "Finding",
    "https://hub.example/: only 307 and 308"
)]
fn a_redirection_is_reported_with_its_target(
    #[case] status: u16,
    #[case] location: &str,
    #[case] severity: &str,
    #[case] want: &str,
) {
    let redirects = ProbeReply {
        location: Some(location.to_owned()),
        ..reply(status)
    };
    let configured = ["https://other.example/in".parse().unwrap()];
    let found = shown(diagnostic(&probe(Ok(redirects)), &configured));
    assert!(
        found.starts_with(severity) && found.contains(want),
        "{found}"
    );
}

#[test]
fn a_redirection_without_a_target_is_found() {
    let found = shown(diagnostic(&probe(Ok(reply(302))), &[]));
    assert!(found.contains("without a valid Location"), "{found}");
}

#[test]
fn a_secret_address_is_never_shown() {
    let mut replies: Vec<ProbeResult> = [200, 302, 308, 401, 404, 503]
        .map(|status| Ok(reply(status)))
        .into();
    replies.push(Err(failure(FailureCause::Timeout, "timed out")));
    for location in [
        "/hunter2/in",
        "?key=hunter2",
        "https://hunter2@hub.example/",
    ] {
        replies.extend([301, 308].map(|status| {
            Ok(ProbeReply {
                location: Some(location.to_owned()),
                ..reply(status)
            })
        }));
    }
    for head in replies {
        let probe = HubProbe {
            publish_url: "https://hub.example/hunter2/?key=hunter2".parse().unwrap(),
            ..probe(head)
        };
        let found = shown(diagnostic(&probe, &[]));
        assert!(!found.contains("hunter2"), "{found}");
    }
}

#[test]
fn an_unverified_certificate_is_found() {
    let found = unverified(&Hub::new(HUB));
    assert_eq!(found.severity, Severity::Finding);
    assert!(found.line().contains("ca_file"), "{found:?}");
}

#[rstest]
#[case(true, "nothing")]
#[case(false, "Finding https://e.org/hub: the advertised address")]
fn the_embedded_hub_should_be_reached_where_it_is_advertised(
    #[case] is_reached: bool,
    #[case] want: &str,
) {
    let ours = ProbeReply {
        body: ReplyBody::read(HUB_GREETING.as_bytes()),
        ..reply(405)
    };
    let answers: Vec<ProbeResult> = if is_reached {
        vec![Ok(ours)]
    } else {
        vec![
            Ok(reply(405)),
            Ok(reply(404)),
            Err(failure(FailureCause::Timeout, "timed out")),
        ]
    };
    for answer in answers {
        for (table, key) in [
            ("public_url", "correct public_url"),
            ("hub.url", "correct hub.url"),
        ] {
            let found = shown(embedded(&Hub::new("https://e.org/hub"), &answer, table));
            assert!(found.starts_with(want), "{found}");
            assert!(is_reached || found.ends_with(key), "{found}");
        }
    }
}

#[rstest]
#[case(
    Ok(Some("ActiveMQ/5")),
    Severity::Note,
    "connected to ActiveMQ/5 at mq:61613"
)]
#[case(Ok(None), Severity::Note, "connected to a broker without a name")]
#[case(Err((Some(BrokerRefusal::Credentials), "bad")), Severity::Finding, "password_file")]
#[case(Err((Some(BrokerRefusal::Other), "bad")), Severity::Finding, "no connection to mq:61613 (bad)")]
#[case(Err((None, "timed out")), Severity::Finding, "correct url")]
fn the_answer_of_a_broker_is_said(
    #[case] answer: Result<Option<&str>, (Option<BrokerRefusal>, &str)>,
    #[case] severity: Severity,
    #[case] words: &str,
) {
    let diagnostic = broker(&Hub::new("repository"), "mq:61613", answer);
    assert_eq!(diagnostic.severity, severity);
    assert!(diagnostic.line().contains(words), "{}", diagnostic.line());
}
