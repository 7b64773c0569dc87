//! Reads the ring buffer: decodes its records and counts them by probe.

use crate::decode::{decode, Decoded};
use crate::records::Head;
use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// The reader of the ring buffer.
pub struct Ring {
    buffer: RingBuffer<'static>,
    read: Rc<RefCell<Read>>,
}

#[derive(Default)]
struct Read {
    decoded: Vec<Decoded>,
    /// Records by the number of the probe that made them.
    by_probe: Vec<u64>,
}

impl Read {
    fn take(&mut self, record: &[u8]) {
        if let Some(head) = Head::read(record).filter(|head| head.probe != 0) {
            let probe = usize::from(head.probe);
            if self.by_probe.len() <= probe {
                self.by_probe.resize(probe + 1, 0);
            }
            self.by_probe[probe] += 1;
        }
        self.decoded.extend(decode(record));
    }
}

impl Ring {
    /// A reader of this map.
    pub fn new(map: &MapHandle) -> Result<Ring, libbpf_rs::Error> {
        let read = Rc::new(RefCell::new(Read::default()));
        let sink = Rc::clone(&read);
        let mut builder = RingBufferBuilder::new();
        builder.add(map, move |record| {
            sink.borrow_mut().take(record);
            0
        })?;
        Ok(Ring {
            buffer: builder.build()?,
            read,
        })
    }

    /// Moves every record that is ready to `out`, waiting up to `timeout` for the first. Returns
    /// early on a signal.
    pub fn poll(&self, timeout: Duration, out: &mut Vec<Decoded>) {
        // An interrupted wait is no error: the caller looks at its signals next.
        let _ = self.buffer.poll_raw(timeout);
        let _ = self.buffer.consume_raw();
        out.append(&mut self.read.borrow_mut().decoded);
    }

    /// Records of a numbered probe so far.
    pub fn records_of(&self, probe: u32) -> u64 {
        let read = self.read.borrow();
        read.by_probe.get(probe as usize).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::testing::record;

    #[test]
    fn records_are_counted_by_their_probe_also_those_that_say_nothing() {
        let mut read = Read::default();
        read.take(&record("rcl_init", &[]));
        read.take(&record("wait", &[]));
        let mut without_probe = record("wait", &[]);
        without_probe[20..22].fill(0);
        read.take(&without_probe);
        read.take(&[]);
        assert_eq!(read.by_probe, [0, 0, 0, 2]);
        assert_eq!(read.decoded.len(), 2);
    }
}
