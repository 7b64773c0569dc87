//! Converts the text of one frame (`parse_canframe` of can-utils) to Linux's `struct can_frame`.

use crate::source::can;

pub const NOT_A_FRAME: &str =
    "lines without a frame of the form ID#DATA, ID##FLAGSDATA or ID#R, or ID [LENGTH] DATA";
const XL: &str = "CAN XL frames, which onbeat does not support";

/// Clears `payload` and fills it with the bytes of the frame in `text`.
///
/// # Errors
/// Returns a text for the kind of fault, under which [`super::Damage`] counts it.
pub fn encode(text: &[u8], payload: &mut Vec<u8>) -> Result<(), &'static str> {
    let (id, rest) = identifier(text)?;
    match rest.first() {
        Some(b'R' | b'r') => remote(id, &rest[1..], payload),
        Some(b'#') => {
            let flags = nibble(*rest.get(1).ok_or(NOT_A_FRAME)?).ok_or(NOT_A_FRAME)?;
            let mut data = [0; can::FD_DATA];
            let (length, rest) = bytes(&rest[2..], &mut data)?;
            if !rest.is_empty() {
                return Err(NOT_A_FRAME);
            }
            can::fd(id, flags, &data[..length], payload);
            Ok(())
        }
        _ if rest.get(14) == Some(&b'#') => Err(XL),
        _ => classic(id, rest, payload),
    }
}

/// Parses a CAN identifier. Three hexadecimal digits mean 11 bits, eight mean 29 bits or an error
/// frame, and five mean CAN XL. Also returns the rest of the text.
fn identifier(text: &[u8]) -> Result<(u32, &[u8]), &'static str> {
    let digits = memchr::memchr(b'#', text).ok_or(NOT_A_FRAME)?;
    let mut id = 0;
    for &digit in &text[..digits.min(9)] {
        id = (id << 4) | u32::from(nibble(digit).ok_or(NOT_A_FRAME)?);
    }
    let id = match digits {
        // can-utils keeps values of three digits above 0x7ff too.
        3 => id,
        5 => return Err(XL),
        8 if id & can::ERROR != 0 => id,
        8 => id | can::EXTENDED,
        _ => return Err(NOT_A_FRAME),
    };
    Ok((id, &text[digits + 1..]))
}

fn classic(id: u32, text: &[u8], payload: &mut Vec<u8>) -> Result<(), &'static str> {
    let mut data = [0; can::DATA];
    let (length, rest) = bytes(text, &mut data)?;
    let raw = raw_length(length, rest)?;
    can::classic(id, &data[..length], length as u8, raw, payload);
    Ok(())
}

fn remote(id: u32, text: &[u8], payload: &mut Vec<u8>) -> Result<(), &'static str> {
    let (length, rest) = match text.split_first() {
        None => (0, text),
        Some((&digit, rest)) => (nibble(digit).filter(|&n| n <= 8).ok_or(NOT_A_FRAME)?, rest),
    };
    let raw = raw_length(usize::from(length), rest)?;
    can::classic(id | can::REMOTE, &[], length, raw, payload);
    Ok(())
}

/// Parses `_9` to `_F` after eight data bytes: the length code that the frame had on the wire.
fn raw_length(length: usize, rest: &[u8]) -> Result<u8, &'static str> {
    match rest {
        [] => Ok(0),
        [b'_', digit] if length == can::DATA => {
            nibble(*digit).filter(|&n| n > 8).ok_or(NOT_A_FRAME)
        }
        _ => Err(NOT_A_FRAME),
    }
}

/// Parses pairs of hexadecimal digits into `data`. Dots between the pairs are optional. Returns the
/// number of pairs and the rest of the text.
fn bytes<'a>(mut text: &'a [u8], data: &mut [u8]) -> Result<(usize, &'a [u8]), &'static str> {
    for (at, byte) in data.iter_mut().enumerate() {
        if let [b'.', rest @ ..] = text {
            text = rest;
        }
        let [high, low, rest @ ..] = text else {
            return if text.is_empty() {
                Ok((at, text))
            } else {
                Err(NOT_A_FRAME)
            };
        };
        let (Some(high), Some(low)) = (nibble(*high), nibble(*low)) else {
            return Err(NOT_A_FRAME);
        };
        *byte = (high << 4) | low;
        text = rest;
    }
    Ok((data.len(), text))
}

pub fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}
