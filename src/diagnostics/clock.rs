//! Diagnostics of clocks: a wrong clock makes wrong datetimes in notifications, and refuses certificates.

use std::collections::BTreeMap;

use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use websub::probe::ProbeReply;

use crate::diagnostics::Diagnostic;

/// Tolerated difference of two clocks, which includes the time that an answer takes.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(60);
/// Year of the first release; an earlier clock was never set.
const FIRST_YEAR: i16 = 2026;
const SET_IT: &str = "let NTP set it (`timedatectl set-ntp true`)";

/// Returns how far the peer's clock is ahead of ours, by the `Date` of its reply and the `Age` that a cache adds.
pub fn offset(reply: &ProbeReply) -> Option<SignedDuration> {
    let date = reply.date.as_deref()?.trim();
    let date = rfc2822::DateTimeParser::new().parse_timestamp(date).ok()?;
    let age = reply.age.as_deref().and_then(|age| age.trim().parse().ok());
    let age = SignedDuration::from_secs(age.unwrap_or(0).clamp(0, i64::from(u32::MAX)));
    Some(date.duration_since(reply.at).saturating_add(age))
}

/// Compares our clock with those of peers, each with its name.
pub fn diagnostics<'a>(
    offsets: impl IntoIterator<Item = (&'a str, SignedDuration)>,
    now: Timestamp,
) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    let year = now.to_zoned(jiff::tz::TimeZone::UTC).year();
    if year < FIRST_YEAR {
        let message = format!("this machine's clock shows {now:.0}, which is long past");
        diagnostics.push(Diagnostic::finding(message, SET_IT));
    }
    let mut peers: BTreeMap<&str, SignedDuration> = BTreeMap::new();
    for (peer, ahead) in offsets {
        // The smallest of several: caches keep old answers and may not say so.
        let least = peers.entry(peer).or_insert(ahead);
        if ahead.abs() < least.abs() {
            *least = ahead;
        }
    }
    let wrong = peers.iter().filter(|(_, ahead)| ahead.abs() > TOLERANCE);
    let wrong: Vec<_> = wrong.collect();
    let all_differ = wrong.len() > 1 && wrong.len() == peers.len();
    diagnostics.extend(wrong.iter().map(|(peer, ahead)| {
        let is_behind = ahead.is_negative();
        let direction = if is_behind { "behind" } else { "ahead of" };
        let difference = SignedDuration::from_secs(ahead.as_secs()).abs();
        let message = format!("the clock of {peer} is {difference:#} {direction} this machine's");
        let remedy = if all_differ {
            format!("all of them differ, so this one is wrong: {SET_IT}")
        } else {
            format!("one of both is wrong; if it is this one, {SET_IT}")
        };
        Diagnostic::finding(message, remedy)
    }));
    diagnostics
}

/// Compares our clock with the file system's, by its latest modification time.
pub fn file_system(path: &str, changed: Timestamp, now: Timestamp) -> Option<Diagnostic> {
    let ahead = changed.duration_since(now);
    (ahead > TOLERANCE).then(|| {
        let ahead = SignedDuration::from_secs(ahead.as_secs());
        Diagnostic::finding(
            format!("{path} was changed {ahead:#} from now, by the clock of its file system"),
            format!(
                "its files look newer than they are, so their times are ignored; synchronise the clocks of the file \
                 server and this machine: {SET_IT}"
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use crate::diagnostics::tests::reply;

    use super::*;

    fn seconds(seconds: i64) -> SignedDuration {
        SignedDuration::from_secs(seconds)
    }

    fn now() -> Timestamp {
        "2026-11-20T12:00:00Z".parse().unwrap()
    }

    #[rstest]
    #[case(Some("Fri, 20 Nov 2026 12:00:00 GMT"), None, Some(0))]
    #[case(Some("Fri, 20 Nov 2026 13:00:00 GMT"), None, Some(3600))]
    #[case(Some("Fri, 20 Nov 2026 11:59:00 GMT"), None, Some(-60))]
    #[case(Some("Fri, 20 Nov 2026 11:59:00 GMT"), Some("60"), Some(0))]
    #[case(Some("Fri, 20 Nov 2026 11:59:00 GMT"), Some("-5, x"), Some(-60))]
    #[case(Some("yesterday"), None, None)]
    #[case(None, Some("60"), None)]
    fn a_date_is_compared_with_when_it_arrived(
        #[case] date: Option<&str>,
        #[case] age: Option<&str>,
        #[case] want: Option<i64>,
    ) {
        let reply = ProbeReply {
            date: date.map(str::to_owned),
            age: age.map(str::to_owned),
            ..reply(200)
        };
        assert_eq!(offset(&reply), want.map(seconds));
    }

    #[rstest]
    #[case(&[], &[])]
    #[case(&[("a", 60), ("b", -60)], &[])]
    #[case(&[("a", 3_661)], &["the clock of a is 1h 1m 1s ahead of this machine's: one of both"])]
    #[case(&[("a", -90), ("b", 1)], &["the clock of a is 1m 30s behind this machine's: one of both"])]
    #[case(&[("a", 90), ("b", 91)], &["a is 1m 30s ahead of this machine's: all of them", "b is 1m 31s ahead"])]
    #[case(&[("a", -9_000), ("a", 2)], &[])]
    fn clocks_that_differ_by_more_than_a_minute_are_found(
        #[case] offsets: &[(&str, i64)],
        #[case] want: &[&str],
    ) {
        let offsets = offsets.iter().map(|(peer, ahead)| (*peer, seconds(*ahead)));
        let found = diagnostics(offsets, now());
        assert_eq!(found.len(), want.len(), "{found:?}");
        for (found, want) in found.iter().zip(want) {
            assert!(found.line().contains(want), "{}", found.line());
        }
    }

    #[test]
    fn a_clock_that_was_never_set_is_found() {
        let never = "1970-01-01T00:10:00Z";
        let found = diagnostics([], never.parse().unwrap())[0].line();
        assert!(found.contains(never), "{found}");
    }

    #[test]
    fn files_of_the_future_show_a_file_system_that_is_ahead() {
        let found = |ahead| file_system("a.xml", now() + seconds(ahead), now());
        assert_eq!((found(-5), found(60)), (None, None));
        let found = found(7_200).unwrap().line();
        assert!(
            found.starts_with("a.xml was changed 2h from now"),
            "{found}"
        );
    }
}
