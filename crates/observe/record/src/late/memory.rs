//! Reads another process's memory, for a limited time.

use crate::patience::cpu_time;
use onbeat_proc::reader::{Reader, Silent};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

pub trait Memory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool;

    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)
            .then(|| u64::from_le_bytes(bytes))
    }

    /// Returns the address ranges of a process's heaps that are in memory. Files and stacks are
    /// left out.
    fn regions(&self) -> Vec<Range<u64>>;

    /// Reads a text of up to 255 bytes that ends with a zero byte.
    fn text(&self, address: u64) -> Option<String> {
        let mut text = Vec::new();
        // Small steps do not cross the end of a mapping.
        while text.len() < 256 {
            let mut piece = [0; 16];
            let at = address.checked_add(text.len() as u64)?;
            let length = 16 - (at % 16) as usize;
            if !self.read(at, &mut piece[..length]) {
                return None;
            }
            match piece[..length].iter().position(|&b| b == 0) {
                Some(end) => {
                    text.extend(&piece[..end]);
                    return String::from_utf8(text).ok();
                }
                None => text.extend(&piece[..length]),
            }
        }
        None
    }
}

const PAGE: u64 = 4096;
const CACHED_PAGES_MAX: usize = 4096;

/// The memory of a live process, readable for a limited time. Without a limit, a process with very
/// many pointers could keep the reader busy for hours.
pub struct ProcessMemory<'r> {
    pid: u32,
    until: Instant,
    cpu_until: Duration,
    /// The instant after which nothing is read, even if a busy machine gave this thread little CPU
    /// time.
    at_last: Instant,
    reader: RefCell<&'r mut Reader>,
    is_silent: Cell<bool>,
    pages: RefCell<HashMap<u64, Option<Box<[u8]>>>>,
}

impl<'r> ProcessMemory<'r> {
    /// Opens a process's memory for reading. Reading ends when this thread has used `lasts` of CPU
    /// time, at the latest after three times `lasts` of real time.
    pub fn of(pid: u32, reader: &'r mut Reader, lasts: Duration) -> ProcessMemory<'r> {
        let now = Instant::now();
        ProcessMemory {
            pid,
            until: now + lasts,
            cpu_until: cpu_time() + lasts,
            at_last: now + 3 * lasts,
            reader: RefCell::new(reader),
            is_silent: Cell::new(false),
            pages: RefCell::default(),
        }
    }

    pub fn is_over(&self) -> bool {
        let now = Instant::now();
        now >= self.at_last || (now >= self.until && cpu_time() >= self.cpu_until)
    }

    pub fn answered<T>(&self, found: T) -> Result<T, Silent> {
        match self.is_silent.get() {
            true => Err(Silent),
            false => Ok(found),
        }
    }

    fn ask<T>(&self, question: impl FnOnce(&mut Reader) -> Result<T, Silent>) -> Option<T> {
        if self.is_silent.get() || self.is_over() {
            return None;
        }
        let answer = question(&mut self.reader.borrow_mut());
        self.is_silent.set(answer.is_err());
        answer.ok()
    }

    fn read_page(&self, at: u64) -> Option<Box<[u8]>> {
        let mut page = vec![0; PAGE as usize].into_boxed_slice();
        let is_read = self.ask(|reader| reader.memory(self.pid, at, &mut page));
        (is_read == Some(true)).then_some(page)
    }
}

impl Memory for ProcessMemory<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        let from = (address % PAGE) as usize;
        if from + buffer.len() > PAGE as usize {
            return self.ask(|reader| reader.memory(self.pid, address, buffer)) == Some(true);
        }
        let mut pages = self.pages.borrow_mut();
        if pages.len() >= CACHED_PAGES_MAX {
            pages.clear();
        }
        let at = address - from as u64;
        let page = pages.entry(at).or_insert_with(|| self.read_page(at));
        match page {
            Some(page) => buffer.copy_from_slice(&page[from..from + buffer.len()]),
            None => return false,
        }
        true
    }

    fn regions(&self) -> Vec<Range<u64>> {
        let written = self.ask(|reader| onbeat_proc::memory::written(self.pid, reader));
        written.and_then(Result::ok).unwrap_or_default()
    }
}
