//! Parses the lines of an ASC log that say how the others are read: date, base of numbers, times.

use crate::source::calendar::{days, digits, fraction, time_of_day};
use crate::source::text::words;

const SECOND_NS: i64 = 1_000_000_000;
const DAY_NS: i64 = 86_400 * SECOND_NS;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Base {
    #[default]
    Hex,
    Dec,
}

#[derive(Debug, Default)]
pub struct Header {
    pub base: Base,
    /// True if the time in each line is relative to the previous line.
    pub is_relative: bool,
    date_ns: Option<i64>,
    /// The instant of the first trigger block, in ns since 1970. It is used if the log has no date.
    trigger_ns: Option<i64>,
    is_asc: bool,
    /// True if the header is written as BUSMASTER writes it: `base hex  no internal events logged`
    /// in one line.
    is_of_busmaster: bool,
    /// True if the times count from midnight. `None` before the first event.
    is_from_midnight: Option<bool>,
    midnights: Midnights,
}

/// Counts the midnights that a log passes whose times count from midnight.
#[derive(Debug, Default)]
struct Midnights {
    days: i64,
    /// The latest time since the midnight before the first event, in ns.
    latest_ns: i64,
    /// After a midnight: the latest time before it, and the number of events since. A wrong time can
    /// look like a midnight, and the next events show that it was none.
    before: Option<(i64, u32)>,
}

impl Midnights {
    /// Converts a time since the latest midnight to a time since the midnight before the first
    /// event, both in ns.
    fn pass(&mut self, since_ns: i64) -> i64 {
        /// A time that is earlier by more than this is on the next day. It is longer than the step
        /// at the end of summer time.
        const STEP_NS: i64 = 2 * 3600 * SECOND_NS;
        /// A frame from before midnight may follow a frame from after midnight within this time.
        const LATE_NS: i64 = 60 * SECOND_NS;
        /// An event that follows a supposed midnight by more than this, and fits to the time before it,
        /// shows that there was no midnight.
        const AWAY_NS: i64 = 3600 * SECOND_NS;
        /// The number of events that can show it.
        const EVENTS: u32 = 8;
        // No time since midnight, but a wrong one.
        if !(0..DAY_NS).contains(&since_ns) {
            return since_ns;
        }
        let today_ns = self.days.saturating_mul(DAY_NS).saturating_add(since_ns);
        let yesterday_ns = today_ns - DAY_NS;
        if let Some((latest_ns, events)) = self.before {
            let fits = (latest_ns - LATE_NS..latest_ns + AWAY_NS).contains(&yesterday_ns);
            if fits && today_ns > self.latest_ns + AWAY_NS {
                self.days -= 1;
                self.latest_ns = latest_ns.max(yesterday_ns);
                self.before = None;
                return yesterday_ns;
            }
            self.before = Some((latest_ns, events + 1)).filter(|before| before.1 < EVENTS);
        }
        let time_ns = if today_ns < self.latest_ns - STEP_NS {
            self.before = Some((self.latest_ns, 0));
            self.days += 1;
            today_ns.saturating_add(DAY_NS)
        } else if self.days > 0 && yesterday_ns >= self.latest_ns - LATE_NS {
            yesterday_ns
        } else {
            today_ns
        };
        self.latest_ns = self.latest_ns.max(time_ns);
        time_ns
    }
}

impl Header {
    pub fn take(&mut self, line: &[u8]) -> bool {
        let mut words = words(line);
        let (first, second) = (words.next().unwrap_or_default(), words.next());
        let is = |word: &[u8], text: &str| word.eq_ignore_ascii_case(text.as_bytes());
        match second {
            Some(second) if is(first, "base") => {
                self.base = match second {
                    second if is(second, "dec") => Base::Dec,
                    _ => Base::Hex,
                };
                let third = words.next().unwrap_or_default();
                self.is_of_busmaster = is(third, "no");
                self.is_relative = is(third, "relative") || words.any(|word| is(word, "relative"));
                self.is_asc = true;
            }
            Some(_) if is(first, "date") => {
                self.date_ns = self.date_ns.or(instant(&line[4..]));
            }
            Some(second) if is(first, "begin") && is(second, "triggerblock") => {
                let rest = words.next().map_or(&line[..0], |day| rest_from(line, day));
                self.trigger_ns = self.trigger_ns.or(instant(rest));
                self.is_asc = true;
            }
            Some(second) if is(first, "end") && is(second, "triggerblock") => {}
            Some(second) if is(first, "internal") && is(second, "events") => self.is_asc = true,
            Some(second) if is(first, "no") && is(second, "internal") => self.is_asc = true,
            _ => return first.starts_with(b"//"),
        }
        true
    }

    pub fn is_stated(&self) -> bool {
        self.is_asc
    }

    /// Converts the time of the event that is read now to ns since 1970. If the log does not state
    /// when it began, returns the time as it is.
    ///
    /// BUSMASTER writes times since midnight, or times since the begin of the log. The first event
    /// decides, because it comes soon after the header was written.
    pub fn instant_ns(&mut self, since_ns: i64) -> i64 {
        let begin_ns = self.date_ns.or(self.trigger_ns).unwrap_or(0);
        let since_midnight_ns = begin_ns.rem_euclid(DAY_NS);
        // The first event is nearer to the header than to midnight.
        let soon = since_midnight_ns - SECOND_NS..2 * since_midnight_ns;
        let is_from_midnight = *self
            .is_from_midnight
            .get_or_insert(self.is_of_busmaster && soon.contains(&since_ns));
        match is_from_midnight {
            true => (begin_ns - since_midnight_ns).saturating_add(self.midnights.pass(since_ns)),
            false => begin_ns.saturating_add(since_ns),
        }
    }
}

pub fn rest_from<'l>(line: &'l [u8], word: &[u8]) -> &'l [u8] {
    let at = word.as_ptr() as usize - line.as_ptr() as usize;
    line.get(at..).unwrap_or_default()
}

/// Parses a date like `Thu Apr 20 10:44:38.250 pm 2017`. The names may be English or German, the
/// hours 12 or 24, and the fraction may be missing. Returns ns since 1970 in UTC, because logs have
/// no time zone.
fn instant(text: &[u8]) -> Option<i64> {
    let mut fields = words(text).skip(1);
    let (month, day, time) = (
        month(fields.next()?)?,
        digits(fields.next()?)?,
        fields.next()?,
    );
    let mut next = fields.next()?;
    let half = match next {
        half if half.eq_ignore_ascii_case(b"am") => Some(0),
        half if half.eq_ignore_ascii_case(b"pm") => Some(12),
        _ => None,
    };
    if half.is_some() {
        next = fields.next()?;
    }
    let point = memchr::memchr(b'.', time);
    let whole = time_of_day(&time[..point.unwrap_or(time.len())])?;
    let part = point.map_or(Some(0), |point| fraction(&time[point + 1..]))?;
    let seconds = match half {
        Some(half) => whole % 43_200 + half * 3600,
        None => whole,
    };
    let date = days(digits(next)?, month, day)?;
    (date * 86_400 + seconds)
        .checked_mul(SECOND_NS)?
        .checked_add(part)
}

fn month(name: &[u8]) -> Option<i64> {
    const NAMES: [&str; 12] = [
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ];
    let name = String::from_utf8_lossy(name).to_lowercase();
    let english = match name.get(..3).unwrap_or(&name) {
        "mai" => "may",
        "okt" => "oct",
        "dez" => "dec",
        _ if name.starts_with('m') && name.ends_with('r') => "mar",
        other => other,
    };
    let at = NAMES.iter().position(|known| *known == english)?;
    Some(at as i64 + 1)
}
