//! Tests that a chunk's way through a port allocates nothing, in all threads of the process.
#![allow(clippy::undocumented_unsafe_blocks)]

use onbeat_flow::clock::now_ns;
use onbeat_link::interface::{Backend, Memory, Sizes};
use onbeat_link::port::{Port, Settings};
use onbeat_link::{Key, Tcp};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MESSAGE: usize = 200 << 10;

fn watchdog() -> Option<u64> {
    Some(now_ns() + 120_000_000_000)
}

fn allocations(sealed: bool) -> u64 {
    let key = || Key::from_bytes([9; 32]);
    let settings = Settings::of_rate(10_000_000_000).chunk_bytes(16 << 10);
    let port = Port::alone(settings).unwrap();
    let options = |tcp: Tcp| if sealed { tcp } else { tcp.in_clear() };
    let far = Tcp::listen("127.0.0.1:0".parse().unwrap(), key()).unwrap();
    let near = options(Tcp::connect(far.address(), key())).on_port(&port, 1);
    let far = options(far).on_port(&port, 2);
    let sizes = Sizes::of_messages(MESSAGE);
    let ((mut out, near_in), (far_out, mut incoming)) = thread::scope(|scope| {
        let far = scope.spawn(|| far.initialize(sizes, Memory::Allot, watchdog()));
        let near = near.initialize(sizes, Memory::Allot, watchdog());
        (near.unwrap(), far.join().unwrap().unwrap())
    });
    let mut exchange = |messages: u8| {
        for number in 0..messages {
            out.send(MESSAGE, watchdog(), &mut |slot| slot[0] = number)
                .unwrap();
            let mut take = |_, message: &[u8]| assert_eq!(message[0], number);
            assert_eq!(incoming.receive(watchdog(), &mut take), Ok(true));
        }
    };
    exchange(5);
    let mut counted = || {
        let before = ALLOCATIONS.load(Ordering::SeqCst);
        exchange(if sealed { 10 } else { 100 });
        ALLOCATIONS.load(Ordering::SeqCst) - before
    };
    // On a busy machine a thread may set itself up late, but only in one round.
    let least = [counted(), counted(), counted()].into_iter().min();
    let away = thread::spawn(move || drop((far_out, incoming)));
    drop((out, near_in));
    away.join().unwrap();
    least.unwrap_or(u64::MAX)
}

#[test]
fn sending_chunks_through_a_port_allocates_nothing() {
    assert_eq!(allocations(false), 0, "in clear");
    assert_eq!(allocations(true), 0, "sealed");
}
