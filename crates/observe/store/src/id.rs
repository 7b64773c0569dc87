//! Names contents by the SHA-256 of their bytes.

use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};
use std::fmt;
use std::io::{self, Read};

/// The id of an object in a store: the SHA-256 of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub(crate) [u8; 32]);

impl Id {
    /// Computes the id of an object with these bytes.
    pub fn of(bytes: &[u8]) -> Id {
        Id(Sha256::digest(bytes).into())
    }

    pub(crate) fn of_reader(from: &mut dyn Read) -> io::Result<(Id, u64)> {
        let mut hashing = Hashing::new(io::sink());
        let bytes = io::copy(from, &mut hashing)?;
        Ok((hashing.id(), bytes))
    }

    /// Parses 64 hexadecimal digits in lower case. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Id> {
        let digits = text.as_bytes();
        let lower = |d: &u8| d.is_ascii_digit() || (b'a'..=b'f').contains(d);
        if digits.len() != 64 || !digits.iter().all(lower) {
            return None;
        }
        let mut id = [0; 32];
        for (byte, pair) in id.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Id(id))
    }

    /// Returns the first twelve hexadecimal digits of the id, for tables.
    pub fn short(&self) -> String {
        self.to_string()[..12].to_string()
    }

    /// Returns the path of the object in the store: `PLACE/ab/ab12...`.
    pub(crate) fn key(&self, place: &str) -> String {
        let name = self.to_string();
        format!("{place}/{}/{name}", &name[..2])
    }
}

impl fmt::Display for Id {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(out, "{b:02x}"))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

pub(crate) struct Hashing<T> {
    inner: T,
    digest: Sha256,
}

impl<T> Hashing<T> {
    pub(crate) fn new(inner: T) -> Hashing<T> {
        Hashing {
            inner,
            digest: Sha256::new(),
        }
    }

    pub(crate) fn id(self) -> Id {
        Id(self.digest.finalize().into())
    }
}

impl<T: Read> Read for Hashing<T> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.digest.update(&into[..read]);
        Ok(read)
    }
}

impl<T: io::Write> io::Write for Hashing<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.digest.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_64_lower_case_hex_digits_are_parsed_as_an_id() {
        let id = Id::of(b"a");
        assert_eq!(Id::parse(&id.to_string()), Some(id));
        let upper = id.to_string().to_uppercase();
        for wrong in ["", "ab", "../../etc/passwd", &upper, &"é".repeat(32)] {
            assert_eq!(Id::parse(wrong), None, "{wrong}");
        }
    }
}
