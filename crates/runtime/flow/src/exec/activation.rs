//! Decides when a task is ready, from the items at its inputs and the time. The functions are pure:
//! the time is an argument.
//!
//! The terms are those of the task/channel model (DLR's Tasking Framework, and sections 5.4.2 and
//! 5.4.3 of the thesis). An input *triggers* once as many items have arrived as its threshold says.
//! A threshold of 0 makes it non-triggering: the task reads it, but does not wait for it. A *final*
//! input activates the task without the other inputs.
//!
//! Time is an input too. A shaper is a task whose condition is *data AND slot*, and a watchdog is a
//! task whose condition is *data OR time*. A *condition on contents* (the execution conditions of
//! the Apex.OS executor) is part of *data*: items count, but activate the task only once they
//! fulfil it.

pub use super::schedule::{Schedule, ScheduleError};
pub use super::timer::TimerStart;
pub use onbeat_time::Slot;

use super::schedule::{Clock, Releases};
use super::timer::Timer;

/// The treatment of items beyond an input's threshold when the task runs.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surplus {
    /// Items beyond the input's threshold count towards the next execution.
    Keep,
    Drop,
}

/// The settings of a task's input: how many items trigger it, and what happens to items beyond this
/// number.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Input {
    /// The number of items that trigger the input. With 0 the input never triggers, and the task
    /// does not wait for items at this input.
    pub threshold: u32,
    /// Makes the task ready whenever this input triggers, independently of the other inputs.
    pub is_final: bool,
    pub surplus: Surplus,
}

impl Input {
    /// An input that triggers with each item. Items beyond the first wait for later executions.
    pub const EACH: Input = Input {
        threshold: 1,
        is_final: false,
        surplus: Surplus::Keep,
    };

    /// An input that the task reads, but does not wait for.
    pub const NON_TRIGGERING: Input = Input {
        threshold: 0,
        is_final: false,
        surplus: Surplus::Drop,
    };

    #[inline]
    fn triggers(&self, arrived: u32) -> bool {
        self.threshold > 0 && arrived >= self.threshold
    }
}

/// The way the inputs activate a task together.
#[derive(Debug, Clone, Copy)]
pub enum Condition {
    /// The task is ready when every input with a threshold above 0 has triggered.
    All,
    /// The task is ready when at least one input has triggered.
    Any,
    /// The task's own condition on the number of items at each input.
    Predicate(fn(arrived: &[u32]) -> bool),
}

/// The way time and data activate a task together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeAndData {
    /// The task needs both time and data. An item that has arrived waits for the next release or
    /// slot, or for the end of a timer.
    #[default]
    Both,
    /// Time or data is enough. A release or a timer's end runs the task even without data, and data
    /// runs it even between releases.
    Either,
}

/// The state that decides when a task runs: its unused items and its schedule.
#[derive(Debug, Clone)]
pub struct Activation {
    inputs: Vec<Input>,
    arrived: Vec<u32>,
    condition: Condition,
    releases: Option<Releases>,
    timer: Option<Timer>,
    combination: TimeAndData,
    is_withheld: bool,
    /// The number of the first release or slot that no execution has used.
    next: u64,
    overruns: u64,
    by_time: u64,
}

impl Activation {
    /// Creates the activation of a task whose inputs have no items yet. A task without inputs and
    /// schedule is always ready.
    ///
    /// # Errors
    /// Fails if the schedule is impossible.
    pub fn new(
        inputs: Vec<Input>,
        condition: Condition,
        schedule: Option<Schedule>,
    ) -> Result<Activation, ScheduleError> {
        let clock = schedule.map(|s| Clock::new(s, inputs.len())).transpose()?;
        let (releases, timer) = match clock {
            None => (None, None),
            Some(Clock::Releases(releases)) => (Some(releases), None),
            Some(Clock::Timer(timer)) => (None, Some(timer)),
        };
        Ok(Activation {
            arrived: vec![0; inputs.len()],
            inputs,
            condition,
            releases,
            timer,
            combination: TimeAndData::Both,
            is_withheld: false,
            next: 0,
            overruns: 0,
            by_time: 0,
        })
    }

    /// Sets how time and data are combined. Does nothing without a schedule, or without an input
    /// that can trigger.
    pub fn combined(mut self, combination: TimeAndData) -> Activation {
        let triggers = self.has_predicate() || self.inputs.iter().any(|i| i.threshold > 0);
        if self.has_schedule() && triggers {
            self.combination = combination;
        }
        self
    }

    /// Allows the task to run from now on. Releases before `now_ns` do not count as overruns.
    pub fn start(&mut self, now_ns: u64) {
        let current = self.releases.as_ref().and_then(|r| r.current(now_ns));
        self.next = self.next.max(current.unwrap_or(0));
        self.observe(now_ns);
    }

    /// Sets or cancels the task's one-shot timer, depending on the items that have arrived.
    /// Executors call this function before [`Activation::is_ready`]. Real-time safe.
    #[inline]
    pub fn observe(&mut self, now_ns: u64) {
        if let Some(timer) = &mut self.timer {
            timer.observe(now_ns, &self.arrived);
        }
    }

    /// Sets whether the waiting items fulfil the task's condition on contents. Before the first
    /// call, the items count as if they fulfilled the condition, so a task without such a condition
    /// needs no call.
    #[inline]
    pub fn set_fulfilled(&mut self, is_fulfilled: bool) {
        self.is_withheld = !is_fulfilled;
    }

    /// Reports whether either time or data is enough to run the task ([`TimeAndData::Either`]).
    pub fn is_either(&self) -> bool {
        self.combination == TimeAndData::Either
    }

    /// Reports whether items at this input set the task's one-shot timer.
    pub fn sets_timer(&self, input: usize) -> bool {
        self.timer.as_ref().is_some_and(|t| t.is_set_by(input))
    }

    /// Returns the number of executions that time has started without data. Only executions of a
    /// task with [`TimeAndData::Either`] count.
    pub fn by_time(&self) -> u64 {
        self.by_time
    }

    /// Adds items that arrive at an input. Real-time safe.
    #[inline]
    pub fn arrive(&mut self, input: usize, items: u32) {
        self.arrived[input] = self.arrived[input].saturating_add(items);
    }

    /// Removes unused items from an input. Real-time safe.
    pub fn forget(&mut self, input: usize, items: u32) {
        self.arrived[input] = self.arrived[input].saturating_sub(items);
    }

    /// Reports whether the task has a condition of its own on the number of items
    /// ([`Condition::Predicate`]).
    pub fn has_predicate(&self) -> bool {
        matches!(self.condition, Condition::Predicate(_))
    }

    /// Reports whether the task has releases, slots or a timer.
    pub fn has_schedule(&self) -> bool {
        self.releases.is_some() || self.timer.is_some()
    }

    /// Returns the number of unused items at each input.
    pub fn arrived(&self) -> &[u32] {
        &self.arrived
    }

    /// Returns the number of releases of the task's period that passed without an execution.
    pub fn overruns(&self) -> u64 {
        self.overruns
    }

    /// Reports whether the task has its data: enough items have come for its [`Condition`], and
    /// their contents fulfil the condition on contents ([`Activation::set_fulfilled`]).
    #[inline]
    pub fn has_data(&self) -> bool {
        !self.is_withheld && self.has_items()
    }

    /// Reports whether enough items have come for the task's [`Condition`], whatever their
    /// contents. Real-time safe.
    #[inline]
    pub fn has_items(&self) -> bool {
        let mut inputs = self.inputs.iter().zip(&self.arrived);
        if inputs.clone().any(|(i, &n)| i.is_final && i.triggers(n)) {
            return true;
        }
        match self.condition {
            Condition::All => inputs.all(|(i, &n)| i.threshold == 0 || i.triggers(n)),
            Condition::Any => inputs.any(|(i, &n)| i.triggers(n)),
            Condition::Predicate(is_met) => is_met(&self.arrived),
        }
    }

    /// Reports whether the schedule allows an execution now: a release is unused, a slot is open,
    /// or the timer has fired. Always true without a schedule.
    #[inline]
    fn time_allows(&self, now_ns: u64) -> bool {
        match (&self.releases, &self.timer) {
            (Some(releases), _) => releases.current(now_ns).is_some_and(|n| n >= self.next),
            (None, Some(timer)) => timer.has_fired(now_ns),
            (None, None) => true,
        }
    }

    /// Reports whether the task may run now. If the task has a schedule, [`TimeAndData`] says
    /// whether it needs both data and time. Real-time safe.
    #[inline]
    pub fn is_ready(&self, now_ns: u64) -> bool {
        match self.combination {
            TimeAndData::Both => self.time_allows(now_ns) && self.has_data(),
            TimeAndData::Either => self.has_data() || self.time_allows(now_ns),
        }
    }

    /// Returns the start of the present release or slot, in ns. Returns `None` if the task has
    /// neither releases nor slots, if `now_ns` lies between slots, or before the first release or
    /// cycle.
    pub fn released_ns(&self, now_ns: u64) -> Option<u64> {
        self.releases.as_ref()?.current_start_ns(now_ns)
    }

    /// Begins an execution: marks the items and the release or slot that activated the task as
    /// used, and cancels the task's one-shot timer. Returns `true` if time alone has activated the
    /// task, although data may activate it, too. Real-time safe.
    #[inline]
    pub fn begin(&mut self, now_ns: u64) -> bool {
        let by_time = self.is_either() && !self.has_data();
        self.by_time += u64::from(by_time);
        for (input, arrived) in self.inputs.iter().zip(&mut self.arrived) {
            *arrived = match input.surplus {
                Surplus::Keep => arrived.saturating_sub(input.threshold),
                Surplus::Drop => 0,
            };
        }
        if let Some(timer) = &mut self.timer {
            timer.cancel();
        }
        let current = self.releases.as_ref().and_then(|r| r.current(now_ns));
        if let (Some(current), Some(releases)) = (current, &self.releases) {
            if releases.is_periodic() {
                self.overruns += current.saturating_sub(self.next);
            }
            self.next = current + 1;
        }
        by_time
    }

    /// Returns the next time at which time alone may make the task ready. This is `now_ns` if the
    /// task is ready. Otherwise it is the start of the next slot or release, or the end of the
    /// timer. Returns `None` while the task waits for data.
    pub fn wake_ns(&self, now_ns: u64) -> Option<u64> {
        if !self.has_schedule() || !self.is_either() && !self.has_data() {
            return None;
        }
        if self.is_ready(now_ns) {
            return Some(now_ns);
        }
        match (&self.releases, &self.timer) {
            (Some(releases), _) => releases.next_start_ns(now_ns),
            (None, timer) => timer.as_ref()?.due_ns(now_ns, &self.arrived),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn activation(inputs: &[Input], condition: Condition) -> Activation {
        Activation::new(inputs.to_vec(), condition, None).unwrap()
    }

    #[test]
    fn a_task_with_condition_all_waits_for_every_triggering_input() {
        let twice = Input {
            threshold: 2,
            ..Input::EACH
        };
        let mut a = activation(&[Input::EACH, twice, Input::NON_TRIGGERING], Condition::All);
        a.arrive(0, 1);
        a.arrive(1, 1);
        assert!(!a.is_ready(0));
        a.arrive(1, 2);
        assert!(a.is_ready(0), "the task does not wait for the third");
        a.arrive(2, 5);
        a.begin(0);
        assert_eq!(a.arrived(), [0, 1, 0], "one item is kept, the rest used");
        assert!(!a.is_ready(0));
    }

    #[test]
    fn a_task_with_condition_any_runs_for_each_item_and_can_drop_surplus_items() {
        let dropping = Input {
            surplus: Surplus::Drop,
            ..Input::EACH
        };
        let mut a = activation(&[Input::EACH, dropping], Condition::Any);
        assert!(!a.is_ready(0));
        a.arrive(1, 7);
        a.arrive(0, 2);
        assert!(a.is_ready(0));
        a.begin(0);
        assert_eq!(a.arrived(), [1, 0]);
        assert!(a.is_ready(0));
        a.begin(0);
        assert!(!a.is_ready(0));
    }

    #[test]
    fn a_final_input_activates_the_task_without_the_others_and_a_predicate_sees_all_inputs() {
        let last = Input {
            is_final: true,
            ..Input::EACH
        };
        let mut a = activation(&[Input::EACH, last], Condition::All);
        a.arrive(1, 1);
        assert!(a.is_ready(0));
        let more = Condition::Predicate(|arrived| arrived[0] > arrived[1]);
        let mut p = activation(&[Input::EACH, Input::EACH], more);
        p.arrive(1, 1);
        p.arrive(0, 1);
        assert!(!p.is_ready(0));
        p.arrive(0, 1);
        assert!(p.is_ready(0));
    }

    #[test]
    fn a_shaper_runs_when_it_has_data_and_its_slot_is_open() {
        let slots = Schedule::slots(100, 1000, [(10, 15), (40, 45)]);
        let mut a = Activation::new(vec![Input::EACH], Condition::All, Some(slots)).unwrap();
        assert_eq!(a.wake_ns(1000), None, "it waits for data");
        assert!(!a.is_ready(1012));
        a.arrive(0, 3);
        assert!(!a.is_ready(999) && !a.is_ready(1000) && !a.is_ready(1015));
        assert_eq!(a.wake_ns(500), Some(1010));
        assert_eq!(a.wake_ns(1015), Some(1040));
        assert!(a.is_ready(1044));
        a.begin(1044);
        assert!(!a.is_ready(1044), "once per slot");
        assert_eq!(a.wake_ns(1044), Some(1110));
        assert!(a.is_ready(1110));
        a.begin(1110);
        assert_eq!(a.wake_ns(1112), Some(1140));
    }

    #[test]
    fn a_periodic_schedule_counts_missed_releases() {
        let period = Schedule::Period {
            period_ns: 10,
            offset_ns: 5,
        };
        let mut a = Activation::new(vec![], Condition::All, Some(period)).unwrap();
        assert!(!a.is_ready(4));
        assert_eq!(a.wake_ns(0), Some(5));
        assert!(a.is_ready(5));
        a.begin(7);
        assert!(!a.is_ready(14));
        assert_eq!((a.wake_ns(7), a.overruns()), (Some(15), 0));
        a.begin(46);
        assert_eq!(a.overruns(), 3, "15, 25 and 35 passed");
        a.start(99);
        assert!(a.is_ready(99));
        a.begin(106);
        assert_eq!(
            a.overruns(),
            4,
            "95 passed; those before the start do not count"
        );
    }

    fn after(delay_ns: u64, start: TimerStart) -> Schedule {
        Schedule::After { delay_ns, start }
    }

    fn either(inputs: &[Input], schedule: Schedule) -> Activation {
        let made = Activation::new(inputs.to_vec(), Condition::All, Some(schedule));
        made.unwrap().combined(TimeAndData::Either)
    }

    #[test]
    fn a_task_of_time_or_data_runs_on_time_alone_and_on_data_alone() {
        let period = Schedule::Period {
            period_ns: 10,
            offset_ns: 0,
        };
        let mut a = either(&[Input::EACH], period);
        assert!(a.is_ready(0) && a.begin(0), "the release alone");
        assert!(!a.is_ready(3));
        assert_eq!(a.wake_ns(3), Some(10));
        a.arrive(0, 1);
        assert_eq!((a.is_ready(3), a.wake_ns(3)), (true, Some(3)));
        assert!(!a.begin(3), "data alone");
        assert!(!a.is_ready(9) && a.is_ready(10), "the next release stays");
        a.arrive(0, 1);
        assert!(!a.begin(12), "both at once are one execution");
        assert!(!a.is_ready(19));
        assert_eq!((a.by_time(), a.overruns()), (1, 0));
    }

    #[test]
    fn a_watchdog_fires_once_after_silence() {
        let mut a = either(&[Input::EACH], after(10, TimerStart::Completion));
        a.start(5);
        assert_eq!((a.is_ready(14), a.wake_ns(14)), (false, Some(15)));
        a.arrive(0, 1);
        assert!(!a.begin(14));
        // The completion has set the timer anew, from the next step on.
        assert_eq!(a.wake_ns(16), Some(26));
        a.observe(17);
        assert_eq!((a.is_ready(26), a.wake_ns(26)), (false, Some(27)));
        assert!(a.is_ready(27) && a.begin(27));
        a.observe(28);
        assert!(!a.is_ready(37) && a.is_ready(38));
        assert_eq!(a.by_time(), 1);
    }

    #[test]
    fn a_time_out_counts_from_the_request_and_the_answer_cancels_it() {
        let request = Input::NON_TRIGGERING;
        let mut a = either(&[Input::EACH, request], after(10, TimerStart::Item(1)));
        a.start(0);
        assert_eq!(a.wake_ns(50), None, "nobody has asked");
        assert!(a.sets_timer(1) && !a.sets_timer(0));
        a.arrive(1, 1);
        a.observe(100);
        a.arrive(1, 1);
        a.observe(105);
        assert_eq!(a.wake_ns(105), Some(110), "from the first request");
        a.arrive(0, 1);
        assert!(!a.begin(106), "the answer");
        a.observe(107);
        assert_eq!((a.is_ready(1000), a.wake_ns(1000)), (false, None));
        a.arrive(1, 1);
        a.observe(2000);
        assert!(!a.is_ready(2009) && a.is_ready(2010) && a.begin(2010));
        a.observe(2011);
        assert!(!a.is_ready(9000), "once per request");
        // A request that its channel has dropped no longer sets the timer.
        a.arrive(1, 1);
        a.observe(9000);
        a.forget(1, 1);
        a.observe(9001);
        assert!(!a.is_ready(9100));
    }

    #[test]
    fn a_join_that_times_out_uses_the_items_that_have_come() {
        let mut a = either(&[Input::EACH; 2], after(10, TimerStart::Item(0)));
        a.arrive(0, 1);
        a.observe(0);
        assert!(!a.is_ready(9));
        assert!(a.is_ready(10) && a.begin(10));
        assert_eq!(a.arrived(), [0, 0]);
    }

    #[test]
    fn a_condition_on_contents_delays_runs_on_data_but_not_runs_on_time() {
        let mut a = either(&[Input::EACH], after(10, TimerStart::Completion));
        a.start(0);
        a.arrive(0, 1);
        a.set_fulfilled(false);
        assert!(a.has_items() && !a.is_ready(9));
        assert_eq!(a.wake_ns(9), Some(10));
        assert!(a.is_ready(10), "the watchdog does not look at contents");
        a.set_fulfilled(true);
        assert!(a.is_ready(9) && !a.begin(9));
        let mut a = activation(&[Input::EACH], Condition::All);
        a.arrive(0, 1);
        a.set_fulfilled(false);
        assert!(!a.is_ready(0));
        assert_eq!(a.wake_ns(0), None, "only an item can change contents");
    }

    #[test]
    fn a_task_without_a_triggering_input_runs_on_time_alone() {
        let mut a = either(&[Input::NON_TRIGGERING], after(10, TimerStart::Completion));
        a.start(0);
        assert!(!a.is_ready(9) && a.is_ready(10) && !a.begin(10));
        let plain = Activation::new(vec![Input::EACH], Condition::All, None);
        assert!(!plain.unwrap().combined(TimeAndData::Either).is_ready(0));
    }

    #[test]
    fn impossible_schedules_are_refused() {
        let timer = |delay_ns, start| {
            let timer = Some(after(delay_ns, start));
            Activation::new(vec![Input::EACH], Condition::All, timer).err()
        };
        assert_eq!(timer(1, TimerStart::Item(0)), None);
        assert_eq!(timer(0, TimerStart::Completion), Some(ScheduleError::Empty));
        let (input, inputs) = (1, 1);
        let none = ScheduleError::NoInput { input, inputs };
        assert_eq!(timer(1, TimerStart::Item(1)), Some(none));
        let slots = |slots: &[(u64, u64)]| {
            let schedule = Schedule::slots(50, 0, slots.to_vec());
            Activation::new(vec![], Condition::All, Some(schedule)).err()
        };
        assert_eq!(slots(&[(0, 10), (10, 50)]), None);
        for bad in [&[(10, 10)][..], &[(0, 10), (9, 20)], &[(40, 51)]] {
            assert!(
                matches!(slots(bad), Some(ScheduleError::Slot { .. })),
                "{bad:?}"
            );
        }
        let zero = Schedule::Period {
            period_ns: 0,
            offset_ns: 0,
        };
        let refused = Activation::new(vec![], Condition::All, Some(zero));
        assert_eq!(refused.err(), Some(ScheduleError::Empty));
    }

    proptest! {
        /// Checks for any schedule: a task runs at most once per release or slot, and never
        /// outside. The wake-up time is the first time at which the task is ready.
        #[test]
        fn a_task_runs_only_at_the_times_of_its_schedule(
            cycle in 1u64..50,
            origin in 0u64..40,
            cuts in prop::collection::btree_set(0u64..50, 0..8),
            periodic in any::<bool>(),
        ) {
            let cuts: Vec<u64> = cuts.into_iter().filter(|&c| c <= cycle).collect();
            let slots: Vec<(u64, u64)> = cuts.chunks_exact(2).map(|c| (c[0], c[1])).collect();
            let schedule = if periodic {
                Schedule::Period { period_ns: cycle, offset_ns: origin }
            } else {
                Schedule::slots(cycle, origin, slots.clone())
            };
            let mut a = Activation::new(vec![], Condition::All, Some(schedule)).unwrap();
            let mut used = std::collections::HashSet::new();
            for now in 0..300u64 {
                let open = now >= origin && (periodic || slots
                    .iter()
                    .any(|&(s, e)| (s..e).contains(&((now - origin) % cycle))));
                let wake = a.wake_ns(now);
                if a.is_ready(now) {
                    prop_assert!(open);
                    prop_assert_eq!(wake, Some(now));
                    let at = (now - origin) % cycle;
                    let slot = slots.iter().position(|&(s, e)| (s..e).contains(&at));
                    let key = ((now - origin) / cycle, if periodic { None } else { slot });
                    prop_assert!(used.insert(key), "twice in {:?}", key);
                    a.begin(now);
                } else if let Some(wake) = wake {
                    prop_assert!(wake > now);
                    prop_assert!(a.is_ready(wake));
                    prop_assert!((now..wake).all(|t| !a.is_ready(t)));
                } else {
                    prop_assert!(!periodic && slots.is_empty());
                }
            }
        }

        /// Checks for any arrivals: a task of *data OR time* runs for every item in the step that
        /// sees the item. The delay of its watchdog begins with the step after an execution. The
        /// watchdog runs the task in the first step after this delay, and never earlier. The
        /// wake-up time is the first time at which the task is ready.
        #[test]
        fn a_watchdog_runs_neither_before_nor_after_its_delay(
            delay in 1u64..20,
            arrivals in prop::collection::btree_set(1u64..300, 0..60),
        ) {
            let mut a = either(&[Input::EACH], after(delay, TimerStart::Completion));
            a.start(0);
            // The step from which the timer counts.
            let mut since = 0;
            let mut ended = false;
            for now in 1..300u64 {
                if std::mem::take(&mut ended) {
                    since = now;
                }
                let item = arrivals.contains(&now);
                a.arrive(0, u32::from(item));
                a.observe(now);
                let fired = now - since >= delay;
                prop_assert_eq!(a.is_ready(now), item || fired);
                let wake = a.wake_ns(now).expect("a watchdog always wakes");
                prop_assert_eq!(wake, if item { now } else { now.max(since + delay) });
                if a.is_ready(now) {
                    prop_assert_eq!(a.begin(now), !item);
                    ended = true;
                }
            }
        }
    }
}
