//! Reads the parts of a CAN frame from the structs of Linux.

pub use crate::source::can::{BRS, ESI};
use crate::source::can::{ERROR, EXTENDED, REMOTE};

/// The flag that Linux sets in each CAN FD frame. [`Frame::of`] removes the flag, because the size
/// of the struct shows the same.
pub const FDF: u8 = 4;

const CLASSIC: usize = 16;
const FD: usize = 72;
const HEADER: usize = 8;

/// A CAN frame, parsed from a `struct can_frame` or `struct canfd_frame` of Linux.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'p> {
    /// The identifier with its three flags (extended, remote, error), as in Linux.
    pub word: u32,
    /// The flags of a CAN FD frame without [`FDF`], or `None` for a classic frame.
    pub fd_flags: Option<u8>,
    /// The length that the frame states. A remote frame states a length although it has no data.
    pub length: u8,
    /// The length code of a classic frame if the code is above 8, otherwise 0.
    pub raw_length: u8,
    pub data: &'p [u8],
}

impl Frame<'_> {
    /// Returns the frame in `payload`, or `None` if `payload` is neither a `struct can_frame` nor a
    /// `struct canfd_frame`.
    pub fn of(payload: &[u8]) -> Option<Frame<'_>> {
        let (&[a, b, c, d, length, flags, _, raw_length], data) =
            payload.split_first_chunk::<HEADER>()?;
        let word = u32::from_ne_bytes([a, b, c, d]);
        let fd_flags = match payload.len() {
            CLASSIC => None,
            FD => Some(flags & !FDF),
            _ => return None,
        };
        let is_remote = word & REMOTE != 0 && word & ERROR == 0 && fd_flags.is_none();
        let data = match is_remote {
            true => &[],
            false => data.get(..length.into())?,
        };
        let raw_length = match (fd_flags, length, raw_length) {
            (None, 8, 9..=15) => raw_length,
            _ => 0,
        };
        Some(Frame {
            word,
            fd_flags,
            length,
            raw_length,
            data,
        })
    }

    pub fn id(&self) -> u32 {
        self.word & 0x1fff_ffff
    }

    pub fn is_extended(&self) -> bool {
        self.word & EXTENDED != 0
    }

    pub fn is_remote(&self) -> bool {
        self.word & REMOTE != 0
    }

    pub fn is_error(&self) -> bool {
        self.word & ERROR != 0
    }

    /// Returns the length code that the frame has on the bus. The codes 0 to 8 are lengths in
    /// bytes. The codes 9 to 15 are longer lengths of CAN FD; in a classic frame they mean 8 bytes.
    pub fn code(&self) -> u8 {
        if self.raw_length > 0 {
            return self.raw_length;
        }
        let codes = crate::source::can::FD_LENGTHS;
        let code = codes.iter().position(|&length| length >= self.length);
        code.unwrap_or(codes.len() - 1) as u8
    }
}
