//! Instants of a recording: as the time since its start, and as the time of day.

use onbeat_terminal::units::parse_duration;
use onbeat_terminal::CliError;
use onbeat_trace::Reader;

const DAY_NS: u64 = 86_400_000_000_000;

/// The start of a recording on CLOCK_MONOTONIC and on CLOCK_REALTIME, in ns.
pub struct Clock {
    monotonic_ns: u64,
    realtime_ns: u64,
}

impl Clock {
    /// Returns the clock of a recording. If the manifest does not contain the recording's start,
    /// the first event counts as the start.
    pub fn of(reader: &mut Reader) -> Clock {
        let span = reader.manifest().span.clone();
        let first = reader.events().next().map_or(0, |e| e.time_ns);
        match span.start_monotonic_ns {
            0 => Clock {
                monotonic_ns: first,
                realtime_ns: span.start_realtime_ns,
            },
            start => Clock {
                monotonic_ns: start,
                realtime_ns: span.start_realtime_ns,
            },
        }
    }

    pub fn start(&self) -> (u64, u64) {
        (self.monotonic_ns, self.realtime_ns)
    }

    pub fn since_start(&self, monotonic_ns: u64) -> u64 {
        monotonic_ns.saturating_sub(self.monotonic_ns)
    }

    pub fn text(&self, monotonic_ns: u64) -> String {
        let since = self.since_start(monotonic_ns);
        let of_day = self.realtime_ns.wrapping_add(since) % DAY_NS / 1_000_000;
        let (s, ms) = (of_day / 1000, of_day % 1000);
        format!(
            "{:.3} s ({:02}:{:02}:{:02}.{ms:03} UTC)",
            since as f64 / 1e9,
            s / 3600,
            s / 60 % 60,
            s % 60
        )
    }

    /// Parses a time since the start of the recording (`12.5s`), or a time of day in UTC
    /// (`14:03:07`). Returns this time in ns of CLOCK_MONOTONIC. A time of day before the
    /// recording's start belongs to the next day.
    pub fn parse(&self, text: &str) -> Result<u64, CliError> {
        let fault = |what: &str| {
            let text = onbeat_terminal::term::fit(text, 40);
            CliError::Usage(format!(
                "--at '{text}': {what}. Write the time since the recording's start, like 12.5s, or a time of day in UTC, like 14:03:07"
            ))
        };
        let since = if text.contains(':') {
            let of_day = of_day(text).ok_or_else(|| fault("not a time of day"))?;
            (of_day + DAY_NS - self.realtime_ns % DAY_NS) % DAY_NS
        } else {
            let since = parse_duration(text).map_err(|why| fault(&why))?;
            u64::try_from(since.as_nanos()).map_err(|_| fault("out of range"))?
        };
        Ok(self.monotonic_ns.saturating_add(since))
    }
}

fn of_day(text: &str) -> Option<u64> {
    let mut parts = text.split(':');
    let mut whole = |limit: u64| -> Option<u64> {
        let part = parts.next()?;
        let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        part.parse().ok().filter(|n| digits && *n < limit)
    };
    let (hours, minutes) = (whole(24)?, whole(60)?);
    let seconds: f64 = match parts.next() {
        None => 0.0,
        Some(part) if part.bytes().all(|b| b.is_ascii_digit() || b == b'.') => part.parse().ok()?,
        Some(_) => return None,
    };
    if parts.next().is_some() || !(0.0..60.0).contains(&seconds) {
        return None;
    }
    Some((hours * 3600 + minutes * 60) * 1_000_000_000 + (seconds * 1e9).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000_000_000;

    #[test]
    fn times_of_day_and_times_since_the_start_are_parsed_and_shown() {
        let clock = Clock {
            monotonic_ns: 1_000,
            realtime_ns: 20_000 * DAY_NS + 23 * HOUR,
        };
        let at = |text: &str| clock.parse(text).unwrap();
        assert_eq!(at("12.5s"), 1_000 + 12_500_000_000);
        assert_eq!(at("23:00:07.25"), 1_000 + 7_250_000_000);
        assert_eq!(at("23:01"), 1_000 + 60_000_000_000);
        // The recording goes on after midnight.
        assert_eq!(at("0:30:00"), 1_000 + HOUR * 3 / 2);
        assert_eq!(clock.text(at("0:30:00")), "5400.000 s (00:30:00.000 UTC)");
        assert_eq!(clock.text(at("12.5s")), "12.500 s (23:00:12.500 UTC)");
        for wrong in [
            "", "soon", "14", ":", "14:60", "24:00", "14:03:60", "1:2:3:4", "14:+3", "1:2:-3",
        ] {
            let is_number = wrong == "14";
            assert_eq!(clock.parse(wrong).is_ok(), is_number, "{wrong}");
        }
    }
}
