//! Parses the comments of a TRC log that say how its lines are read: version, columns, beginning.

use crate::source::calendar::{days, digits, fraction, time_of_day};
use crate::source::text::words;

const DAY_NS: i128 = 86_400_000_000_000;
/// The number of days from 1899-12-30 to 1970-01-01. `$STARTTIME` counts days from 1899-12-30.
const DAYS_TO_1970: i64 = 25_569;

/// The columns of versions before 2.0, whose logs do not state their columns. The letters are those
/// of `$COLUMNS`.
const FIRST: &[u8] = b"NOILD";
const WITH_TYPE: &[u8] = b"NOTILD";
const WITH_BUS: &[u8] = b"NOBTILD";
const WITH_RESERVED: &[u8] = b"NOBTIRLD";

#[derive(Debug, Default)]
pub struct Header {
    columns: Option<Vec<u8>>,
    start_ns: Option<i64>,
    /// The instant of the comment `Start time:`, in ns since 1970. It is used if the log has no
    /// valid `$STARTTIME`.
    comment_ns: Option<i64>,
    has_version: bool,
    has_comment: bool,
}

impl Header {
    pub fn take(&mut self, line: &[u8]) -> bool {
        let Some(comment) = line.strip_prefix(b";") else {
            return line.is_empty();
        };
        self.has_comment = true;
        let value = |key: &[u8]| comment.strip_prefix(key).map(<[u8]>::trim_ascii);
        if let Some(version) = value(b"$FILEVERSION=") {
            self.has_version = true;
            self.columns = match version {
                b"1.1" => Some(WITH_TYPE.to_vec()),
                b"1.2" => Some(WITH_BUS.to_vec()),
                b"1.3" => Some(WITH_RESERVED.to_vec()),
                _ => self.columns.take(),
            };
        } else if let Some(columns) = value(b"$COLUMNS=") {
            let letters = columns.split(|&byte| byte == b',');
            let letters = letters.filter_map(|column| column.trim_ascii().first());
            self.columns = Some(letters.copied().collect());
        } else if let Some(start) = value(b"$STARTTIME=") {
            self.start_ns = self.start_ns.or(start_time(start));
        } else if let Some(time) = comment.trim_ascii().strip_prefix(b"Start time:") {
            self.comment_ns = self.comment_ns.or(instant(time));
        }
        true
    }

    pub fn has_version(&self) -> bool {
        self.has_version
    }

    pub fn has_comment(&self) -> bool {
        self.has_comment
    }

    pub fn columns(&self) -> &[u8] {
        self.columns.as_deref().unwrap_or(FIRST)
    }

    /// Returns the instant to which the times of the log are relative, in ns since 1970, or 0 if
    /// the log does not state it. Logs have no time zone, so the instant counts as UTC.
    pub fn begin_ns(&self) -> i64 {
        self.start_ns.or(self.comment_ns).unwrap_or(0)
    }
}

/// Parses a number of days since 1899-12-30, for example `43008.920986006946`. Returns ns since
/// 1970.
fn start_time(text: &[u8]) -> Option<i64> {
    let point = memchr::memchr(b'.', text).unwrap_or(text.len());
    let days = digits(&text[..point])?.checked_sub(DAYS_TO_1970)?;
    let part = text.get(point + 1..).unwrap_or_default();
    let part = &part[..part.len().min(18)];
    let part_ns = match part {
        [] => 0,
        part => i128::from(digits(part)?) * DAY_NS / 10i128.pow(part.len() as u32),
    };
    let ns = i128::from(days) * DAY_NS + part_ns;
    i64::try_from(ns).ok().filter(|&ns| ns >= 0)
}

/// Parses a date such as `18.12.2021 14:28:07.062.1`, `12/18/2021 2:28:07.062.1 PM` or `2021-12-18
/// 14:28:07.062`. The digits after the second point are a decimal fraction of a millisecond.
/// Returns ns since 1970.
fn instant(text: &[u8]) -> Option<i64> {
    let mut fields = words(text);
    let (date, time, half) = (fields.next()?, fields.next()?, fields.next());
    let order: fn([i64; 3]) -> [i64; 3] = match date {
        date if date.contains(&b'.') => |[day, month, year]| [year, month, day],
        date if date.contains(&b'/') => |[month, day, year]| [year, month, day],
        _ => |ordered| ordered,
    };
    let mut parts = date.split(|byte| b"./-".contains(byte)).map(digits);
    let [year, month, day] = order([parts.next()??, parts.next()??, parts.next()??]);
    let point = memchr::memchr(b'.', time).unwrap_or(time.len());
    let mut seconds = time_of_day(&time[..point])?;
    let is = |text: &[u8]| half.is_some_and(|half| half.eq_ignore_ascii_case(text));
    if is(b"am") || is(b"pm") {
        seconds = seconds % 43_200 + if is(b"pm") { 43_200 } else { 0 };
    }
    let part = time[point..].iter().filter(|&&byte| byte != b'.');
    let part: Vec<u8> = part.copied().collect();
    let part_ns = match &part[..] {
        [] => 0,
        part => fraction(part)?,
    };
    (days(year, month, day)? * 86_400 + seconds)
        .checked_mul(1_000_000_000)?
        .checked_add(part_ns)
}
