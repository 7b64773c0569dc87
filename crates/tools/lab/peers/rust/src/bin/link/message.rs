//! The content of a message in the `link` experiment, which marks every packet of it.
//!
//! A unit of 16 bytes names the stream and the number of the message. The whole message repeats
//! this unit, so that packet capture recognises each packet. Only the second unit differs: it holds
//! the due time, and the time at which the content was complete.

pub const UNIT: usize = 16;
const MAGIC: u32 = 0x6f6e_6274;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub stream: u32,
    pub number: u64,
    pub intended_ns: i64,
    pub sent_ns: i64,
}

impl Stamp {
    fn unit(&self) -> [u8; UNIT] {
        let mut unit = [0; UNIT];
        unit[..4].copy_from_slice(&MAGIC.to_le_bytes());
        unit[4..8].copy_from_slice(&self.stream.to_le_bytes());
        unit[8..].copy_from_slice(&self.number.to_le_bytes());
        unit
    }

    /// Fills a message with copies of a unit of 16 bytes that names the stream and the message. The
    /// message's length must be a multiple of 16. Calls `now` after all copies, and then writes
    /// only the times, so that filling is not measured.
    pub fn fill(&mut self, message: &mut [u8], now: impl FnOnce() -> i64) {
        let unit = self.unit();
        for place in message.chunks_exact_mut(UNIT) {
            place.copy_from_slice(&unit);
        }
        self.sent_ns = now();
        self.times(message);
    }

    pub fn mark(&mut self, message: &mut [u8], now: impl FnOnce() -> i64) {
        let (unit, last) = (self.unit(), message.len() - UNIT);
        message[..UNIT].copy_from_slice(&unit);
        message[last..].copy_from_slice(&unit);
        self.sent_ns = now();
        self.times(message);
    }

    fn times(&self, message: &mut [u8]) {
        message[UNIT..UNIT + 8].copy_from_slice(&self.intended_ns.to_le_bytes());
        message[UNIT + 8..2 * UNIT].copy_from_slice(&self.sent_ns.to_le_bytes());
    }

    pub fn read(message: &[u8]) -> Option<Stamp> {
        let at = |from: usize| message.get(from..from + 8)?.try_into().ok();
        let stamp = Stamp {
            stream: u32::from_le_bytes(message.get(4..8)?.try_into().ok()?),
            number: u64::from_le_bytes(at(8)?),
            intended_ns: i64::from_le_bytes(at(UNIT)?),
            sent_ns: i64::from_le_bytes(at(UNIT + 8)?),
        };
        let unit = stamp.unit();
        (message.starts_with(&unit) && message.ends_with(&unit)).then_some(stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_or_short_message_has_no_stamp() {
        let mut stamp = Stamp {
            stream: 2,
            number: 9,
            intended_ns: 5,
            sent_ns: 0,
        };
        let mut message = vec![0; 160];
        stamp.fill(&mut message, || 7);
        assert_eq!(stamp.sent_ns, 7);
        assert_eq!(Stamp::read(&message), Some(stamp));
        message[159] ^= 1;
        assert_eq!(Stamp::read(&message), None);
        assert_eq!(Stamp::read(&message[..8]), None);
    }
}
