//! Converts the objects of a BLF file to CAN frames in Linux's structs, and to Ethernet packets.

use crate::source::can;
use crate::source::channels::Bus;

pub const SIGNATURE: &[u8; 4] = b"LOBJ";
/// The size in bytes of the part of an object's header that is the same in all versions: signature,
/// size and version of the header, size and kind of the object.
pub const HEADER: usize = 16;

const NOT_A_FRAME: &str = "objects too short for their frame";
const NO_LENGTH: &str = "frames with an impossible length";
const NO_IDENTIFIER: &str = "frames with an impossible identifier";
const NO_TIME: &str = "objects with an impossible time";
const REQUESTED: &str = "requests to send (TxRq), not replayed";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    Frame,
    /// The object belongs to another bus or protocol, or reports lost data. The recording's damage
    /// lists it under this text.
    Counted(&'static str),
    Ignored,
}

const CAN_MESSAGE: u32 = 1;
const CAN_ERROR: u32 = 2;
const ETHERNET_FRAME: u32 = 71;
const CAN_ERROR_EXT: u32 = 73;
const CAN_MESSAGE2: u32 = 86;
const CAN_FD_MESSAGE: u32 = 100;
const CAN_FD_MESSAGE_64: u32 = 101;
const CAN_FD_ERROR_64: u32 = 104;
const ETHERNET_FRAME_EX: u32 = 120;
const DATA_LOST_BEGIN: u32 = 125;

pub fn use_of(kind: u32) -> Use {
    match kind {
        CAN_MESSAGE | CAN_ERROR | ETHERNET_FRAME | CAN_ERROR_EXT | CAN_MESSAGE2
        | CAN_FD_MESSAGE | CAN_FD_MESSAGE_64 | CAN_FD_ERROR_64 | ETHERNET_FRAME_EX => Use::Frame,
        // Statistics, triggers, variables, states of the driver, clock, text, comments, markers, tests,
        // settings.
        3..=9 | 31 | 44 | 46 | 51 | 65 | 72 | 74 | 92 | 96 | 103 | 115 | 117..=119 | 126..=131 => {
            Use::Ignored
        }
        DATA_LOST_BEGIN => Use::Counted("places where the recorder lost data"),
        _ => Use::Counted(
            "objects of other buses or protocols (LIN, FlexRay, MOST ...), not replayed",
        ),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    pub since_ns: i64,
    pub bus: Bus,
    pub channel: u16,
    pub is_sent: bool,
}

/// Reads the little-endian number of four bytes at `at`. The caller must make sure that these bytes
/// exist.
pub fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Clears `payload` and fills it with the frame of a complete object.
///
/// # Errors
/// Returns a text for the kind of fault.
pub fn encode(object: &[u8], payload: &mut Vec<u8>) -> Result<Frame, &'static str> {
    let least = match short(object, 6) {
        1 | 3 => 32,
        2 => 40,
        _ => return Err("objects with an unknown header"),
    };
    let (header, _) = object.split_at_checked(least).ok_or(NOT_A_FRAME)?;
    let since_ns = since(header).ok_or(NO_TIME)?;
    let header_size = usize::from(short(header, 4)).max(least);
    let body = object.get(header_size..).ok_or(NOT_A_FRAME)?;
    let kind = number(header, 12);
    let fixed = |length: usize| body.get(..length).ok_or(NOT_A_FRAME);
    let (bus, (channel, is_sent)) = match kind {
        CAN_MESSAGE | CAN_MESSAGE2 => (Bus::Can, classic(fixed(16)?, payload)?),
        CAN_FD_MESSAGE => (Bus::Can, flexible(body, payload)?),
        CAN_FD_MESSAGE_64 => (Bus::Can, flexible_64(object, header_size, payload)?),
        CAN_ERROR | CAN_ERROR_EXT => {
            error(payload);
            (Bus::Can, (short(fixed(2)?, 0), false))
        }
        CAN_FD_ERROR_64 => {
            error(payload);
            (Bus::Can, (fixed(1)?[0].into(), false))
        }
        ETHERNET_FRAME => (Bus::Ethernet, ethernet(body, payload)?),
        ETHERNET_FRAME_EX => (Bus::Ethernet, ethernet_whole(body, payload)?),
        _ => return Err(NOT_A_FRAME),
    };
    Ok(Frame {
        since_ns,
        bus,
        channel,
        is_sent,
    })
}

/// Returns the time of an object since the log's beginning, in ns. In the log, the time is in units
/// of 10 us or 1 ns.
fn since(header: &[u8]) -> Option<i64> {
    const TEN_MICROSECONDS: u32 = 1;
    let units = u64::from(number(header, 24)) | u64::from(number(header, 28)) << 32;
    let unit_ns = match number(header, 16) {
        TEN_MICROSECONDS => 10_000,
        _ => 1,
    };
    i64::try_from(units).ok()?.checked_mul(unit_ns)
}

fn is_sent(direction: u8) -> Result<bool, &'static str> {
    const SENT: u8 = 1;
    const REQUEST: u8 = 2;
    match direction {
        REQUEST => Err(REQUESTED),
        _ => Ok(direction == SENT),
    }
}

fn identifier(id: u32) -> Result<u32, &'static str> {
    let most = match id & can::EXTENDED {
        0 => 0x7ff,
        _ => 0x1fff_ffff,
    };
    let is_possible = id & !can::EXTENDED <= most;
    is_possible.then_some(id).ok_or(NO_IDENTIFIER)
}

fn error(payload: &mut Vec<u8>) {
    can::classic(can::ERROR, &[0; can::DATA], can::DATA as u8, 0, payload);
}

/// Writes a classic CAN frame. `code` is its length code: 9 to 15 mean 8 bytes.
fn write_classic(
    id: u32,
    is_remote: bool,
    code: u8,
    data: &[u8],
    payload: &mut Vec<u8>,
) -> Result<(), &'static str> {
    let length = code.min(can::DATA as u8);
    let raw = match code {
        0..=8 => 0,
        9..=15 => code,
        _ => return Err(NO_LENGTH),
    };
    if is_remote {
        can::classic(id | can::REMOTE, &[], length, raw, payload);
        return Ok(());
    }
    let data = can::first_bytes(data, length.into());
    can::classic(id, &data, length, raw, payload);
    Ok(())
}

/// Writes a CAN FD frame. `code` is its length code. Data bytes that the log does not contain are
/// 0.
fn write_fd(
    id: u32,
    flags: u8,
    code: u8,
    data: &[u8],
    payload: &mut Vec<u8>,
) -> Result<(), &'static str> {
    let length = *can::FD_LENGTHS.get(usize::from(code)).ok_or(NO_LENGTH)?;
    let length = usize::from(length);
    if let Some(data) = data.get(..length) {
        can::fd(id, flags, data, payload);
        return Ok(());
    }
    let mut whole = [0; can::FD_DATA];
    whole[..data.len()].copy_from_slice(data);
    can::fd(id, flags, &whole[..length], payload);
    Ok(())
}

fn classic(body: &[u8], payload: &mut Vec<u8>) -> Result<(u16, bool), &'static str> {
    const REMOTE: u8 = 0x80;
    let (channel, flags, code) = (short(body, 0), body[2], body[3]);
    let is_sent = is_sent(flags & 0xf)?;
    let id = identifier(number(body, 4))?;
    write_classic(id, flags & REMOTE != 0, code, &body[8..], payload)?;
    Ok((channel, is_sent))
}

fn flexible(body: &[u8], payload: &mut Vec<u8>) -> Result<(u16, bool), &'static str> {
    const REMOTE: u8 = 0x80;
    const EDL: u8 = 1;
    let (head, data) = body.split_at_checked(20).ok_or(NOT_A_FRAME)?;
    let (channel, flags, code) = (short(head, 0), head[2], head[3]);
    let is_sent = is_sent(flags & 0xf)?;
    let id = identifier(number(head, 4))?;
    let (fd_flags, there) = (head[13], usize::from(head[14]));
    let data = &data[..there.min(data.len())];
    match fd_flags & EDL {
        0 => write_classic(id, flags & REMOTE != 0, code, data, payload)?,
        _ => write_fd(id, fd_flags >> 1 & 3, code, data, payload)?,
    }
    Ok((channel, is_sent))
}

/// Reads a `CAN_FD_MESSAGE_64`. If it has fewer data bytes than its length states, the missing
/// bytes are 0, as in Vector's tools.
fn flexible_64(
    object: &[u8],
    header_size: usize,
    payload: &mut Vec<u8>,
) -> Result<(u16, bool), &'static str> {
    const HEAD: usize = 40;
    const REMOTE: u32 = 0x10;
    const EDL: u32 = 0x1000;
    let body = object.get(header_size..).ok_or(NOT_A_FRAME)?;
    let (head, _) = body.split_at_checked(HEAD).ok_or(NOT_A_FRAME)?;
    let (channel, code, there) = (head[0], head[1], usize::from(head[2]));
    let is_sent = is_sent(head[34])?;
    let id = identifier(number(head, 4))?;
    let flags = number(head, 12);
    let end = match usize::from(head[35]) {
        0 => object.len(),
        extension => extension.min(object.len()),
    };
    let data = object.get(header_size + HEAD..end).unwrap_or_default();
    let data = &data[..there.min(data.len())];
    match flags & EDL {
        0 => write_classic(id, flags & REMOTE != 0, code, data, payload)?,
        _ => write_fd(id, (flags >> 13) as u8 & 3, code, data, payload)?,
    }
    Ok((channel.into(), is_sent))
}

fn ethernet(body: &[u8], payload: &mut Vec<u8>) -> Result<(u16, bool), &'static str> {
    let (head, rest) = body.split_at_checked(32).ok_or(NOT_A_FRAME)?;
    let content = rest.get(..short(head, 22).into()).ok_or(NOT_A_FRAME)?;
    let is_sent = is_sent(head[14])?;
    payload.clear();
    payload.extend_from_slice(&head[8..14]);
    payload.extend_from_slice(&head[..6]);
    let (kind, vlan_kind, vlan) = (short(head, 16), short(head, 18), short(head, 20));
    if vlan_kind != 0 {
        payload.extend_from_slice(&vlan_kind.to_be_bytes());
        payload.extend_from_slice(&vlan.to_be_bytes());
    }
    payload.extend_from_slice(&kind.to_be_bytes());
    payload.extend_from_slice(content);
    Ok((short(head, 6), is_sent))
}

/// Reads an `ETHERNET_FRAME_EX`, which contains the whole packet without its checksum.
fn ethernet_whole(body: &[u8], payload: &mut Vec<u8>) -> Result<(u16, bool), &'static str> {
    let (head, rest) = body.split_at_checked(32).ok_or(NOT_A_FRAME)?;
    let packet = rest.get(..short(head, 22).into()).ok_or(NOT_A_FRAME)?;
    let is_sent = is_sent(head[20])?;
    payload.clear();
    payload.extend_from_slice(packet);
    Ok((short(head, 4), is_sent))
}
