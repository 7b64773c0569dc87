//! Sends small sealed records through the connection of a handshake. They are counted, so that no
//! record can be changed, left out or repeated unnoticed.

use std::io::{Error, ErrorKind, Read, Result, Write};

pub(crate) const MOST: usize = 192;
const TAG_BYTES: usize = 16;

pub(crate) type Keys = snow::StatelessTransportState;

pub(crate) struct Counter(u64);

impl Counter {
    pub(crate) fn new() -> Counter {
        Counter(0)
    }

    fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0 - 1
    }
}

/// Encrypts a record and sends it. `at` is the number of records that were sent in this direction
/// before.
///
/// # Errors
/// The connection is broken, or the record is too long.
pub(crate) fn send(
    to: &mut impl Write,
    keys: &Keys,
    at: &mut Counter,
    record: &[u8],
) -> Result<()> {
    let mut sealed = [0; 2 + MOST + TAG_BYTES];
    let length = keys
        .write_message(at.next(), record, &mut sealed[2..])
        .map_err(Error::other)?;
    sealed[..2].copy_from_slice(&(length as u16).to_le_bytes());
    to.write_all(&sealed[..2 + length])
}

/// Receives a record, decrypts it, and passes its bytes to `parse`. `at` is the number of records
/// that were received in this direction before.
///
/// # Errors
/// The connection is broken, or (`InvalidData`) the bytes are not a record of the peer.
pub(crate) fn receive<T>(
    from: &mut impl Read,
    keys: &Keys,
    at: &mut Counter,
    parse: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<T> {
    let mut length = [0; 2];
    from.read_exact(&mut length)?;
    let length = usize::from(u16::from_le_bytes(length));
    let mut sealed = [0; MOST + TAG_BYTES];
    let wrong = || Error::from(ErrorKind::InvalidData);
    let sealed = sealed.get_mut(..length).ok_or_else(wrong)?;
    from.read_exact(sealed)?;
    let mut clear = [0; MOST + TAG_BYTES];
    let length = keys.read_message(at.next(), sealed, &mut clear);
    let length = length.map_err(|_| wrong())?;
    parse(&clear[..length]).ok_or_else(wrong)
}
