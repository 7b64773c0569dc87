//! The memory that the transfers of a port share between processes: atomic words only, none of them
//! trusted.

use super::meter::Meter;
use crate::error::LinkError;
use crate::name;
use crate::shared::SharedMemory;
use onbeat_flow::region::Region;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The largest number of transfers on a port, over all processes. Each one has a bit of a 64-bit
/// word.
pub const SEATS: usize = 64;
pub const SHARES: usize = 256;
const LABEL_WORDS: usize = 6;
const MAGIC: u64 = u64::from_le_bytes(*b"onbport\x05");
pub const TERMS: usize = 6;

/// The place of one transfer in the port's shared page. The transfer's process writes it. Other
/// processes write only `want` (to withdraw the transfer's request), `bell`, `rung_ns`, and the
/// count `passed_over`.
#[repr(C, align(64))]
pub struct Seat {
    /// The urgency of the waiting chunk. Larger numbers are more urgent. 0 means that no chunk
    /// waits.
    pub want: AtomicU64,
    pub need: AtomicU32,
    /// A count that another thread changes when the transfer's thread should ask for shares of the
    /// window again.
    pub bell: AtomicU32,
    pub asleep: AtomicU32,
    /// The time at which the bell first rang since the transfer's thread last looked, ns of
    /// CLOCK_MONOTONIC. 0 if it has not rung.
    pub rung_ns: AtomicU64,
    pub priority: AtomicU32,
    pub pid: AtomicU32,
    label_bytes: AtomicU32,
    label: [AtomicU64; LABEL_WORDS],
    pub counts: Counts,
}

#[repr(C)]
#[derive(Default)]
pub struct Counts {
    pub granted: AtomicU64,
    pub bytes: AtomicU64,
    pub chunks: AtomicU64,
    pub messages: AtomicU64,
    pub wait_ns: AtomicU64,
    pub longest_wait_ns: AtomicU64,
    pub most_before: AtomicU64,
    pub preemptions: AtomicU64,
    pub passed_over: AtomicU64,
    pub expired: AtomicU64,
    pub credit_wait_ns: AtomicU64,
}

#[repr(C)]
pub struct Page {
    magic: AtomicU64,
    terms: [AtomicU64; TERMS],
    pub granted: AtomicU64,
    /// The time at which a chunk was last acknowledged, ns of CLOCK_MONOTONIC.
    pub acknowledged_ns: AtomicU64,
    pub meter: Meter,
    pub seats: [Seat; SEATS],
    /// The shares of the window, one word each. The word of a free share is 0. The word of a lent
    /// share contains the transfer's place on the port and the time until which the share is lent.
    pub shares: [AtomicU64; SHARES],
}

impl Counts {
    fn clear(&self) {
        let all = [
            &self.granted,
            &self.bytes,
            &self.chunks,
            &self.messages,
            &self.wait_ns,
            &self.longest_wait_ns,
            &self.most_before,
            &self.preemptions,
            &self.passed_over,
            &self.expired,
            &self.credit_wait_ns,
        ];
        all.iter().for_each(|c| c.store(0, Ordering::Relaxed));
    }

    pub fn add(count: &AtomicU64, more: u64) {
        count.fetch_add(more, Ordering::Relaxed);
    }
}

impl Seat {
    fn begin(&self, priority: u8, label: &str) {
        self.want.store(0, Ordering::SeqCst);
        self.asleep.store(0, Ordering::SeqCst);
        self.rung_ns.store(0, Ordering::Relaxed);
        self.counts.clear();
        self.priority.store(priority.into(), Ordering::Relaxed);
        self.pid.store(std::process::id(), Ordering::Relaxed);
        let mut bytes = [0; LABEL_WORDS * 8];
        let length = label.len().min(bytes.len());
        bytes[..length].copy_from_slice(&label.as_bytes()[..length]);
        for (word, part) in self.label.iter().zip(bytes.chunks_exact(8)) {
            let part = part.try_into().unwrap_or([0; 8]);
            word.store(u64::from_le_bytes(part), Ordering::Relaxed);
        }
        self.label_bytes.store(length as u32, Ordering::Relaxed);
    }

    pub fn label(&self) -> String {
        let words = self.label.iter().map(|w| w.load(Ordering::Relaxed));
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        let length = self.label_bytes.load(Ordering::Relaxed) as usize;
        let text = String::from_utf8_lossy(&bytes[..length.min(bytes.len())]).into_owned();
        text.escape_debug().to_string()
    }
}

pub struct Mapped {
    memory: SharedMemory,
}

impl Mapped {
    pub fn alone(name: &str, terms: [u64; TERMS]) -> Result<Mapped, LinkError> {
        let memory = SharedMemory::create(name, size_of::<Page>())?;
        let mapped = Mapped { memory };
        mapped.begin(terms);
        Ok(mapped)
    }

    /// Finds the shared memory page of the port of that name. Returns `None` if there is none, or
    /// if the memory is not a port's page.
    ///
    /// # Errors
    /// The page cannot be searched for or mapped.
    pub fn find(name: &str) -> Result<Option<(Mapped, [u64; TERMS])>, LinkError> {
        let Some(found) = name::find(name)? else {
            return Ok(None);
        };
        let size = size_of::<Page>();
        let memory = SharedMemory::open(name, found.file.as_fd(), Some(size))?;
        if memory.size() != size {
            return Ok(None);
        }
        let mapped = Mapped { memory };
        let page = mapped.page();
        let is_page = page.magic.load(Ordering::Acquire) == MAGIC;
        let terms = std::array::from_fn(|at| page.terms[at].load(Ordering::Relaxed));
        Ok(is_page.then_some((mapped, terms)))
    }

    pub fn shared(name: &str, terms: [u64; TERMS]) -> Result<(Mapped, [u64; TERMS]), LinkError> {
        let creation = name::Creation::begin(name)?;
        if let Some(found) = Mapped::find(name)? {
            return Ok(found);
        }
        Ok((Mapped::alone(creation.name(), terms)?, terms))
    }

    fn begin(&self, terms: [u64; TERMS]) {
        let page = self.page();
        for (word, term) in page.terms.iter().zip(terms) {
            word.store(term, Ordering::Relaxed);
        }
        page.magic.store(MAGIC, Ordering::Release);
    }

    pub fn page(&self) -> &Page {
        // SAFETY: the memory is page-aligned, has at least this size, lives as long as `self` and
        // cannot shrink. Every bit pattern is a `Page`, and all of it is atomic.
        unsafe { self.memory.base().cast::<Page>().as_ref() }
    }

    pub fn sit(&self, priority: u8, label: &str) -> Option<usize> {
        let seat = (0..SEATS).find(|&seat| self.memory.claim(seat))?;
        self.page().seats[seat].begin(priority, label);
        Some(seat)
    }

    pub fn leave(&self, seat: usize) {
        self.page().seats[seat].want.store(0, Ordering::SeqCst);
        self.memory.release(seat);
    }

    pub fn is_taken(&self, seat: usize) -> bool {
        self.memory.is_claimed(seat)
    }
}
