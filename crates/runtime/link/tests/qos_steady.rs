//! Tests with a counting allocator that promises allocate nothing.
#![allow(clippy::undocumented_unsafe_blocks)]

use onbeat_flow::clock::now_ns;
use onbeat_link::interface::{Incoming, Memory, Outgoing, Sizes};
use onbeat_link::qos::OnBreach::Warn;
use onbeat_link::{Qos, Shm};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

static WATCHED: AtomicBool = AtomicBool::new(false);

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if WATCHED.load(Ordering::SeqCst) {
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
fn a_connected_link_with_promises_allocates_nothing() {
    let long = Duration::from_secs(1000);
    let qos = Qos::new()
        .fresh_for(long, Warn)
        .checked(Warn)
        .send_every(long, Warn)
        .receive_every(long, Warn);
    steady("direct", qos);
    steady(
        "assured",
        qos.acknowledged(long, 3, Warn).alive_within(long, Warn),
    );
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    WATCHED.store(true, Ordering::SeqCst);
    drop(std::hint::black_box(Box::new(1)));
    WATCHED.store(false, Ordering::SeqCst);
    assert!(ALLOCATIONS.load(Ordering::Relaxed) > before, "it counts");
}

fn steady(way: &str, qos: Qos) {
    let name = format!("qos-steady-{}-{way}", std::process::id());
    let sizes = Sizes::of_messages(1000);
    let watchdog = Some(now_ns() + 100_000_000_000);
    let peer = name.clone();
    let other = std::thread::spawn(move || {
        let link = qos.around(Shm::connect(&peer));
        link.connect(sizes, Memory::Allot, watchdog).unwrap()
    });
    let link = qos.around(Shm::listen(&name));
    let (mut a, _from_b) = link.connect(sizes, Memory::Allot, watchdog).unwrap();
    let (_b, mut from_a) = other.join().unwrap();
    let mut round = |number| {
        a.send(900, watchdog, &mut |slot| slot.fill(7)).unwrap();
        let any = from_a.receive(watchdog, &mut |n, bytes| {
            assert_eq!((n, bytes.len()), (number, 900))
        });
        assert_eq!(any, Ok(true));
        a.publish(9, &mut |slot| slot.fill(1)).unwrap();
        assert_eq!(from_a.read(watchdog, &mut |_| {}), Ok(true));
    };
    round(0);
    WATCHED.store(true, Ordering::SeqCst);
    (1..1000).for_each(&mut round);
    WATCHED.store(false, Ordering::SeqCst);
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), 0, "{way}");
}
