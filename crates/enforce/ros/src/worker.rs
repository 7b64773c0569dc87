//! The two threads of an output: one takes items as they come, the other publishes them in slots.

use crate::beat::Beat;
use crate::config::{Kind, Overshoot};
use crate::rcl::{Item, Publisher, Subscription};
use crate::report::{flags, Record};
use crate::sequence::Sequence;
use crate::shaper::{ShaperError, Shared, LOOK_NS, TICK_NS};
use crate::signal::Bell;
use onbeat_flow::clock::now_ns;
use rtrb::{Consumer, Producer};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// How long reliable readers are waited for at the end.
const SETTLE_NS: i64 = 500_000_000;

/// How long before a slot the sender wakes up: it waits for the slot's first instant awake, since
/// being woken takes 10 to 100 us, and never the same time.
const AWAKE_NS: i64 = 100_000;

/// The thread that takes items as they come.
pub(crate) struct Receiver {
    pub(crate) shared: Arc<Shared>,
    pub(crate) subscription: Subscription,
    pub(crate) empty: Consumer<Item>,
    pub(crate) filled: Producer<Item>,
    pub(crate) data: Arc<Bell>,
    pub(crate) space: Arc<Bell>,
    pub(crate) done: Arc<AtomicBool>,
}

impl Receiver {
    /// Runs until the process ends.
    pub(crate) fn run(mut self) -> Result<(), ShaperError> {
        let result = self.receive();
        self.done.store(true, Ordering::Release);
        self.data.ring();
        result
    }

    fn receive(&mut self) -> Result<(), ShaperError> {
        let mut spare: Option<Item> = None;
        loop {
            // Read first: what came before the end is still taken.
            let last = self.shared.ending.load(Ordering::Relaxed);
            let wait = if last { 0 } else { TICK_NS as i64 };
            self.subscription.wait(wait)?;
            loop {
                let rung = self.space.count();
                let Some(mut item) = spare.take().or_else(|| self.empty.pop().ok()) else {
                    // Without the other thread none of it comes back.
                    if self.filled.is_abandoned() {
                        return Ok(());
                    }
                    // All memory is in use: the middleware's history holds the rest.
                    self.space.wait(rung, now_ns() + TICK_NS);
                    continue;
                };
                if !self.subscription.take(&mut item)? {
                    spare = Some(item);
                    break;
                }
                // There are no more items than places.
                let _ = self.filled.push(item);
                self.data.ring();
            }
            if last {
                return Ok(());
            }
        }
    }
}

/// The thread that publishes. In its loop it allocates nothing, takes no lock, and waits only for the
/// bell or the time.
pub(crate) struct Sender {
    pub(crate) shared: Arc<Shared>,
    pub(crate) index: usize,
    pub(crate) kind: Kind,
    pub(crate) publisher: Publisher,
    pub(crate) empty: Producer<Item>,
    pub(crate) filled: Consumer<Item>,
    pub(crate) data: Arc<Bell>,
    pub(crate) space: Arc<Bell>,
    pub(crate) done: Arc<AtomicBool>,
    pub(crate) sequence: u64,
}

impl Sender {
    /// Runs until the process ends.
    pub(crate) fn run(mut self) {
        let mut held: Option<Item> = None;
        let mut beat: Option<Beat> = None;
        let mut last_cycle: Option<i64> = None;
        let mut sequence = Sequence::new();
        // How many cycles before the one it seems to be of the held item's is, once that is known.
        let mut back: Option<i64> = None;
        loop {
            // Before looking: what comes after this look rings, and ends the wait.
            let rung = self.data.count();
            let finished = self.done.load(Ordering::Acquire);
            let passes = self.shared.passes();
            if held.is_none() {
                held = self.filled.pop().ok();
                back = None;
            }
            if self.kind == Kind::Throttle && !passes {
                while let Ok(newer) = self.filled.pop() {
                    if let Some(old) = held.replace(newer) {
                        self.discard(old, flags::REPLACED, last_cycle.unwrap_or(0));
                    }
                }
            }
            let now = now_ns() as i64;
            let Some(item) = held.take() else {
                if finished {
                    break;
                }
                self.data.wait(rung, now as u64 + LOOK_NS);
                continue;
            };
            if passes {
                self.publish(item, Record::default(), flags::PASSED);
                continue;
            }
            // The last good table serves while a new one is being written.
            beat = self.shared.slots.beat(self.index).or(beat);
            let Some(beat) = beat else {
                held = Some(item);
                self.data.wait(rung, now as u64 + LOOK_NS);
                continue;
            };
            let (cycle, opening, late) = match self.kind {
                Kind::Shape => {
                    let seems = beat.cycle_of(item.arrival_ns);
                    let back = *back.get_or_insert_with(|| {
                        let after_ns = beat.after_ns(seems, item.arrival_ns);
                        seems - sequence.place(seems, after_ns)
                    });
                    let due = beat.due(seems - back, item.arrival_ns, now);
                    (due.cycle, due.opening, due.late)
                }
                Kind::Throttle => {
                    let opening = beat.throttled(now, last_cycle);
                    (opening.cycle, opening, false)
                }
            };
            let mut bits = if late { flags::LATE } else { 0 };
            let mut at_once = false;
            let judged = late && !self.shared.slots.settles();
            match self.shared.overshoot {
                Overshoot::Drop if judged => {
                    self.discard(item, bits, cycle);
                    continue;
                }
                Overshoot::Stop if judged => {
                    self.shared.stopped.store(true, Ordering::Relaxed);
                    bits |= flags::STOPPED;
                    at_once = true;
                }
                _ => {}
            }
            if now >= opening.start_ns || at_once {
                last_cycle = Some(opening.cycle);
                let record = Record {
                    cycle,
                    slot: opening.slot,
                    slot_start_ns: opening.start_ns,
                    ..Record::default()
                };
                self.publish(item, record, bits);
            } else if opening.start_ns - now <= AWAKE_NS {
                held = Some(item);
                while (now_ns() as i64) < opening.start_ns {
                    std::hint::spin_loop();
                }
            } else {
                held = Some(item);
                let until = (opening.start_ns - AWAKE_NS) as u64;
                self.data.wait(rung, until.min(now as u64 + LOOK_NS));
            }
        }
        self.publisher.settle(SETTLE_NS);
    }

    fn publish(&mut self, item: Item, record: Record, bits: u32) {
        let start_ns = now_ns() as i64;
        let failed = match self.publisher.publish(&item) {
            Ok(()) => 0,
            Err(_) => flags::FAILED,
        };
        let end_ns = now_ns() as i64;
        self.report(
            item,
            Record {
                start_ns,
                end_ns,
                flags: bits | failed,
                ..record
            },
        );
    }

    fn discard(&mut self, item: Item, bits: u32, cycle: i64) {
        self.report(
            item,
            Record {
                cycle,
                flags: bits | flags::DROPPED,
                ..Record::default()
            },
        );
    }

    /// Gives the memory back, and tells the owner.
    fn report(&mut self, item: Item, record: Record) {
        let record = Record {
            sequence: self.sequence,
            source_ns: item.source_ns,
            arrival_ns: item.arrival_ns,
            output: self.index as u16,
            bytes: u32::try_from(item.len()).unwrap_or(u32::MAX),
            ..record
        };
        self.sequence += 1;
        // There are no more items than places.
        let _ = self.empty.push(item);
        self.space.ring();
        self.shared.reporter.send(record);
    }
}
