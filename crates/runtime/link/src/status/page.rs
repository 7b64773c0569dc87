//! The status page of an end: shared memory that holds its counts.

use super::layout::{Backend, State, Text, Word, HEAD, PAGE_BYTES, TEXT_BYTES};
use crate::interface::{Shown, Sizes};
use crate::steps::StepWords;
use nix::fcntl::{self, FcntlArg, SealFlag};
use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::mman::{mmap, munmap, MapFlags, ProtFlags};
use onbeat_flow::clock::now_ns;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};
use std::sync::Arc;

pub(super) const NAME: &str = "onbeat-link-status";
const SIZE: NonZeroUsize = NonZeroUsize::new(PAGE_BYTES).unwrap();

#[derive(Debug)]
pub(crate) struct Page {
    base: NonNull<u8>,
    _file: OwnedFd,
}

// SAFETY: this value owns the mapping, and uses it only through atomics.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// Makes a status page for an end that waits for its peer. Returns `None` if the kernel gives
    /// no memory or descriptor. The end then works without a page. Not real-time safe.
    pub(crate) fn new(
        backend: Backend,
        listens: bool,
        name: &str,
        sizes: Sizes,
    ) -> Option<Arc<Page>> {
        let page = Page::map()?;
        let now = now_ns();
        let numbers = [
            (Word::Backend, backend as u64),
            (Word::Listens, listens.into()),
            (Word::State, State::Waiting as u64),
            (Word::BegunNs, now),
            (Word::ChangedNs, now),
            (Word::Credits, sizes.credits as u64),
            (Word::MessageBytes, sizes.message_bytes as u64),
            (Word::ValueBytes, sizes.value_bytes as u64),
        ];
        page.write(Text::Name, name);
        // The head is written last, so that a reader who sees it sees the rest.
        for (word, value) in numbers.into_iter().chain(HEAD.into_iter().rev()) {
            page.word(word as usize).store(value, Ordering::Release);
        }
        Some(Arc::new(page))
    }

    fn map() -> Option<Page> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = memfd_create(NAME, flags).ok()?;
        nix::unistd::ftruncate(&file, PAGE_BYTES as nix::libc::off_t).ok()?;
        // Nobody can shorten the memory while it is mapped.
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl::fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).ok()?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
        // SAFETY: a new mapping at an address that the kernel chooses; the file cannot shrink.
        let base = unsafe { mmap(None, SIZE, access, flags, &file, 0) }.ok()?;
        Some(Page {
            base: base.cast(),
            _file: file,
        })
    }

    #[cfg(test)]
    fn bytes(&self) -> Vec<u8> {
        let words = (0..PAGE_BYTES / 8).map(|n| self.word(n).load(Ordering::Relaxed));
        words.flat_map(u64::to_le_bytes).collect()
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < PAGE_BYTES / 8);
        // SAFETY: the word is aligned, lies within the mapping, lives as long as it, and is only
        // used as an atomic.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().cast::<u64>().add(index)) }
    }

    fn byte(&self, index: usize) -> &AtomicU8 {
        assert!(index < PAGE_BYTES);
        // SAFETY: as for `word`.
        unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(index)) }
    }

    fn write(&self, place: Text, text: &str) {
        // A cut may fall within a character; readers replace the broken part.
        let bytes = &text.as_bytes()[..text.len().min(TEXT_BYTES)];
        let length = bytes.len() as u16;
        for (n, byte) in bytes.iter().chain([&0]).take(TEXT_BYTES).enumerate() {
            self.byte(place as usize + 2 + n)
                .store(*byte, Ordering::Relaxed);
        }
        for (n, byte) in length.to_le_bytes().into_iter().enumerate() {
            self.byte(place as usize + n).store(byte, Ordering::Release);
        }
    }

    pub(crate) fn set_peer(&self, name: &str) {
        self.write(Text::Peer, name);
    }

    pub(crate) fn set_state(&self, state: State) {
        let word = self.word(Word::State as usize);
        let before = word.load(Ordering::Relaxed);
        if before != State::Ended as u64 && before != state as u64 {
            word.store(state as u64, Ordering::Relaxed);
            self.set(Word::ChangedNs, now_ns());
        }
    }

    pub(crate) fn set(&self, word: Word, value: u64) {
        self.word(word as usize).store(value, Ordering::Relaxed);
    }

    pub(crate) fn count(&self, word: Word, more: u64) {
        self.word(word as usize).fetch_add(more, Ordering::Relaxed);
    }
}

impl StepWords for Page {
    fn word(&self, index: usize) -> &AtomicU64 {
        Page::word(self, index)
    }

    fn begun_ns(&self) -> u64 {
        Page::word(self, Word::BegunNs as usize).load(Ordering::Relaxed)
    }
}

impl Shown for Page {
    fn has_promises(&self) {
        self.set(Word::HasQos, 1);
    }

    fn set_lost(&self, items: u64) {
        self.set(Word::Lost, items.saturating_add(1));
    }

    fn add(&self, number: usize, more: u64) {
        if number < super::layout::QOS_WORDS {
            self.word(Word::Qos as usize + number)
                .fetch_add(more, Ordering::Relaxed);
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped with this size, and no reference is left.
        let _ = unsafe { munmap(self.base.cast(), PAGE_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout;
    use super::*;
    use crate::steps::{class_ends_ns, Stall, Step, CLASSES, RECENT};

    #[test]
    fn a_status_page_shows_all_steps_and_the_worst_and_most_recent_stalls() {
        let page = Page::new(Backend::Tcp, true, "steps", Sizes::of_messages(1)).unwrap();
        let begun_ns = page.begun_ns();
        let at = |us: u64| begun_ns + 1000 * us;
        // A usual step, and one that is exactly as long as usual.
        page.step(Step::Push, at(0), at(5));
        page.step(Step::Take, at(0), at(100));
        // Each stall is 1 us longer than the one before, but the longest comes early.
        page.step(Step::Hear, at(1000), at(2_500_000));
        for n in 0..300 {
            page.step(Step::Post, at(1000 * n), at(1000 * n + 200 + n));
        }
        let steps = layout::parse(&page.bytes()).unwrap().steps;
        let counts = |step: Step| steps.histogram[step as usize];
        assert_eq!((counts(Step::Push)[0], counts(Step::Take)[3]), (1, 1));
        let posts = counts(Step::Post);
        assert_eq!((posts[4], posts[5], posts.iter().sum()), (63, 237, 300));
        assert!(class_ends_ns(3) > 100_000 && class_ends_ns(4) == 262_144);
        assert_eq!((steps.stalls, counts(Step::Hear)[CLASSES - 1]), (301, 1));
        // 21 bits of us.
        assert_eq!(steps.worst[0].took_ns, 2_097_151_000);
        let worst: Vec<_> = steps.worst.iter().map(|s| s.took_ns / 1000).collect();
        assert_eq!(worst[1..], (485..500).rev().collect::<Vec<_>>());
        assert_eq!(steps.recent.len(), RECENT);
        let last = Stall {
            step: Step::Post,
            took_ns: 499_000,
            done_ns: begun_ns + (((299_000 + 499) * 1000) >> 12 << 12),
        };
        assert!(steps.recent.contains(&last) && steps.worst.contains(&last));
        let is_old = |s: &Stall| s.step == Step::Hear || s.took_ns < 244_000;
        assert!(!steps.recent.iter().any(is_old));
    }
}
