//! The schedule of a set's rounds: when the next one is due, which one is under way, and which lists wait because they were
//! stale (C8, C20).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::uri::Uri;

use crate::announce::changes::inventory::INVENTORY_QUIET;
use crate::announce::changes::round::{ListToRead, TakenList};
use crate::announce::engine::change_sets::stale_lists::{StaleLists, retry_delay};
use crate::announce::engine::step::Step;
use crate::announce::engine::timers::Timer;
use crate::announce::observation::Stat;
use crate::announce::plan::ChangeWindowPlan;
use crate::announce::time::{elapsed, later};

/// Maximum wait of fresh changes because no hub has heard what was cut (C20).
const HUB_WAIT: Duration = Duration::from_secs(5 * 60);

/// The rounds of one set.
#[derive(Debug)]
pub struct RoundSchedule {
    set: Uri,
    /// Nothing if no change was seen since the last round began.
    signs: Option<Signs>,
    /// Time before which no round begins.
    not_before: Option<Timestamp>,
    /// The round that is under way.
    under_way: Option<u64>,
    /// The last round of which something was taken, if nothing else was done to the lists and keys since.
    last_taken: Option<u64>,
    /// Number of times that a round was put off because of a failed one, since something was taken.
    delays: u32,
    /// The time of the last cut.
    cut: Option<Timestamp>,
    stale: StaleLists,
}

/// The first sign of a change since the last round, and the last.
#[derive(Debug, Clone, Copy)]
struct Signs {
    first: Timestamp,
    last: Timestamp,
}

impl Signs {
    /// Signs for which a round is due at once.
    const AT_ONCE: Signs = Signs {
        first: Timestamp::MIN,
        last: Timestamp::MIN,
    };

    fn at(now: Timestamp) -> Signs {
        Signs {
            first: now,
            last: now,
        }
    }
}

impl RoundSchedule {
    pub fn new(set: Uri) -> RoundSchedule {
        RoundSchedule {
            set,
            signs: None,
            not_before: None,
            under_way: None,
            last_taken: None,
            delays: 0,
            cut: None,
            stale: StaleLists::default(),
        }
    }

    fn wake_at(&self, at: Timestamp, step: &mut Step) {
        step.wake_at(at, Timer::Changes(self.set.clone()));
    }

    // Reasons for a round.

    /// Records a sign of a change, which also ends the delay of a round that is repeated without one.
    pub fn sign(&mut self, window: &ChangeWindowPlan, step: &mut Step) {
        self.signs.get_or_insert(Signs::at(step.now())).last = step.now();
        self.not_before = None;
        if !self.is_under_way() {
            self.wake_when_due(window, step);
        }
    }

    /// Schedules a round, unless one is scheduled already.
    pub fn sign_if_none(&mut self, now: Timestamp) {
        self.signs.get_or_insert(Signs::at(now));
    }

    /// Schedules a round as soon as its delay allows it, unless one is scheduled already.
    pub fn look_again(&mut self, step: &mut Step) {
        self.sign_if_none(step.now());
        self.wake_at(step.now(), step);
    }

    /// Makes a round due at once.
    pub fn hurry(&mut self, step: &mut Step) {
        self.signs = Some(Signs::AT_ONCE);
        self.not_before = None;
        self.wake_at(step.now(), step);
    }

    /// Forgets the signs of a change: there is nothing to read.
    pub fn skip(&mut self) {
        self.signs = None;
    }

    /// Puts a round off, longer each time until something is taken. It begins after that, or once another version is seen.
    pub fn delay(&mut self, step: &mut Step) {
        self.delays = self.delays.saturating_add(1);
        let at = later(step.now(), retry_delay(self.delays));
        self.delay_until(at, step);
    }

    fn delay_until(&mut self, at: Timestamp, step: &mut Step) {
        self.signs = Some(Signs::at(step.now()));
        self.not_before = Some(at);
        self.wake_at(at, step);
    }

    /// Puts a round off that would read nothing but lists which are asked for again later.
    fn delay_for_stale(&mut self, step: &mut Step) {
        if let Some(next) = self.stale.next() {
            self.delay_until(next, step);
        }
    }

    /// Repeats a round in which nothing was taken: for the version that was seen meanwhile, or else after a while.
    pub fn repeat(&mut self, window: &ChangeWindowPlan, step: &mut Step) {
        if !self.wake_when_due(window, step) {
            self.delay(step);
        }
    }

    pub fn has_signs(&self) -> bool {
        self.signs.is_some()
    }

    /// Returns true if a round was to begin at once, and has not.
    fn is_hurried(&self) -> bool {
        self.signs
            .is_some_and(|signs| signs.first == Timestamp::MIN)
    }

    /// Returns when a round is due for the changes that were seen, if any were.
    fn due_at(&self, window: &ChangeWindowPlan) -> Option<Timestamp> {
        let Signs { first, last } = self.signs?;
        let due = later(last, window.quiet).min(later(first, window.max_wait));
        Some(self.not_before.map_or(due, |at| due.max(at)))
    }

    /// Sets a timer for the next round. Returns false if there is no sign of a change.
    fn wake_when_due(&self, window: &ChangeWindowPlan, step: &mut Step) -> bool {
        let due = self.due_at(window);
        due.inspect(|due| self.wake_at(*due, step)).is_some()
    }

    /// Returns when a round is due: for the changes that were seen, or at once if it `is_wanted_now`. While no hub of the
    /// channel `is_free`, it waits for one (C20).
    fn begins_at(
        &self,
        is_wanted_now: bool,
        is_free: bool,
        window: &ChangeWindowPlan,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let due = self.due_at(window).or(is_wanted_now.then_some(now))?;
        let cut = self.cut.filter(|_| !is_free);
        Some(cut.map_or(due, |cut| due.max(later(cut, HUB_WAIT))))
    }

    /// Returns true if a round is due now, for what `begins_at` takes as a reason; sets a timer if one is due later.
    pub fn is_ready(
        &self,
        is_wanted_now: bool,
        is_free: bool,
        window: &ChangeWindowPlan,
        step: &mut Step,
    ) -> bool {
        let now = step.now();
        let Some(at) = self.begins_at(is_wanted_now, is_free, window, now) else {
            return false;
        };
        if at > now {
            self.wake_at(at, step);
        }
        at <= now
    }

    /// Returns when to check again whether the documents that a round waits for can be read: each second since the first sign.
    /// Returns nothing if it must not wait any more, because it did for the `longest` time.
    pub fn next_recheck(&self, longest: Duration, now: Timestamp) -> Option<Timestamp> {
        let first = self.signs?.first;
        let waited = elapsed(first, now);
        let next = Duration::from_secs(waited.as_secs() + 1).min(longest);
        (waited < longest).then(|| later(first, next))
    }

    // A round.

    /// Removes those of the lists to read that cannot be read now, and returns them. If no other is left, returns nothing,
    /// and the round is put off.
    pub fn leave_stale_out(
        &mut self,
        lists: &mut Vec<ListToRead>,
        step: &mut Step,
    ) -> Option<BTreeSet<Uri>> {
        let left_out = self.stale.leave_out(lists, step.now());
        if lists.is_empty() && !left_out.is_empty() {
            self.delay_for_stale(step);
            return None;
        }
        Some(left_out)
    }

    /// Begins a round with this number.
    pub fn begin(&mut self, round: u64) {
        self.under_way = Some(round);
        self.signs = None;
        self.not_before = None;
    }

    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Ends a round. Returns false if another one took its place.
    pub fn end(&mut self, round: u64) -> bool {
        self.last_taken = None;
        self.under_way
            .take_if(|under_way| *under_way == round)
            .is_some()
    }

    /// Notes that a round took these lists, and lets another one follow if there is a reason for it: at once, if it
    /// `has_more`. Returns true if none follows at once.
    pub fn taken(
        &mut self,
        round: u64,
        lists: &[TakenList],
        has_more: bool,
        step: &mut Step,
    ) -> bool {
        self.stale.taken(lists);
        self.last_taken = Some(round);
        self.delays = 0;
        if has_more {
            self.hurry(step);
        } else if self.has_signs() {
            self.wake_at(step.now(), step);
        } else {
            self.delay_for_stale(step);
        }
        !self.is_hurried()
    }

    /// Notes the lists that were not the version that was asked for, with its stat data, and repeats the round. Returns
    /// those that the operator is to be told of.
    pub fn note_stale(
        &mut self,
        lists: BTreeMap<Uri, Stat>,
        window: &ChangeWindowPlan,
        step: &mut Step,
    ) -> Vec<Uri> {
        let found = self.stale.note(lists, step.now());
        // The others are read at once.
        if found.are_left_out {
            self.sign_if_none(step.now());
        }
        self.repeat(window, step);
        found.reported
    }

    /// Returns the last round of which something was taken, if its comparison still holds.
    pub fn last_taken(&self) -> Option<u64> {
        self.last_taken
    }

    /// Notes that something else was done to the lists or keys, so that the next round compares anew.
    pub fn compare_anew(&mut self) {
        self.last_taken = None;
    }

    /// Notes that what was taken of a list is forgotten. The round that is under way compares with keys that are gone:
    /// another one follows in its place.
    pub fn forget_list(&mut self, list: &Uri, step: &mut Step) {
        self.stale.forget(list);
        self.compare_anew();
        if self.under_way.take().is_some() {
            self.signs = Some(Signs::at(step.now()));
            self.wake_at(step.now(), step);
        }
    }

    /// Notes that notifications were cut.
    pub fn cut(&mut self, now: Timestamp) {
        self.cut = Some(now);
    }
}

/// Returns the window of a set whose Resource Lists are compared: they count once none has changed for a while (C27).
pub fn inventory_window() -> ChangeWindowPlan {
    ChangeWindowPlan {
        quiet: INVENTORY_QUIET,
        max_wait: Duration::MAX,
        ..ChangeWindowPlan::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use jiff::Timestamp;
    use resourcesync::uri::Uri;

    use super::RoundSchedule;
    use crate::announce::engine::change_sets::tests::{list, moment, taken, timers};
    use crate::announce::engine::step::Step;
    use crate::announce::plan::ChangeWindowPlan;

    /// A schedule with a window of 5 s after the last sign, and of 20 s after the first.
    struct ScheduledRounds {
        schedule: RoundSchedule,
        window: ChangeWindowPlan,
        step: Step,
    }

    impl ScheduledRounds {
        fn new() -> ScheduledRounds {
            let set = Uri::parse("https://e.org/cl.xml").unwrap();
            let mut rounds = ScheduledRounds {
                schedule: RoundSchedule::new(set),
                window: ChangeWindowPlan {
                    quiet: Duration::from_secs(5),
                    max_wait: Duration::from_secs(20),
                    ..ChangeWindowPlan::default()
                },
                step: Step::new(Timestamp::UNIX_EPOCH.into()),
            };
            rounds.at(0);
            rounds
        }

        fn at(&mut self, second: i64) -> &mut ScheduledRounds {
            self.step.begin(moment(second));
            self
        }

        fn sign(&mut self) -> Vec<i64> {
            self.schedule.sign(&self.window, &mut self.step);
            timers(&mut self.step)
        }

        fn is_ready(&mut self, is_free: bool) -> (bool, Vec<i64>) {
            let (window, step) = (&self.window, &mut self.step);
            let is_ready = self.schedule.is_ready(false, is_free, window, step);
            (is_ready, timers(&mut self.step))
        }

        /// Ends a round in which lists were taken, if `has_more` not all of them. Returns whether it is the last one.
        fn take(&mut self, round: u64, has_more: bool) -> (bool, Vec<i64>) {
            self.schedule.begin(round);
            assert!(self.schedule.end(round));
            let lists = [taken(&list("a", 1))];
            let is_last = self.schedule.taken(round, &lists, has_more, &mut self.step);
            (is_last, timers(&mut self.step))
        }

        fn delay(&mut self) -> Vec<i64> {
            self.schedule.delay(&mut self.step);
            timers(&mut self.step)
        }

        /// Notes so often that a list was stale.
        fn note_stale(&mut self, times: usize) -> Vec<i64> {
            let stale = list("stale", 1);
            for _ in 0..times {
                let lists = BTreeMap::from([(stale.list.clone(), stale.stat)]);
                self.schedule
                    .note_stale(lists, &self.window, &mut self.step);
            }
            timers(&mut self.step)
        }
    }

    #[test]
    fn a_round_begins_when_no_change_is_seen_for_a_while_or_long_after_the_first() {
        let mut rounds = ScheduledRounds::new();
        assert_eq!(rounds.is_ready(true), (false, Vec::new()));
        for (second, due) in [(0, 5), (4, 9), (8, 13), (12, 17), (16, 20), (19, 20)] {
            assert_eq!(rounds.at(second).sign(), [due]);
            assert_eq!(rounds.is_ready(true), (false, vec![due]));
        }
        assert_eq!(rounds.at(20).is_ready(true), (true, Vec::new()));
        rounds.schedule.begin(1);
        assert_eq!(rounds.sign(), [0; 0], "one is under way");
        assert!(rounds.schedule.end(1));
        assert_eq!(rounds.at(25).is_ready(true), (true, Vec::new()));
    }

    #[test]
    fn what_is_wanted_now_needs_no_sign() {
        let rounds = ScheduledRounds::new();
        let at = |second| moment(second).now;
        let begins_at = |schedule: &RoundSchedule, is_free| {
            schedule.begins_at(true, is_free, &rounds.window, at(7))
        };
        let mut schedule = RoundSchedule::new(rounds.schedule.set.clone());
        assert_eq!(begins_at(&schedule, true), Some(at(7)));
        schedule.cut(at(1));
        assert_eq!(begins_at(&schedule, false), Some(at(301)));
    }

    #[test]
    fn documents_are_waited_for_from_second_to_second_unless_a_round_is_due_at_once() {
        let mut rounds = ScheduledRounds::new();
        let longest = Duration::from_millis(2_500);
        let recheck = |rounds: &ScheduledRounds, millis| {
            let next = rounds
                .schedule
                .next_recheck(longest, Timestamp::from_millisecond(millis).unwrap());
            next.map(Timestamp::as_millisecond)
        };
        assert_eq!(recheck(&rounds, 0), None, "nothing was seen");
        rounds.sign();
        let next = [0, 999, 1_000, 2_400, 2_500].map(|millis| recheck(&rounds, millis));
        assert_eq!(
            next,
            [Some(1_000), Some(1_000), Some(2_000), Some(2_500), None]
        );
        rounds.schedule.hurry(&mut rounds.step);
        assert_eq!(recheck(&rounds, 0), None);
    }

    #[test]
    fn a_round_waits_for_hubs_until_five_minutes_after_the_last_cut() {
        let mut rounds = ScheduledRounds::new();
        rounds.sign();
        assert_eq!(rounds.at(5).is_ready(false), (true, Vec::new()), "no cut");
        rounds.schedule.cut(moment(0).now);
        assert_eq!(rounds.is_ready(false), (false, vec![300]));
        assert_eq!(rounds.is_ready(true), (true, Vec::new()));
        assert_eq!(rounds.at(300).is_ready(false), (true, Vec::new()));
    }

    #[test]
    fn a_round_is_put_off_for_longer_each_time_until_one_takes() {
        let mut rounds = ScheduledRounds::new();
        let delays = [2, 4, 8, 16, 32, 60, 60];
        assert_eq!(delays.map(|_| rounds.delay()[0]), delays);
        assert_eq!(rounds.at(59).is_ready(true), (false, vec![60]));
        assert_eq!(rounds.at(60).is_ready(true), (true, Vec::new()));
        rounds.take(1, false);
        assert_eq!(rounds.delay(), [62], "anew");
    }

    #[test]
    fn another_version_ends_the_wait_of_a_round_that_was_put_off() {
        let mut rounds = ScheduledRounds::new();
        for _ in 0..6 {
            rounds.delay();
        }
        assert_eq!(rounds.at(1).sign(), [6]);
        assert_eq!(rounds.at(6).is_ready(true), (true, Vec::new()));
    }

    #[test]
    fn only_a_round_with_more_to_take_is_followed_by_another_at_once() {
        let mut rounds = ScheduledRounds::new();
        assert_eq!(rounds.take(1, true), (false, vec![0]));
        assert_eq!(rounds.is_ready(true), (true, Vec::new()));
        assert_eq!(rounds.take(2, false), (true, Vec::new()));
        rounds.schedule.begin(3);
        rounds.sign();
        assert!(rounds.schedule.end(3));
        let step = &mut rounds.step;
        assert!(rounds.schedule.taken(3, &[], false, step));
        assert_eq!(timers(step), [0], "a change was seen meanwhile");
        assert!(rounds.schedule.has_signs());
    }

    #[test]
    fn only_the_round_that_is_under_way_ends() {
        let mut rounds = ScheduledRounds::new();
        rounds.schedule.begin(1);
        rounds.schedule.begin(2);
        assert!(!rounds.schedule.end(1));
        assert!(rounds.schedule.is_under_way());
        assert!(rounds.schedule.end(2));
        assert!(!rounds.schedule.end(2));
    }

    #[test]
    fn a_comparison_holds_until_a_round_ends_or_a_list_is_forgotten() {
        let mut rounds = ScheduledRounds::new();
        let forgotten = list("a", 1).list;
        rounds.take(1, false);
        assert_eq!(rounds.schedule.last_taken(), Some(1));
        rounds.schedule.forget_list(&forgotten, &mut rounds.step);
        assert_eq!(rounds.schedule.last_taken(), None);
        assert_eq!(timers(&mut rounds.step), [0; 0]);
        rounds.take(2, false);
        rounds.schedule.begin(3);
        rounds.schedule.forget_list(&forgotten, &mut rounds.step);
        assert_eq!(timers(&mut rounds.step), [0], "another one follows");
        assert!(!rounds.schedule.end(3));
        assert_eq!(rounds.at(5).is_ready(true), (true, Vec::new()));
    }

    #[test]
    fn stale_lists_are_asked_for_again_after_the_others_were_read() {
        let mut rounds = ScheduledRounds::new();
        assert_eq!(rounds.note_stale(1), [2], "not left out yet");
        rounds.schedule.begin(1);
        assert_eq!(rounds.note_stale(1), [5], "the others");
        let mut lists = vec![list("stale", 1), list("a", 1)];
        let left_out = rounds
            .schedule
            .leave_stale_out(&mut lists, &mut rounds.step);
        assert_eq!((left_out.unwrap().len(), lists.len()), (1, 1));
        assert_eq!(rounds.take(1, false), (true, vec![4]), "the stale one");
        let mut lists = vec![list("stale", 1)];
        let left_out = rounds
            .schedule
            .leave_stale_out(&mut lists, &mut rounds.step);
        assert_eq!(left_out, None, "nothing else to read");
        assert_eq!(timers(&mut rounds.step), [4]);
    }
}
