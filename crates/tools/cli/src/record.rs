//! `onbeat record`: the words of the command line, handed to the recorder.

use crate::error::CliError;
use crate::Outcome;
use onbeat_record::libraries::PlacementPolicy;
use onbeat_record::recorder::DEFAULT_BUFFER_BYTES;
use onbeat_record::{Progress, RecordError, RecordOptions, Target};
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Record a running ROS 2 system into a trace directory, without touching it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo onbeat record                          everything that runs, until Ctrl-C
  sudo onbeat record -o urban1 --mode urban --duration 60s
  sudo onbeat record -o trace -- ros2 launch my_robot all.launch.py
  sudo onbeat record --pid 4711 --pid 4712
  sudo onbeat record --keep 10 --segment 64M  flight recorder: the last 640 MB

Under sudo, COMMAND runs as the user who called sudo.

Exit codes: 0 recorded; 1 failed; 2 wrong command line; 3 recorded, but no ROS 2 process was seen;
4 this kernel or user may not record. With COMMAND: its own code where that is not 0.")]
pub struct Args {
    /// Directory to write [default: trace-DATE-TIME]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Mode of operation that this run shows (urban, highway ...)
    #[arg(long, value_name = "NAME")]
    pub mode: Option<String>,
    /// Stop after this time: 500ms, 60s, 10min, 2h
    #[arg(long, value_name = "T", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Observe only these processes (and what they start)
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pub pid: Vec<u32>,
    /// Size of the ring buffer between kernel and recorder
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value_t = DEFAULT_BUFFER_BYTES.into(), hide_default_value = true)]
    pub buffer: u64,
    /// Begin a new segment file at this size
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub segment: Option<u64>,
    /// Keep only the newest N segments (a flight recorder)
    #[arg(long, value_name = "N")]
    pub keep: Option<usize>,
    /// Where probes sit in a function
    #[arg(long, value_name = "WHERE", value_parser = ["cheapest", "entry"], default_value = "cheapest", hide = true)]
    pub placement: String,
    /// Start this command and record it from its first instruction until it ends
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// `500ms`, `60s`, `1.5min`, `2h`, or seconds without a unit.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let at = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let factor = match &text[at..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        unit => {
            return Err(format!(
                "unknown unit '{unit}': write 500ms, 60s, 10min or 2h"
            ))
        }
    };
    let number: f64 = text[..at]
        .parse()
        .map_err(|_| String::from("write a number with a unit, like 60s"))?;
    Duration::try_from_secs_f64(number * factor).map_err(|_| String::from("out of range"))
}

/// `4096`, `64K`, `16M`, `1G` (powers of 1024).
fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" | "k" | "KiB" => 10,
        "M" | "m" | "MiB" => 20,
        "G" | "g" | "GiB" => 30,
        unit => return Err(format!("unknown unit '{unit}': write 64K, 16M or 1G")),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| String::from("write a whole number with a unit, like 16M"))?;
    number
        .checked_mul(1 << shift)
        .filter(|&n| n > 0)
        .ok_or_else(|| String::from("out of range"))
}

/// `trace-20260131-140501`, in local time of no zone: UTC.
fn default_output() -> PathBuf {
    let seconds = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    let (year, month, day) = civil(seconds / 86_400);
    let s = seconds % 86_400;
    PathBuf::from(format!(
        "trace-{year:04}{month:02}{day:02}-{:02}{:02}{:02}",
        s / 3600,
        s / 60 % 60,
        s % 60
    ))
}

/// Date of a day counted from 1970 (proleptic Gregorian calendar, in eras of 400 years).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// The one line that stands while it records.
fn line(p: &Progress) -> String {
    let s = p.elapsed.as_secs();
    format!(
        "{:02}:{:02}:{:02}  {} processes  {} nodes  {} callbacks  {:.0} events/s  {:.2} MB  {} lost",
        s / 3600,
        s / 60 % 60,
        s % 60,
        p.processes,
        p.nodes,
        p.callbacks,
        p.events_per_s,
        p.bytes as f64 / 1e6,
        p.lost
    )
}

/// Runs it.
pub fn run(args: Args) -> Result<Outcome, CliError> {
    let output = args.output.unwrap_or_else(default_output);
    let mut options = RecordOptions {
        output: output.clone(),
        mode: args.mode.unwrap_or_default(),
        duration: args.duration,
        target: Target::new(args.command, false, args.pid),
        buffer_bytes: u32::try_from(args.buffer).unwrap_or(u32::MAX),
        max_segments: args.keep,
        placement: if args.placement == "entry" {
            PlacementPolicy::Entry
        } else {
            PlacementPolicy::Cheapest
        },
        ..RecordOptions::default()
    };
    if let Some(bytes) = args.segment {
        options.segment_bytes = bytes;
    }
    let terminal = io::stderr().is_terminal();
    let mut reports = 0u32;
    let summary = onbeat_record::record(&options, |progress| {
        // A terminal's line is rewritten each second; a log gets a line every ten.
        reports += 1;
        let mut err = io::stderr();
        let _ = if terminal {
            write!(err, "\r\x1b[K{}", line(progress))
        } else if reports % 10 == 0 {
            writeln!(err, "{}", line(progress))
        } else {
            Ok(())
        };
    });
    if terminal && reports > 0 {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
    let summary = summary.map_err(|e| match e {
        e if e.is_refusal() => CliError::Refused(e.to_string()),
        e @ RecordError::NoProcess(_) => CliError::Usage(e.to_string()),
        e => CliError::Record(e.to_string()),
    })?;
    let mut err = io::stderr();
    let _ = writeln!(err, "{}  ->  {}", line(&summary.progress), output.display());
    for note in &summary.notes {
        let _ = writeln!(err, "note: {}", crate::term::one_line(note));
    }
    match summary.command_status {
        Some(code) if code != 0 => {
            let _ = writeln!(err, "note: the command ended with status {code}.");
            Ok(Outcome::Command(code))
        }
        _ if summary.progress.processes == 0 => {
            let _ = writeln!(
                err,
                "note: no ROS 2 process was seen: is one running, and does it use libtracetools?"
            );
            Ok(Outcome::NothingFound)
        }
        _ => Ok(Outcome::Done),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_are_read_as_people_write_them() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1.5min"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("7"), Ok(Duration::from_secs(7)));
        assert!(
            parse_duration("5 parsecs").is_err()
                && parse_duration("").is_err()
                && parse_duration("1e999s").is_err()
        );
        assert_eq!(parse_size("16M"), Ok(16 << 20));
        assert!(
            parse_size("0").is_err()
                && parse_size("99999999999G").is_err()
                && parse_size("-1").is_err()
        );
    }

    #[test]
    fn dates_are_civil() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(19_782), (2024, 2, 29));
        assert_eq!(civil(20_454), (2026, 1, 1));
    }
}
