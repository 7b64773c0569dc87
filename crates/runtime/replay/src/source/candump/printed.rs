//! Converts frames as `candump` prints them, `123   [2]  11 22`, to Linux's structs.

use super::frame::{nibble, NOT_A_FRAME};
use crate::source::can;

/// The text of a frame from its identifier on, and the flags of CAN FD that precede it.
#[derive(Clone, Copy)]
pub struct Found<'a> {
    text: &'a [u8],
    flags: u8,
}

/// Finds the frame in a line as `candump` prints it. `rest` is the line after the name of the
/// interface. With the option `-x`, a direction and two flags precede the identifier.
pub fn find(rest: &[u8]) -> Option<Found<'_>> {
    let (mut rest, mut flags) = (rest.trim_ascii_start(), 0);
    if let Some(behind) = rest.strip_prefix(b"RX").or(rest.strip_prefix(b"TX")) {
        // `B` for BRS and `E` for ESI, or hyphens.
        let [brs, _, esi, behind @ ..] = behind.trim_ascii_start() else {
            return None;
        };
        flags = (u8::from(*brs == b'B') * can::BRS) | (u8::from(*esi == b'E') * can::ESI);
        rest = behind.trim_ascii_start();
    }
    let (id, behind) = word(rest);
    let is_id = matches!(id.len(), 3 | 8) && id.iter().all(|&digit| nibble(digit).is_some());
    (is_id && behind.starts_with(b"[")).then_some(Found { text: rest, flags })
}

/// Clears `payload` and fills it with the bytes of the frame that was found. A length of two digits
/// means CAN FD.
///
/// # Errors
/// Returns a text for the kind of fault.
pub fn encode(found: Found<'_>, payload: &mut Vec<u8>) -> Result<(), &'static str> {
    let (digits, rest) = word(found.text);
    let mut id = 0;
    for &digit in digits {
        id = (id << 4) | u32::from(nibble(digit).ok_or(NOT_A_FRAME)?);
    }
    if digits.len() == 8 && id & can::ERROR == 0 {
        id |= can::EXTENDED;
    }
    let (length, rest) = word(rest);
    let length = length.strip_prefix(b"[").and_then(|l| l.strip_suffix(b"]"));
    let length = length.filter(|l| matches!(l.len(), 1 | 2));
    let digits = length.ok_or(NOT_A_FRAME)?;
    let is_fd = digits.len() == 2;
    let length = digits.iter().try_fold(0usize, |length, digit| {
        let digit = digit.wrapping_sub(b'0');
        (digit < 10).then(|| length * 10 + usize::from(digit))
    });
    let most = if is_fd { can::FD_DATA } else { can::DATA };
    let length = length.filter(|&l| l <= most).ok_or(NOT_A_FRAME)?;
    if rest.starts_with(b"remote request") {
        can::classic(id | can::REMOTE, &[], length as u8, 0, payload);
        return Ok(());
    }
    let mut data = [0; can::FD_DATA];
    let mut rest = rest;
    for byte in &mut data[..length] {
        let (pair, behind) = word(rest);
        let &[high, low] = pair else {
            return Err(NOT_A_FRAME);
        };
        let (high, low) = (nibble(high), nibble(low));
        *byte = high
            .zip(low)
            .map(|(high, low)| high << 4 | low)
            .ok_or(NOT_A_FRAME)?;
        rest = behind;
    }
    match is_fd {
        true => can::fd(id, found.flags, &data[..length], payload),
        false => can::classic(id, &data[..length], length as u8, 0, payload),
    }
    Ok(())
}

fn word(text: &[u8]) -> (&[u8], &[u8]) {
    let end = memchr::memchr2(b' ', b'\t', text).unwrap_or(text.len());
    (&text[..end], text[end..].trim_ascii_start())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Times {
    #[default]
    Absolute,
    /// Each line states the time since the previous frame (`candump -t d`).
    Distances,
}

/// Finds out whether the lines of a log state instants or times since the previous frame. Times
/// since the previous frame fall about as often as they rise. Instants almost always rise.
#[derive(Debug, Default)]
pub struct Survey {
    last_ns: Option<i64>,
    lines: u64,
    down: u64,
}

/// The limit in ns between instants since 1970 and other times. Times since the first or the
/// previous frame are below this limit.
const SMALL_NS: i64 = 10_000_000 * 1_000_000_000;

impl Survey {
    pub fn add(&mut self, time_ns: i64) {
        self.lines += 1;
        self.down += u64::from(self.last_ns.is_some_and(|last| time_ns < last));
        self.last_ns = Some(time_ns);
    }

    pub fn times(&self) -> Times {
        let is_small = self.last_ns.is_some_and(|last| last < SMALL_NS);
        match is_small && self.down * 10 > self.lines {
            true => Times::Distances,
            false => Times::Absolute,
        }
    }
}
