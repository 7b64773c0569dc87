//! Tests with a counting allocator that the sender allocates nothing between two publications.
#![allow(clippy::undocumented_unsafe_blocks)]

use onbeat_ros::queue::{Queue, Stamp};
use onbeat_ros::schedule::SlotSchedule;
use onbeat_time::Slot;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MS: u64 = 1_000_000;

#[test]
fn a_week_of_queued_items_allocates_nothing() {
    let slot = Slot::new(60 * MS, 61 * MS);
    let schedule = SlotSchedule::new(100 * MS, 0, 20 * MS, &[slot]).unwrap();
    let mut queue = Queue::new(32);
    let before = ALLOCATIONS.get();
    assert!(before > 0, "nothing is counted");
    let mut left = 0_u64;
    let mut came = 0_u64;
    for cycle in 0..7 * 24 * 36_000_u64 {
        let born_ns = cycle * 100 * MS;
        for n in 0..[1, 1, 2, 0, 1][(cycle % 5) as usize] {
            let late = if cycle.is_multiple_of(20) { 90 } else { 0 };
            let stamp = Stamp {
                arrival_ns: (born_ns + (50 + late + n) * MS) as i64,
                born_ns: (!cycle.is_multiple_of(7)).then_some(born_ns),
            };
            queue.push(&schedule, cycle, stamp).unwrap();
            came += 1;
        }
        let now_ns = (born_ns + 60 * MS) as i64;
        while let Some(next) = queue.next(&schedule, now_ns) {
            if next.due.opening.start_ns > now_ns {
                break;
            }
            queue.take(next).unwrap();
            left += 1;
        }
    }
    while queue.take_first().is_some() {
        left += 1;
    }
    assert_eq!(ALLOCATIONS.get(), before);
    assert_eq!(came, left);
}
