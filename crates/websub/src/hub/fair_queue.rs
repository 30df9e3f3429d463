//! Fair queuing of requests to many hosts over a bounded number of slots, so that hosts that hang do not delay others.
//!
//! Each slot is used by one request to one host. A free slot goes to known subscribers, then first attempts, then
//! retries, round robin over the hosts, and to no host beyond its window while others wait. The window of a host grows
//! with each answer and is halved by each request that hangs. A slow request no longer counts as busy, so that requests
//! waiting for an answer do not use up the slots; slow requests have a limit of their own, beyond which the longest of
//! the host with most of them is cut off.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

#[cfg(feature = "hub")]
pub(crate) mod slots;

/// The window of a host that was not called yet.
const INITIAL_WINDOW: usize = 8;
/// The duration from which a request counts as slow instead of busy.
pub const SLOW: Duration = Duration::from_millis(500);
/// Hosts remembered before idle ones are forgotten.
const MAX_IDLE_HOSTS: usize = 10_000;

/// A request that waits for a slot or has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestNumber(u64);

/// The priority of a request among those of all hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Priority {
    /// The subscriber accepted its last delivery, or changes or renews its subscription.
    Known,
    /// The first delivery or verification of a subscriber.
    First,
    /// Another attempt after a failure.
    Retry,
}

/// The slots and the requests waiting for one. Times count from any one start.
#[derive(Debug, Default)]
pub struct FairQueue {
    /// Maximum busy requests, and maximum slow ones.
    capacity: usize,
    hosts: HashMap<String, HostState>,
    /// Number of hosts at which idle ones are forgotten next: twice those that were left the last time, because there may
    /// be none.
    next_prune: usize,
    /// Hosts with a request waiting, in round-robin order: by a number that is renewed with each turn.
    rings: BTreeMap<RequestOrder, BTreeMap<u64, String>>,
    /// The requests that have a slot.
    running: HashMap<RequestNumber, RunningRequest>,
    busy: BTreeSet<(Duration, RequestNumber)>,
    slow: BTreeSet<(Duration, RequestNumber)>,
    /// Busy requests to hosts that hang.
    in_trouble: usize,
    /// The last number of a request, or of an entry in a ring.
    last: u64,
    /// The number of requests that wait for a slot.
    waiting: usize,
}

#[derive(Debug)]
struct HostState {
    /// The number of requests that it may have running while others wait.
    window: usize,
    waiting: BTreeMap<Priority, HostQueue>,
    running: usize,
}

#[derive(Debug, Default)]
struct HostQueue {
    tickets: VecDeque<RequestNumber>,
    /// The class of its ring, and its number there.
    entry: Option<(RequestOrder, u64)>,
}

#[derive(Debug)]
struct RunningRequest {
    host: String,
    since: Duration,
    was_in_trouble: bool,
}

/// The order in which waiting requests get slots; those that are equal are treated alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct RequestOrder {
    /// Beyond its window a host gets only slots that no other needs.
    is_beyond_window: bool,
    priority: Priority,
    is_in_trouble: bool,
}

impl Default for HostState {
    fn default() -> HostState {
        HostState {
            window: INITIAL_WINDOW,
            waiting: BTreeMap::new(),
            running: 0,
        }
    }
}

impl HostState {
    fn class(&self, priority: Priority) -> RequestOrder {
        RequestOrder {
            is_beyond_window: self.running >= self.window,
            priority,
            is_in_trouble: self.window < INITIAL_WINDOW,
        }
    }

    fn is_idle(&self) -> bool {
        self.running == 0 && self.waiting.values().all(|queue| queue.tickets.is_empty())
    }
}

impl FairQueue {
    /// Returns an empty queue with so many slots, and as many for slow requests.
    pub fn new(capacity: usize) -> FairQueue {
        FairQueue {
            capacity: capacity.max(1),
            next_prune: MAX_IDLE_HOSTS,
            ..FairQueue::default()
        }
    }

    /// Queues a request to a host.
    pub fn enqueue(&mut self, host: &str, priority: Priority) -> RequestNumber {
        self.last += 1;
        let ticket = RequestNumber(self.last);
        if self.hosts.len() >= self.next_prune && !self.hosts.contains_key(host) {
            self.hosts.retain(|_, host| !host.is_idle());
            self.next_prune = MAX_IDLE_HOSTS.max(2 * self.hosts.len());
        }
        let state = self.hosts.entry(host.to_owned()).or_default();
        let queue = state.waiting.entry(priority).or_default();
        queue.tickets.push_back(ticket);
        self.waiting += 1;
        if queue.tickets.len() == 1 {
            self.append_to_ring(host, priority);
        }
        ticket
    }

    /// Appends a host to the ring of its class, and removes its earlier entry.
    fn append_to_ring(&mut self, host: &str, priority: Priority) {
        let Some(state) = self.hosts.get_mut(host) else {
            return;
        };
        let class = state.class(priority);
        let queue = state.waiting.entry(priority).or_default();
        self.last += 1;
        let before = queue.entry.replace((class, self.last));
        let ring = self.rings.entry(class).or_default();
        ring.insert(self.last, host.to_owned());
        self.remove_entry(before);
    }

    /// Gives the free slots to waiting requests and returns those.
    pub fn admit(&mut self, now: Duration) -> Vec<RequestNumber> {
        self.mark_slow_requests(now);
        let mut admitted = Vec::new();
        while let Some((host, priority)) = self.next_host() {
            // A host in a ring has a request waiting.
            let Some(state) = self.hosts.get_mut(&host) else {
                continue;
            };
            let queue = state.waiting.entry(priority).or_default();
            let Some(ticket) = queue.tickets.pop_front() else {
                continue;
            };
            let is_more = !queue.tickets.is_empty();
            let was_within = state.running < state.window;
            state.running += 1;
            let is_within = state.running < state.window;
            let was_in_trouble = state.window < INITIAL_WINDOW;
            self.waiting -= 1;
            self.in_trouble += usize::from(was_in_trouble);
            if is_within != was_within {
                self.reclassify_host(&host);
            } else if is_more {
                self.append_to_ring(&host, priority);
            }
            let running = RunningRequest {
                host,
                since: now,
                was_in_trouble,
            };
            self.running.insert(ticket, running);
            self.busy.insert((now, ticket));
            admitted.push(ticket);
        }
        admitted
    }

    /// Appends all waiting requests of a host whose class has changed.
    fn reclassify_host(&mut self, host: &str) {
        let Some(state) = self.hosts.get(host) else {
            return;
        };
        let waiting = state.waiting.iter();
        let waiting = waiting.filter(|(_, queue)| !queue.tickets.is_empty());
        let priorities: Vec<Priority> = waiting.map(|(priority, _)| *priority).collect();
        for priority in priorities {
            self.append_to_ring(host, priority);
        }
    }

    /// Takes the host that is next, and the priority of its request, from the rings.
    fn next_host(&mut self) -> Option<(String, Priority)> {
        if self.busy.len() >= self.capacity {
            return None;
        }
        // Half of all slots are for hosts within their window, three quarters for hosts that answer.
        let is_spare = self.running.len() < self.capacity.div_ceil(2);
        let has_room = self.in_trouble < self.capacity.div_ceil(4);
        let is_open = |class: &RequestOrder| {
            (!class.is_beyond_window || is_spare) && (!class.is_in_trouble || has_room)
        };
        let mut rings = self.rings.iter_mut().filter(|(class, _)| is_open(class));
        rings.find_map(|(class, ring)| Some((ring.pop_first()?.1, class.priority)))
    }

    fn remove_entry(&mut self, entry: Option<(RequestOrder, u64)>) {
        if let Some((class, number)) = entry
            && let Some(ring) = self.rings.get_mut(&class)
        {
            ring.remove(&number);
        }
    }

    /// Counts requests that have become slow as such.
    fn mark_slow_requests(&mut self, now: Duration) {
        while let Some(&(since, ticket)) = self.busy.first()
            && now.saturating_sub(since) >= SLOW
            && self.slow.len() < self.capacity
        {
            self.busy.remove(&(since, ticket));
            self.slow.insert((since, ticket));
            if let Some(running) = self.running.get(&ticket) {
                self.in_trouble -= usize::from(running.was_in_trouble);
            }
        }
    }

    /// Returns the requests to cut off because others wait and the limit of slow requests is reached: of the hosts with
    /// most slow requests, the longest. Each still has to [leave](FairQueue::leave).
    pub fn to_cut_off(&self, now: Duration) -> Vec<RequestNumber> {
        let is_stuck = |(since, _): &&(Duration, RequestNumber)| now.saturating_sub(*since) >= SLOW;
        let stuck = self.busy.iter().take_while(|key| is_stuck(key)).count();
        if self.waiting == 0 || self.slow.len() < self.capacity || stuck == 0 {
            return Vec::new();
        }
        let mut of_hosts: HashMap<&str, usize> = HashMap::new();
        let mut slow: Vec<(usize, RequestNumber)> = self
            .slow
            .iter()
            .rev()
            .filter_map(|(_, ticket)| {
                // Counted from the newest: the oldest of a host with many has the highest number.
                let count = of_hosts
                    .entry(self.running.get(ticket)?.host.as_str())
                    .or_default();
                *count += 1;
                Some((*count, *ticket))
            })
            .collect();
        slow.sort_by_key(|(count, ticket)| (std::cmp::Reverse(*count), *ticket));
        slow.iter().take(stuck).map(|(_, ticket)| *ticket).collect()
    }

    /// Ends a request that has a slot. `was_answered` is true if anything came back.
    pub fn leave(&mut self, ticket: RequestNumber, was_answered: bool, now: Duration) {
        let Some(ended) = self.running.remove(&ticket) else {
            return;
        };
        let key = (ended.since, ticket);
        if self.busy.remove(&key) {
            self.in_trouble -= usize::from(ended.was_in_trouble);
        }
        self.slow.remove(&key);
        let max_window = self.capacity.div_ceil(2).max(INITIAL_WINDOW);
        let Some(state) = self.hosts.get_mut(&ended.host) else {
            return;
        };
        let before = state.class(Priority::First);
        state.running -= 1;
        let window = &mut state.window;
        if was_answered {
            *window = (*window + 1).min(max_window);
        } else if now.saturating_sub(ended.since) >= SLOW {
            *window = (*window / 2).max(1);
        }
        if state.class(Priority::First) != before {
            self.reclassify_host(&ended.host);
        }
    }

    /// Removes a waiting request.
    pub fn cancel(&mut self, host: &str, priority: Priority, ticket: RequestNumber) {
        let state = self.hosts.get_mut(host);
        let Some(queue) = state.and_then(|state| state.waiting.get_mut(&priority)) else {
            return;
        };
        let before = queue.tickets.len();
        queue.tickets.retain(|waiting| *waiting != ticket);
        self.waiting -= before - queue.tickets.len();
        if queue.tickets.is_empty() {
            let entry = queue.entry.take();
            self.remove_entry(entry);
        }
    }
}

#[cfg(test)]
mod tests;
