//! Converts the lines of a TRC log to Linux's structs of CAN frames.

use crate::source::calendar::{digits, fraction};
use crate::source::can;
use crate::source::text::{hex, words};

const NOT_A_FRAME: &str = "lines with an incomplete frame";
const OTHERS: &str = "lines of other kinds or protocols, not replayed";
const LONG: &str = "J1939 messages of more than 8 bytes, not replayed";
const BRS: u8 = 1;
const ESI: u8 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Classic,
    Remote,
    /// A CAN FD frame. The value contains the flags of Linux's `struct canfd_frame`.
    Fd(u8),
    Error,
    Remark,
}

impl Kind {
    fn of(word: &[u8]) -> Option<Kind> {
        Some(match word {
            b"DT" | b"Rx" | b"Tx" => Kind::Classic,
            b"RR" => Kind::Remote,
            b"FD" => Kind::Fd(0),
            b"FB" => Kind::Fd(BRS),
            b"FE" => Kind::Fd(ESI),
            b"BI" => Kind::Fd(BRS | ESI),
            b"ER" | b"Error" => Kind::Error,
            b"ST" | b"EC" | b"EV" | b"Warng" => Kind::Remark,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, Copy)]
enum Length {
    Bytes(i64),
    Code(i64),
}

/// Returns whether a line has the form of version 1.0:
/// `1)  1841  0001  8  00 00 00 00 00 00 00 00`.
pub fn is_first_version(line: &[u8]) -> bool {
    let mut fields = words(line);
    let number = fields.next().and_then(|word| word.strip_suffix(b")"));
    let (time, id, length) = (fields.next(), fields.next(), fields.next());
    number.and_then(digits).is_some()
        && time.and_then(digits).is_some()
        && id.and_then(hex).is_some()
        && length.and_then(digits).is_some_and(|length| length <= 8)
}

/// Parses a line whose fields are in the order of `columns`. Returns the frame's time in ns since
/// the log's beginning and its channel, and fills `payload`. Returns `None` if the line is not a
/// frame.
///
/// # Errors
/// Returns a text for the kind of fault.
pub fn encode(
    line: &[u8],
    columns: &[u8],
    payload: &mut Vec<u8>,
) -> Result<Option<(i64, u8)>, &'static str> {
    let mut fields = words(line);
    let mut kind = Kind::Classic;
    let (mut since_ns, mut channel, mut id, mut length) = (None, 1, None, None);
    for column in columns {
        if *column == b'D' {
            break;
        }
        if matches!(column, b'I') && matches!(kind, Kind::Error | Kind::Remark) {
            // Version 2.0 leaves the columns behind the kind blank.
            break;
        }
        let word = fields.next().ok_or(NOT_A_FRAME)?;
        match column {
            b'O' => since_ns = Some(milliseconds(word).ok_or(NOT_A_FRAME)?),
            b'T' => kind = Kind::of(word).ok_or(OTHERS)?,
            b'B' => channel = bus(word, kind)?,
            b'I' => id = Some(word),
            b'l' => length = Some(Length::Bytes(digits(word).ok_or(NOT_A_FRAME)?)),
            b'L' => length = Some(Length::Code(digits(word).ok_or(NOT_A_FRAME)?)),
            _ => {}
        }
    }
    let since_ns = since_ns.ok_or(NOT_A_FRAME)?;
    let is_written = match kind {
        Kind::Remark => false,
        Kind::Error => {
            can::classic(can::ERROR, &[0; can::DATA], can::DATA as u8, 0, payload);
            true
        }
        kind => frame(
            kind,
            id.ok_or(NOT_A_FRAME)?,
            length.ok_or(NOT_A_FRAME)?,
            &mut fields,
            payload,
        )?,
    };
    Ok(is_written.then_some((since_ns, channel)))
}

/// Returns true if the line says that the recorder's own host sent the frame. `columns` is the
/// order of the line's fields.
pub fn is_sent(line: &[u8], columns: &[u8]) -> bool {
    let before_data = columns.iter().take_while(|&&column| column != b'D');
    before_data
        .zip(words(line))
        .any(|(column, word)| matches!(column, b'T' | b'd') && word == b"Tx")
}

fn bus(word: &[u8], kind: Kind) -> Result<u8, &'static str> {
    match digits(word).map(u8::try_from) {
        Some(Ok(channel)) => Ok(channel),
        // An event for all buses.
        None if kind == Kind::Remark || word == b"-" => Ok(1),
        _ => Err(NOT_A_FRAME),
    }
}

/// Parses a time in milliseconds, with or without a fraction. Returns it in ns.
fn milliseconds(word: &[u8]) -> Option<i64> {
    let point = memchr::memchr(b'.', word).unwrap_or(word.len());
    let part_ns = match word.get(point + 1..).unwrap_or_default() {
        [] => 0,
        part => fraction(part)? / 1000,
    };
    digits(&word[..point])?
        .checked_mul(1_000_000)?
        .checked_add(part_ns)
}

/// Writes a frame with data, or a remote frame, into `payload`. Returns `false` if the line is a
/// warning of version 1.
fn frame<'l>(
    kind: Kind,
    id: &[u8],
    length: Length,
    fields: &mut (impl Iterator<Item = &'l [u8]> + Clone),
    payload: &mut Vec<u8>,
) -> Result<bool, &'static str> {
    const WARNING: &[u8] = b"FFFFFFFF";
    if id.eq_ignore_ascii_case(WARNING) {
        return Ok(false);
    }
    let (is_remote, is_error) = match fields.clone().next() {
        Some(b"RTR") => (true, false),
        Some(b"ERROR") => (false, true),
        _ => (kind == Kind::Remote, false),
    };
    if is_error {
        can::classic(can::ERROR, &[0; can::DATA], can::DATA as u8, 0, payload);
        return Ok(true);
    }
    let id = identifier(id)?;
    let (stated, is_fd) = match (length, kind) {
        (Length::Code(code), Kind::Fd(_)) => (fd_length(code)?, true),
        (Length::Bytes(bytes), Kind::Fd(_)) => (bytes, true),
        (Length::Code(length) | Length::Bytes(length), _) => (length, false),
    };
    let most = if is_fd { can::FD_DATA as i64 } else { 15 };
    if stated > most {
        return Err(if is_fd { NOT_A_FRAME } else { LONG });
    }
    let (raw, size) = match is_fd {
        // A classic frame has at most 8 bytes: length codes of 9 to 15 mean 8.
        false if stated > can::DATA as i64 => (stated as u8, can::DATA),
        _ => (0, stated as usize),
    };
    if is_remote {
        can::classic(id | can::REMOTE, &[], size as u8, raw, payload);
        return Ok(true);
    }
    let mut data = [0; can::FD_DATA];
    for byte in &mut data[..size] {
        let value = fields.next().and_then(hex).map(u8::try_from);
        *byte = value.and_then(Result::ok).ok_or(NOT_A_FRAME)?;
    }
    match kind {
        Kind::Fd(flags) => can::fd(id, flags, &data[..size], payload),
        _ if raw > 0 && fields.next().and_then(hex).is_some() => return Err(LONG),
        _ => can::classic(id, &data[..size], size as u8, raw, payload),
    }
    Ok(true)
}

fn fd_length(code: i64) -> Result<i64, &'static str> {
    let at = usize::try_from(code).map_err(|_| NOT_A_FRAME)?;
    can::FD_LENGTHS
        .get(at)
        .map(|&length| length.into())
        .ok_or(NOT_A_FRAME)
}

/// Parses an identifier. More than four digits mean 29 bits.
fn identifier(word: &[u8]) -> Result<u32, &'static str> {
    let (most, flag) = match word.len() {
        0..=4 => (0x7ff, 0),
        _ => (0x1fff_ffff, can::EXTENDED),
    };
    let id = hex(word).filter(|&id| id <= most).ok_or(NOT_A_FRAME)?;
    Ok(id as u32 | flag)
}
