//! Writes ASC logs, the text format of Vector's tools.

use super::candump::hex;
use super::frame::{Frame, BRS, ESI};
use super::{Plan, Writer};
use crate::item::{Details, Stamp};
use crate::source::calendar::{self, Date};
use std::io::{self, Write};

const EDL: u32 = 1 << 12;

pub struct Asc<'p, W> {
    plan: &'p Plan,
    out: W,
    begin_ns: i64,
    line: String,
}

impl<'p, W: Write> Asc<'p, W> {
    pub fn new(plan: &'p Plan, mut out: W) -> io::Result<Asc<'p, W>> {
        let first_ns = plan.first_ns.unwrap_or(0);
        let begin_ns = first_ns - first_ns % 1_000_000;
        let date = instant(begin_ns);
        write!(
            out,
            "date {date}\nbase hex  timestamps absolute\ninternal events logged\n\
             Begin Triggerblock {date}\n   0.000000 Start of measurement\n"
        )?;
        Ok(Asc {
            plan,
            out,
            begin_ns,
            line: String::new(),
        })
    }
}

/// Formats an instant as `Thu Apr 20 10:44:38.250 pm 2017`.
fn instant(ns: i64) -> String {
    let Date {
        year,
        month,
        day,
        weekday,
    } = calendar::civil(ns.div_euclid(86_400_000_000_000));
    let ms = ns.rem_euclid(86_400_000_000_000) / 1_000_000;
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    let half = if hour < 12 { "am" } else { "pm" };
    let hour = (hour + 11) % 12 + 1;
    let weekday = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"][weekday as usize];
    let month = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ][month as usize - 1];
    format!(
        "{weekday} {month} {day:02} {hour:02}:{minute:02}:{second:02}.{:03} {half} {year}",
        ms % 1000
    )
}

impl<W: Write> Writer for Asc<'_, W> {
    fn write(&mut self, stamp: Stamp, details: Details, payload: &[u8]) -> io::Result<()> {
        let Some(frame) = Frame::of(payload) else {
            return Ok(());
        };
        let us = (stamp.time_ns - self.begin_ns) / 1000;
        let channel = &self.plan.stream(stamp.stream).written_as;
        let time = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
        self.line.clear();
        self.line.push_str(&format!("{time:>11} "));
        event(&frame, channel, details.is_sent, &mut self.line);
        self.line.push('\n');
        self.out.write_all(self.line.as_bytes())
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.out.write_all(b"End TriggerBlock\n")?;
        self.out.flush()
    }
}

fn event(frame: &Frame, channel: &str, is_sent: bool, line: &mut String) {
    if frame.is_error() {
        line.push_str(&format!("{channel}  ErrorFrame"));
        return;
    }
    let extended = if frame.is_extended() { "x" } else { "" };
    let id = format!("{:X}{extended}", frame.id());
    let direction = if is_sent { "Tx" } else { "Rx" };
    let Some(flags) = frame.fd_flags else {
        let kind = if frame.is_remote() { 'r' } else { 'd' };
        let code = match frame.is_remote() {
            true => frame.length,
            false => frame.code(),
        };
        line.push_str(&format!(
            "{channel}  {id:<15} {direction:<4} {kind} {code:x}"
        ));
        hex(frame.data, " ", line);
        return;
    };
    let (brs, esi) = (u32::from(flags & BRS), u32::from(flags & ESI) >> 1);
    let (code, length) = (frame.code(), frame.length);
    // The name of the frame is empty. After the data come the duration, the number of bits, the flags, the
    // checksum and the settings of the bit rates. Only the flags are known.
    line.push_str(&format!(
        "CANFD {channel:>3} {direction:<4} {id:>8}  {:>32} {brs} {esi} {code:x} {length:>2}",
        ""
    ));
    hex(frame.data, " ", line);
    let flags = EDL | brs << 13 | esi << 14;
    line.push_str(&format!(
        " {:>8} {:>4} {flags:>8X} {:>8} {:>8} {:>8} {:>8} {:>8}",
        0, 0, 0, 0, 0, 0, 0
    ));
}
