//! Writing without SIGPIPE. Rust's own programs ignore that signal; a program in C that uses a link
//! keeps its default, by which the end of a peer would end the program.

use nix::libc::MSG_NOSIGNAL;
use socket2::SockRef;
use std::io::{IoSlice, PipeReader, PipeWriter, Result, Write};
use std::net::TcpStream;

/// Wakes a thread that polls the other end of a pipe.
pub(crate) struct Waking {
    writer: PipeWriter,
    /// A pipe that somebody could still read raises no signal.
    _reader: PipeReader,
}

impl Waking {
    /// It, and what is polled.
    pub(crate) fn new() -> Result<(PipeReader, Waking)> {
        let (reader, writer) = std::io::pipe()?;
        let _reader = reader.try_clone()?;
        Ok((reader, Waking { writer, _reader }))
    }

    /// Another one for the same thread.
    pub(crate) fn try_clone(&self) -> Result<Waking> {
        Ok(Waking {
            writer: self.writer.try_clone()?,
            _reader: self._reader.try_clone()?,
        })
    }

    /// Wakes the thread.
    pub(crate) fn ring(&self) {
        let _ = (&self.writer).write(&[0]);
    }
}

/// A stream for vectored writes: the standard library's raise the signal.
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
