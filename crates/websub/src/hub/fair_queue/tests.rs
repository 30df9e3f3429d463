//! Load in simulated time: requests to hosts that answer are not delayed by hosts that hang.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use proptest::prelude::*;

use super::*;

const TIMEOUT: Duration = Duration::from_secs(10);
const QUICK: Duration = Duration::from_millis(50);

/// Requests queued at once: host, number, priority, and true if they hang.
type Load = Vec<(String, usize, Priority, bool)>;

/// Returns the time at which the last request that does not hang has ended, and the maximum of requests under way.
fn run(slots: &mut FairQueue, load: &Load, start: Duration, end: Duration) -> (Duration, usize) {
    let mut hanging = BTreeMap::new();
    for (host, count, priority, hangs) in load {
        for _ in 0..*count {
            hanging.insert(slots.enqueue(host, *priority), *hangs);
        }
    }
    let (mut now, mut ends, mut last, mut max) = (start, BinaryHeap::new(), start, 0);
    let mut gone = BTreeSet::new();
    while now < end {
        for ticket in slots.to_cut_off(now) {
            slots.leave(ticket, false, now);
            gone.insert(ticket);
        }
        while let Some(Reverse((at, ticket))) = ends.peek().copied()
            && at <= now
        {
            ends.pop();
            if gone.contains(&ticket) {
                continue;
            }
            let hangs = hanging.get(&ticket).copied().unwrap_or(true);
            slots.leave(ticket, !hangs, now);
            if !hangs {
                last = at;
            }
        }
        for ticket in slots.admit(now) {
            let hangs = hanging.get(&ticket).copied().unwrap_or(true);
            let takes = if hangs { TIMEOUT } else { QUICK };
            ends.push(Reverse((now + takes, ticket)));
        }
        max = max.max(slots.running.len());
        now += Duration::from_millis(10);
    }
    (last - start, max)
}

fn hosts(name: &str, hosts: usize, each: usize, priority: Priority, hangs: bool) -> Load {
    let host = |n| (format!("{name}{n}"), each, priority, hangs);
    (0..hosts).map(host).collect()
}

const SECONDS: Duration = Duration::from_secs(2);

#[test]
fn hosts_that_hang_delay_no_others() {
    for (bad_hosts, each) in [(10, 1_000), (1, 10_000), (200, 50), (1_000, 10)] {
        for priority in [Priority::First, Priority::Known] {
            let mut slots = FairQueue::new(512);
            let mut load = hosts("bad", bad_hosts, each, Priority::First, true);
            load.extend(hosts("good", 20, 1, priority, false));
            let (last, max) = run(&mut slots, &load, Duration::ZERO, SECONDS * 2);
            assert!(last <= SECONDS, "{bad_hosts} hosts, {priority:?}: {last:?}");
            assert!(max <= 1_024, "{max}");
        }
    }
}

#[test]
fn first_attempts_go_before_retries() {
    let mut slots = FairQueue::new(512);
    let bad = hosts("bad", 5_000, 2, Priority::Retry, true);
    run(&mut slots, &bad, Duration::ZERO, TIMEOUT);
    let good = hosts("good", 20, 1, Priority::First, false);
    let (last, _) = run(&mut slots, &good, TIMEOUT, TIMEOUT + SECONDS);
    assert!(last > Duration::ZERO && last <= SECONDS, "{last:?}");
}

#[test]
fn a_host_that_answers_may_use_slots_that_no_other_needs() {
    let mut slots = FairQueue::new(512);
    let load = hosts("large", 1, 5_000, Priority::First, false);
    let (last, max) = run(&mut slots, &load, Duration::ZERO, SECONDS * 5);
    assert!(last <= SECONDS, "{last:?}");
    assert!(max >= 256, "{max}");
}

#[test]
fn a_host_that_hangs_gets_fewer_slots_and_more_once_it_answers() {
    let mut slots = FairQueue::new(64);
    let now = Duration::ZERO;
    let window = |slots: &FairQueue| slots.hosts["a"].window;
    for (takes, answered, want) in [
        (TIMEOUT, false, 4),
        (TIMEOUT, false, 2),
        // It refused at once: that costs nobody a slot.
        (Duration::ZERO, false, 2),
        (TIMEOUT, false, 1),
        (TIMEOUT, false, 1),
        (QUICK, true, 2),
        (TIMEOUT, true, 3),
    ] {
        slots.enqueue("a", Priority::First);
        let admitted = slots.admit(now);
        slots.leave(admitted[0], answered, now + takes);
        assert_eq!(window(&slots), want);
    }
}

#[test]
fn many_hosts_are_not_searched_for_idle_ones_at_each_request() {
    let mut slots = FairQueue::new(10);
    for host in 0..MAX_IDLE_HOSTS {
        slots.enqueue(&format!("host{host}"), Priority::First);
    }
    slots.enqueue("one more", Priority::First);
    // None of them was idle.
    assert_eq!(slots.next_prune, 2 * MAX_IDLE_HOSTS);
    let mut now = Duration::ZERO;
    while slots.waiting > 0 {
        for ticket in slots.admit(now) {
            slots.leave(ticket, true, now);
        }
        now += QUICK;
    }
    for host in 0..MAX_IDLE_HOSTS {
        slots.enqueue(&format!("other{host}"), Priority::First);
    }
    // Idle ones were forgotten.
    assert_eq!(slots.hosts.len(), MAX_IDLE_HOSTS);
}

#[test]
fn a_cancelled_request_takes_no_slot() {
    let mut slots = FairQueue::new(1);
    let first = slots.enqueue("a", Priority::First);
    assert_eq!(slots.admit(Duration::ZERO), [first]);
    let second = slots.enqueue("a", Priority::First);
    let third = slots.enqueue("b", Priority::Retry);
    slots.cancel("a", Priority::First, second);
    slots.leave(first, true, QUICK);
    assert_eq!(slots.admit(QUICK), [third]);
    assert_eq!(slots.waiting, 0);
}

proptest! {
    #[test]
    fn every_request_gets_its_slot_and_no_more_are_under_way_than_may(
        capacity in 1..20_usize,
        steps: Vec<(u8, u8, bool)>,
    ) {
        let mut slots = FairQueue::new(capacity);
        let mut open = BTreeMap::new();
        let mut under_way = Vec::new();
        let mut now = Duration::ZERO;
        for (host, what, answered) in steps {
            now += Duration::from_millis(u64::from(what) * 10);
            let priority = [Priority::Known, Priority::First, Priority::Retry][usize::from(what % 3)];
            let host = format!("h{}", host % 5);
            let ticket = slots.enqueue(&host, priority);
            if what % 7 == 0 {
                slots.cancel(&host, priority, ticket);
            } else {
                open.insert(ticket, ());
            }
            under_way.extend(slots.admit(now));
            prop_assert!(slots.running.len() <= 2 * capacity);
            if what % 2 == 0 && let Some(ticket) = under_way.pop() {
                slots.leave(ticket, answered, now);
                open.remove(&ticket);
            }
        }
        while !open.is_empty() {
            now += TIMEOUT;
            let before = open.len();
            under_way.extend(slots.admit(now));
            for ticket in under_way.drain(..) {
                slots.leave(ticket, false, now);
                open.remove(&ticket);
            }
            prop_assert!(open.len() < before);
        }
        prop_assert!(slots.busy.is_empty() && slots.slow.is_empty() && slots.in_trouble == 0);
        prop_assert_eq!((slots.waiting, slots.running.len()), (0, 0));
    }
}
