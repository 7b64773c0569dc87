//! Reads the log containers of a BLF file one after another, and unpacks them.

use super::object::{number, HEADER, SIGNATURE};
use crate::source::damage::Damage;
use crate::source::inflate::inflate;
use flate2::Decompress;
use std::io::{BufRead, Read, Result};

const CONTAINER: u32 = 10;
const ABOUT: usize = 16;
const STORED: u16 = 0;
const DEFLATED: u16 = 2;
/// The maximum size of a container in bytes, packed or unpacked. Vector's tools write 128 KiB,
/// other tools up to some MiB.
const LONGEST: usize = 64 << 20;
/// The largest number of bytes between two objects that count as padding.
pub const PADDING: u64 = 7;

pub struct Containers<R> {
    bytes: R,
    at: u64,
    packed: Vec<u8>,
    inflater: Decompress,
    is_torn: bool,
}

pub struct Found {
    header: [u8; HEADER],
    pub follows_gap: bool,
    pub at: u64,
}

impl<R: BufRead> Containers<R> {
    pub fn new(bytes: R, at: u64) -> Containers<R> {
        Containers {
            bytes,
            at,
            packed: Vec::new(),
            inflater: Decompress::new(true),
            is_torn: false,
        }
    }

    pub fn into_bytes(self) -> R {
        self.bytes
    }

    pub fn find(&mut self, damage: &mut Damage) -> Result<Option<Found>> {
        let mut follows_gap = std::mem::take(&mut self.is_torn);
        while let Some(skipped) = self.signature(damage)? {
            follows_gap |= skipped > PADDING;
            let at = self.at - SIGNATURE.len() as u64;
            let mut header = [0; HEADER];
            header[..SIGNATURE.len()].copy_from_slice(SIGNATURE);
            let read = self.read(&mut header[SIGNATURE.len()..])?;
            if read < HEADER - SIGNATURE.len() {
                damage.add(TORN, || format!("byte {at}"));
                return Ok(None);
            }
            let size = number(&header, 8) as usize;
            if (HEADER..=LONGEST).contains(&size) {
                return Ok(Some(Found {
                    header,
                    follows_gap,
                    at,
                }));
            }
            damage.add("containers with an impossible size, left out", || {
                format!("byte {at}")
            });
            follows_gap = true;
        }
        Ok(None)
    }

    fn signature(&mut self, damage: &mut Damage) -> Result<Option<u64>> {
        let from = self.at;
        let mut seen = [0; SIGNATURE.len()];
        let mut filled = 0;
        loop {
            let mut byte = [0];
            if self.read(&mut byte)? == 0 {
                break;
            }
            seen.rotate_left(1);
            seen[SIGNATURE.len() - 1] = byte[0];
            filled += 1;
            if filled >= SIGNATURE.len() && seen == *SIGNATURE {
                let skipped = filled - SIGNATURE.len();
                skip(skipped as u64, from, damage);
                return Ok(Some(skipped as u64));
            }
        }
        skip(filled as u64, from, damage);
        Ok(None)
    }

    /// Appends the content of an object to `plain`: the unpacked bytes of a container, or the bytes
    /// of any other object.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn unpack(
        &mut self,
        found: &Found,
        plain: &mut Vec<u8>,
        damage: &mut Damage,
    ) -> Result<()> {
        let place = || format!("byte {}", found.at);
        let size = number(&found.header, 8) as usize - HEADER;
        self.packed.clear();
        let mut part = self.bytes.by_ref().take(size as u64);
        let read = part.read_to_end(&mut self.packed)?;
        self.at += read as u64;
        let is_whole = read == size;
        if !is_whole {
            damage.add(TORN, place);
        }
        let fault = match number(&found.header, 12) {
            CONTAINER => content(&self.packed, &mut self.inflater, plain).err(),
            _ => {
                plain.extend_from_slice(&found.header);
                plain.extend_from_slice(&self.packed);
                None
            }
        };
        if let Some(fault) = fault.filter(|_| is_whole) {
            damage.add(fault, place);
        }
        self.is_torn = fault.is_some() || !is_whole;
        Ok(())
    }

    fn read(&mut self, to: &mut [u8]) -> Result<usize> {
        let mut read = 0;
        while read < to.len() {
            match self.bytes.read(&mut to[read..])? {
                0 => break,
                part => read += part,
            }
        }
        self.at += read as u64;
        Ok(read)
    }
}

const TORN: &str = "containers cut off by the end of the file, read up to the cut";

fn skip(skipped: u64, from: u64, damage: &mut Damage) {
    if skipped > PADDING {
        damage.add("bytes between containers, skipped", || {
            format!("byte {from}")
        });
    }
}

/// Appends the unpacked content of a container to `plain`.
///
/// # Errors
/// Returns a text for the kind of fault. The bytes before the fault are appended.
fn content(
    container: &[u8],
    inflater: &mut Decompress,
    plain: &mut Vec<u8>,
) -> std::result::Result<(), &'static str> {
    let (about, packed) = container
        .split_first_chunk::<ABOUT>()
        .ok_or("containers shorter than their header, left out")?;
    match u16::from_le_bytes([about[0], about[1]]) {
        STORED => plain.extend_from_slice(packed),
        DEFLATED => {
            let expected = number(about, 8) as usize;
            if !inflate(inflater, packed, plain, expected, LONGEST) {
                return Err("damaged containers, read up to the damage");
            }
        }
        _ => return Err("containers with an unknown compression, left out"),
    }
    Ok(())
}
