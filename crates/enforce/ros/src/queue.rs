//! Holds the items that wait for their slots, and chooses which one leaves next. Pure, except for
//! the items.
//!
//! Items leave in the order of their slots, and in one slot in the order of their arrival. An item
//! that waits for a later cycle does not delay a later item of an earlier cycle.

use crate::schedule::{Due, SlotSchedule};
use crate::sequence::Sequence;

/// The times of an item. The shaper derives the item's cycle from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The time at which the item arrived (CLOCK_MONOTONIC), in ns.
    pub arrival_ns: i64,
    /// The time at which the item's execution began (CLOCK_MONOTONIC), in ns. `None` if it is
    /// unknown.
    pub born_ns: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The time at which the item's execution began (CLOCK_MONOTONIC, ns). The cycle's number is
    /// computed from it at each use, because the number changes with the schedule's origin.
    Born(u64),
    /// The start of the item's execution is unknown. The number says how many cycles the item's
    /// cycle comes before the last cycle that can have published the item by its arrival.
    Arrival(i64),
}

#[derive(Debug)]
struct Waiting<T> {
    item: T,
    arrival_ns: i64,
    origin: Origin,
}

/// The item that leaves next, and its slot.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next {
    place: usize,
    pub due: Due,
    /// Whether the item's cycle was inferred from its arrival, because the start of its execution
    /// was unknown.
    pub by_arrival: bool,
}

/// The greatest number of cycles by which the start of an item's execution may precede the item's
/// arrival. Older starts, and starts after the arrival, are ignored.
const MAX_CYCLES_BACK: i64 = 1 << 10;

/// The waiting items of one output, in the order of their arrival.
#[derive(Debug)]
pub struct Queue<T> {
    waiting: Vec<Waiting<T>>,
    sequence: Sequence,
}

impl<T> Queue<T> {
    /// Creates an empty queue with room for `capacity` items.
    pub fn new(capacity: usize) -> Queue<T> {
        Queue {
            waiting: Vec::with_capacity(capacity),
            sequence: Sequence::default(),
        }
    }

    /// Reports whether [`Queue::push`] would accept another item.
    pub fn has_room(&self) -> bool {
        self.waiting.len() < self.waiting.capacity()
    }

    /// Reports whether the queue has no items.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds an item. Real-time safe: it allocates nothing.
    ///
    /// # Errors
    ///
    /// Returns the item if the queue is full.
    pub fn push(&mut self, schedule: &SlotSchedule, item: T, stamp: Stamp) -> Result<(), T> {
        if !self.has_room() {
            return Err(item);
        }
        let arrival_ns = stamp.arrival_ns;
        let apparent = schedule.cycle_of(arrival_ns);
        let after_ns = schedule.after_ns(apparent, arrival_ns);
        let known = stamp.born_ns.filter(|&born_ns| {
            let back = apparent.saturating_sub(schedule.cycle_begun(born_ns));
            i64::try_from(born_ns).is_ok_and(|b| b <= arrival_ns)
                && (-1..MAX_CYCLES_BACK).contains(&back)
        });
        let origin = match known {
            Some(born_ns) => {
                let cycle = schedule.cycle_begun(born_ns);
                // The cycles of other items are inferred relative to this one.
                let after_ns = after_ns.saturating_add(schedule.cycles_ns(apparent - cycle));
                self.sequence.note_known(cycle, after_ns);
                Origin::Born(born_ns)
            }
            None => Origin::Arrival(apparent - self.sequence.infer_cycle(apparent, after_ns)),
        };
        self.waiting.push(Waiting {
            item,
            arrival_ns,
            origin,
        });
        Ok(())
    }

    /// Returns the item that leaves next under `schedule`. Real-time safe: one step per waiting
    /// item.
    pub fn next(&self, schedule: &SlotSchedule, now_ns: i64) -> Option<Next> {
        let due = |(place, waiting): (usize, &Waiting<T>)| {
            let cycle = match waiting.origin {
                Origin::Born(born_ns) => schedule.cycle_begun(born_ns),
                Origin::Arrival(back) => schedule.cycle_of(waiting.arrival_ns) - back,
            };
            Next {
                place,
                due: schedule.due(cycle, waiting.arrival_ns, now_ns),
                by_arrival: matches!(waiting.origin, Origin::Arrival(_)),
            }
        };
        let all = self.waiting.iter().enumerate().map(due);
        all.min_by_key(|next| (next.due.opening.start_ns, next.due.cycle, next.place))
    }

    /// Removes and returns the item that [`Queue::next`] chose.
    pub fn take(&mut self, next: Next) -> Option<T> {
        (next.place < self.waiting.len()).then(|| self.waiting.remove(next.place).item)
    }

    /// Removes and returns the item that arrived first.
    pub fn take_first(&mut self) -> Option<T> {
        (!self.waiting.is_empty()).then(|| self.waiting.remove(0).item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_time::Slot;

    const MS: u64 = 1_000_000;
    const SLOT: Slot = Slot {
        start_ns: 60 * MS,
        end_ns: 61 * MS,
    };

    fn schedule() -> SlotSchedule {
        SlotSchedule::new(100 * MS, 0, 20 * MS, &[SLOT]).unwrap()
    }

    /// Returns for each item that leaves: its number, the start of its slot (ms), and whether it
    /// was late. Each of `items` has a number, an arrival (ms), and the start of its execution (ms)
    /// if known.
    fn left(items: &[(u32, i64, Option<u64>)]) -> Vec<(u32, i64, bool)> {
        let (schedule, mut queue) = (schedule(), Queue::new(8));
        let (mut left, mut now_ns) = (Vec::new(), 0);
        let mut items = items.iter().peekable();
        loop {
            let next = queue.next(&schedule, now_ns);
            let opens = next.map(|n| n.due.opening.start_ns.max(now_ns));
            let arrival = items.peek().map(|i| i.1 * MS as i64);
            match (next, opens, arrival) {
                (Some(next), Some(opens), arrival) if arrival.is_none_or(|a| a > opens) => {
                    now_ns = opens;
                    let item = queue.take(next).unwrap();
                    left.push((item, opens / MS as i64, next.due.late));
                }
                (_, _, Some(arrival_ns)) => {
                    let &(item, _, born) = items.next().unwrap();
                    now_ns = arrival_ns;
                    let stamp = Stamp {
                        arrival_ns,
                        born_ns: born.map(|b| b * MS),
                    };
                    queue.push(&schedule, item, stamp).unwrap();
                }
                _ => return left,
            }
        }
    }

    fn steady() -> Vec<(u32, i64, Option<u64>)> {
        (0..10)
            .map(|n| (n, i64::from(n) * 100 + 50, Some(u64::from(n) * 100)))
            .collect()
    }

    fn after_steady(more: &[(u32, i64, Option<u64>)]) -> Vec<(u32, i64, bool)> {
        let items: Vec<_> = steady().into_iter().chain(more.iter().copied()).collect();
        left(&items).split_off(10)
    }

    #[test]
    fn an_output_that_overruns_its_slot_is_late_and_the_next_output_is_not() {
        // Execution 10 takes 150 ms and its item arrives when that of 11 usually does. Item 11
        // arrives late, and 12 in phase.
        let known = [
            (10, 1150, Some(1000)),
            (11, 1190, Some(1100)),
            (12, 1250, Some(1200)),
        ];
        assert_eq!(
            after_steady(&known),
            [(10, 1160, true), (11, 1260, true), (12, 1260, false)]
        );
        // By its arrival, item 10 counts as that of the next execution.
        let unknown = known.map(|(n, at, _)| (n, at, None));
        assert!(!after_steady(&unknown)[0].2);
    }

    #[test]
    fn an_execution_without_output_makes_no_other_output_late() {
        // Execution 10 publishes nothing. The items after it arrive a little earlier than usual.
        let known: Vec<_> = (11..15u32)
            .map(|n| (n, i64::from(n) * 100 + 45, Some(u64::from(n) * 100)))
            .collect();
        let expected: Vec<_> = (11..15)
            .map(|n| (n, i64::from(n) * 100 + 60, false))
            .collect();
        assert_eq!(after_steady(&known), expected);
        let unknown: Vec<_> = known.iter().map(|&(n, at, _)| (n, at, None)).collect();
        assert!(
            after_steady(&unknown).iter().any(|l| l.2),
            "inferred from arrivals they seem late"
        );
    }

    #[test]
    fn two_outputs_of_one_cycle_leave_in_the_slot_of_that_cycle() {
        let items = [
            (10, 1040, Some(1000)),
            (11, 1050, Some(1000)),
            (12, 1150, Some(1100)),
        ];
        assert_eq!(
            after_steady(&items),
            [(10, 1060, false), (11, 1060, false), (12, 1160, false)]
        );
    }

    #[test]
    fn an_output_that_is_overtaken_leaves_in_its_own_slot() {
        // Item 11 arrives before 10, while the slot of 10 is still to come.
        let items = [(11, 1055, Some(1055)), (10, 1058, Some(1000))];
        assert_eq!(after_steady(&items), [(10, 1060, false), (11, 1160, false)]);
    }

    #[test]
    fn an_output_whose_slot_was_missed_leaves_at_once_if_the_next_slot_is_farther_away() {
        let (schedule, mut queue) = (schedule(), Queue::new(8));
        let stamp = Stamp {
            arrival_ns: 1050 * MS as i64,
            born_ns: Some(1000 * MS),
        };
        queue.push(&schedule, 10, stamp).unwrap();
        // The slot of the item is [1060, 1061) ms.
        let at = |us: i64| queue.next(&schedule, us * 1000).unwrap().due;
        let summary = |due: Due| (due.late, due.overslept, due.opening.start_ns / MS as i64);
        assert_eq!(summary(at(1_060_999)), (false, false, 1060));
        assert_eq!(summary(at(1_061_000)), (true, true, 1060));
        assert_eq!(summary(at(1_110_400)), (true, true, 1060));
        assert_eq!(summary(at(1_110_500)), (true, false, 1160));
        // An item that arrives after its slot is late by itself.
        queue.take_first();
        let arrival_ns = 1061 * MS as i64;
        let stamp = Stamp {
            arrival_ns,
            ..stamp
        };
        queue.push(&schedule, 10, stamp).unwrap();
        let due = queue.next(&schedule, arrival_ns).unwrap().due;
        assert_eq!(summary(due), (true, false, 1160));
    }

    #[test]
    fn cycles_are_inferred_from_the_last_item_with_known_lineage() {
        // Items 10 and 11 have known starts and are late. Item 12 has none, and arrives in phase.
        let items = [
            (10, 1138, Some(1000)),
            (11, 1190, Some(1100)),
            (12, 1250, None),
        ];
        assert_eq!(
            after_steady(&items),
            [(10, 1160, true), (11, 1260, true), (12, 1260, false)]
        );
    }

    #[test]
    fn impossible_execution_starts_are_ignored() {
        let (schedule, mut queue) = (schedule(), Queue::new(8));
        let at = |born_ns| Stamp {
            arrival_ns: 1_000_050 * MS as i64,
            born_ns,
        };
        for born in [Some(1_000_051 * MS), Some(1), Some(u64::MAX), None] {
            queue.push(&schedule, 0, at(born)).unwrap();
            let next = queue.next(&schedule, 0).unwrap();
            assert!(next.by_arrival, "{born:?}");
            assert_eq!(next.due.cycle, 10_000);
            queue.take(next).unwrap();
        }
        queue.push(&schedule, 0, at(Some(999_900 * MS))).unwrap();
        let next = queue.next(&schedule, 0).unwrap();
        assert_eq!((next.by_arrival, next.due.cycle), (false, 9_999));
    }

    #[test]
    fn items_with_known_starts_keep_their_slot_under_a_new_origin() {
        let (before, mut queue) = (schedule(), Queue::new(2));
        let stamp = Stamp {
            arrival_ns: 1050 * MS as i64,
            born_ns: Some(1000 * MS),
        };
        queue.push(&before, 7, stamp).unwrap();
        let after = SlotSchedule::new(100 * MS, 900 * MS as i64, 20 * MS, &[SLOT]).unwrap();
        let next = |s: &SlotSchedule| queue.next(s, 1050 * MS as i64).unwrap().due;
        assert_eq!((next(&before).cycle, next(&after).cycle), (10, 1));
        assert_eq!(
            next(&before).opening.start_ns,
            next(&after).opening.start_ns
        );
    }

    #[test]
    fn a_full_queue_gives_the_item_back() {
        let (schedule, mut queue) = (schedule(), Queue::new(1));
        let stamp = Stamp {
            arrival_ns: 0,
            born_ns: None,
        };
        queue.push(&schedule, 1, stamp).unwrap();
        assert_eq!(queue.push(&schedule, 2, stamp), Err(2));
        assert_eq!((queue.take_first(), queue.take_first()), (Some(1), None));
    }
}
