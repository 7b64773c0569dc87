//! Counts the bits of CAN frames on the wire, with their stuff bits.

use crate::source::can::{ERROR, EXTENDED, REMOTE};

const CRC_15: u16 = 0x4599;
/// The number of bits at the end of a frame that are not stuffed: delimiter of the CRC (1),
/// acknowledgement and its delimiter (2), end of frame (7), pause after the frame (3).
const TAIL: u32 = 13;
const BRS: u8 = 1;
const FD_SIZE: usize = 72;

/// The number of bits of a frame on the wire, including stuff bits and the pause of three bits
/// after the frame.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bits {
    pub nominal: u32,
    pub data: u32,
}

/// Counts the bits and the stuff bits of a frame. After five equal bits, a CAN controller inserts a
/// stuff bit with the other value.
struct Stuffing {
    bits: u32,
    last: bool,
    run: u32,
    crc: u16,
}

impl Stuffing {
    fn new() -> Stuffing {
        Stuffing {
            bits: 0,
            last: true,
            run: 0,
            crc: 0,
        }
    }

    fn stuff(&mut self) {
        if self.run == 5 {
            self.bits += 1;
            self.last = !self.last;
            self.run = 1;
        }
    }

    fn bit(&mut self, bit: bool) {
        self.stuff();
        self.bits += 1;
        self.run = if bit == self.last { self.run + 1 } else { 1 };
        self.last = bit;
        let is_odd = bit != (self.crc >> 14 & 1 != 0);
        self.crc = self.crc << 1 & 0x7fff ^ if is_odd { CRC_15 } else { 0 };
    }

    fn number(&mut self, value: u32, bits: u32) {
        for at in (0..bits).rev() {
            self.bit(value >> at & 1 != 0);
        }
    }

    fn bytes(&mut self, data: &[u8]) {
        for byte in data {
            self.number((*byte).into(), 8);
        }
    }

    /// Adds the bits of the identifier, up to the bit that marks a remote frame.
    fn identifier(&mut self, word: u32, is_remote: bool) {
        self.bit(false);
        if word & EXTENDED == 0 {
            self.number(word & 0x7ff, 11);
            self.bit(is_remote);
            self.bit(false);
        } else {
            self.number(word >> 18 & 0x7ff, 11);
            self.number(0b11, 2);
            self.number(word & 0x3_ffff, 18);
            self.bit(is_remote);
        }
    }
}

impl Bits {
    /// Counts the bits that a CAN frame takes on the bus. `frame` has the layout of Linux's `struct
    /// can_frame` or `struct canfd_frame`. Returns `None` for error frames and for bytes that are
    /// not a frame. Real-time safe: the call takes less than 2 us.
    pub fn of(frame: &[u8]) -> Option<Bits> {
        let word = u32::from_ne_bytes(*frame.first_chunk()?);
        if word & ERROR != 0 {
            return None;
        }
        let length = usize::from(*frame.get(4)?);
        match frame.len() {
            16 => Some(classic(word, frame.get(8..8 + length)?)),
            FD_SIZE => Some(fd(word, frame[5], frame.get(8..8 + length)?)),
            _ => None,
        }
    }
}

fn classic(word: u32, data: &[u8]) -> Bits {
    let is_remote = word & REMOTE != 0;
    let mut wire = Stuffing::new();
    wire.identifier(word, is_remote);
    let reserved = if word & EXTENDED == 0 { 1 } else { 2 };
    wire.number(0, reserved);
    wire.number(data.len() as u32, 4);
    if !is_remote {
        wire.bytes(data);
    }
    wire.number(wire.crc.into(), 15);
    wire.stuff();
    Bits {
        nominal: wire.bits + TAIL,
        data: 0,
    }
}

fn fd(word: u32, flags: u8, data: &[u8]) -> Bits {
    let mut wire = Stuffing::new();
    wire.identifier(word, false);
    // The format bit, a reserved bit, and the bit that switches the bitrate.
    wire.number(0b10, 2);
    wire.bit(flags & BRS != 0);
    let arbitration = wire.bits;
    wire.bit(flags & 2 != 0);
    let codes = crate::source::can::FD_LENGTHS;
    let code = codes
        .iter()
        .position(|&length| usize::from(length) >= data.len());
    wire.number(code.unwrap_or(15) as u32, 4);
    wire.bytes(data);
    // Here stuff bits have fixed places: one before each four bits of the stuff count and the CRC.
    let checked = 4 + if data.len() > 16 { 21 } else { 17 };
    let rest = wire.bits - arbitration + checked + u32::div_ceil(checked, 4);
    match flags & BRS != 0 {
        true => Bits {
            nominal: arbitration + TAIL,
            data: rest,
        },
        false => Bits {
            nominal: arbitration + rest + TAIL,
            data: 0,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::can;
    use proptest::prelude::*;

    fn frame(id: u32, data: &[u8]) -> Vec<u8> {
        let mut payload = Vec::new();
        can::classic(id, data, data.len() as u8, 0, &mut payload);
        payload
    }

    fn nominal(frame: &[u8]) -> u32 {
        Bits::of(frame).expect("a frame").nominal
    }

    #[test]
    fn frames_with_and_without_stuff_bits_have_the_known_lengths() {
        let mut wire = Stuffing::new();
        wire.bytes(b"123456789");
        assert_eq!(
            wire.crc, 0x059e,
            "the check value of CRC-15/CAN in catalogues"
        );
        // 34 zeros from the start bit to the CRC have a stuff bit after each five.
        assert_eq!(nominal(&frame(0, &[])), 34 + 6 + TAIL);
        // A remote frame states a length, and has no data.
        let remote = nominal(&frame(REMOTE | 0x555, &[0; 8]));
        assert!((47..=55).contains(&remote), "{remote}");
        for nothing in [&frame(ERROR, &[0; 8])[..], &[0; 15], &[], &[9; 16]] {
            assert_eq!(Bits::of(nothing), None);
        }
    }

    #[test]
    fn the_data_phase_of_a_fast_frame_is_counted_apart() {
        let mut payload = Vec::new();
        can::fd(0x555, BRS, &[0x55; 64], &mut payload);
        let bits = Bits::of(&payload).unwrap();
        // 17 bits up to the switch, and the tail; 5 bits, 64 bytes, 25 bits of counts and CRC, 7 stuff bits.
        assert_eq!((bits.nominal, bits.data), (17 + TAIL, 5 + 512 + 25 + 7));
        can::fd(0x555, 0, &[0x55; 64], &mut payload);
        let slow = Bits::of(&payload).unwrap();
        assert_eq!((slow.nominal, slow.data), (bits.nominal + bits.data, 0));
    }

    proptest! {
        #[test]
        fn stuff_bits_stay_within_their_bounds(
            id in 0u32..1 << 29, is_extended: bool, data in proptest::collection::vec(
                prop_oneof![Just(0u8), Just(0xff), Just(0x0f), any::<u8>()], 0..=8)
        ) {
            let (word, stuffed) = match is_extended {
                true => (id | EXTENDED, 54),
                false => (id & 0x7ff, 34),
            };
            let stuffed = stuffed + 8 * data.len() as u32;
            let bits = nominal(&frame(word, &data));
            prop_assert!(bits >= stuffed + TAIL);
            prop_assert!(bits <= stuffed + (stuffed - 1) / 4 + TAIL);
        }
    }
}
