//! Items that wait for their slots, and which of them leaves next. Pure but for the items.
//!
//! Items leave in the order of their slots, and in one slot in the order in which they came: one that
//! waits for a later cycle holds up none that came after it but belongs to an earlier one.

use crate::schedule::{Due, SlotSchedule};
use crate::sequence::Sequence;

/// What an item says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// When it came, CLOCK_MONOTONIC in ns.
    pub arrival_ns: i64,
    /// When its execution began, CLOCK_MONOTONIC in ns; `None`: not known.
    pub born_ns: Option<u64>,
}

/// How an item's cycle is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// By when its execution began. The cycle is asked for anew each time: its number changes with
    /// the schedule's origin.
    Born(u64),
    /// By when it came: so many cycles before the apparent one.
    Arrival(i64),
}

/// An item that waits.
#[derive(Debug)]
struct Waiting<T> {
    item: T,
    arrival_ns: i64,
    origin: Origin,
}

/// An item that is next, with its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next {
    /// Where it waits, for [`Queue::take`].
    place: usize,
    /// Its slot.
    pub due: Due,
    /// Whether its cycle was inferred from when it came.
    pub by_arrival: bool,
}

/// How many cycles before the apparent one an execution may have begun. What claims to be older, or
/// younger than its item, is not believed.
const MOST_BACK: i64 = 1 << 10;

/// The items of one output that wait, in the order in which they came.
#[derive(Debug)]
pub struct Queue<T> {
    waiting: Vec<Waiting<T>>,
    sequence: Sequence,
}

impl<T> Queue<T> {
    /// Room for so many items.
    pub fn new(capacity: usize) -> Queue<T> {
        Queue {
            waiting: Vec::with_capacity(capacity),
            sequence: Sequence::default(),
        }
    }

    /// Whether there is room for one more.
    pub fn has_room(&self) -> bool {
        self.waiting.len() < self.waiting.capacity()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds an item; `Err` gives it back where there is no room. Real-time safe: the room was made at
    /// the beginning.
    ///
    /// # Errors
    ///
    /// The item.
    pub fn push(&mut self, schedule: &SlotSchedule, item: T, stamp: Stamp) -> Result<(), T> {
        if !self.has_room() {
            return Err(item);
        }
        let arrival_ns = stamp.arrival_ns;
        let apparent = schedule.cycle_of(arrival_ns);
        let after_ns = schedule.after_ns(apparent, arrival_ns);
        let known = stamp.born_ns.filter(|&born_ns| {
            let back = apparent.saturating_sub(schedule.cycle_begun(born_ns));
            i64::try_from(born_ns).is_ok_and(|b| b <= arrival_ns) && (-1..MOST_BACK).contains(&back)
        });
        let origin = match known {
            Some(born_ns) => {
                let cycle = schedule.cycle_begun(born_ns);
                // From here the others' are inferred.
                let after_ns = after_ns.saturating_add(schedule.cycles_ns(apparent - cycle));
                self.sequence.is_of(cycle, after_ns);
                Origin::Born(born_ns)
            }
            None => Origin::Arrival(apparent - self.sequence.place(apparent, after_ns)),
        };
        self.waiting.push(Waiting {
            item,
            arrival_ns,
            origin,
        });
        Ok(())
    }

    /// The item that leaves next, as the schedule is now. Real-time safe: a look at each that waits.
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

    /// Takes an item out.
    pub fn take(&mut self, next: Next) -> Option<T> {
        (next.place < self.waiting.len()).then(|| self.waiting.remove(next.place).item)
    }

    /// Takes the item out that came first.
    pub fn take_first(&mut self) -> Option<T> {
        (!self.waiting.is_empty()).then(|| self.waiting.remove(0).item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_time::Slot;

    const MS: u64 = 1_000_000;
    /// Slot of a cycle of 100 ms.
    const SLOT: Slot = Slot {
        start_ns: 60 * MS,
        end_ns: 61 * MS,
    };

    fn schedule() -> SlotSchedule {
        SlotSchedule::new(100 * MS, 0, 20 * MS, &[SLOT]).unwrap()
    }

    /// What leaves: the item's number, when its slot begins in ms, and whether it is late. Items are
    /// (number, arrival in ms, start of the execution in ms).
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

    /// Ten executions in phase, each known.
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
    fn an_overrun_that_ends_when_the_next_output_is_due_is_late_and_the_next_is_not() {
        // 10 takes 150 ms and comes when 11 usually does; 11 comes late, and 12 in phase.
        let known = [
            (10, 1150, Some(1000)),
            (11, 1190, Some(1100)),
            (12, 1250, Some(1200)),
        ];
        assert_eq!(
            after_steady(&known),
            [(10, 1160, true), (11, 1260, true), (12, 1260, false)]
        );
        // By arrival it is taken for the next one, as before.
        let unknown = known.map(|(n, at, _)| (n, at, None));
        assert!(!after_steady(&unknown)[0].2);
    }

    #[test]
    fn an_execution_without_output_makes_nobody_late() {
        // 10 publishes nothing; those after it come a little earlier than usual.
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
    fn two_outputs_of_one_cycle_leave_in_its_slot() {
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
        // 11 is there before 10, while the slot of 10 is still to come.
        let items = [(11, 1055, Some(1055)), (10, 1058, Some(1000))];
        assert_eq!(after_steady(&items), [(10, 1060, false), (11, 1160, false)]);
    }

    #[test]
    fn an_output_whose_slot_is_slept_through_leaves_at_once_if_that_is_nearer() {
        let (schedule, mut queue) = (schedule(), Queue::new(8));
        let stamp = Stamp {
            arrival_ns: 1050 * MS as i64,
            born_ns: Some(1000 * MS),
        };
        queue.push(&schedule, 10, stamp).unwrap();
        // Its slot is [1060, 1061).
        let at = |us: i64| queue.next(&schedule, us * 1000).unwrap().due;
        let told = |due: Due| (due.late, due.overslept, due.opening.start_ns / MS as i64);
        assert_eq!(told(at(1_060_999)), (false, false, 1060));
        assert_eq!(told(at(1_061_000)), (true, true, 1060));
        assert_eq!(told(at(1_110_400)), (true, true, 1060));
        assert_eq!(told(at(1_110_500)), (true, false, 1160));
        // What came behind its slot was late by itself.
        queue.take_first();
        let arrival_ns = 1061 * MS as i64;
        let stamp = Stamp {
            arrival_ns,
            ..stamp
        };
        queue.push(&schedule, 10, stamp).unwrap();
        let due = queue.next(&schedule, arrival_ns).unwrap().due;
        assert_eq!(told(due), (true, false, 1160));
    }

    #[test]
    fn where_lineage_is_lost_the_inference_begins_at_what_was_known() {
        // 10 and 11 are known, and late; 12 is not, and comes in phase.
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
    fn a_start_that_cannot_be_true_is_not_believed() {
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
    fn a_new_origin_takes_known_items_along() {
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
