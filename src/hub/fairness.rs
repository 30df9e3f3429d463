//! Fair shares of a bounded number of slots, so that hosts that hang keep no other waiting.
//!
//! Each slot is used by one request to one host. Who gets the next free one is decided here: first tries before
//! retries, one host after the other, and no host more than its window while others wait. The window of a host grows
//! with each answer and is halved by each request that hangs. A request that takes long no longer counts as busy, so
//! that requests that wait for an answer do not use up the slots of those that get one; there is a bound on these too,
//! and beyond it the longest of the host with most of them is cut off.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

/// Requests that a host may have under way before anything is known of it.
const FIRST_WINDOW: usize = 8;
/// A request that has taken so long no longer counts as busy.
pub const SLOW: Duration = Duration::from_millis(500);
/// Hosts remembered before idle ones are forgotten.
const MOST_HOSTS: usize = 10_000;

/// A request that waits for a slot or has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(u64);

/// Which requests of all hosts go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Priority {
    /// The subscriber has answered before.
    Known,
    First,
    Retry,
}

/// The slots, and who waits for one. Times run from any one beginning.
#[derive(Debug)]
pub struct FairShare {
    /// Busy requests at a time, and as many slow ones.
    capacity: usize,
    hosts: HashMap<String, Host>,
    /// Hosts that have a request waiting, in the order of their turns. An entry whose number is not the host's is void.
    rings: BTreeMap<Class, VecDeque<(String, u64)>>,
    held: HashMap<Ticket, Held>,
    busy: BTreeSet<(Duration, Ticket)>,
    slow: BTreeSet<(Duration, Ticket)>,
    /// Busy requests to hosts that hang.
    in_trouble: usize,
    last: u64,
    entries: u64,
    waiting: usize,
}

#[derive(Debug, Default)]
struct Host {
    window: Window,
    waiting: BTreeMap<Priority, Queue>,
    held: usize,
}

#[derive(Debug, Default)]
struct Queue {
    tickets: VecDeque<Ticket>,
    /// The number of its entry in a ring.
    entry: u64,
}

#[derive(Debug, Clone, Copy)]
struct Window(usize);

#[derive(Debug)]
struct Held {
    host: String,
    since: Duration,
    is_slow: bool,
    was_in_trouble: bool,
}

/// Requests that are treated alike, in the order in which they go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Class {
    /// Beyond its window a host gets only what nobody else needs.
    is_beyond: bool,
    priority: Priority,
    is_in_trouble: bool,
}

impl Default for Window {
    fn default() -> Window {
        Window(FIRST_WINDOW)
    }
}

impl Window {
    fn is_in_trouble(self) -> bool {
        self.0 < FIRST_WINDOW
    }
}

impl Host {
    fn class(&self, priority: Priority) -> Class {
        Class {
            is_beyond: self.held >= self.window.0,
            priority,
            is_in_trouble: self.window.is_in_trouble(),
        }
    }

    fn is_idle(&self) -> bool {
        self.held == 0 && self.waiting.values().all(|queue| queue.tickets.is_empty())
    }
}

impl FairShare {
    pub fn new(capacity: usize) -> FairShare {
        FairShare {
            capacity: capacity.max(1),
            hosts: HashMap::new(),
            rings: BTreeMap::new(),
            held: HashMap::new(),
            busy: BTreeSet::new(),
            slow: BTreeSet::new(),
            in_trouble: 0,
            last: 0,
            entries: 0,
            waiting: 0,
        }
    }

    /// Queues a request to a host.
    pub fn queue(&mut self, host: &str, priority: Priority) -> Ticket {
        self.last += 1;
        let ticket = Ticket(self.last);
        if self.hosts.len() >= MOST_HOSTS && !self.hosts.contains_key(host) {
            self.hosts.retain(|_, host| !host.is_idle());
        }
        let own = self.hosts.entry(host.to_owned()).or_default();
        let queue = own.waiting.entry(priority).or_default();
        queue.tickets.push_back(ticket);
        self.waiting += 1;
        if queue.tickets.len() == 1 {
            self.list(host, priority);
        }
        ticket
    }

    /// Gives a host its turn behind all others of its class, instead of the one that it had.
    fn list(&mut self, host: &str, priority: Priority) {
        let Some(own) = self.hosts.get_mut(host) else {
            return;
        };
        let class = own.class(priority);
        let Some(queue) = own.waiting.get_mut(&priority) else {
            return;
        };
        self.entries += 1;
        queue.entry = self.entries;
        let ring = self.rings.entry(class).or_default();
        ring.push_back((host.to_owned(), self.entries));
        if ring.len() > 2 * self.hosts.len() + 64 {
            let hosts = &self.hosts;
            ring.retain(|(host, entry)| is_valid(hosts, host, priority, *entry));
        }
    }

    /// The requests that have a slot from now on.
    pub fn admit(&mut self, now: Duration) -> Vec<Ticket> {
        self.slow_down(now);
        let mut admitted = Vec::new();
        while let Some((host, priority)) = self.next_host() {
            let Some(own) = self.hosts.get_mut(&host) else {
                continue;
            };
            let Some(queue) = own.waiting.get_mut(&priority) else {
                continue;
            };
            let Some(ticket) = queue.tickets.pop_front() else {
                continue;
            };
            let is_more = !queue.tickets.is_empty();
            let was_within = own.held < own.window.0;
            own.held += 1;
            let is_within = own.held < own.window.0;
            let was_in_trouble = own.window.is_in_trouble();
            self.waiting -= 1;
            self.in_trouble += usize::from(was_in_trouble);
            if is_within != was_within {
                self.list_all(&host);
            } else if is_more {
                self.list(&host, priority);
            }
            let held = Held {
                host,
                since: now,
                is_slow: false,
                was_in_trouble,
            };
            self.held.insert(ticket, held);
            self.busy.insert((now, ticket));
            admitted.push(ticket);
        }
        admitted
    }

    /// Lists all that waits for a host whose class has changed.
    fn list_all(&mut self, host: &str) {
        let Some(own) = self.hosts.get(host) else {
            return;
        };
        let waiting = own.waiting.iter();
        let waiting = waiting.filter(|(_, queue)| !queue.tickets.is_empty());
        let priorities: Vec<Priority> = waiting.map(|(priority, _)| *priority).collect();
        for priority in priorities {
            self.list(host, priority);
        }
    }

    /// The host whose turn it is, and which of its requests.
    fn next_host(&mut self) -> Option<(String, Priority)> {
        if self.busy.len() >= self.capacity {
            return None;
        }
        // Half of all slots are for hosts within their window, three quarters for hosts that answer.
        let is_spare = self.held.len() < self.capacity.div_ceil(2);
        let has_room = self.in_trouble < self.capacity.div_ceil(4);
        for (class, ring) in &mut self.rings {
            if class.is_beyond && !is_spare || class.is_in_trouble && !has_room {
                continue;
            }
            while let Some((host, entry)) = ring.pop_front() {
                if is_valid(&self.hosts, &host, class.priority, entry) {
                    return Some((host, class.priority));
                }
            }
        }
        None
    }

    /// Counts requests that have taken long as slow ones.
    fn slow_down(&mut self, now: Duration) {
        while let Some(&(since, ticket)) = self.busy.first()
            && now.saturating_sub(since) >= SLOW
            && self.slow.len() < self.capacity
        {
            self.busy.remove(&(since, ticket));
            self.slow.insert((since, ticket));
            if let Some(held) = self.held.get_mut(&ticket) {
                held.is_slow = true;
                self.in_trouble -= usize::from(held.was_in_trouble);
            }
        }
    }

    /// Requests to be given up because others wait and there is room for no more that take long: of the hosts with
    /// most of them, those that have taken longest. Each still has to [leave](FairShare::leave).
    pub fn excess(&self, now: Duration) -> Vec<Ticket> {
        let is_stuck = |(since, _): &&(Duration, Ticket)| now.saturating_sub(*since) >= SLOW;
        let stuck = self.busy.iter().take_while(|key| is_stuck(key)).count();
        if self.waiting == 0 || self.slow.len() < self.capacity || stuck == 0 {
            return Vec::new();
        }
        let mut of_hosts: HashMap<&str, usize> = HashMap::new();
        let mut slow: Vec<(usize, Ticket)> = self
            .slow
            .iter()
            .rev()
            .filter_map(|(_, ticket)| {
                // Counted from the newest: the oldest of a host with many stands highest.
                let count = of_hosts.entry(self.held.get(ticket)?.host.as_str());
                let count = count.or_default();
                *count += 1;
                Some((*count, *ticket))
            })
            .collect();
        slow.sort_by_key(|(count, ticket)| (std::cmp::Reverse(*count), *ticket));
        slow.iter().take(stuck).map(|(_, ticket)| *ticket).collect()
    }

    /// A request has ended, or waits no more. `was_answered` says whether anything came back.
    pub fn leave(&mut self, ticket: Ticket, was_answered: bool, now: Duration) {
        let Some(held) = self.held.remove(&ticket) else {
            return;
        };
        let key = (held.since, ticket);
        self.busy.remove(&key);
        self.slow.remove(&key);
        if !held.is_slow {
            self.in_trouble -= usize::from(held.was_in_trouble);
        }
        let most = self.capacity.div_ceil(2).max(FIRST_WINDOW);
        let Some(own) = self.hosts.get_mut(&held.host) else {
            return;
        };
        let before = own.class(Priority::First);
        own.held -= 1;
        let Window(window) = &mut own.window;
        if was_answered {
            *window = (*window + 1).min(most);
        } else if now.saturating_sub(held.since) >= SLOW {
            *window = (*window / 2).max(1);
        }
        if own.class(Priority::First) != before {
            self.list_all(&held.host);
        }
    }

    /// Takes a request that still waits out of the queue.
    pub fn cancel(&mut self, host: &str, priority: Priority, ticket: Ticket) {
        let own = self.hosts.get_mut(host);
        let Some(queue) = own.and_then(|own| own.waiting.get_mut(&priority)) else {
            return;
        };
        let before = queue.tickets.len();
        queue.tickets.retain(|waiting| *waiting != ticket);
        self.waiting -= before - queue.tickets.len();
        if queue.tickets.is_empty() {
            queue.entry = 0;
        }
    }

    /// Whether anybody waits for a slot.
    pub fn is_waited_for(&self) -> bool {
        self.waiting > 0
    }

    /// Requests that have a slot.
    pub fn under_way(&self) -> usize {
        self.held.len()
    }
}

fn is_valid(hosts: &HashMap<String, Host>, host: &str, priority: Priority, entry: u64) -> bool {
    let queue = hosts.get(host).and_then(|own| own.waiting.get(&priority));
    queue.is_some_and(|queue| queue.entry == entry && !queue.tickets.is_empty())
}

#[cfg(test)]
mod tests;
