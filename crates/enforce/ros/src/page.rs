//! The memory page that owner and shaper share: the table of slots, its phase, and the owner's
//! heartbeat.
//!
//! The owner writes the page, and the shaper maps it read-only. It consists of atomic 64-bit words.
//! A generation number, which is odd during a write, protects the table as a whole. See [`layout`]
//! for the words.

use crate::schedule::SlotSchedule;
use onbeat_time::clock::monotonic_ns;
use onbeat_time::{Slot, MAX_SLOTS};
use std::fs::{OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// The greatest number of outputs of one shaper.
pub const MAX_OUTPUTS: usize = 16;

/// The layout of the page: the indices of its 64-bit words. The page is the memory through which
/// the owner gives the shaper its table.
pub mod layout {
    use super::{MAX_OUTPUTS, MAX_SLOTS};
    /// The value of the page's first word: the text `onbeat` and the version of this layout.
    pub const MAGIC: u64 = u64::from_le_bytes(*b"onbeat\0\x04");
    /// The index of the shared page's word with [`MAGIC`], by which a reader recognises the page
    /// and its version.
    pub const WORD_MAGIC: usize = 0;
    /// The index of the shared page's word with the generation of the table. The generation is odd
    /// while the owner writes the table.
    pub const WORD_GENERATION: usize = 1;
    /// The index of the shared page's word with the state of shaping. 0: shape. 1: pass every item
    /// on at once. 2: shape, and carry late items over whatever the policy is, because shaping has
    /// just begun.
    pub const WORD_STATE: usize = 2;
    /// The index of the shared page's word with the owner's last heartbeat (CLOCK_MONOTONIC in ns).
    /// The word is 0 if the owner has no heartbeat.
    pub const WORD_HEARTBEAT: usize = 3;
    /// The index of the shared page's word with the length of a cycle, in ns.
    pub const WORD_CYCLE: usize = 4;
    /// The index of the shared page's word with the origin: a release of the chain's first callback
    /// (CLOCK_MONOTONIC in ns).
    pub const WORD_ORIGIN: usize = 5;
    /// The index of the shared page's word with the time of the last change of slots
    /// (CLOCK_MONOTONIC in ns). Executions released from then on use the new slots; earlier ones
    /// use the slots before the change.
    pub const WORD_FROM: usize = 6;
    /// The index of the shared page's word with the time from which [`WORD_ORIGIN`] applies
    /// (CLOCK_MONOTONIC in ns). Until then, [`WORD_ORIGIN_BEFORE`] applies. If the word is 0,
    /// [`WORD_ORIGIN`] always applies.
    pub const WORD_ORIGIN_FROM: usize = 7;
    /// The index of the shared page's word with the origin that applies before [`WORD_ORIGIN_FROM`]
    /// (CLOCK_MONOTONIC in ns).
    pub const WORD_ORIGIN_BEFORE: usize = 8;
    /// The index of the first output's first word in the shared page. The words of an output are:
    /// its best case, its slots, its slots before the last change, and its best case before that
    /// change. Slots are stored as their number, then start and end of each slot.
    pub const WORD_OUTPUTS: usize = 9;
    /// The number of words for the slots of one output: their number, then start and end of each.
    pub const SLOTS_WORDS: usize = 1 + 2 * MAX_SLOTS;
    /// The number of words of one output: best case and slots, now and before the last change.
    pub const OUTPUT_WORDS: usize = 2 + 2 * SLOTS_WORDS;
    /// The size of the shared memory of a page in bytes.
    pub const BYTES: usize = 16384;
    const _: () = assert!(8 * (WORD_OUTPUTS + MAX_OUTPUTS * OUTPUT_WORDS) <= BYTES);
}
use layout::*;

const SETTLING: u64 = 2;

#[derive(Debug)]
struct Map(NonNull<AtomicU64>);

// SAFETY: all access is through atomics, and the mapping lasts as long as the value.
unsafe impl Send for Map {}
// SAFETY: all access is through atomics, and the mapping lasts as long as the value.
unsafe impl Sync for Map {}

impl Map {
    fn new(fd: RawFd, write: bool) -> io::Result<Map> {
        let protection = libc::PROT_READ | if write { libc::PROT_WRITE } else { 0 };
        // SAFETY: the kernel chooses the address, so no other memory is changed, and it refuses a
        // wrong descriptor.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BYTES,
                protection,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Map(NonNull::new(address.cast()).ok_or_else(|| {
            io::Error::other("the kernel mapped the page at address 0")
        })?))
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < BYTES / 8);
        // SAFETY: the word is within the mapping and aligned, and every bit pattern is a valid
        // number.
        unsafe { self.0.add(index).as_ref() }
    }

    fn load(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Acquire)
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: `new` mapped this address with this size, and nothing refers to it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), BYTES) };
    }
}

/// The owner's side of the page: creates the page and writes the table into it.
#[derive(Debug)]
pub struct PageWriter {
    fd: OwnedFd,
    map: Map,
}

/// The slots of one output, and the shortest time in which its chain can produce the output.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputTable {
    /// The shortest time from the chain's release to the output, in ns: see [`SlotSchedule::new`].
    #[serde(default)]
    pub earliest_ns: u64,
    /// The slots in which the output may leave, relative to the start of a cycle.
    pub slots: Vec<Slot>,
}

impl PageWriter {
    /// Creates a page without slots. The kernel frees its memory when the last process that uses it
    /// ends.
    pub fn new() -> io::Result<PageWriter> {
        // SAFETY: the name is a constant, and no other code owns the new descriptor.
        let fd = unsafe {
            let fd = libc::memfd_create(
                c"onbeat-shaper".as_ptr(),
                libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING,
            );
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        // SAFETY: the calls change only this descriptor, which the code owns.
        unsafe {
            // The seals fix the size, so nobody can shrink the memory while another process maps
            // it.
            let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
            if libc::ftruncate(fd.as_raw_fd(), BYTES as libc::off_t) != 0
                || libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) != 0
            {
                return Err(io::Error::last_os_error());
            }
        }
        PageWriter::on(fd)
    }

    /// Creates a page without slots in a new file. Only this user can write the file, and other
    /// users can read it.
    pub fn in_file(path: &Path) -> io::Result<PageWriter> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        // Writing allocates the memory, so that no access is a fault later.
        file.write_all(&[0; BYTES])?;
        // Overrides the umask. The file contains no secrets.
        file.set_permissions(Permissions::from_mode(0o644))?;
        PageWriter::on(file.into())
    }

    fn on(fd: OwnedFd) -> io::Result<PageWriter> {
        let map = Map::new(fd.as_raw_fd(), true)?;
        map.word(WORD_MAGIC).store(MAGIC, Ordering::Release);
        Ok(PageWriter { fd, map })
    }

    /// Returns the descriptor of the page's memory, which the shaper inherits.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Sets the cycle, the origin and the slots of all outputs. Leaves out outputs and slots beyond
    /// the limits. The reader's [`SlotSchedule::new`] checks the values.
    pub fn set_table(&self, cycle_ns: u64, origin_ns: i64, outputs: &[OutputTable]) {
        self.write(|store| {
            store(WORD_CYCLE, cycle_ns);
            store(WORD_ORIGIN, origin_ns as u64);
            store(WORD_ORIGIN_FROM, 0);
            for (i, output) in outputs.iter().take(MAX_OUTPUTS).enumerate() {
                let base = WORD_OUTPUTS + i * OUTPUT_WORDS;
                store(base, output.earliest_ns);
                store_slots(store, base + 1, &output.slots);
                store(base + 1 + SLOTS_WORDS, 0);
            }
        });
    }

    /// Replaces the slots and best cases of all outputs. Executions released from `from_ns` on use
    /// `outputs`, earlier ones use `before`. Choose a `from_ns` in the future, just before a
    /// release: at that time no item waits, so no waiting item changes its slot. Outputs and slots
    /// beyond the limits are left out.
    pub fn swap_slots(&self, from_ns: i64, outputs: &[OutputTable], before: &[OutputTable]) {
        self.write(|store| {
            store(WORD_FROM, from_ns as u64);
            let both = outputs.iter().zip(before).take(MAX_OUTPUTS);
            for (i, (output, before)) in both.enumerate() {
                let base = WORD_OUTPUTS + i * OUTPUT_WORDS;
                store(base, output.earliest_ns);
                store_slots(store, base + 1, &output.slots);
                store_slots(store, base + 1 + SLOTS_WORDS, &before.slots);
                store(base + 1 + 2 * SLOTS_WORDS, before.earliest_ns);
            }
        });
    }

    fn write(&self, words: impl FnOnce(&dyn Fn(usize, u64))) {
        let generation = self.map.load(WORD_GENERATION);
        let store = |index, value| self.map.word(index).store(value, Ordering::Release);
        store(WORD_GENERATION, generation | 1);
        std::sync::atomic::fence(Ordering::SeqCst);
        words(&store);
        store(WORD_GENERATION, (generation | 1).wrapping_add(1));
    }

    /// Moves the origin to `origin_ns` from the time `from_ns` on. Until then, the origin that
    /// applies at `now_ns` stays in force. A waiting output keeps its slot if `from_ns` lies
    /// between the last slot of a cycle and the next release. The shaper reads the change within
    /// [`crate::shaper::POLL_NS`]. Real-time safe.
    pub fn move_origin(&self, origin_ns: i64, from_ns: u64, now_ns: u64) {
        let is_moving = now_ns < self.map.load(WORD_ORIGIN_FROM);
        let counts = [WORD_ORIGIN, WORD_ORIGIN_BEFORE][usize::from(is_moving)];
        let before = self.map.load(counts);
        self.write(|store| {
            store(WORD_ORIGIN_BEFORE, before);
            store(WORD_ORIGIN_FROM, from_ns);
            store(WORD_ORIGIN, origin_ns as u64);
        });
    }

    /// Ends shaping if `on` is true, otherwise resumes it. While shaping has ended, all items pass
    /// at once. Real-time safe.
    pub fn set_pass_through(&self, on: bool) {
        self.map
            .word(WORD_STATE)
            .store(on.into(), Ordering::Release);
    }

    /// Turns shaping on. If `on` is true, late items leave in a later slot; otherwise the policy
    /// for late items decides. Real-time safe.
    pub fn set_settling(&self, on: bool) {
        let state = if on { SETTLING } else { 0 };
        self.map.word(WORD_STATE).store(state, Ordering::Release);
    }

    /// Writes the heartbeat: the owner is alive at `now_ns` (CLOCK_MONOTONIC). Real-time safe.
    pub fn beat(&self, now_ns: u64) {
        self.map
            .word(WORD_HEARTBEAT)
            .store(now_ns, Ordering::Release);
    }
}

fn store_slots(store: &dyn Fn(usize, u64), base: usize, slots: &[Slot]) {
    store(base, slots.len().min(MAX_SLOTS) as u64);
    for (j, slot) in slots.iter().take(MAX_SLOTS).enumerate() {
        store(base + 1 + 2 * j, slot.start_ns);
        store(base + 2 + 2 * j, slot.end_ns);
    }
}

/// The shaper's side of the page: reads the table that the owner writes.
#[derive(Debug)]
pub struct PageReader(Map);

impl PageReader {
    /// Maps the page behind an inherited descriptor. Fails if the memory is too small or has
    /// another version.
    pub fn open(fd: RawFd) -> io::Result<PageReader> {
        // SAFETY: all-zero bytes are a valid `stat`, which fstat overwrites.
        let mut status: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer to `status` is valid during the call.
        if unsafe { libc::fstat(fd, &mut status) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // An access beyond the end of the memory would be a fault.
        if status.st_size < BYTES as libc::off_t {
            return Err(io::Error::other(format!(
                "the page has only {} of its {BYTES} bytes",
                status.st_size
            )));
        }
        let map = Map::new(fd, false)?;
        if map.load(WORD_MAGIC) != MAGIC {
            return Err(io::Error::other(
                "the shared memory with the slots was not made by this version of onbeat",
            ));
        }
        Ok(PageReader(map))
    }

    /// Returns the slots of an output, with the cycle and the origin that apply now. Returns `None`
    /// while the owner writes the table, or if the table is invalid. Real-time safe: at most eight
    /// tries.
    pub fn schedule(&self, output: usize) -> Option<SlotSchedule> {
        self.schedule_at(output, monotonic_ns())
    }

    fn schedule_at(&self, output: usize, now_ns: u64) -> Option<SlotSchedule> {
        if output >= MAX_OUTPUTS {
            return None;
        }
        for _ in 0..8 {
            let generation = self.0.load(WORD_GENERATION);
            let base = WORD_OUTPUTS + output * OUTPUT_WORDS;
            let earliest_ns = self.0.load(base);
            let (slots, count) = self.slots(base + 1);
            let (before, count_before) = self.slots(base + 1 + SLOTS_WORDS);
            let earliest_before_ns = self.0.load(base + 1 + 2 * SLOTS_WORDS);
            let from_ns = self.0.load(WORD_FROM) as i64;
            let cycle_ns = self.0.load(WORD_CYCLE);
            let is_moving = now_ns < self.0.load(WORD_ORIGIN_FROM);
            let counts = [WORD_ORIGIN, WORD_ORIGIN_BEFORE][usize::from(is_moving)];
            let origin_ns = self.0.load(counts) as i64;
            std::sync::atomic::fence(Ordering::SeqCst);
            if generation.is_multiple_of(2) && self.0.load(WORD_GENERATION) == generation {
                let schedule =
                    SlotSchedule::new(cycle_ns, origin_ns, earliest_ns, &slots[..count]).ok()?;
                return match count_before {
                    0 => Some(schedule),
                    n => {
                        let after = schedule.after(from_ns, earliest_before_ns, &before[..n]);
                        after.ok()
                    }
                };
            }
        }
        None
    }

    fn slots(&self, base: usize) -> ([Slot; MAX_SLOTS], usize) {
        let count = (self.0.load(base) as usize).min(MAX_SLOTS);
        let mut slots = [Slot::default(); MAX_SLOTS];
        for (j, slot) in slots[..count].iter_mut().enumerate() {
            slot.start_ns = self.0.load(base + 1 + 2 * j);
            slot.end_ns = self.0.load(base + 2 + 2 * j);
        }
        (slots, count)
    }

    /// Reports whether items pass at once, without a slot. Items pass at once if the owner
    /// requested it, or if the owner's last heartbeat is older than `silence_ns`.
    pub fn passes(&self, now_ns: u64, silence_ns: Option<u64>) -> bool {
        let last = self.0.load(WORD_HEARTBEAT);
        let silent = last != 0 && silence_ns.is_some_and(|s| now_ns.saturating_sub(last) > s);
        silent || !matches!(self.0.load(WORD_STATE), 0 | SETTLING)
    }

    /// Reports whether late items leave in a later slot, whatever the policy for late items is.
    /// Real-time safe.
    pub fn settles(&self) -> bool {
        self.0.load(WORD_STATE) == SETTLING
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn table(n: u64) -> Vec<OutputTable> {
        let slots = (1..=4)
            .map(|i| Slot {
                start_ns: n * i,
                end_ns: n * i + 1,
            })
            .collect();
        vec![OutputTable {
            earliest_ns: n,
            slots,
        }]
    }

    #[test]
    fn page_readers_see_only_whole_tables() {
        let writer = PageWriter::new().unwrap();
        let reader = PageReader::open(writer.fd().as_raw_fd()).unwrap();
        assert_eq!(reader.schedule(0), None);
        let one = |n: u64| SlotSchedule::new(100 * n, n as i64, n, &table(n)[0].slots).unwrap();
        // The table `n` follows the table `before` from 5000 ns on, with its phase.
        let after = |n: u64, before: u64| {
            let schedule = SlotSchedule::new(100 * before, before as i64, n, &table(n)[0].slots);
            let slots = &table(before)[0].slots;
            schedule.unwrap().after(5000, before, slots).unwrap()
        };
        let expected = [one(1), after(2, 1), one(2), after(1, 2)];
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for (n, other) in [(1, 2), (2, 1)] {
                        writer.set_table(100 * n, n as i64, &table(n));
                        writer.swap_slots(5000, &table(other), &table(n));
                    }
                }
            });
            let mut torn = None;
            for _ in 0..300_000 {
                let seen = reader
                    .schedule(0)
                    .filter(|schedule| !expected.contains(schedule));
                torn = torn.or(seen);
            }
            done.store(true, Ordering::Relaxed);
            assert_eq!(torn, None);
        });
        assert_eq!(reader.schedule(0), Some(expected[3]));
        assert_eq!(reader.schedule(MAX_OUTPUTS), None);
        // A new table has no table before it.
        writer.set_table(100, 1, &table(1));
        assert_eq!(reader.schedule(0), Some(expected[0]));
    }

    #[test]
    fn an_output_under_way_keeps_its_slot_when_the_origin_moves() {
        const MS: i64 = 1_000_000;
        let writer = PageWriter::new().unwrap();
        let reader = PageReader::open(writer.fd().as_raw_fd()).unwrap();
        let table = |start, earliest_ns| OutputTable {
            earliest_ns,
            slots: vec![Slot::new(start, start + 500_000)],
        };
        let tables = [table(0, 0), table(38_000_000, 20_000_000)];
        let at = |output, now: i64| reader.schedule_at(output, now as u64).unwrap();
        let mut origin = 1000 * MS;
        writer.set_table(100 * MS as u64, origin, &tables);
        for step in 0..500 {
            // These wait while the origin moves: an input just let in, and an output that is ready.
            let input = at(0, origin + 900 * MS).opening(origin + 900 * MS, i64::MIN / 2);
            let ready = input.start_ns + 30 * MS;
            let due = |now| {
                let schedule = at(1, now);
                let cycle = schedule.cycle_begun(input.start_ns as u64);
                schedule.due(cycle, ready, now.max(ready)).opening.start_ns
            };
            let moves = input.start_ns + (step * 37 % 380) * MS / 10;
            let next = origin + MS / 5;
            // Nothing is under way around this instant.
            let from = input.start_ns + 69 * MS;
            writer.move_origin(next, from as u64, moves as u64);
            if step % 3 == 0 {
                // The origin moves again before the first move counts. The cycle of the release
                // does not matter.
                writer.move_origin(next + 100 * MS, from as u64, moves as u64 + 1);
            }
            for now in [moves + 2, input.start_ns + 38 * MS] {
                assert_eq!(due(now) - input.start_ns, 38 * MS, "step {step}");
            }
            // From then on the new origin counts.
            let after = at(0, from).opening(from, i64::MIN / 2).start_ns;
            assert_eq!(after - input.start_ns, 100 * MS + MS / 5);
            origin = input.start_ns + MS / 5;
        }
        // The origin of a new table counts at once.
        writer.set_table(100 * MS as u64, 7, &tables);
        assert_eq!(at(0, 0).opening(0, 0).start_ns, 7);
    }

    #[test]
    fn held_items_leave_at_once_when_the_owner_of_the_page_asks_or_is_silent() {
        let writer = PageWriter::new().unwrap();
        let reader = PageReader::open(writer.fd().as_raw_fd()).unwrap();
        assert!(!reader.passes(1000, Some(10)));
        writer.beat(995);
        assert!(!reader.passes(1000, Some(10)));
        assert!(reader.passes(1006, Some(10)));
        assert!(!reader.passes(1006, None));
        writer.set_pass_through(true);
        assert!(reader.passes(0, None) && !reader.settles());
        writer.set_settling(true);
        assert!(!reader.passes(0, None) && reader.settles());
        writer.set_settling(false);
        assert!(!reader.passes(0, None) && !reader.settles());
        writer.set_pass_through(true);
        let no_page = tempfile();
        assert!(PageReader::open(no_page.as_raw_fd()).is_err());
    }

    fn tempfile() -> OwnedFd {
        // SAFETY: the name is a constant, and no other code owns the new descriptor.
        unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"empty".as_ptr(), libc::MFD_CLOEXEC)) }
    }
}
