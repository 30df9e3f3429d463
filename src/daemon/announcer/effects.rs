//! Effects of the engine, performed once what came with them is saved.

use std::mem;

use jiff::Timestamp;
use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::Topic;
use websub::answer::Answer;

use crate::announce::event::{Effect, Event};
use crate::announce::plan::Mode;
use crate::daemon::announcer::{Announcer, RunParts};
use crate::daemon::change_reader::ReadJob;
use crate::daemon::failpoints::Failpoint;
use crate::daemon::log;

impl Announcer {
    /// Withdraws topics that no channel has claimed under this plan, once every tree is known.
    pub(super) fn withdraw_unclaimed(&mut self, parts: &mut RunParts) {
        if self.is_settled() {
            for topic in mem::take(&mut self.unclaimed) {
                self.perform_effect(Effect::Withdraw(topic), parts);
            }
        }
    }

    pub(super) fn perform_effect(&mut self, effect: Effect, parts: &mut RunParts) {
        match effect {
            Effect::Serve(page) => {
                self.unclaimed.remove(&page.topic);
                self.topics.serve(page);
                parts.failpoints.pass(Failpoint::Served);
            }
            Effect::Withdraw(topic) => {
                self.topics.withdraw(&topic);
                if let Some(hub) = &parts.hub.linked {
                    hub.end_topic(&topic);
                }
            }
            // It was cut just before the stop: it is sent at the next start.
            Effect::Submit(_) if parts.is_stopping() => {}
            // The embedded hub accepts by owing each subscriber a delivery, which is saved with the acceptance: a crash
            // before that repeats it.
            Effect::Submit(submission) if submission.mode == Mode::Embedded => {
                let Some(hub) = &parts.hub.linked else {
                    return;
                };
                let relay = hub.relay(submission.relayed());
                parts.saver.unsaved.owed.extend(relay);
                self.inputs.push_back(Event::Answered {
                    channel: submission.channel,
                    hub: submission.hub,
                    seq: submission.seq,
                    answer: Answer::ACCEPTED,
                    jitter: 0.0,
                });
            }
            Effect::Submit(submission) => self.submissions.submit(submission),
            Effect::Take(request) => {
                parts.failpoints.pass(Failpoint::Reading);
                let keys = parts.saver.file.path.clone();
                let recent_keys = self.trees.recent_keys.clone();
                let job = ReadJob::new(*request, &self.engine.plan, keys, recent_keys);
                self.change_reader.read(job);
            }
            Effect::Look(paths) => self.trees.trees().for_each(|tree| tree.look(paths.clone())),
            Effect::Explain(paths) => {
                self.trees
                    .trees()
                    .for_each(|tree| tree.explain(paths.clone()));
            }
            Effect::Tell(fact) => {
                let kind = |topic: &Topic| {
                    let sql = "SELECT kind FROM channel WHERE topic = ?1";
                    let kind = self.engine.db().first::<ChannelKind>(sql, topic);
                    kind.ok().flatten().unwrap_or_default()
                };
                parts.counts.tell(&fact, kind, Timestamp::now());
                log::log_fact(&fact);
            }
        }
    }
}
