//! Guarantees of a channel whose memory another process overwrites. The fuzz target and the test
//! that replays its corpus share this file.
use onbeat_flow::clock::now_ns;
use onbeat_flow::region::{Region, ALIGN};
use onbeat_flow::{Channel, Options, Policy};
use std::alloc::{alloc_zeroed, dealloc, Layout};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

/// The memory of a channel. The test can overwrite it at any offset.
struct OpenMemory {
    base: NonNull<u8>,
    layout: Layout,
    places: [AtomicBool; 65],
}

// SAFETY: owned memory, accessed as atomics, or under the channel's rules.
unsafe impl Send for OpenMemory {}
// SAFETY: as above.
unsafe impl Sync for OpenMemory {}

impl OpenMemory {
    fn new(size: usize) -> OpenMemory {
        let layout = Layout::from_size_align(size.next_multiple_of(ALIGN), ALIGN).expect("small");
        // SAFETY: the size is not 0.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory");
        OpenMemory {
            base,
            layout,
            places: [const { AtomicBool::new(false) }; 65],
        }
    }

    /// Writes a word into the memory. Offsets beyond the memory's end count from its beginning
    /// again.
    fn write(&self, offset: usize, word: u64) {
        let offset = offset % (self.layout.size() / 8) * 8;
        // SAFETY: inside and aligned.
        let target = unsafe { self.base.add(offset).cast::<AtomicU64>().as_ref() };
        target.store(word, Ordering::Relaxed);
    }
}

impl Drop for OpenMemory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

struct Handle(Arc<OpenMemory>);

// SAFETY: allocated zeroed with this alignment and size, and kept by the handle.
unsafe impl Region for Handle {
    fn base(&self) -> NonNull<u8> {
        self.0.base
    }
    fn size(&self) -> usize {
        self.0.layout.size()
    }
    fn is_shared(&self) -> bool {
        true
    }
    fn claim(&self, place: usize) -> bool {
        !self.0.places[place].swap(true, Ordering::AcqRel)
    }
    fn release(&self, place: usize) {
        self.0.places[place].store(false, Ordering::Release);
    }
    fn is_claimed(&self, place: usize) -> bool {
        self.0.places[place].load(Ordering::Acquire)
    }
}

/// Creates a channel with the policy that the first byte of `data` selects, and executes the steps
/// in the rest of `data` on the channel. If a step overwrites the channel's memory, the offset and
/// the value follow the step in `data`. No step may panic, access other memory or run for ever.
pub fn channel(data: &[u8]) {
    let mut bytes = data.iter().copied();
    let policy = match bytes.next().unwrap_or(0) % 5 {
        0 => Policy::Latest,
        1 => Policy::DropOldest { depth: 3 },
        2 => Policy::Credit { credits: 2 },
        kind => Policy::Swap {
            length: 2,
            flush: kind == 3,
        },
    };
    let options = Options {
        consumers: 2,
        expected: 0,
        ..Options::new(policy, 32)
    };
    let memory = Arc::new(OpenMemory::new(options.memory_bytes().expect("small")));
    let region = || Box::new(Handle(Arc::clone(&memory)));
    let channel = Channel::format(region(), options).expect("large enough");
    let (mut producer, mut consumer) = (channel.producer().ok(), channel.consumer().ok());
    while let Some(step) = bytes.next() {
        let mut next = || bytes.next().unwrap_or(0);
        match (step % 10, &mut producer, &mut consumer) {
            (0, Some(producer), _) => {
                if let Ok(mut loan) = producer.loan(usize::from(next() % 40)) {
                    loan.fill(step);
                    let _ = loan.send_until(now_ns());
                }
            }
            (1, _, Some(consumer)) => {
                let first = consumer.receive();
                let second = consumer.receive_until(Some(now_ns()));
                let sum = |item: &[u8]| item.iter().map(|&b| u64::from(b)).sum::<u64>();
                let total =
                    first.map_or(0, |i| sum(&i)) + second.ok().flatten().map_or(0, |i| sum(&i));
                assert!(total <= 2 * 32 * 255);
            }
            (2, _, Some(consumer)) => assert!(consumer.newest().is_none_or(|i| i.len() <= 32)),
            (3, Some(producer), _) => {
                producer.flush();
                producer.check_consumers();
            }
            (4, ..) => producer = None,
            (5, None, _) => producer = channel.producer().ok(),
            (6, _, None) => consumer = channel.consumer().ok(),
            (6, _, Some(_)) => consumer = None,
            (7, ..) => {
                if let Ok(other) = Channel::open(region(), None) {
                    // The memory may contain any options. The channel must have refused impossible ones.
                    assert!(other.options().memory_bytes().is_ok());
                    other.consumers();
                }
            }
            _ => {
                let offset = usize::from(next()) | usize::from(next()) << 8;
                let low = u64::from(next());
                let word = match step % 4 {
                    0 => low,
                    1 => low.wrapping_neg(),
                    2 => low << 32,
                    _ => 1 << (low % 64),
                };
                memory.write(offset, word);
            }
        }
        channel.stats();
    }
}
