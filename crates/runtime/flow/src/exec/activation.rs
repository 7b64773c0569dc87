//! When a task is ready: the items at its inputs, and the time. Pure: the time is an argument.
//!
//! The terms are those of the task/channel model (DLR's Tasking Framework, and sections 5.4.2 and
//! 5.4.3 of the thesis). An input *triggers* once as many items have arrived as its threshold says.
//! A threshold of 0 makes it non-triggering: the task reads it, but does not wait for it. A *final*
//! input activates the task alone. Time is an input too: a shaper is a task whose condition is
//! *data AND slot*.

pub use super::schedule::{Schedule, ScheduleError};
pub use onbeat_time::Slot;

use super::schedule::Releases;

/// What happens to items beyond the threshold when the task runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surplus {
    /// They count towards the next execution.
    Keep,
    /// They are discarded.
    Drop,
}

/// One input of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Input {
    /// Number of items that trigger it; 0: it never triggers, and the task does not wait for it.
    pub threshold: u32,
    /// When it triggers, the task is ready whatever the state of the other inputs.
    pub is_final: bool,
    /// What happens to items beyond the threshold.
    pub surplus: Surplus,
}

impl Input {
    /// An input that triggers with each item and keeps further ones.
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

/// How the inputs activate a task together.
#[derive(Debug, Clone, Copy)]
pub enum Condition {
    /// Every triggering input has triggered.
    All,
    /// At least one input has triggered.
    Any,
    /// The task's own condition on the number of items at each input.
    Predicate(fn(arrived: &[u32]) -> bool),
}

/// The state of a task's inputs: what has arrived and was not used yet.
#[derive(Debug, Clone)]
pub struct Activation {
    inputs: Vec<Input>,
    arrived: Vec<u32>,
    condition: Condition,
    releases: Option<Releases>,
    /// The first release or slot that was not used yet.
    next: u64,
    overruns: u64,
}

impl Activation {
    /// Without items. A task without inputs and schedule is always ready.
    pub fn new(
        inputs: Vec<Input>,
        condition: Condition,
        schedule: Option<Schedule>,
    ) -> Result<Activation, ScheduleError> {
        Ok(Activation {
            arrived: vec![0; inputs.len()],
            inputs,
            condition,
            releases: schedule.map(Releases::new).transpose()?,
            next: 0,
            overruns: 0,
        })
    }

    /// The task may run from now on: earlier releases are not overruns.
    pub fn start(&mut self, now_ns: u64) {
        let current = self.releases.as_ref().and_then(|r| r.current(now_ns));
        self.next = self.next.max(current.unwrap_or(0));
    }

    /// Items arrive at an input. Real-time safe.
    #[inline]
    pub fn arrive(&mut self, input: usize, items: u32) {
        self.arrived[input] = self.arrived[input].saturating_add(items);
    }

    /// Removes items from an input that were not used yet. Real-time safe.
    pub fn forget(&mut self, input: usize, items: u32) {
        self.arrived[input] = self.arrived[input].saturating_sub(items);
    }

    /// Whether the condition is the task's own.
    pub fn has_predicate(&self) -> bool {
        matches!(self.condition, Condition::Predicate(_))
    }

    /// Whether time is one of its inputs.
    pub fn has_schedule(&self) -> bool {
        self.releases.is_some()
    }

    /// Number of items at each input that were not used yet.
    pub fn arrived(&self) -> &[u32] {
        &self.arrived
    }

    /// Releases of a period that passed unused.
    pub fn overruns(&self) -> u64 {
        self.overruns
    }

    #[inline]
    fn has_data(&self) -> bool {
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

    /// Whether the task may run now. With a schedule: data AND time. Real-time safe.
    #[inline]
    pub fn is_ready(&self, now_ns: u64) -> bool {
        let in_time = match &self.releases {
            None => true,
            Some(releases) => releases.current(now_ns).is_some_and(|n| n >= self.next),
        };
        in_time && self.has_data()
    }

    /// When the current release or slot began; `None` without a schedule, or between slots.
    pub fn released_ns(&self, now_ns: u64) -> Option<u64> {
        self.releases.as_ref()?.current_start_ns(now_ns)
    }

    /// An execution begins and uses the items and the release that activated it. Real-time safe.
    #[inline]
    pub fn begin(&mut self, now_ns: u64) {
        for (input, arrived) in self.inputs.iter().zip(&mut self.arrived) {
            *arrived = match input.surplus {
                Surplus::Keep => arrived.saturating_sub(input.threshold),
                Surplus::Drop => 0,
            };
        }
        let Some(releases) = &self.releases else {
            return;
        };
        if let Some(current) = releases.current(now_ns) {
            if releases.is_periodic() {
                self.overruns += current.saturating_sub(self.next);
            }
            self.next = current + 1;
        }
    }

    /// When time alone may make the task ready: now if it has its data and its slot is open, else
    /// when the next slot begins. `None` while it waits for data.
    pub fn wake_ns(&self, now_ns: u64) -> Option<u64> {
        let releases = self.releases.as_ref()?;
        if !self.has_data() {
            return None;
        }
        if releases.current(now_ns).is_some_and(|n| n >= self.next) {
            return Some(now_ns);
        }
        releases.next_start_ns(now_ns)
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
    fn all_waits_for_every_triggering_input() {
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
    fn any_runs_for_each_and_surplus_can_be_dropped() {
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
    fn a_final_input_fires_alone_and_a_predicate_sees_everything() {
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
    fn a_period_counts_missed_releases() {
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

    #[test]
    fn impossible_schedules_are_refused() {
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
        /// For any schedule: a task runs at most once per release or slot and never outside, and
        /// its wake-up time is the first at which it is ready.
        #[test]
        fn a_task_runs_at_its_times_only(
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
    }
}
