//! Reads the ring buffer, decodes its records, and counts them by probe.

use crate::decode::{before, decode, Decoded};
use crate::records::Head;
use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

pub struct Ring {
    buffer: RingBuffer<'static>,
    read: Rc<RefCell<Read>>,
}

#[derive(Default)]
struct Read {
    decoded: Vec<Decoded>,
    records_by_probe: Vec<u64>,
}

/// The number of records that the recorder takes from the ring buffer at a time. Later records wait
/// there, or are lost and counted if the buffer is full. Without this limit, a process that makes
/// records faster than the recorder reads them would fill the recorder's memory.
const RECORDS_AT_ONCE: usize = 1 << 17;

impl Read {
    fn is_full(&self) -> bool {
        self.decoded.len() >= RECORDS_AT_ONCE
    }

    fn take(&mut self, record: &[u8]) {
        if let Some(head) = Head::read(record).filter(|head| head.probe != 0) {
            let probe = usize::from(head.probe);
            if self.records_by_probe.len() <= probe {
                self.records_by_probe.resize(probe + 1, 0);
            }
            self.records_by_probe[probe] += 1;
        }
        self.decoded.extend(before(record));
        self.decoded.extend(decode(record));
    }
}

impl Ring {
    pub fn new(map: &MapHandle) -> Result<Ring, libbpf_rs::Error> {
        let read = Rc::new(RefCell::new(Read::default()));
        let sink = Rc::clone(&read);
        let mut builder = RingBufferBuilder::new();
        builder.add(map, move |record| {
            let mut read = sink.borrow_mut();
            read.take(record);
            // A negative number ends the reading, after this record was taken.
            if read.is_full() {
                -libc::EAGAIN
            } else {
                0
            }
        })?;
        Ok(Ring {
            buffer: builder.build()?,
            read,
        })
    }

    pub fn poll(&self, timeout: Duration, out: &mut Vec<Decoded>) -> bool {
        // An interrupted wait is not an error: the caller looks at its signals next.
        let _ = self.buffer.poll_raw(timeout);
        if !self.read.borrow().is_full() {
            let _ = self.buffer.consume_raw();
        }
        let mut read = self.read.borrow_mut();
        let is_full = read.is_full();
        out.append(&mut read.decoded);
        is_full
    }

    pub fn records_of(&self, probe: u32) -> u64 {
        let read = self.read.borrow();
        read.records_by_probe
            .get(probe as usize)
            .copied()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::testing::record;

    #[test]
    fn one_reading_of_the_ring_buffer_ends_at_the_limit_of_records() {
        let mut read = Read::default();
        let call = record("callback_end", &[]);
        for _ in 0..RECORDS_AT_ONCE - 1 {
            read.take(&call);
        }
        assert!(!read.is_full());
        read.take(&call);
        assert!(read.is_full());
    }

    #[test]
    fn records_that_decode_to_no_event_still_count_for_their_probe() {
        let mut read = Read::default();
        read.take(&record("rcl_init", &[]));
        read.take(&record("wait", &[]));
        let mut without_probe = record("wait", &[]);
        without_probe[20..22].fill(0);
        read.take(&without_probe);
        read.take(&[]);
        assert_eq!(read.records_by_probe, [0, 0, 0, 2]);
        assert_eq!(read.decoded.len(), 2);
    }
}
