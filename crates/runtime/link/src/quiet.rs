//! Writes to sockets and pipes without SIGPIPE. Rust's own programs ignore that signal. A program
//! in C that uses a link keeps the default, and would be killed when a peer ends.

use nix::libc::MSG_NOSIGNAL;
use socket2::SockRef;
use std::io::{IoSlice, PipeReader, PipeWriter, Result, Write};
use std::net::TcpStream;

pub(crate) struct Waking {
    writer: PipeWriter,
    /// The reading end of the pipe. It stays open, because a write to a pipe without readers raises
    /// SIGPIPE.
    _reader: PipeReader,
}

impl Waking {
    pub(crate) fn new() -> Result<(PipeReader, Waking)> {
        let (reader, writer) = std::io::pipe()?;
        let _reader = reader.try_clone()?;
        Ok((reader, Waking { writer, _reader }))
    }

    pub(crate) fn try_clone(&self) -> Result<Waking> {
        Ok(Waking {
            writer: self.writer.try_clone()?,
            _reader: self._reader.try_clone()?,
        })
    }

    pub(crate) fn ring(&self) {
        let _ = (&self.writer).write(&[0]);
    }
}

/// A TCP stream whose vectored writes raise no SIGPIPE. The vectored writes of the standard library
/// raise it.
pub(crate) struct Quiet<'s>(pub(crate) &'s TcpStream);

impl Write for Quiet<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> Result<usize> {
        SockRef::from(self.0).send_vectored_with_flags(parts, MSG_NOSIGNAL)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
