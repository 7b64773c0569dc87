//! When a task runs: what has arrived at its inputs, and what time it is. Pure: time comes in as a
//! number.
//!
//! The terms are those of the task/channel model (DLR's Tasking Framework, and sections 5.4.2 and
//! 5.4.3 of the thesis): an input *triggers* once so many items have arrived, its threshold. A
//! threshold of 0 makes it non-triggering: the task reads it, but does not wait for it. A *final*
//! input fires the task alone. Time is an input too, so that a shaper is a task whose condition is
//! *data AND slot*.

/// What becomes of items beyond the threshold when the task runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surplus {
    /// They count towards the next execution.
    Keep,
    /// They are forgotten.
    Drop,
}

/// One input of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Input {
    /// Items that it takes to trigger; 0: it never does, and nobody waits for it.
    pub threshold: u32,
    /// When it triggers, the task runs whatever the other inputs have.
    pub is_final: bool,
    /// What becomes of more items than that.
    pub surplus: Surplus,
}

impl Input {
    /// An input that triggers with each item, and keeps what there is more.
    pub const EACH: Input = Input {
        threshold: 1,
        is_final: false,
        surplus: Surplus::Keep,
    };

    /// An input that is read, but not waited for.
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

/// How the inputs together activate a task.
#[derive(Debug, Clone, Copy)]
pub enum Condition {
    /// Every triggering input has triggered.
    All,
    /// At least one input has triggered.
    Any,
    /// The execution condition is the task's own: what has arrived at each input.
    Predicate(fn(arrived: &[u32]) -> bool),
}

/// Time as an input. All times in ns of one clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schedule {
    /// Released once at `offset_ns`, `offset_ns + period_ns`, and so on. A release that was not
    /// used when the next one comes is an overrun.
    Period {
        /// Between two releases; not 0.
        period_ns: u64,
        /// The first release.
        offset_ns: u64,
    },
    /// Open within time slots `[start, end)` of a cycle, as a reservation server's (Definition
    /// 4.1.1), in order and without overlap. The task runs once per slot at most.
    Slots {
        /// Length of the cycle; not 0, and not before the last slot's end.
        cycle_ns: u64,
        /// When the first cycle began.
        origin_ns: u64,
        /// Start and end of each slot within the cycle.
        slots: Vec<(u64, u64)>,
    },
}

/// Why a schedule cannot be kept.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ScheduleError {
    /// Nothing happens in no time.
    #[error("the period or cycle is 0: give its length in ns")]
    Empty,
    /// Slots must follow one another within the cycle.
    #[error("slot {index} from {start_ns} to {end_ns} ns is empty, overlaps the one before or leaves the cycle")]
    Slot {
        /// Which, from 0.
        index: usize,
        /// As it was given.
        start_ns: u64,
        /// As it was given.
        end_ns: u64,
    },
}

impl Schedule {
    /// Slots `[start, end)` of a cycle that begins at `origin_ns`, all in ns.
    pub fn slots(cycle_ns: u64, origin_ns: u64, slots: impl Into<Vec<(u64, u64)>>) -> Schedule {
        Schedule::Slots {
            cycle_ns,
            origin_ns,
            slots: slots.into(),
        }
    }

    fn check(&self) -> Result<(), ScheduleError> {
        match self {
            Schedule::Period { period_ns: 0, .. } | Schedule::Slots { cycle_ns: 0, .. } => {
                Err(ScheduleError::Empty)
            }
            Schedule::Period { .. } => Ok(()),
            Schedule::Slots {
                cycle_ns, slots, ..
            } => {
                let mut before = 0;
                for (index, &(start_ns, end_ns)) in slots.iter().enumerate() {
                    if start_ns < before || end_ns <= start_ns || end_ns > *cycle_ns {
                        return Err(ScheduleError::Slot {
                            index,
                            start_ns,
                            end_ns,
                        });
                    }
                    before = end_ns;
                }
                Ok(())
            }
        }
    }

    /// The number of the release or slot that is current at a time; `None` between slots and
    /// before the beginning. Numbers grow by one from each to the next.
    #[inline]
    fn current(&self, now_ns: u64) -> Option<u64> {
        match self {
            Schedule::Period {
                period_ns,
                offset_ns,
            } => Some(now_ns.checked_sub(*offset_ns)? / period_ns),
            Schedule::Slots {
                cycle_ns,
                origin_ns,
                slots,
            } => {
                let since = now_ns.checked_sub(*origin_ns)?;
                let (cycle, at) = (since / cycle_ns, since % cycle_ns);
                let index = slots.iter().position(|&(s, e)| (s..e).contains(&at))?;
                Some(cycle * slots.len() as u64 + index as u64)
            }
        }
    }

    /// When the release or slot with this number begins; `None` if there is none.
    fn start(&self, number: u64) -> Option<u64> {
        match self {
            Schedule::Period {
                period_ns,
                offset_ns,
            } => offset_ns.checked_add(number.checked_mul(*period_ns)?),
            Schedule::Slots {
                cycle_ns,
                origin_ns,
                slots,
            } => {
                let per_cycle = slots.len() as u64;
                let cycle = number.checked_div(per_cycle)?;
                let (start, _) = slots[(number % per_cycle) as usize];
                origin_ns.checked_add(cycle.checked_mul(*cycle_ns)?.checked_add(start)?)
            }
        }
    }

    /// The first release or slot that begins after a time.
    fn next_after(&self, now_ns: u64) -> Option<u64> {
        let per_cycle = match self {
            Schedule::Period { .. } => 1,
            Schedule::Slots { slots, .. } => slots.len() as u64,
        };
        let first = match self {
            Schedule::Period {
                period_ns,
                offset_ns,
            } => now_ns.checked_sub(*offset_ns).map_or(0, |s| s / period_ns),
            Schedule::Slots {
                cycle_ns,
                origin_ns,
                ..
            } => now_ns
                .checked_sub(*origin_ns)
                .map_or(0, |s| s / cycle_ns * per_cycle),
        };
        // One cycle and one more has it, wherever in the cycle the time lies.
        (first..=first + per_cycle)
            .filter_map(|number| self.start(number))
            .find(|&start| start > now_ns)
    }
}

/// The state of a task's inputs.
#[derive(Debug, Clone)]
pub struct Activation {
    inputs: Vec<Input>,
    arrived: Vec<u32>,
    condition: Condition,
    schedule: Option<Schedule>,
    /// The first release or slot that was not used yet.
    next: u64,
    overruns: u64,
}

impl Activation {
    /// A task without inputs and schedule is always ready.
    pub fn new(
        inputs: Vec<Input>,
        condition: Condition,
        schedule: Option<Schedule>,
    ) -> Result<Activation, ScheduleError> {
        schedule.as_ref().map_or(Ok(()), Schedule::check)?;
        Ok(Activation {
            arrived: vec![0; inputs.len()],
            inputs,
            condition,
            schedule,
            next: 0,
            overruns: 0,
        })
    }

    /// The task may run from now on: releases that passed before are none that it has not used.
    pub fn start(&mut self, now_ns: u64) {
        let current = self.schedule.as_ref().and_then(|s| s.current(now_ns));
        self.next = self.next.max(current.unwrap_or(0));
    }

    /// Items arrive at an input. Real-time safe.
    #[inline]
    pub fn arrive(&mut self, input: usize, items: u32) {
        self.arrived[input] = self.arrived[input].saturating_add(items);
    }

    /// Items at an input that were not used yet are gone. Real-time safe.
    pub fn forget(&mut self, input: usize, items: u32) {
        self.arrived[input] = self.arrived[input].saturating_sub(items);
    }

    /// The task decides itself what activates it.
    pub fn has_predicate(&self) -> bool {
        matches!(self.condition, Condition::Predicate(_))
    }

    /// Time is one of its inputs.
    pub fn has_schedule(&self) -> bool {
        self.schedule.is_some()
    }

    /// What has arrived and was not used yet.
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
            Condition::Predicate(holds) => holds(&self.arrived),
        }
    }

    /// Shall the task run now? With a schedule: data AND time. Real-time safe.
    #[inline]
    pub fn is_ready(&self, now_ns: u64) -> bool {
        let in_time = match &self.schedule {
            None => true,
            Some(schedule) => schedule.current(now_ns).is_some_and(|n| n >= self.next),
        };
        in_time && self.has_data()
    }

    /// When the release or slot began that is current; without a schedule, or between slots, `None`.
    pub fn released_ns(&self, now_ns: u64) -> Option<u64> {
        let schedule = self.schedule.as_ref()?;
        schedule.start(schedule.current(now_ns)?)
    }

    /// The task begins: what activated it is used up. Real-time safe.
    #[inline]
    pub fn begin(&mut self, now_ns: u64) {
        for (input, arrived) in self.inputs.iter().zip(&mut self.arrived) {
            *arrived = match input.surplus {
                Surplus::Keep => arrived.saturating_sub(input.threshold),
                Surplus::Drop => 0,
            };
        }
        if let Some(current) = self.schedule.as_ref().and_then(|s| s.current(now_ns)) {
            if matches!(self.schedule, Some(Schedule::Period { .. })) {
                self.overruns += current.saturating_sub(self.next);
            }
            self.next = current + 1;
        }
    }

    /// When time alone may make the task ready: at once if its data is there and its slot is
    /// open, else when the next one begins. `None` while it waits for data only.
    pub fn wake_ns(&self, now_ns: u64) -> Option<u64> {
        let schedule = self.schedule.as_ref()?;
        if !self.has_data() {
            return None;
        }
        if schedule.current(now_ns).is_some_and(|n| n >= self.next) {
            return Some(now_ns);
        }
        schedule.next_after(now_ns)
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
        assert!(a.is_ready(0), "nobody waits for the third");
        a.arrive(2, 5);
        a.begin(0);
        assert_eq!(
            a.arrived(),
            [0, 1, 0],
            "one too many is kept, the rest used"
        );
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
    fn a_shaper_runs_when_data_is_there_and_its_slot_is_open() {
        let slots = Schedule::Slots {
            cycle_ns: 100,
            origin_ns: 1000,
            slots: vec![(10, 15), (40, 45)],
        };
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
    fn a_period_counts_the_releases_it_missed() {
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
        assert_eq!(a.overruns(), 4, "95 passed, those before were nobody's");
    }

    #[test]
    fn impossible_schedules_are_refused() {
        let slots = |slots: &[(u64, u64)]| {
            let schedule = Schedule::Slots {
                cycle_ns: 50,
                origin_ns: 0,
                slots: slots.to_vec(),
            };
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
        /// Whatever the schedule: never twice in one release or slot, never outside, and the time
        /// to wake is the first at which it is ready.
        #[test]
        fn time_is_kept(
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
                Schedule::Slots { cycle_ns: cycle, origin_ns: origin, slots: slots.clone() }
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
