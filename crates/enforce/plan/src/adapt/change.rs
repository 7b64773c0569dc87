//! Describes a change of the slots and its reason, for reports and files.

use crate::schema::{Ms, Slot};
use std::fmt;

/// A change of the outputs' slots, or an attempt for which the plan had no room.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub slots: Vec<Slot>,
    /// The slots before the change. They equal the new slots if nothing could move.
    pub before: Vec<Slot>,
    pub reason: Reason,
}

impl Change {
    /// Reports whether any slot has moved. Returns false for an attempt for which the plan had no
    /// room.
    pub fn is_move(&self) -> bool {
        self.slots != self.before
    }
}

/// The reason why the bands moved, or why they should have moved but could not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reason {
    /// An output was ready after the last slot.
    Missed {
        /// The time at which the output was ready, in ns from the start of its cycle.
        ready_ns: u64,
    },
    /// An output was ready in the last slot, or less than half of the buffer before it.
    NearMiss {
        /// The time at which the output was ready, in ns from the start of its cycle.
        ready_ns: u64,
    },
    /// The longest of the last executions has changed, so the last slot should begin at another
    /// time.
    Longest {
        /// The time at which the last slot should begin, in ns from the start of a cycle.
        wanted_ns: u64,
        /// Whether `wanted_ns` follows from the plan's miss rate. If not, it follows from the
        /// longest execution.
        by_miss_rate: bool,
    },
    /// Moving the slots before the last one makes the average latency of the last executions
    /// shorter.
    Average {
        /// The share by which the average latency gets shorter, 0 to 1.
        gain: f64,
    },
    /// An output was ready too late, or nearly too late, and the plan has no room to move the last
    /// slot to a later time.
    Full {
        /// The time at which the output was ready, in ns from the start of its cycle.
        ready_ns: u64,
    },
}

impl Reason {
    pub(super) fn raised(ready_ns: u64, is_missed: bool) -> Reason {
        match is_missed {
            true => Reason::Missed { ready_ns },
            false => Reason::NearMiss { ready_ns },
        }
    }

    /// Returns the reason as one word, such as `near_miss`, for the file in which shaping logs
    /// changes.
    pub fn word(&self) -> &'static str {
        match self {
            Reason::Missed { .. } => "missed",
            Reason::NearMiss { .. } => "near_miss",
            Reason::Longest { .. } => "longest",
            Reason::Average { .. } => "average",
            Reason::Full { .. } => "full",
        }
    }
}

fn ms(ns: u64) -> String {
    format!("{:.1} ms", ns as f64 / 1e6)
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Reason::Missed { ready_ns } => {
                write!(
                    f,
                    "an output was ready {} after the start of its cycle, too late for the last slot",
                    ms(ready_ns)
                )
            }
            Reason::NearMiss { ready_ns } => {
                write!(
                    f,
                    "an output was ready {} after the start of its cycle, nearly too late for the last slot",
                    ms(ready_ns)
                )
            }
            Reason::Longest {
                wanted_ns,
                by_miss_rate,
            } => {
                let of = match by_miss_rate {
                    true => "the latency limit that keeps the miss rate",
                    false => "the latency of the longest recent execution, plus the buffer,",
                };
                write!(f, "{of} is {}", ms(wanted_ns))
            }
            Reason::Average { gain } => {
                write!(
                    f,
                    "with the new slots, the average latency is {:.1} % shorter than with the present ones",
                    gain * 100.0
                )
            }
            Reason::Full { ready_ns } => write!(
                f,
                "an output was ready {} after the start of its cycle, and the plan has no room to move the last slot to a later time",
                ms(ready_ns)
            ),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let starts = |slots: &[Slot]| {
            let starts = slots
                .iter()
                .map(|&Slot(Ms(start), _)| format!("{:.1}", start as f64 / 1e6));
            starts.collect::<Vec<_>>().join(", ")
        };
        match self.is_move() {
            true => write!(
                f,
                "Bands begin at {} ms instead of {} ms: {}",
                starts(&self.slots),
                starts(&self.before),
                self.reason
            ),
            false => write!(
                f,
                "Bands stay at {} ms: {}",
                starts(&self.slots),
                self.reason
            ),
        }
    }
}
