//! The sending thread of an output, which publishes items in slots.

use super::{Shared, POLL_NS};
use crate::config::Kind;
use crate::notifier::Notifier;
use crate::queue::{Next, Queue, Stamp};
use crate::rcl::{Holding, Item, Publisher};
use crate::report::{flags, Record};
use crate::schedule::{Due, SlotSchedule};
use onbeat_time::clock::monotonic_ns;
use onbeat_time::{Lead, Opening, Overshoot};
use rtrb::{Consumer, Producer};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// The longest time for which a sender that ends waits until reliable subscriptions have
/// acknowledged every item, in ns.
const SETTLE_NS: i64 = 500_000_000;

/// The share of wake-ups, in 1/1000, that should come before the slot begins. A wake-up takes
/// between 10 and 100 us, so the sender wakes up early and spins until the slot begins.
const IN_TIME_PER_1000: usize = 990;
/// The time before a slot at which the sender wakes up, in ns, until it has measured its wake-up
/// latency.
const FIRST_LEAD_NS: u64 = 100_000;
/// The shortest and the longest time before a slot at which the sender wakes up, in ns. The longest
/// one limits how long the sender spins per slot on the middleware's CPU.
const LEAD_RANGE_NS: (u64, u64) = (50_000, 500_000);

const IDLE_SLEEP_NS: u64 = 1_000_000_000;

pub(super) fn lead() -> Lead {
    Lead::new(IN_TIME_PER_1000, FIRST_LEAD_NS, LEAD_RANGE_NS)
}

/// The thread that publishes the items of one output. Its loop allocates nothing, takes no lock,
/// and waits only for a notification or a time.
pub(crate) struct Sender {
    pub(crate) shared: Arc<Shared>,
    pub(crate) index: usize,
    pub(crate) kind: Kind,
    pub(crate) publisher: Publisher,
    pub(crate) holding: Option<Holding>,
    pub(crate) empty: Producer<Item>,
    pub(crate) filled: Consumer<Item>,
    pub(crate) data: Arc<Notifier>,
    pub(crate) space: Arc<Notifier>,
    pub(crate) done: Arc<AtomicBool>,
    pub(crate) capacity: usize,
    pub(crate) reports: u64,
    /// The time before a slot at which the sender wakes up to spin. `None` if it does not spin.
    pub(crate) lead: Option<Lead>,
}

struct SendState {
    queue: Queue<Waiting>,
    /// The last valid schedule, which is used while the owner writes a new one.
    schedule: Option<SlotSchedule>,
    last_cycle: Option<i64>,
}

impl SendState {
    fn sleep_ns(&self) -> u64 {
        match self.schedule.is_some() && self.queue.is_empty() {
            true => IDLE_SLEEP_NS,
            false => POLL_NS,
        }
    }
}

struct Waiting {
    item: Item,
    born_ns: Option<u64>,
}

enum Action {
    Publish,
    /// The item leaves, and shaping ends because of [`Overshoot::Stop`].
    Stop,
    Discard,
    Wait,
}

impl Sender {
    pub(crate) fn run(mut self) {
        let mut state = SendState {
            queue: Queue::new(self.capacity),
            schedule: None,
            last_cycle: None,
        };
        loop {
            // The count is read before looking for items, so a notification after this ends the
            // wait.
            let seen = self.data.count();
            let finished = self.done.load(Ordering::Acquire);
            let leaves = match self.shared.passes() {
                true => self.pass(&mut state),
                false => self.shape(&mut state, seen),
            };
            if leaves {
                continue;
            }
            if finished {
                break;
            }
            self.data.wait(seen, monotonic_ns() + state.sleep_ns());
        }
        self.publisher.settle(SETTLE_NS);
    }

    fn pass(&mut self, state: &mut SendState) -> bool {
        let held = state.queue.take_first().map(|waiting| waiting.item);
        let Some(item) = held.or_else(|| self.filled.pop().ok()) else {
            return false;
        };
        self.publish(item, Record::default(), flags::PASSED);
        true
    }

    fn shape(&mut self, state: &mut SendState, seen: u32) -> bool {
        state.schedule = self.shared.slots.schedule(self.index).or(state.schedule);
        let Some(schedule) = state.schedule else {
            return false;
        };
        self.take_arrived(state, &schedule);
        let now_ns = monotonic_ns();
        let Some(next) = state.queue.next(&schedule, now_ns as i64) else {
            return false;
        };
        let due = self.due(state, &schedule, &next, now_ns as i64);
        let action = self.action(&due, now_ns as i64);
        if matches!(action, Action::Wait) {
            self.wait_for(&due.opening, seen, now_ns);
            return true;
        }
        let Some(Waiting { item, born_ns }) = state.queue.take(next) else {
            return false;
        };
        let mut bits = if due.late { flags::LATE } else { 0 };
        if next.by_arrival && self.kind == Kind::Shape {
            bits |= flags::BY_ARRIVAL;
        }
        let mut record = in_slot(&due);
        if !next.by_arrival {
            record.born_ns = born_ns.map_or(0, |b| b as i64);
        }
        if matches!(action, Action::Discard) {
            self.discard(item, record, bits);
            return true;
        }
        if matches!(action, Action::Stop) {
            self.shared.stopped.store(true, Ordering::Relaxed);
            bits |= flags::STOPPED;
        }
        state.last_cycle = Some(due.opening.cycle);
        self.publish(item, record, bits);
        true
    }

    fn take_arrived(&mut self, state: &mut SendState, schedule: &SlotSchedule) {
        while state.queue.has_room() {
            let Ok(item) = self.filled.pop() else {
                return;
            };
            if self.kind == Kind::Throttle {
                if let Some(old) = state.queue.take_first() {
                    let record = Record {
                        cycle: state.last_cycle.unwrap_or(0),
                        ..Record::default()
                    };
                    self.discard(old.item, record, flags::REPLACED);
                }
            }
            let lineage = self.shared.lineage.as_ref();
            let born_ns = lineage.and_then(|table| table.born_ns(item.source_ns));
            let stamp = Stamp {
                arrival_ns: item.arrival_ns,
                born_ns,
            };
            // The loop has checked that there is room.
            let _ = state.queue.push(schedule, Waiting { item, born_ns }, stamp);
        }
    }

    fn due(&self, state: &SendState, schedule: &SlotSchedule, next: &Next, now_ns: i64) -> Due {
        match self.kind {
            Kind::Shape => next.due,
            Kind::Throttle => {
                let opening = schedule.throttled(now_ns, state.last_cycle);
                Due {
                    cycle: opening.cycle,
                    opening,
                    late: false,
                    overslept: false,
                }
            }
        }
    }

    fn action(&self, due: &Due, now_ns: i64) -> Action {
        // An execution that was in time did not overrun, even if the sender missed its slot.
        let judged = due.late && !due.overslept && !self.shared.slots.settles();
        match self.shared.overshoot {
            Overshoot::Drop if judged => Action::Discard,
            Overshoot::Stop if judged => Action::Stop,
            _ if now_ns >= due.opening.start_ns => Action::Publish,
            _ => Action::Wait,
        }
    }

    /// Waits for the start of a slot: spins if the start is near, otherwise sleeps until shortly
    /// before it or until the count of notifications differs from `seen`.
    fn wait_for(&mut self, opening: &Opening, seen: u32, now_ns: u64) {
        let lead_ns = self.lead.as_ref().map_or(0, |lead| lead.ns() as i64);
        if opening.start_ns - now_ns as i64 <= lead_ns {
            while (monotonic_ns() as i64) < opening.start_ns {
                std::hint::spin_loop();
            }
        } else {
            let until_ns = (opening.start_ns - lead_ns) as u64;
            self.data.wait(seen, until_ns.min(now_ns + POLL_NS));
            let late_ns = monotonic_ns().checked_sub(until_ns);
            if let (Some(lead), Some(late_ns)) = (&mut self.lead, late_ns) {
                lead.record(late_ns);
            }
        }
    }

    fn publish(&mut self, item: Item, record: Record, bits: u32) {
        let start_ns = monotonic_ns() as i64;
        let failed = match self.publisher.publish(&item) {
            Ok(()) => 0,
            Err(_) => flags::FAILED,
        };
        let end_ns = monotonic_ns() as i64;
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

    fn discard(&mut self, item: Item, record: Record, bits: u32) {
        if let Some(holding) = &self.holding {
            holding.discard(&item);
        }
        self.report(
            item,
            Record {
                cycle: record.cycle,
                born_ns: record.born_ns,
                flags: bits | flags::DROPPED,
                ..Record::default()
            },
        );
    }

    fn report(&mut self, item: Item, record: Record) {
        let record = Record {
            sequence: self.reports,
            source_ns: item.source_ns,
            arrival_ns: item.arrival_ns,
            output: self.index as u16,
            bytes: u32::try_from(item.len()).unwrap_or(u32::MAX),
            ..record
        };
        self.reports += 1;
        // The ring has a place for each item, so the push cannot fail.
        let _ = self.empty.push(item);
        self.space.notify();
        self.shared.reporter.send(record);
    }
}

fn in_slot(due: &Due) -> Record {
    Record {
        cycle: due.cycle,
        slot: due.opening.slot as u16,
        slot_start_ns: due.opening.start_ns,
        ..Record::default()
    }
}
