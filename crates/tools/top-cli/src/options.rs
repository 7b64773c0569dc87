//! Defines the options of `onbeat top`.

use onbeat_record::{FileOptions, Limits, RecordOptions, Target, Way, DOMAIN_MAX};
use onbeat_terminal::units::parse_duration;
use onbeat_terminal::CliError;
use std::path::{Path, PathBuf};
use std::time::Duration;

const ONCE: Duration = Duration::from_secs(5);

const SEGMENT_BYTES: u64 = 4 << 20;
const SEGMENTS: usize = 16;

/// Watch the timing of a running system: chains, callbacks, topics and CPUs
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo onbeat top                             everything that runs
  sudo onbeat top -- ros2 launch my_robot all.launch.py
  onbeat top --preload -- ros2 run demo_nodes_cpp talker
  sudo onbeat top --pid 4711 --requirements requirements.yaml
  sudo onbeat top --once                      one table after 5 s, for scripts
  sudo onbeat top --json --duration 60s       one line of JSON per second
  onbeat top trace --speed 4                  a recorded trace, four times as fast

Keys: 1 2 3 4 or Tab choose a page, arrows a row, Enter shows the parts of a chain. < and > choose
the column to sort by, r reverses the order. / filters by name, w changes the span (10 s, 1 min,
since start), space freezes, t saves the last 60 s as a trace, q ends.

Exit codes: 0 done; 1 failed; 2 wrong command line; 3 done, but no callback ran; 4 this kernel or
user may not record. With COMMAND: its own code where that is not 0.")]
pub struct Args {
    /// Trace directory to play, instead of a running system
    #[arg(value_name = "TRACE", conflicts_with_all = ["command", "pid", "domain", "cgroup", "container", "preload"])]
    pub trace: Option<PathBuf>,
    /// Factor by which the trace is played faster than it was recorded ('max': without waiting)
    #[arg(long, value_name = "FACTOR", requires = "trace", value_parser = parse_speed)]
    pub speed: Option<f64>,
    /// Print one table and end, after 5 s or after the time of --duration
    #[arg(long)]
    pub once: bool,
    /// Print a line of JSON every second, or one line with --once
    #[arg(long)]
    pub json: bool,
    /// End after this time, for example 500ms, 60s, 10min or 2h
    #[arg(long, value_name = "T", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Show the deadlines of chains: the largest latencies that this requirements file allows
    #[arg(long, value_name = "FILE")]
    pub requirements: Option<PathBuf>,
    /// Watch only this process and its children; repeatable
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pub pid: Vec<u32>,
    /// Watch only processes that were started with this ROS_DOMAIN_ID (0 if it was not set)
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u32).range(0..=i64::from(DOMAIN_MAX)), conflicts_with_all = ["command", "pid"])]
    pub domain: Option<u32>,
    /// Watch only processes in this cgroup (a directory in /sys/fs/cgroup) or below it
    #[arg(long, value_name = "DIR", conflicts_with_all = ["command", "pid"])]
    pub cgroup: Option<PathBuf>,
    /// Watch only processes in the same container (pid namespace) as the process with this id
    #[arg(long, value_name = "PID", conflicts_with_all = ["command", "pid"])]
    pub container: Option<u32>,
    /// Record calls with a library that onbeat loads into COMMAND. This way needs no special rights
    #[arg(long, requires = "command")]
    pub preload: bool,
    /// Start this command and watch it from its first instruction to its end
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    Screen,
    Table,
    Line,
    Lines,
}

fn parse_speed(text: &str) -> Result<f64, String> {
    if text == "max" {
        return Ok(f64::INFINITY);
    }
    let factor: Option<f64> = text.parse().ok();
    factor
        .filter(|f| (0.001..=1e6).contains(f))
        .ok_or_else(|| "write the factor of the speed, from 0.001 to 1000000, or 'max'".into())
}

impl Args {
    pub fn output(&self) -> Output {
        match (self.once, self.json) {
            (true, true) => Output::Line,
            (true, false) => Output::Table,
            (false, true) => Output::Lines,
            (false, false) => Output::Screen,
        }
    }

    /// Returns the factor by which a trace is played faster than it was recorded. Without
    /// `--speed`, the factor is 1. With `--once` and without `--speed`, it is infinite, because one
    /// table needs no waiting.
    pub fn speed(&self) -> f64 {
        let default = if self.once { f64::INFINITY } else { 1.0 };
        self.speed.unwrap_or(default)
    }

    pub fn record_options(&self, directory: &Path) -> RecordOptions {
        let duration = self.duration.or(self.once.then_some(ONCE));
        RecordOptions {
            files: FileOptions {
                output: directory.into(),
                segment_bytes: SEGMENT_BYTES,
                max_segments: Some(SEGMENTS),
                flush_every: Duration::from_secs(1),
                is_private: true,
            },
            way: match self.preload {
                true => Way::Preload,
                false => Way::Either,
            },
            // The command's output would be mixed with ours.
            target: Target::new(self.command.clone(), true, self.pid.clone()),
            limits: Limits {
                domain: self.domain,
                cgroup: self.cgroup.clone(),
                container: self.container,
            },
            duration,
            ..RecordOptions::default()
        }
    }

    /// Returns an error if options contradict each other in a way that clap cannot express.
    pub fn check(&self) -> Result<(), CliError> {
        if self.trace.is_some() && self.duration.is_some() && self.output() == Output::Screen {
            return Err(CliError::Usage(
                "--duration does not apply to the screen of a trace. Leave it out, or add --json"
                    .into(),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_a_positive_factor_or_max() {
        assert_eq!(parse_speed("4"), Ok(4.0));
        assert_eq!(parse_speed("max"), Ok(f64::INFINITY));
        for wrong in ["0", "-1", "NaN", "inf", "fast"] {
            assert!(parse_speed(wrong).is_err(), "{wrong}");
        }
    }
}
