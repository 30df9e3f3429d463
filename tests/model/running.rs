//! Starts and stops of daemons, and the uncertainty that they leave.

use rsnotify::announce::plan::Mode;

use crate::documents::{DOCUMENTS, capability_list_of, is_component};
use crate::model::{File, Model, is_heard, topic};
use crate::world::{HUB, OTHER_HUB, set_hubs};

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
    pub fn configure(&mut self, has_other: bool) {
        let hubs = [(HUB, Mode::Content), (OTHER_HUB, Mode::Content)];
        let configured = if has_other { 2 } else { 1 };
        set_hubs(&mut self.world.plan, &hubs[..configured]);
        if has_other == self.has_other {
            return;
        }
        self.has_other = has_other;
        self.told.retain(|(hub, _, _), _| *hub != OTHER_HUB);
        self.unanswered.retain(|(hub, _, _), _| *hub != OTHER_HUB);
        self.uncertain.retain(|(hub, _, _)| *hub != OTHER_HUB);
        self.unsure.clear();
        if !has_other {
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
                    self.told.insert(key, (content.clone(), self.ops));
                    // R17: what waits is still to be said to everybody.
                    if name.ends_with("/resourcelist.xml") || is_component(name) {
                        self.disturbed.insert(name, self.ops);
                    }
                }
                if !self.there.contains(name) {
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
        for ((channel, hub), ledger) in &self.world.disk.ledgers {
            let Some(flight) = &ledger.flight else {
                continue;
            };
            let hub = if hub.as_str() == HUB { HUB } else { OTHER_HUB };
            let topic = self.world.disk.channels[channel].topic.as_str();
            let topic = topic
                .strip_prefix("https://example.org")
                .unwrap()
                .to_owned();
            let heard = (hub, topic.clone(), flight.seq);
            let is_accepted = self.accepted.contains_key(&heard);
            for said in self
                .cut
                .get(&(topic.clone(), flight.seq))
                .into_iter()
                .flatten()
            {
                let others = said.others.iter().map(|(name, _)| *name);
                for name in others.chain([&*said.name]) {
                    let key = (hub, topic.clone(), name.to_owned());
                    *self.unanswered.entry(key).or_default() |= is_accepted;
                }
            }
        }
        self.is_running = false;
        self.last_crash = self.ops;
    }

    pub fn start(&mut self) {
        self.is_running = true;
        self.described = None;
        if self.is_mounted {
            self.see_all();
        }
        self.world.start();
    }
}
