//! Writes frames into a stream and reads them from it, in clear or sealed.
//!
//! A sealed stream is cut into records: two bytes of length, then Noise's ciphertext. Each
//! direction of each connection has its own key, and records are numbered. So a record that is
//! lost, doubled, moved or changed breaks the connection.

use snow::StatelessTransportState;
use std::io::{Error, ErrorKind, IoSlice, Read, Result, Write};

/// The largest ciphertext of a record, in bytes: the limit of the Noise protocol.
const RECORD_BYTES: usize = 65535;
const TAG_BYTES: usize = 16;

pub struct FrameWriter<'c, W> {
    stream: W,
    keys: Option<&'c StatelessTransportState>,
    records: u64,
    plain: Vec<u8>,
    sealed: Vec<u8>,
}

impl<'c, W: Write> FrameWriter<'c, W> {
    pub fn new(stream: W, keys: Option<&'c StatelessTransportState>) -> FrameWriter<'c, W> {
        let room = if keys.is_some() { RECORD_BYTES + 2 } else { 0 };
        FrameWriter {
            stream,
            keys,
            records: 0,
            plain: Vec::with_capacity(room),
            sealed: vec![0; room],
        }
    }

    pub fn stream(&mut self) -> &mut W {
        &mut self.stream
    }

    pub fn write(&mut self, head: &[u8], body: &[u8]) -> Result<()> {
        if self.keys.is_none() {
            return self.write_clear(head, body);
        }
        for mut part in [head, body] {
            while !part.is_empty() {
                let room = RECORD_BYTES - TAG_BYTES - self.plain.len();
                let (now, rest) = part.split_at(part.len().min(room));
                self.plain.extend_from_slice(now);
                part = rest;
                if now.len() == room {
                    self.seal()?;
                }
            }
        }
        self.seal()
    }

    fn write_clear(&mut self, mut head: &[u8], mut body: &[u8]) -> Result<()> {
        while !head.is_empty() || !body.is_empty() {
            let parts = [IoSlice::new(head), IoSlice::new(body)];
            let written = match self.stream.write_vectored(&parts) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                other => other?,
            };
            let of_head = written.min(head.len());
            head = &head[of_head..];
            body = &body[written - of_head..];
        }
        Ok(())
    }

    fn seal(&mut self) -> Result<()> {
        let Some(keys) = self.keys.filter(|_| !self.plain.is_empty()) else {
            return Ok(());
        };
        let sealed = keys.write_message(self.records, &self.plain, &mut self.sealed[2..]);
        let length = sealed.map_err(Error::other)?;
        self.sealed[..2].copy_from_slice(&(length as u16).to_le_bytes());
        self.records += 1;
        self.plain.clear();
        self.stream.write_all(&self.sealed[..length + 2])
    }
}

pub struct FrameReader<'c, R> {
    stream: R,
    keys: Option<&'c StatelessTransportState>,
    records: u64,
    sealed: Vec<u8>,
    plain: Vec<u8>,
    unread: std::ops::Range<usize>,
}

impl<'c, R: Read> FrameReader<'c, R> {
    pub fn new(stream: R, keys: Option<&'c StatelessTransportState>) -> FrameReader<'c, R> {
        let room = if keys.is_some() { RECORD_BYTES } else { 0 };
        FrameReader {
            stream,
            keys,
            records: 0,
            sealed: vec![0; room],
            plain: vec![0; room],
            unread: 0..0,
        }
    }

    fn open(&mut self, keys: &StatelessTransportState) -> Result<()> {
        let mut length = [0; 2];
        self.stream.read_exact(&mut length)?;
        let sealed = &mut self.sealed[..usize::from(u16::from_le_bytes(length))];
        self.stream.read_exact(sealed)?;
        let opened = keys.read_message(self.records, sealed, &mut self.plain);
        let length = opened.map_err(|_| Error::new(ErrorKind::InvalidData, "a forged record"))?;
        self.records += 1;
        self.unread = 0..length;
        Ok(())
    }
}

impl<R: Read> Read for FrameReader<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        let Some(keys) = self.keys else {
            return self.stream.read(into);
        };
        // Empty records do not occur: the writer seals none.
        if self.unread.is_empty() && !into.is_empty() {
            self.open(keys)?;
        }
        let length = into.len().min(self.unread.len());
        let begin = self.unread.start;
        into[..length].copy_from_slice(&self.plain[begin..begin + length]);
        self.unread.start += length;
        Ok(length)
    }
}
