//! Converts the events of an ASC log to Linux's structs of CAN frames.

use super::header::{rest_from, Base};
use crate::source::calendar::{digits, fraction};
use crate::source::can;
use crate::source::text::{hex, words};

const NOT_A_FRAME: &str = "lines with an incomplete frame";
const OTHERS: &str = "events of other buses or protocols (LIN, J1939, FlexRay ...), not replayed";
const NAMED: &str = "frames whose identifier is a name, not replayed";
const REQUESTED: &str = "requests to send (TxRq), not replayed";
/// The flag of remote frames in a `CANFD` line. Such a line can also contain a classic frame, which
/// may be a remote frame.
const RTR: i64 = 0x10;
const FDF: i64 = 0x1000;

/// Splits a line of the log into its time in ns and the event after the time.
pub fn event(line: &[u8]) -> Option<(i64, &[u8])> {
    let mut words = words(line);
    let time = words.next()?;
    let point = memchr::memchr(b'.', time)?;
    let seconds = digits(&time[..point])?.checked_mul(1_000_000_000)?;
    let time_ns = seconds.checked_add(fraction(&time[point + 1..])?)?;
    Some((time_ns, rest_from(line, words.next()?)))
}

/// Returns whether a line without a time is a remark of the recorder. Any other line without a time
/// is a damaged frame.
pub fn is_remark(line: &[u8]) -> bool {
    line.first()
        .is_some_and(|first| !first.is_ascii_digit() && *first != b'-')
}

/// Returns true if the direction of the frame is `Tx`. The direction is the third word of the event
/// in classic frames and in CAN FD frames.
pub fn is_sent(event: &[u8]) -> bool {
    words(event).nth(2) == Some(b"Tx")
}

/// Clears `payload` and fills it with the bytes of the event's frame. Returns the number of the
/// frame's channel, or `None` if the event is not a frame.
///
/// # Errors
/// Returns a text for the kind of fault.
pub fn encode(event: &[u8], base: Base, payload: &mut Vec<u8>) -> Result<Option<u8>, &'static str> {
    let mut fields = words(event);
    let first = fields.next().ok_or(NOT_A_FRAME)?;
    if let Some(channel) = channel(first) {
        return classic(event, channel, &mut fields, base, payload);
    }
    match first {
        b"CANFD" => {
            let number = fields.next().and_then(channel).ok_or(NOT_A_FRAME)?;
            flexible(&mut fields, base, payload)?;
            Ok(Some(number))
        }
        // States of controllers, triggers, comments and the like.
        b"CAN" | b"Start" | b"log" | b"Comment:" | b"//" => Ok(None),
        _ => Err(OTHERS),
    }
}

fn channel(word: &[u8]) -> Option<u8> {
    digits(word)?.try_into().ok()
}

fn is_error(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"errorframe")
}

fn error(payload: &mut Vec<u8>) {
    can::classic(can::ERROR, &[0; can::DATA], can::DATA as u8, 0, payload);
}

/// Parses a classic frame: `1  18EBFF00x  Rx   d 8 01 A0 ...`, `1  123  Rx   r 8` or
/// `1  ErrorFrame`.
fn classic<'e>(
    event: &[u8],
    channel: u8,
    fields: &mut impl Iterator<Item = &'e [u8]>,
    base: Base,
    payload: &mut Vec<u8>,
) -> Result<Option<u8>, &'static str> {
    let id = fields.next().ok_or(NOT_A_FRAME)?;
    if is_error(id) {
        error(payload);
        return Ok(Some(channel));
    }
    let direction = fields.next();
    if id.ends_with(b":") || direction.is_some_and(|word| word.ends_with(b":")) {
        // Statistics and states of the controller.
        return Ok(None);
    }
    let kind = fields.next().ok_or(match event.len() {
        0..=8 => NOT_A_FRAME,
        _ => OTHERS,
    })?;
    if !matches!(direction, Some(b"Rx" | b"Tx" | b"TxRq")) {
        return Err(OTHERS);
    }
    if direction == Some(b"TxRq") {
        return Err(REQUESTED);
    }
    let id = identifier(id, base)?;
    let length = fields.next().map(|word| number(word, base));
    match kind {
        b"d" | b"D" => {
            let code = length
                .flatten()
                .filter(|&code| code <= can::FD_DATA as i64)
                .ok_or(NOT_A_FRAME)?;
            if code >= 16 {
                // Some writers state CAN FD frames in this form.
                let mut data = [0; can::FD_DATA];
                bytes(fields, base, &mut data[..code as usize])?;
                can::fd(id, 0, &data[..code as usize], payload);
                return Ok(Some(channel));
            }
            // Lengths of 9 to 15 mean 8 bytes.
            let length = (code as usize).min(can::DATA);
            let mut data = [0; can::DATA];
            bytes(fields, base, &mut data[..length])?;
            let raw = if code > 8 { code as u8 } else { 0 };
            can::classic(id, &data[..length], length as u8, raw, payload);
        }
        b"r" | b"R" => {
            let length = length.flatten().filter(|&length| length <= 8).unwrap_or(0);
            can::classic(id | can::REMOTE, &[], length as u8, 0, payload);
        }
        _ => return Err(OTHERS),
    }
    Ok(Some(channel))
}

/// Parses a CAN FD frame. `fields` begin after `CANFD` and the channel: `Rx 300 [name] 1 0 8 8 01
/// 02 ... duration length flags ...`.
fn flexible<'e>(
    fields: &mut impl Iterator<Item = &'e [u8]>,
    base: Base,
    payload: &mut Vec<u8>,
) -> Result<(), &'static str> {
    let mut next = || fields.next().ok_or(NOT_A_FRAME);
    if next()? == b"TxRq" {
        return Err(REQUESTED);
    }
    let id = next()?;
    if is_error(id) {
        error(payload);
        return Ok(());
    }
    let id = identifier(id, base)?;
    let mut brs = next()?;
    if !matches!(brs, b"0" | b"1") {
        // The name of the frame.
        brs = next()?;
    }
    let (esi, code, length) = (next()?, next()?, next()?);
    let length = digits(length)
        .filter(|&l| l <= can::FD_DATA as i64)
        .ok_or(NOT_A_FRAME)?;
    let mut data = [0; can::FD_DATA];
    let data = &mut data[..length as usize];
    bytes(fields, base, data)?;
    let flags = fields.nth(2).and_then(|word| number(word, Base::Hex));
    match flags {
        Some(flags) if flags & FDF == 0 && flags & RTR != 0 => {
            let asked = number(code, base).filter(|&code| code <= 8);
            can::classic(id | can::REMOTE, &[], asked.unwrap_or(8) as u8, 0, payload);
        }
        Some(flags) if flags & FDF == 0 && length <= can::DATA as i64 => {
            can::classic(id, data, length as u8, 0, payload);
        }
        _ => {
            let flags = u8::from(brs == b"1") | u8::from(esi == b"1") << 1;
            can::fd(id, flags, data, payload);
        }
    }
    Ok(())
}

/// Parses an identifier. An `x` at its end means 29 bits.
fn identifier(word: &[u8], base: Base) -> Result<u32, &'static str> {
    let extended = word.strip_suffix(b"x").or(word.strip_suffix(b"X"));
    let id = number(extended.unwrap_or(word), base).ok_or(NAMED)?;
    let (most, flag) = match extended {
        Some(_) => (0x1fff_ffff, can::EXTENDED),
        None => (0x7ff, 0),
    };
    u32::try_from(id)
        .ok()
        .filter(|&id| id <= most)
        .map(|id| id | flag)
        .ok_or(NOT_A_FRAME)
}

fn bytes<'e>(
    fields: &mut impl Iterator<Item = &'e [u8]>,
    base: Base,
    data: &mut [u8],
) -> Result<(), &'static str> {
    for byte in data {
        let value = fields.next().and_then(|word| number(word, base));
        *byte = value
            .and_then(|value| u8::try_from(value).ok())
            .ok_or(NOT_A_FRAME)?;
    }
    Ok(())
}

fn number(word: &[u8], base: Base) -> Option<i64> {
    match base {
        Base::Dec => digits(word),
        Base::Hex => hex(word),
    }
}
