//! Reads ASC logs of Vector's tools and of those that imitate them: CAN and CAN FD frames, remote
//! and error frames of several channels.

use super::order::Survey;
use super::{text, Bytes};
use crate::item::{Source, SourceError};
use header::Header;

mod frame;
mod header;

/// Returns whether a file that begins with these bytes is an ASC log.
pub fn begins(head: &[u8]) -> bool {
    let mut header = Header::default();
    head.split(|&byte| byte == b'\n')
        .take(16)
        .any(|line| header.take(line.trim_ascii()) && header.is_stated())
}

/// Opens an ASC log. Reads the log twice: in the first pass, `survey` finds how far items are out of
/// order, and the reader finds the channels.
///
/// # Errors
/// Fails if the file cannot be read, or has no frame.
pub fn read<R: Bytes + 'static>(
    name: &str,
    bytes: R,
    survey: &mut Survey,
) -> Result<Box<dyn Source>, SourceError> {
    text::read::<R, Asc>(name, bytes, survey)
}

#[derive(Default)]
struct Asc {
    header: Header,
    last_ns: i64,
    is_sent: bool,
}

impl text::Dialect for Asc {
    fn line(
        &mut self,
        line: &[u8],
        payload: &mut Vec<u8>,
    ) -> Result<Option<(i64, u8)>, &'static str> {
        if self.header.take(line) {
            return Ok(None);
        }
        let Some((since_ns, event)) = frame::event(line) else {
            return match frame::is_remark(line) {
                true => Ok(None),
                false => Err("lines without a time, not replayed"),
            };
        };
        let since_ns = match self.header.is_relative {
            true => self.last_ns.saturating_add(since_ns),
            false => since_ns,
        };
        self.last_ns = since_ns;
        self.is_sent = frame::is_sent(event);
        let channel = frame::encode(event, self.header.base, payload)?;
        let time_ns = self.header.instant_ns(since_ns);
        Ok(channel.map(|channel| (time_ns, channel)))
    }

    fn is_sent(&self) -> bool {
        self.is_sent
    }
}

#[cfg(test)]
mod tests;
