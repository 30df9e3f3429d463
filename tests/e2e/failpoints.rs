//! `kill -9` at each failpoint of a delivery: what was sent is repeated unchanged, and the rest follows.

mod changes;
mod story;

use rstest::rstest;

use crate::failpoints::story::{Hubs, Story, UPDATED, UPDATED_LIST};

/// The expected state after a daemon died at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// Nothing is cut, or it is not saved.
    Nothing,
    /// The notification is saved.
    Saved,
    /// The hub has the notification, and that it took it is not saved.
    Sent,
    Told,
}

use Found::{Nothing, Saved, Sent, Told};

/// Points where a delivery to a hub dies: the names of `daemon::failpoints::Failpoint`, and `Sent`, when the hub has
/// the whole request and has not answered.
#[rstest]
fn a_hub_receives_everything_in_order_wherever_the_daemon_dies(
    #[values(Hubs::Content, Hubs::ContentQuery, Hubs::Ping, Hubs::OneDown)] hubs: Hubs,
    #[values(
        ("Observed", Nothing),
        ("Seen", Nothing),
        ("SeenSaved", Nothing),
        ("Cut", Nothing),
        ("CutSaved", Saved),
        ("Served", Saved),
        ("Submitting", Saved),
        ("Sent", Sent),
        ("Answered", Sent),
        ("Told", Sent),
        ("ToldSaved", Told)
    )]
    step: (&str, Found),
    #[values(1, 2)] passing: usize,
) {
    let (step, found) = match (hubs, step, passing) {
        // The topic has the second change before it is this hub's turn to be told (R25).
        (Hubs::Ping, ("Served", _), 2) => ("Served", Nothing),
        (_, step, _) => step,
    };
    let mut story = Story::new(hubs);
    let death = story.dies_at(step, passing);
    // Of two hubs, either may be the one that passed it; and a file may be looked at more than once.
    if hubs != Hubs::OneDown && death.changes == passing {
        assert_eq!(death.is_cut, found != Nothing);
        assert_eq!(death.flight.is_some(), matches!(found, Saved | Sent));
        assert_eq!(death.copies == 1, matches!(found, Sent | Told));
    }
    story.resumes(&death);
    story.tells_the_rest();
    // What was not cut is one change with the one that came while no daemon ran.
    let mut wanted = vec![UPDATED; death.changes + usize::from(death.is_cut)];
    wanted.push(UPDATED_LIST);
    match hubs {
        Hubs::Ping => {
            let pings = wanted.len() + usize::from(found == Sent);
            assert_eq!(story.requests(), pings, "again only if not saved as told");
            // The topic holds all that was said lately.
            assert!(
                story
                    .told()
                    .ends_with(&[UPDATED, UPDATED_LIST].map(str::to_owned))
            );
        }
        Hubs::OneDown => assert_eq!(story.told(), wanted),
        _ => {
            assert_eq!(story.told(), wanted);
            assert_eq!(story.requests(), wanted.len() + usize::from(found == Sent));
        }
    }
    story.ends();
}

/// Points where a delivery by the embedded hub dies.
#[rstest]
fn a_subscriber_receives_everything_in_order_wherever_the_daemon_dies(
    #[values(
        "Observed",
        "Seen",
        "SeenSaved",
        "Cut",
        "CutSaved",
        "Served",
        "Dispatched",
        "Told",
        "ToldSaved",
        "Sent",
        "Relayed",
        "Recorded",
        "RecordedSaved"
    )]
    step: &str,
    #[values(1, 2)] passing: usize,
) {
    let mut story = Story::new(Hubs::Embedded);
    let death = story.dies_at(step, passing);
    match step {
        "CutSaved" | "Served" => {
            assert!(death.flight.is_some() && death.owed == 0 && death.copies == 0);
        }
        // The deliveries are saved with the acceptance.
        "Told" => assert!(death.flight.is_some() && death.owed == 0),
        "Dispatched" | "ToldSaved" => assert!(death.flight.is_none()),
        "Sent" | "Relayed" | "Recorded" => assert!(death.owed == 1 && death.copies == 1),
        "RecordedSaved" => assert!(death.owed == 0 && death.copies == 1),
        _ if death.changes < passing => {} // a file was looked at more than once
        _ => assert!(!death.is_cut && death.owed == 0 && death.copies == 0),
    }
    story.resumes(&death);
    story.tells_the_rest();
    let mut wanted = vec![UPDATED; death.changes + usize::from(death.is_cut)];
    wanted.push(UPDATED_LIST);
    assert_eq!(story.told(), wanted);
    story.ends();
}
