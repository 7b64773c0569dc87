//! Time as an input of a task: periods, slots of a cycle, one-shot timers. The functions are pure:
//! the time is an argument.

use super::timer::{Timer, TimerStart};
use onbeat_time::{Cycle, Slot};

/// The times at which a task may run. All times are in ns of one clock.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schedule {
    /// Releases at `offset_ns`, `offset_ns + period_ns`, and so on. A release that is still unused
    /// when the next one comes is an overrun.
    Period {
        /// The time between two releases; not 0.
        period_ns: u64,
        offset_ns: u64,
    },
    /// Slots of a cycle, like a reservation server's (Definition 4.1.1 of the thesis). The task
    /// runs at most once per slot.
    Slots {
        /// The length of the cycle; not 0.
        cycle_ns: u64,
        origin_ns: u64,
        /// The slots in order, without overlap, within the cycle.
        slots: Vec<Slot>,
    },
    /// A single time, after a delay: a watchdog or a time-out. For a watchdog, the delay begins
    /// with the executor's first step after the task has completed. For a time-out, it begins with
    /// the step that sees the item.
    After {
        /// The delay after the event `start`; not 0.
        delay_ns: u64,
        start: TimerStart,
    },
}

/// The reason why a schedule is impossible.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ScheduleError {
    #[error("the period, cycle or delay is 0. Give a length in ns.")]
    Empty,
    #[error(
        "a timer counts from input {input}, but the task has {inputs} inputs, numbered from 0. Name one of them."
    )]
    NoInput { input: usize, inputs: usize },
    #[error("slot {index} from {start_ns} to {end_ns} ns is empty, overlaps the slot before it or leaves the cycle. Correct its start or end.")]
    Slot {
        index: usize,
        start_ns: u64,
        end_ns: u64,
    },
}

impl Schedule {
    /// Creates a schedule from slots `[start, end)` of a cycle that begins at `origin_ns`, all in
    /// ns.
    pub fn slots(
        cycle_ns: u64,
        origin_ns: u64,
        slots: impl IntoIterator<Item = (u64, u64)>,
    ) -> Schedule {
        let slots = slots.into_iter();
        Schedule::Slots {
            cycle_ns,
            origin_ns,
            slots: slots.map(|(start, end)| Slot::new(start, end)).collect(),
        }
    }

    /// Returns the time between two releases, or the length of the cycle, or 0 for a one-shot
    /// timer.
    pub(crate) fn period_ns(&self) -> u64 {
        match self {
            Schedule::Period { period_ns, .. } => *period_ns,
            Schedule::Slots { cycle_ns, .. } => *cycle_ns,
            Schedule::After { .. } => 0,
        }
    }
}

impl std::fmt::Display for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |ns: &u64| *ns as f64 / 1e6;
        match self {
            Schedule::Period { period_ns, .. } => write!(f, "every {} ms", ms(period_ns)),
            Schedule::Slots {
                cycle_ns, slots, ..
            } => write!(
                f,
                "in {} slots of a cycle of {} ms",
                slots.len(),
                ms(cycle_ns)
            ),
            Schedule::After { delay_ns, start } => {
                write!(f, "{} ms after ", ms(delay_ns))?;
                match start {
                    TimerStart::Completion => write!(f, "its last completion"),
                    TimerStart::Item(input) => write!(f, "an item at input {input}"),
                }
            }
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Clock {
    Releases(Releases),
    Timer(Timer),
}

impl Clock {
    pub(crate) fn new(schedule: Schedule, inputs: usize) -> Result<Clock, ScheduleError> {
        let (period_ns, origin_ns, slots) = match schedule {
            Schedule::Period {
                period_ns,
                offset_ns,
            } => (period_ns, offset_ns, None),
            Schedule::Slots {
                cycle_ns,
                origin_ns,
                slots,
            } => (cycle_ns, origin_ns, Some(slots)),
            Schedule::After { delay_ns: 0, .. } => return Err(ScheduleError::Empty),
            Schedule::After { delay_ns, start } => {
                return match start {
                    TimerStart::Item(input) if input >= inputs => {
                        Err(ScheduleError::NoInput { input, inputs })
                    }
                    _ => Ok(Clock::Timer(Timer::new(delay_ns, start))),
                }
            }
        };
        Ok(Clock::Releases(Releases::new(period_ns, origin_ns, slots)?))
    }
}

/// The releases of a period or the slots of a cycle. They are numbered from 0.
#[derive(Debug, Clone)]
pub(crate) struct Releases {
    cycle: Cycle,
    /// The slots within a cycle. `None` stands for a period, which has one release at the start of
    /// each cycle.
    slots: Option<Vec<Slot>>,
}

impl Releases {
    fn new(
        period_ns: u64,
        origin_ns: u64,
        slots: Option<Vec<Slot>>,
    ) -> Result<Releases, ScheduleError> {
        let origin_ns = i64::try_from(origin_ns).unwrap_or(i64::MAX);
        let cycle = Cycle::new(period_ns, origin_ns).ok_or(ScheduleError::Empty)?;
        let mut last_end_ns = 0;
        for (index, &Slot { start_ns, end_ns }) in slots.iter().flatten().enumerate() {
            if start_ns < last_end_ns || end_ns <= start_ns || end_ns > period_ns {
                return Err(ScheduleError::Slot {
                    index,
                    start_ns,
                    end_ns,
                });
            }
            last_end_ns = end_ns;
        }
        Ok(Releases { cycle, slots })
    }

    /// Reports whether these are the releases of a period, not the slots of a cycle. Only unused
    /// releases of a period are overruns.
    pub(crate) fn is_periodic(&self) -> bool {
        self.slots.is_none()
    }

    /// Returns the number of the current release or open slot, or `None` between slots and before
    /// the first cycle. Real-time safe: one step per slot.
    #[inline]
    pub(crate) fn current(&self, now_ns: u64) -> Option<u64> {
        let (cycle, slot) = self.position(now_ns)?;
        let per_cycle = self.slots.as_ref().map_or(1, Vec::len) as u64;
        Some(cycle * per_cycle + slot as u64)
    }

    #[inline]
    fn position(&self, now_ns: u64) -> Option<(u64, usize)> {
        let position = self.cycle.position(now_ns);
        let cycle = u64::try_from(position.cycle).ok()?;
        // Slots lie within the cycle, so one division finds the open one.
        let slot = match &self.slots {
            None => 0,
            Some(slots) => slots.iter().position(|s| s.contains(position.offset_ns))?,
        };
        Some((cycle, slot))
    }

    pub(crate) fn current_start_ns(&self, now_ns: u64) -> Option<u64> {
        let (cycle, slot) = self.position(now_ns)?;
        let within_ns = self.slots.as_ref().map_or(0, |slots| slots[slot].start_ns);
        let start_ns = self.cycle.start_ns(i64::try_from(cycle).ok()?);
        u64::try_from(start_ns).ok()?.checked_add(within_ns)
    }

    pub(crate) fn next_start_ns(&self, now_ns: u64) -> Option<u64> {
        // No release or slot begins before the first cycle.
        let after_ns = i128::from(now_ns).max(i128::from(self.cycle.origin_ns()) - 1);
        let start_ns = match &self.slots {
            None => self.cycle.next_start_ns(after_ns + 1),
            Some(slots) => self.cycle.next_opening(slots, after_ns)?.start_ns,
        };
        u64::try_from(start_ns).ok()
    }
}
