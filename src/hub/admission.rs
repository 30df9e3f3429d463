//! How much of the hub anyone may take: requests, verifications under way, subscriptions; for each callback host, for
//! each requester, and in all.

// The addresses alone: `core` has no sockets.
use core::net::IpAddr;
use std::time::Duration;

use crate::hub::limits::{Excess, Limits, Most, What, Whose};
use crate::hub::pace::Pace;
use crate::hub::request::Action;
use crate::hub::requester::Requester;
use crate::hub::tally::{Scope, Share, Tally, callbacks, requesters};

/// Verifications end by themselves within about this time.
const VERIFICATION: Duration = Duration::from_secs(30);
/// Subscriptions end when their lease does, which may be long.
const SUBSCRIPTION: Duration = Duration::from_secs(3_600);

/// What is taken at present.
#[derive(Debug)]
pub struct Admission {
    limits: Limits,
    pace: Pace<Scope>,
    verifications: Tally,
    /// Verifications of subscriptions that there are.
    renewals: Tally,
    subscriptions: Tally,
}

impl Admission {
    pub fn new(limits: Limits) -> Admission {
        Admission {
            pace: Pace::new(limits.requests_per_minute),
            verifications: Tally::default(),
            renewals: Tally::default(),
            subscriptions: Tally::default(),
            limits,
        }
    }

    /// Other limits hold from now on. What is taken stays taken; if the pace is another, it begins anew.
    pub fn change(&mut self, limits: Limits) {
        if limits.requests_per_minute != self.limits.requests_per_minute {
            self.pace = Pace::new(limits.requests_per_minute);
        }
        self.limits = limits;
    }

    /// A request has come, whatever it may be. Times run from any one beginning.
    pub fn request(&mut self, from: Option<Requester>, now: Duration) -> Result<(), Excess> {
        let scopes = from.as_ref().map(requesters).unwrap_or_default();
        self.take(&scopes, now)
    }

    /// A verification is to begin. Who ends or renews a subscription that there is, is held back neither by how many
    /// there are, nor by strangers: neither by those who name the same host over and over, nor by those who fill the
    /// queue.
    pub fn begin(
        &mut self,
        share: &Share,
        action: &Action,
        is_known: bool,
        now: Duration,
    ) -> Result<(), Excess> {
        let excess = |what, retry_after| {
            move |of| Excess {
                what,
                of,
                retry_after,
            }
        };
        let most = &self.limits.verifications;
        if is_known {
            room(&[&self.renewals], share, most)
                .map_err(excess(What::Verifications, VERIFICATION))?;
            self.renewals.add(share);
            return Ok(());
        }
        if let Action::Subscribe { .. } = action {
            // What is being verified may all become subscriptions.
            let tallies = [&self.subscriptions, &self.verifications];
            room(&tallies, share, &self.limits.subscriptions)
                .map_err(excess(What::Subscriptions, SUBSCRIPTION))?;
        }
        room(&[&self.verifications], share, most)
            .map_err(excess(What::Verifications, VERIFICATION))?;
        self.take(&share.hosts(), now)?;
        self.verifications.add(share);
        Ok(())
    }

    /// A verification is to connect to an address that a name stands for: names cost nothing, so the address counts as
    /// a host too.
    pub fn connect(&mut self, address: IpAddr, now: Duration) -> Result<(), Excess> {
        self.take(&callbacks(address), now)
    }

    /// Whether no more verifications are taken from anybody. Then each of them is tried once only.
    pub fn is_full(&self) -> bool {
        self.verifications.in_all >= self.limits.verifications.in_all
    }

    /// A verification that [`begin`](Admission::begin) let begin has ended.
    pub fn end(&mut self, share: &Share, is_known: bool) {
        match is_known {
            true => self.renewals.remove(share),
            false => self.verifications.remove(share),
        }
    }

    /// There is a subscription more.
    pub fn subscribed(&mut self, share: &Share) {
        self.subscriptions.add(share);
    }

    /// There is one less.
    pub fn unsubscribed(&mut self, share: &Share) {
        self.subscriptions.remove(share);
    }

    fn take(&mut self, scopes: &[(Scope, u32)], now: Duration) -> Result<(), Excess> {
        let taken = self.pace.take_for_all(scopes, now);
        taken.map_err(|(scope, retry_after)| Excess {
            what: What::Requests,
            of: scope.whose(),
            retry_after,
        })
    }
}

/// Whether there is room for one more, else whose share is used up.
fn room(tallies: &[&Tally], share: &Share, most: &Most) -> Result<(), Whose> {
    let sum = |count: &dyn Fn(&Tally) -> u32| tallies.iter().map(|tally| count(tally)).sum::<u32>();
    let requesters = share.requesters().into_iter();
    let requesters = requesters.map(|(scope, times)| (scope, most.per_address, times));
    let hosts = share.hosts().into_iter();
    let hosts = hosts.map(|(scope, times)| (scope, most.per_host, times));
    for (scope, most, times) in requesters.chain(hosts) {
        if sum(&|tally| tally.of(&scope)) >= most.saturating_mul(times) {
            return Err(scope.whose());
        }
    }
    if sum(&|tally| tally.in_all) >= most.in_all {
        return Err(Whose::Everyone);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::hub::Callback;

    use super::*;

    const START: Duration = Duration::ZERO;

    fn requester(last: u8) -> Requester {
        Requester::new([9, 9, 9, last].into())
    }

    fn share(host: &str, own: u8) -> Share {
        let callback = Callback::new(format!("http://{host}/c"));
        Share::new(&callback, Some(requester(own)))
    }

    fn share_of(host: &str, address: &str) -> Share {
        let callback = Callback::new(format!("http://{host}/c"));
        let requester = Requester::new(address.parse().unwrap());
        Share::new(&callback, Some(requester))
    }

    fn admission(limits: impl Fn(&mut Limits)) -> Admission {
        let mut set = Limits::default();
        limits(&mut set);
        Admission::new(set)
    }

    const SUBSCRIBE: Action = Action::Subscribe {
        lease: Duration::from_secs(300),
        secret: None,
    };

    fn refused(outcome: Result<(), Excess>) -> Option<(What, Whose)> {
        outcome.err().map(|excess| (excess.what, excess.of))
    }

    #[test]
    fn one_requester_cannot_take_what_belongs_to_others() {
        let mut admission = admission(|limits| limits.requests_per_minute = 2);
        let one = Some(requester(1));
        assert_eq!(admission.request(one, START), Ok(()));
        assert_eq!(admission.request(one, START), Ok(()));
        let excess = admission.request(one, START).unwrap_err();
        assert_eq!(excess.to_string(), "too many requests from your address");
        assert_eq!((excess.status(), excess.retry_after.as_secs()), (429, 30));
        assert_eq!(admission.request(Some(requester(2)), START), Ok(()));
        assert_eq!(admission.request(None, START), Ok(()));
    }

    #[test]
    fn verifications_are_bounded_for_each_host_and_requester_and_in_all() {
        let mut admission = admission(|limits| {
            limits.verifications = Most {
                in_all: 3,
                per_host: 2,
                per_address: 2,
            };
        });
        let mut begin =
            |share: &Share| refused(admission.begin(share, &Action::Unsubscribe, false, START));
        let what = What::Verifications;
        assert_eq!(begin(&share("a", 1)), None);
        assert_eq!(begin(&share("b", 1)), None);
        assert_eq!(begin(&share("c", 1)), Some((what, Whose::Requester)));
        assert_eq!(begin(&share("a", 2)), None);
        assert_eq!(begin(&share("A.", 3)), Some((what, Whose::Host)));
        assert_eq!(begin(&share("c", 3)), Some((what, Whose::Everyone)));
        admission.end(&share("a", 1), false);
        assert_eq!(
            refused(admission.begin(&share("c", 3), &SUBSCRIBE, false, START)),
            None
        );
    }

    #[test]
    fn subscriptions_are_bounded_and_those_there_are_may_be_renewed_and_ended() {
        let mut admission = admission(|limits| {
            limits.subscriptions = Most {
                in_all: 4,
                per_host: 3,
                per_address: 2,
            };
        });
        for (host, requester, want) in [
            ("a", 1, None),
            ("a", 1, None),
            ("b", 1, Some(Whose::Requester)),
            ("a", 2, None),
            ("a", 2, Some(Whose::Host)),
            ("b", 2, None),
            ("c", 3, Some(Whose::Everyone)),
        ] {
            let share = share(host, requester);
            let found = admission.begin(&share, &SUBSCRIBE, false, START);
            assert_eq!(
                refused(found),
                want.map(|whose| (What::Subscriptions, whose))
            );
            if want.is_none() {
                admission.end(&share, false);
                admission.subscribed(&share);
            }
        }
        assert_eq!(
            admission.begin(&share("a", 1), &SUBSCRIBE, true, START),
            Ok(())
        );
        admission.end(&share("a", 1), true);
        admission.unsubscribed(&share("a", 1));
        assert_eq!(
            admission.begin(&share("a", 1), &SUBSCRIBE, false, START),
            Ok(())
        );
        // Until that one is verified or not, it may become the last there is room for.
        let found = admission.begin(&share("c", 3), &SUBSCRIBE, false, START);
        assert_eq!(found.unwrap_err().status(), 503);
    }

    #[test]
    fn no_crowd_makes_the_hub_knock_at_one_host_too_often() {
        let mut admission = admission(|limits| limits.requests_per_minute = 5);
        for requester in 0..5 {
            let share = share("victim.example", requester);
            assert_eq!(admission.begin(&share, &SUBSCRIBE, false, START), Ok(()));
            admission.end(&share, false);
        }
        let share = share("victim.example", 9);
        for action in [SUBSCRIBE, Action::Unsubscribe] {
            let found = admission.begin(&share, &action, false, START);
            assert_eq!(refused(found), Some((What::Requests, Whose::Host)));
            // Nor does it keep those out who have subscribed.
            assert_eq!(admission.begin(&share, &action, true, START), Ok(()));
        }
    }

    #[test]
    fn names_of_one_address_count_as_that_address() {
        let mut admission = admission(|limits| limits.requests_per_minute = 5);
        let address = "9.9.9.9".parse().unwrap();
        for _ in 0..5 {
            assert_eq!(admission.connect(address, START), Ok(()));
        }
        let mapped = "::ffff:9.9.9.9".parse().unwrap();
        for address in [address, mapped] {
            let found = admission.connect(address, START);
            assert_eq!(refused(found), Some((What::Requests, Whose::Host)));
        }
        // Those who name it by its address come to the same.
        let found = admission.begin(&share("9.9.9.9", 1), &SUBSCRIBE, false, START);
        assert_eq!(refused(found), Some((What::Requests, Whose::Host)));
        let other = "9.9.9.8".parse().unwrap();
        assert_eq!(admission.connect(other, START), Ok(()));
    }

    #[test]
    fn one_ipv6_prefix_cannot_fill_the_queue() {
        let mut admission = admission(|limits| limits.set_requests_per_minute(30));
        let mut begun = [0; 4];
        for network in 0..34 {
            for n in 0..30 {
                let host = format!("h{n}.n{network}");
                let share = share_of(&host, &format!("2a00:1:2:{network:x}::1"));
                match admission.begin(&share, &SUBSCRIBE, false, START) {
                    Ok(()) => begun[0] += 1,
                    Err(excess) => {
                        assert_eq!((excess.of, excess.status()), (Whose::Requester, 429));
                        begun[1] += 1;
                    }
                }
            }
        }
        // All are of one /56, which may take twice as much as a /64.
        assert_eq!(begun, [60, 960, 0, 0]);
        let neighbour = share_of("other", "2a00:1:2:100::1");
        assert_eq!(
            admission.begin(&neighbour, &SUBSCRIBE, false, START),
            Ok(())
        );
    }

    #[test]
    fn those_there_are_have_a_queue_of_their_own() {
        let mut admission = admission(|limits| limits.verifications.in_all = 2);
        for requester in 1..=2 {
            assert!(!admission.is_full());
            let share = share("a", requester);
            assert_eq!(admission.begin(&share, &SUBSCRIBE, false, START), Ok(()));
        }
        assert!(admission.is_full());
        let third = share("a", 3);
        let found = admission.begin(&third, &SUBSCRIBE, false, START);
        assert_eq!(found.unwrap_err().status(), 503);
        assert_eq!(admission.begin(&third, &SUBSCRIBE, true, START), Ok(()));
        admission.end(&third, true);
        assert_eq!(admission.renewals, Tally::default());
        assert!(admission.is_full());
    }

    proptest! {
        #[test]
        fn what_has_ended_leaves_nothing_behind(steps: Vec<(u8, u8, bool)>) {
            let mut admission = admission(|_| {});
            let mut begun = Vec::new();
            for (host, requester, ends) in steps {
                if ends && let Some(share) = begun.pop() {
                    admission.end(&share, false);
                }
                let share = share(&format!("h{}", host % 4), requester % 4);
                if admission.begin(&share, &SUBSCRIBE, false, START).is_ok() {
                    begun.push(share);
                }
                prop_assert_eq!(admission.verifications.in_all as usize, begun.len());
            }
            for share in begun {
                admission.end(&share, false);
            }
            prop_assert_eq!(admission.verifications, Tally::default());
        }
    }
}
