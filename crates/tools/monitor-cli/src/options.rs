//! Defines the options of `onbeat monitor`.

use crate::http::parse_address;
use crate::otlp::Endpoint;
use onbeat_live::window::Span;
use onbeat_record::{FileOptions, Limits, RecordOptions, Target, Way, DOMAIN_MAX};
use onbeat_terminal::units::{parse_duration, parse_size};
use onbeat_terminal::CliError;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::Duration;

const SEGMENTS: u64 = 16;

/// Watch a system for weeks: judge requirements all the time, report and save violations
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo onbeat monitor requirements.yaml               report violations
  sudo onbeat monitor requirements.yaml --incidents /var/lib/onbeat/incidents --http 9464
  sudo onbeat monitor requirements.yaml --textfile /var/lib/node_exporter/onbeat.prom
  sudo onbeat monitor requirements.yaml --otlp http://127.0.0.1:4318
  sudo onbeat monitor requirements.yaml --diagnostics      the state on /diagnostics, too
  sudo onbeat monitor requirements.yaml --exec /usr/local/bin/tell-operator
  onbeat monitor requirements.yaml --preload -- ros2 launch my_robot all.launch.py
  onbeat monitor requirements.yaml trace --incidents incidents     a recorded trace

The requirements are those of `onbeat check`, judged by the same statistics over the last minute.
An incident begins when a requirement is violated. It goes on until no subject of it has violated
a requirement for 10 s. A subject that violates one less than --after later joins the incident.

The program of --exec gets the word began, saved or ended, and ONBEAT_INCIDENT, ONBEAT_SEVERITY,
ONBEAT_REQUIREMENT, ONBEAT_SUBJECT, ONBEAT_LIMIT, ONBEAT_MEASURED and ONBEAT_DIRECTORY in its
environment. Without a terminal, SIGHUP reads the requirements again; the model goes on.

Exit codes: 0 done; 1 failed; 2 wrong command line; 3 done, but no callback ran; 4 this kernel or
user may not record; 5 a requirement was violated (with TRACE, COMMAND or --duration). With
COMMAND: its own code where that is not 0.")]
pub struct Args {
    /// Requirements, as for `onbeat check`
    #[arg(value_name = "REQUIREMENTS")]
    pub requirements: PathBuf,
    /// Trace directory to judge, instead of a running system
    #[arg(value_name = "TRACE", conflicts_with_all = ["command", "pid", "domain", "cgroup", "container", "preload", "duration", "diagnostics"])]
    pub trace: Option<PathBuf>,
    /// Length of the window in which requirements are judged: the last 10s or the last 60s
    #[arg(long, value_name = "T", value_parser = parse_window, default_value = "60s")]
    pub window: Span,
    #[command(flatten)]
    pub saves: Saves,
    #[command(flatten)]
    pub target: Targets,
    /// Serve metrics at /metrics of this port on the loopback interface, or at ADDRESS:PORT
    #[arg(long, value_name = "PORT", value_parser = parse_address)]
    pub http: Option<SocketAddr>,
    /// Write metrics into this file every 10 s, for the node exporter's textfile collector
    #[arg(long, value_name = "FILE")]
    pub textfile: Option<PathBuf>,
    /// Send metrics to this OpenTelemetry collector every 10 s: http://HOST:PORT (OTLP over HTTP)
    #[arg(long, value_name = "URL", value_parser = str::parse::<Endpoint>)]
    pub otlp: Option<Endpoint>,
    /// Publish the state of each requirement as ROS 2 diagnostics about once a second, on
    /// /diagnostics in the domain of a watched process
    #[arg(long)]
    pub diagnostics: bool,
    /// With --diagnostics: publish the latency of each chain that a requirement names, in ms as
    /// std_msgs/Float64 on /onbeat/CHAIN/latency_ms, for plots
    #[arg(long, requires = "diagnostics")]
    pub latency_topics: bool,
    /// Start this program when an incident begins, was saved, or ends
    #[arg(long, value_name = "PROGRAM")]
    pub exec: Option<PathBuf>,
    /// End after this time, for example 500ms, 60s, 10min or 2h
    #[arg(long, value_name = "T", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Record calls with a library that onbeat loads into COMMAND. This way needs no special rights
    #[arg(long, requires = "command")]
    pub preload: bool,
    /// Start this command and watch it from its first instruction to its end
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// The options for saving incidents.
#[derive(clap::Args)]
pub struct Saves {
    /// Save incidents in this directory, which only the monitor may use
    #[arg(long, value_name = "DIR")]
    pub incidents: Option<PathBuf>,
    /// Save the events of this time before an incident
    #[arg(long, value_name = "T", value_parser = parse_duration, default_value = "30s")]
    pub before: Duration,
    /// Save the events of this time after the begin of an incident
    #[arg(long, value_name = "T", value_parser = parse_duration, default_value = "5s")]
    pub after: Duration,
    /// Remove the oldest and least severe incidents while all saved incidents together exceed this
    /// size
    #[arg(long, value_name = "BYTES", value_parser = parse_size, default_value = "1G")]
    pub max_size: u64,
    /// Size of the running recording from which incidents are saved
    #[arg(long, value_name = "BYTES", value_parser = parse_size, default_value = "128M")]
    pub recording: u64,
    /// Save at most this number of incidents in an hour
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub saves_per_hour: u32,
}

/// The options that choose the processes to watch.
#[derive(clap::Args)]
pub struct Targets {
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
}

fn parse_window(text: &str) -> Result<Span, String> {
    match parse_duration(text)?.as_secs_f64() {
        10.0 => Ok(Span::TenSeconds),
        60.0 => Ok(Span::Minute),
        _ => Err("write 10s or 60s".into()),
    }
}

pub fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Args {
    pub fn record_options(
        &self,
        directory: &Path,
        hangup: Option<Arc<AtomicBool>>,
    ) -> RecordOptions {
        RecordOptions {
            files: FileOptions {
                output: directory.into(),
                segment_bytes: (self.saves.recording / SEGMENTS).max(64 << 10),
                max_segments: Some(SEGMENTS as usize),
                flush_every: Duration::from_secs(1),
                is_private: true,
            },
            way: match self.preload {
                true => Way::Preload,
                false => Way::Either,
            },
            // The command's output would be mixed with the journal.
            target: Target::new(self.command.clone(), true, self.target.pid.clone()),
            limits: Limits {
                domain: self.target.domain,
                cgroup: self.target.cgroup.clone(),
                container: self.target.container,
            },
            duration: self.duration,
            hangup,
            ..RecordOptions::default()
        }
    }

    /// Returns whether violations decide the exit code. They do for a trace, a limited duration or
    /// a command, but not for a service that runs until the user stops it.
    pub fn is_test(&self) -> bool {
        self.trace.is_some() || self.duration.is_some() || !self.command.is_empty()
    }

    /// Checks the options for contradictions that clap cannot find. Returns the first contradiction
    /// as an error.
    pub fn check(&self) -> Result<(), CliError> {
        const HOUR: Duration = Duration::from_secs(3600);
        let usage = |text: &str| Err(CliError::Usage(text.into()));
        if self.saves.before > HOUR || self.saves.after > HOUR {
            return usage("--before and --after may each be at most 1h");
        }
        if self.exec.as_ref().is_some_and(|path| !path.is_absolute()) {
            return usage("--exec needs the whole path of the program, which begins with /");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_the_window_option_are_the_spans_of_the_live_model() {
        assert_eq!(parse_window("10s"), Ok(Span::TenSeconds));
        assert_eq!(parse_window("1min"), Ok(Span::Minute));
        assert!(parse_window("30s").is_err() && parse_window("x").is_err());
    }
}
