//! Writes text logs as `candump -l` does: `(1436509052.249713) vcan0 044#2A366C2BBA`.

use super::frame::Frame;
use super::{Plan, Writer};
use crate::item::{Details, Stamp};
use std::io::{self, Write};

pub struct Candump<'p, W> {
    plan: &'p Plan,
    out: W,
    line: String,
}

impl<'p, W: Write> Candump<'p, W> {
    pub fn new(plan: &'p Plan, out: W) -> Candump<'p, W> {
        Candump {
            plan,
            out,
            line: String::new(),
        }
    }
}

impl<W: Write> Writer for Candump<'_, W> {
    fn write(&mut self, stamp: Stamp, details: Details, payload: &[u8]) -> io::Result<()> {
        let Some(frame) = Frame::of(payload) else {
            return Ok(());
        };
        let (seconds, us) = (
            stamp.time_ns / 1_000_000_000,
            stamp.time_ns / 1000 % 1_000_000,
        );
        let name = &self.plan.stream(stamp.stream).written_as;
        self.line.clear();
        self.line
            .push_str(&format!("({seconds:010}.{us:06}) {name} "));
        text(&frame, &mut self.line);
        if details.is_sent {
            self.line.push_str(" T");
        }
        self.line.push('\n');
        self.out.write_all(self.line.as_bytes())
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.out.flush()
    }
}

fn text(frame: &Frame, line: &mut String) {
    let id = match (frame.is_error(), frame.is_extended()) {
        (true, _) => format!("{:08X}#", frame.word),
        (false, true) => format!("{:08X}#", frame.id()),
        (false, false) => format!("{:03X}#", frame.id()),
    };
    line.push_str(&id);
    if frame.is_remote() && !frame.is_error() {
        line.push('R');
        if frame.length > 0 {
            line.push_str(&format!("{:X}", frame.length));
        }
    } else if let Some(flags) = frame.fd_flags {
        line.push_str(&format!("#{:X}", flags & 0xf));
    }
    hex(frame.data, "", line);
    if frame.raw_length > 0 {
        line.push_str(&format!("_{:X}", frame.raw_length));
    }
}

/// Appends the bytes in hexadecimal digits to `line`. Puts the text `before` in front of each byte.
pub fn hex(bytes: &[u8], before: &str, line: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in bytes {
        line.push_str(before);
        line.push(char::from(DIGITS[usize::from(byte >> 4)]));
        line.push(char::from(DIGITS[usize::from(byte & 0xf)]));
    }
}
