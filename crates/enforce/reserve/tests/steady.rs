//! The dispatcher allocates nothing after its start. An allocator counts.
#![allow(clippy::undocumented_unsafe_blocks)]

mod common;

use common::*;
use onbeat_reserve::Reservation;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if WATCHED.try_with(Cell::get).unwrap_or(false) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn the_dispatcher_allocates_nothing() {
    static STARTED: AtomicU64 = AtomicU64::new(0);
    for backend in backends("the_dispatcher_allocates_nothing") {
        let dir = Dir::new("steady");
        let servers = [
            server("a", 20, &[(0, MS), (2 * MS, 3 * MS)]),
            server("b", 20, &[(MS, 2 * MS)]),
        ];
        let mut options = options(backend, &dir);
        options.on_dispatcher = || {
            WATCHED.set(true);
            // This allocation shows that the counter works.
            drop(std::hint::black_box(Box::new(0u8)));
            STARTED.store(ALLOCATIONS.load(Ordering::Relaxed), Ordering::Relaxed);
        };
        let reservation = Reservation::start(4 * MS, &servers, 0, options).unwrap();
        let workers = [Worker::spinning(), Worker::spinning()];
        reservation.assign(workers[0].tid, "a").unwrap();
        reservation.assign(workers[1].tid, "b").unwrap();
        for origin in 0..20 {
            reservation.set_origin(origin * MS / 7);
            std::thread::sleep(Duration::from_millis(20));
        }
        // Cycles that pass while the dispatcher does not run have no moves.
        wait_for("moves", || {
            let stats = reservation.stats();
            stats.opening.count() > 50 && stats.closing.count() > 50
        });
        let counted = ALLOCATIONS.load(Ordering::Relaxed);
        assert!(counted > 0, "nothing is counted");
        assert_eq!(counted, STARTED.load(Ordering::Relaxed));
    }
}
