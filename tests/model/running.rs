//! Starts and stops of daemons, and the uncertainty that they leave.

use announce::plan::PublishMode;
use jiff::Timestamp;
use resourcesync::payload::{Entry, Payload};

use crate::documents::{DESCRIPTION, DOCUMENTS, capability_list_of, is_component};
use crate::model::{File, Model, is_heard, topic};
use crate::world::{HUB, OTHER_HUB, World, set_hubs};

impl Model {
    pub fn is_seeing(&self) -> bool {
        self.is_running && self.is_mounted
    }

    pub fn lose_sight(&mut self) {
        self.blind_since.get_or_insert(self.ops);
        self.came.clear();
        self.unnamed.clear();
    }

    pub fn remount(&mut self) {
        if self.is_mounted {
            return;
        }
        self.is_mounted = true;
        if self.is_running {
            self.see_all();
        }
        self.world.remount(0, 2);
    }

    /// R13: a new hub starts from what was seen last, and an old one is forgotten.
    pub fn configure(&mut self, other: Option<&'static str>) {
        let hubs = [Some(HUB), other].into_iter().flatten();
        let modes: Vec<_> = hubs.map(|hub| (hub, PublishMode::Content)).collect();
        set_hubs(&mut self.world.plan, &modes);
        self.listen();
        let before = std::mem::replace(&mut self.other, other);
        if before.is_some() == other.is_some() {
            if before != other {
                // What is in flight is said to the other one too, which was not sent it.
                self.note_flights();
                for flight in flights(&self.world).iter().filter(|it| it.hub != HUB) {
                    let span = (OTHER_HUB, flight.topic.clone());
                    self.spans.insert(span, flight.after);
                }
                self.last_crash = self.ops;
            }
            return;
        }
        self.told.retain(|(hub, _, _), _| *hub != OTHER_HUB);
        self.unanswered.retain(|(hub, _, _), _| *hub != OTHER_HUB);
        self.uncertain.retain(|(hub, _, _)| *hub != OTHER_HUB);
        self.unsure.clear();
        if other.is_none() {
            return;
        }
        for set in self.opened.clone() {
            let structure = [capability_list_of(set), format!("{set}/index.xml")];
            let is_as_read = |name: &String| match (self.files.get(&**name), self.read.get(&**name))
            {
                (Some(File::Good(file)), Some(read)) => file == read,
                (file, read) => file.is_none() && read.is_none(),
            };
            if !structure.iter().all(is_as_read) || !self.is_mounted {
                // Its channel takes no new hub before its list is read again, if ever; and what joins the
                // set at that moment may count as told.
                self.unsure.insert(set);
            }
            for name in DOCUMENTS {
                if let Some(content) = self.read.get(name)
                    && is_heard(name, set, |name| self.read.get(name))
                {
                    let key = (OTHER_HUB, topic(set), name.to_owned());
                    if self.turned.contains(name) {
                        self.uncertain.insert(key.clone());
                    }
                    self.told.insert(key, (content.clone(), self.ops));
                    // R17: what waits is still to be said to everybody.
                    if name.ends_with("/resourcelist.xml") || is_component(name) {
                        self.disturbed.insert(name, self.ops);
                    }
                }
                if !self.there.contains(name) {
                    if name == DESCRIPTION {
                        self.uncertain
                            .insert((OTHER_HUB, topic(set), name.to_owned()));
                    }
                    // Whether it was believed to be gone by then, the model does not know.
                    self.disturbed.insert(name, self.ops);
                }
            }
        }
    }

    pub fn crash(&mut self) {
        self.listen();
        self.lose_sight();
        self.world.crash();
        self.note_flights();
        self.is_running = false;
        self.last_crash = self.ops;
    }

    /// Notes what may be said again.
    fn note_flights(&mut self) {
        for flight in flights(&self.world) {
            let hub = if flight.hub == HUB { HUB } else { OTHER_HUB };
            let (topic, key) = (&flight.topic, (flight.topic.clone(), flight.seq));
            // A kill may come between the cut and the first submission.
            self.note_cut(&flight);
            let heard = (hub, topic.clone(), flight.seq);
            let is_accepted = self.accepted.contains_key(&heard);
            for said in self.cut.get(&key).into_iter().flatten() {
                let others = said.others.iter().map(|(name, _)| *name);
                for name in others.chain([&*said.name]) {
                    let key = (hub, topic.clone(), name.to_owned());
                    *self.unanswered.entry(key).or_default() |= is_accepted;
                }
            }
        }
    }

    /// Notes what a notification in flight says, as the tree was when it was cut.
    pub fn note_cut(&mut self, flight: &KnownFlight) {
        let key = (flight.topic.clone(), flight.seq);
        if !self.cut.contains_key(&key) {
            let entries = flight.entries.iter();
            let said = entries.map(|entry| self.cut(&flight.topic, entry, flight.cut));
            let said = said.collect();
            self.cut.insert(key, said);
        }
    }

    pub fn reload(&mut self) {
        self.described = None;
        self.world.reload();
    }

    pub fn start(&mut self) {
        self.is_running = true;
        self.described = None;
        if self.is_mounted {
            self.see_all();
        }
        let before = self.world.now;
        self.world.start();
        // The clock of a new process begins anew.
        let shift = self.world.now.duration_since(before);
        self.left.values_mut().for_each(|at| *at += shift);
        if let Some((_, at)) = &mut self.described {
            *at += shift;
        }
    }
}

/// A notification in flight.
#[derive(Debug)]
pub struct KnownFlight {
    pub topic: String,
    pub hub: String,
    pub seq: u64,
    pub cut: Timestamp,
    /// The `until` of the last notification that the hub accepted, as far as the daemon knows.
    pub after: Option<Timestamp>,
    pub entries: Vec<Entry>,
}

/// Returns the notifications in flight.
pub fn flights(world: &World) -> Vec<KnownFlight> {
    let sql = "SELECT c.topic, h.uri, a.seq, a.cut, a.until, a.body FROM account a JOIN channel c ON c.id = a.channel \
               JOIN hub h ON h.id = a.hub WHERE a.seq IS NOT NULL";
    type Row = (String, String, u64, Timestamp, Option<Timestamp>, Body);
    type Body = Option<Vec<u8>>;
    let flights = world.db().all::<Vec<Row>>(sql, ()).unwrap().into_iter();
    let flights = flights.map(|(topic, hub, seq, cut, after, body)| {
        let payload = body.and_then(|body| Payload::parse(&body).ok());
        let entries = payload.map(|payload| payload.entries);
        KnownFlight {
            topic: topic.trim_start_matches("https://example.org").to_owned(),
            hub,
            seq,
            cut,
            after,
            entries: entries.unwrap_or_default(),
        }
    });
    flights.collect()
}

/// Returns the number of the last notification on a topic.
pub fn last_seq(world: &World, topic: &str) -> u64 {
    let sql = "SELECT seq FROM channel WHERE topic = ?1";
    let seq = world
        .db()
        .first::<u64>(sql, format!("https://example.org{topic}"));
    seq.unwrap().unwrap_or_default()
}
