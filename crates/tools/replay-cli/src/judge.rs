//! Defines the options that decide what is compared, and what counts as a difference.

use onbeat_document::text::xml;
use onbeat_replay::compare::figures::{Compared, Part, ShiftLimit};
use onbeat_replay::compare::junit::junit;
use onbeat_replay::compare::tolerance::{Field, Tolerance};
use onbeat_replay::compare::Rules;
use onbeat_terminal::term::one_line;
use onbeat_terminal::units::parse_duration;
use onbeat_terminal::{files, CliError};
use std::path::PathBuf;
use std::time::Duration;

/// The options of `onbeat replay` that compare outputs with a recording.
#[derive(clap::Args)]
pub struct Live {
    /// Instead of playing these topics, compare the messages that the application publishes on them
    /// with the recording; * stands for any characters
    #[arg(
        id = "compare",
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        help_heading = "Comparing"
    )]
    pub topics: Vec<String>,
    /// Compare with this recording, not with the played one. It can be one that --observed wrote
    #[arg(long, value_name = "FILE", help_heading = "Comparing")]
    pub expect: Option<PathBuf>,
    /// Store the observed messages in this MCAP file. Their times are on the time axis of the
    /// recording
    #[arg(long, value_name = "FILE", help_heading = "Comparing")]
    pub observed: Option<PathBuf>,
    #[command(flatten)]
    pub judge: Judge,
}

/// The options that decide what counts as a difference.
#[derive(clap::Args)]
pub struct Judge {
    /// Allow floating-point fields to deviate by a share of the recorded value (1%), or by a number
    /// in the field's unit (0.05). FIELD=LIMIT and TOPIC:FIELD=LIMIT apply only to the named field,
    /// which may also be an integer or a time (header.stamp=2ms)
    #[arg(
        long,
        value_name = "LIMIT,...",
        value_delimiter = ',',
        help_heading = "Comparing"
    )]
    pub tolerance: Vec<Tolerance>,
    /// Do not compare these fields, for example header.stamp or TOPIC:FIELD; * stands for any
    /// characters
    #[arg(
        long,
        value_name = "FIELD,...",
        value_delimiter = ',',
        help_heading = "Comparing"
    )]
    ignore: Vec<Field>,
    /// Allow messages to come earlier or later than recorded by a limit: TIME or max=TIME for all
    /// messages, p50=TIME for the median, p99=TIME for all but 1 %. Without this option, the shift
    /// is reported but not judged
    #[arg(long, value_name = "TIME,...", value_delimiter = ',', value_parser = parse_shift, help_heading = "Comparing")]
    pub max_shift: Vec<ShiftLimit>,
    /// Judge how much more TOPIC is shifted than ORIGIN, by the difference between their median
    /// shifts. ORIGIN is the compared topic from which the application makes TOPIC
    #[arg(
        long,
        value_name = "TOPIC=ORIGIN,...",
        value_delimiter = ',',
        value_parser = parse_follows,
        help_heading = "Comparing"
    )]
    follows: Vec<(String, String)>,
    /// Longest time between a recorded message and the observed message that matches it
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "2s", help_heading = "Comparing")]
    pub within: Duration,
    /// Write the result as JUnit XML, for build servers
    #[arg(long, value_name = "FILE", help_heading = "Comparing")]
    junit: Option<PathBuf>,
}

fn parse_follows(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((topic, origin)) if !topic.is_empty() && !origin.is_empty() => {
            Ok((topic.into(), origin.into()))
        }
        _ => Err("write TOPIC=ORIGIN, for example /pose=/scan/filtered".into()),
    }
}

fn parse_shift(text: &str) -> Result<ShiftLimit, String> {
    let (part, time) = match text.split_once('=') {
        Some((part, time)) => (part.parse()?, time),
        None => (Part::Max, text),
    };
    Ok(ShiftLimit {
        part,
        most_ns: nanoseconds(parse_duration(time)?),
    })
}

pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Judge {
    pub fn rules(&self) -> Rules {
        Rules {
            tolerances: self.tolerance.clone(),
            ignored: self.ignore.clone(),
            shift: self.max_shift.clone(),
            follows: self.follows.clone(),
            // Half of the reserve of i64 is plenty, and sums of times cannot overflow.
            within_ns: nanoseconds(self.within).min(1 << 60),
        }
    }

    pub fn is_default(&self) -> bool {
        let named = !self.tolerance.is_empty() || !self.ignore.is_empty();
        !named && self.follows.is_empty() && self.max_shift.is_empty() && self.junit.is_none()
    }

    pub fn write_junit(&self, compared: &Compared, name: &str) -> Result<(), CliError> {
        let Some(path) = &self.junit else {
            return Ok(());
        };
        let text = junit(compared, name, &seconds, &|text| xml(&one_line(text)));
        files::write_whole(path, |out| out.write_all(text.as_bytes()))
    }
}

/// Formats `ns`, a recorded time since the begin of the recording, in seconds.
pub fn seconds(ns: i64) -> String {
    format!("{:.3} s", ns as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shift_limits_are_parsed_or_refused() {
        let limit = |text: &str| parse_shift(text).map(|l| (l.part, l.most_ns));
        assert_eq!(limit("5ms"), Ok((Part::Max, 5_000_000)));
        assert_eq!(limit("p50=500us"), Ok((Part::P50, 500_000)));
        for wrong in ["", "p50", "p75=1ms", "p50=x"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }
}
