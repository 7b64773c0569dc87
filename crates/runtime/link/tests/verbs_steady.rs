//! Tests with a counting allocator that a message's way over RDMA allocates nothing, in all threads
//! of the process. The tests need RDMA devices: see `places`.
#![allow(clippy::undocumented_unsafe_blocks)]

mod places;

use onbeat_flow::clock::now_ns;
use onbeat_link::interface::{Backend, Memory, Sizes};
use onbeat_link::port::{Port, Settings};
use onbeat_link::{Key, Verbs};
use places::places;
use std::alloc::{GlobalAlloc, Layout, System};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

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

const MESSAGE: usize = 5000;
const CHUNK: usize = 2000;

fn watchdog() -> Option<u64> {
    Some(now_ns() + 120_000_000_000)
}

fn allocations(options: impl Fn(Verbs) -> Verbs + Sync) -> u64 {
    let key = || Key::from_bytes([9; 32]);
    let [first, second] = places();
    let address = SocketAddr::new(first.address, 0);
    let far = first.within(|| Verbs::listen(address, key())).unwrap();
    let near = Verbs::connect(far.address(), key());
    let patient = |verbs: Verbs| options(verbs.gone_after(Duration::from_secs(20)));
    let (far, near) = (patient(far), patient(near));
    let sizes = Sizes {
        credits: 4,
        message_bytes: MESSAGE,
        value_bytes: 100,
    };
    let initialize = |end: &Verbs| end.initialize(sizes, Memory::Allot, watchdog()).unwrap();
    let ((mut out, near_in), (far_out, mut incoming)) = thread::scope(|scope| {
        let far = scope.spawn(|| first.within(|| initialize(&far)));
        (second.within(|| initialize(&near)), far.join().unwrap())
    });
    let mut exchange = |messages: u8| {
        for number in 0..messages {
            out.send(MESSAGE, watchdog(), &mut |slot| slot[0] = number)
                .unwrap();
            let mut take = |_, message: &[u8]| assert_eq!(message[0], number);
            assert_eq!(incoming.receive(watchdog(), &mut take), Ok(true));
            out.publish(100, &mut |slot| slot.fill(number)).unwrap();
            let mut take = |value: &[u8]| assert_eq!(value, [number; 100]);
            assert_eq!(incoming.read(watchdog(), &mut take), Ok(true));
        }
    };
    exchange(5);
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    exchange(100);
    let counted = ALLOCATIONS.load(Ordering::SeqCst) - before;
    let away = thread::spawn(move || drop((far_out, incoming)));
    drop((out, near_in));
    away.join().unwrap();
    counted
}

#[test]
fn messages_and_values_over_rdma_allocate_nothing() {
    assert_eq!(allocations(|verbs| verbs), 0, "by events");
    assert_eq!(allocations(Verbs::polling), 0, "by polling");
    let settings = Settings::of_rate(1_000_000_000).chunk_bytes(CHUNK);
    let port = Port::alone(settings).unwrap();
    assert_eq!(allocations(|verbs| verbs.on_port(&port, 1)), 0, "on a port");
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    drop(std::hint::black_box(Box::new(1)));
    assert!(ALLOCATIONS.load(Ordering::SeqCst) > before, "it counts");
}
