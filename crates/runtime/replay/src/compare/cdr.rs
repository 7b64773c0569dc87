//! Reads serialised ROS 2 messages (CDR): primitive values with their alignment and byte order.

const HEAD: usize = 4;

/// A position in a serialised message. All lengths are checked.
#[derive(Debug, Clone, Copy)]
pub struct Cursor<'b> {
    bytes: &'b [u8],
    at: usize,
    /// The largest alignment in bytes: 8 in version 1 of CDR, 4 in version 2.
    widest: usize,
    pub little_endian: bool,
}

impl<'b> Cursor<'b> {
    /// Creates a cursor behind the message's encapsulation header. Returns `None` for an
    /// encapsulation without a fixed order of values.
    pub fn new(message: &'b [u8]) -> Option<Cursor<'b>> {
        let (widest, little_endian) = match message.get(..2)? {
            [0, 0] => (8, false),
            [0, 1] => (8, true),
            [0, 6] => (4, false),
            [0, 7] => (4, true),
            _ => return None,
        };
        Some(Cursor {
            bytes: message.get(HEAD..)?,
            at: 0,
            widest,
            little_endian,
        })
    }

    pub fn align(&mut self, size: usize) {
        self.at = self.at.next_multiple_of(size.min(self.widest));
    }

    pub fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let end = self.at.checked_add(count)?;
        let found = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(found)
    }

    pub fn count(&mut self) -> Option<u32> {
        self.align(4);
        let bytes: [u8; 4] = self.take(4)?.try_into().ok()?;
        Some(match self.little_endian {
            true => u32::from_le_bytes(bytes),
            false => u32::from_be_bytes(bytes),
        })
    }

    pub fn text(&mut self) -> Option<&'b [u8]> {
        let count = self.count()? as usize;
        let text = self.take(count)?;
        Some(text.strip_suffix(&[0]).unwrap_or(text))
    }

    /// Reads a time: seconds and nanoseconds. Returns it in ns.
    pub fn time(&mut self) -> Option<i64> {
        let seconds = self.count()? as i32;
        let ns = self.count()?;
        Some(i64::from(seconds) * 1_000_000_000 + i64::from(ns))
    }

    /// Returns true if the whole message was read. Up to 3 bytes may remain, because serialisers
    /// pad messages to a multiple of 4 bytes.
    pub fn is_at_end(&self) -> bool {
        self.bytes.len() - self.at.min(self.bytes.len()) < 4
    }
}
