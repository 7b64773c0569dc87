//! How long the steps of a link's threads take, from their causes until they are done: a histogram,
//! the worst stalls and the most recent ones. They test the assumption of [`crate::bound`] on CPUs.
//!
//! Real-time: a few relaxed atomics for each step. No lock, no allocation. All threads of an end
//! write the same words. A stall is one word, so readers never see half of it.

use crate::bound::Cpu;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A step on the way of a message. A thread of one of the two ends takes each step, except
/// [`Step::Wire`], which happens between the ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// The sender's application hands a complete message over to the link.
    Push,
    /// A writer of the sender posts a chunk. The step begins when the chunk is the most urgent one
    /// and the window has room for it.
    Post,
    /// A thread of the sender notices an acknowledgement that the kernel has received.
    Hear,
    /// The receiver's reader reads what has arrived in the kernel.
    Read,
    /// The receiver's application takes a complete message for which it waits.
    Take,
    /// A chunk is acknowledged later than the port's rate and the shortest round trip allow. The
    /// wire, the kernel of a host or the receiver's answer was late.
    Wire,
}

impl Step {
    /// All steps, in the order of [`Steps::histogram`].
    pub const ALL: [Step; STEPS] = [
        Step::Push,
        Step::Post,
        Step::Hear,
        Step::Read,
        Step::Take,
        Step::Wire,
    ];

    /// Returns the step's name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Step::Push => "push",
            Step::Post => "post",
            Step::Hear => "hear",
            Step::Read => "read",
            Step::Take => "take",
            Step::Wire => "wire",
        }
    }
}

pub(crate) const STEPS: usize = 6;
/// The number of classes of a histogram. Class n contains the steps that took less than 16.384 us
/// times 2 to the power of n and do not belong to a lower class. The last class also contains all
/// longer steps.
pub const CLASSES: usize = 16;
const FIRST_CLASS_BITS: u32 = 14;
pub(crate) const WORST: usize = 16;
pub(crate) const RECENT: usize = 256;

#[derive(Debug, Clone, Copy)]
#[repr(usize)]
pub(crate) enum Place {
    Histogram = 128,
    Worst = 224,
    Stalls = 240,
    Recent = 241,
}

/// A step that took longer than usual ([`Cpu::default`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Stall {
    pub step: Step,
    /// The time from the event that made the step necessary until the step was done, in ns; at most
    /// 2 s.
    pub took_ns: u64,
    /// The time at which the step was done, in ns of CLOCK_MONOTONIC, up to 4 us too early. The
    /// time wraps to 0 when the link is 52 days old.
    pub done_ns: u64,
}

/// The durations of the steps of messages at an end of a link ([`Step`]): a histogram, and the
/// worst and the most recent stalls. The end's status page shows them.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steps {
    /// For each step of [`Step::ALL`]: the number of steps in each class of durations.
    pub histogram: [[u64; CLASSES]; STEPS],
    pub stalls: u64,
    /// The longest stalls, the longest first.
    pub worst: Vec<Stall>,
    /// The most recent stalls, in no order.
    pub recent: Vec<Stall>,
}

/// Returns the upper limit of the durations in this class of a histogram, in ns. The last class
/// also contains all longer durations.
pub fn class_ends_ns(class: usize) -> u64 {
    1 << (FIRST_CLASS_BITS as usize + class.min(CLASSES - 1))
}

fn class(took_ns: u64) -> usize {
    let bits = u64::BITS - (took_ns >> FIRST_CLASS_BITS).leading_zeros();
    (bits as usize).min(CLASSES - 1)
}

/// A stall's word has three parts, from the highest bit: the time taken in us, the step, and the
/// time at which the step was done. So a greater word is a longer stall.
const TOOK_BITS: u32 = 21;
const DONE_BITS: u32 = 40;
const DONE_UNIT_BITS: u32 = 12;

fn word(step: Step, took_ns: u64, since_begin_ns: u64) -> u64 {
    let took_us = took_ns.div_ceil(1000).min((1 << TOOK_BITS) - 1);
    let done = (since_begin_ns >> DONE_UNIT_BITS) & ((1 << DONE_BITS) - 1);
    took_us << (u64::BITS - TOOK_BITS) | (step as u64) << DONE_BITS | done
}

fn stall(word: u64, begun_ns: u64) -> Option<Stall> {
    let step = (word >> DONE_BITS & 7) as usize;
    let done_ns = (word & ((1 << DONE_BITS) - 1)) << DONE_UNIT_BITS;
    Some(Stall {
        step: *Step::ALL.get(step).filter(|_| word != 0)?,
        took_ns: (word >> (u64::BITS - TOOK_BITS)) * 1000,
        done_ns: begun_ns.saturating_add(done_ns),
    })
}

pub(crate) fn parse(at: impl Fn(usize) -> u64, begun_ns: u64) -> Steps {
    let stalls = |place: Place, count: usize| {
        let words = (0..count).map(|n| at(place as usize + n));
        words.filter_map(|w| stall(w, begun_ns)).collect::<Vec<_>>()
    };
    let count = |step: usize, class: usize| at(Place::Histogram as usize + step * CLASSES + class);
    let mut worst = stalls(Place::Worst, WORST);
    worst.sort_by_key(|stall| std::cmp::Reverse(stall.took_ns));
    Steps {
        histogram: std::array::from_fn(|step| std::array::from_fn(|class| count(step, class))),
        stalls: at(Place::Stalls as usize),
        worst,
        recent: stalls(Place::Recent, RECENT),
    }
}

pub(crate) trait StepWords: Send + Sync {
    fn word(&self, index: usize) -> &AtomicU64;

    fn begun_ns(&self) -> u64;

    /// Counts a step that was due at `due_ns` and done at `done_ns`. Real-time safe.
    fn step(&self, step: Step, due_ns: u64, done_ns: u64) {
        let took_ns = done_ns.saturating_sub(due_ns);
        let class = step as usize * CLASSES + class(took_ns);
        self.word(Place::Histogram as usize + class)
            .fetch_add(1, Relaxed);
        if took_ns > Cpu::default().wake_ns {
            self.stall(word(step, took_ns, done_ns.saturating_sub(self.begun_ns())));
        }
    }

    fn stall(&self, stall: u64) {
        let number = self.word(Place::Stalls as usize).fetch_add(1, Relaxed);
        let place = Place::Recent as usize + number as usize % RECENT;
        self.word(place).store(stall, Relaxed);
        // Another thread may replace the least of the worst meanwhile. Each of them lets the
        // longer one stand.
        for _ in 0..WORST {
            let words = (0..WORST).map(|n| self.word(Place::Worst as usize + n));
            let least = words
                .map(|w| (w.load(Relaxed), w))
                .min_by_key(|(seen, _)| *seen);
            let Some((seen, word)) = least.filter(|(seen, _)| *seen < stall) else {
                return;
            };
            if word.compare_exchange(seen, stall, Relaxed, Relaxed).is_ok() {
                return;
            }
        }
    }
}
