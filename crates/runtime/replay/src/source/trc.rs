//! Reads TRC logs of PEAK's tools, versions 1.0 to 2.1: CAN and CAN FD frames, remote and error
//! frames.

use super::order::Survey;
use super::{text, Bytes};
use crate::item::{Source, SourceError};
use header::Header;

mod frame;
mod header;

/// Returns whether a file that begins with these bytes is a TRC log.
pub fn begins(head: &[u8]) -> bool {
    let mut header = Header::default();
    let mut lines = head.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    // Version 1.0 does not state its version: its header is a comment, and a line has a special form.
    let first = lines.find(|line| !header.take(line) || header.has_version());
    match first {
        Some(_) if header.has_version() => true,
        Some(line) => header.has_comment() && frame::is_first_version(line),
        None => false,
    }
}

/// Opens a TRC log. Reads the log twice: in the first pass, `survey` finds how far items are out of
/// order, and the reader finds the channels.
///
/// # Errors
/// Fails if the file cannot be read, or has no frame.
pub fn read<R: Bytes + 'static>(
    name: &str,
    bytes: R,
    survey: &mut Survey,
) -> Result<Box<dyn Source>, SourceError> {
    text::read::<R, Trc>(name, bytes, survey)
}

#[derive(Default)]
struct Trc {
    header: Header,
    is_sent: bool,
}

impl text::Dialect for Trc {
    fn line(
        &mut self,
        line: &[u8],
        payload: &mut Vec<u8>,
    ) -> Result<Option<(i64, u8)>, &'static str> {
        if self.header.take(line) {
            return Ok(None);
        }
        self.is_sent = frame::is_sent(line, self.header.columns());
        let found = frame::encode(line, self.header.columns(), payload)?;
        let begin_ns = self.header.begin_ns();
        Ok(found.map(|(since_ns, channel)| (begin_ns.saturating_add(since_ns), channel)))
    }

    fn is_sent(&self) -> bool {
        self.is_sent
    }
}

#[cfg(test)]
mod tests;
