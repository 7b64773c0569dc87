//! `onbeat record`: the command line of the recorder.

use crate::limits::LimitArgs;
use onbeat_record::recorder::DEFAULT_BUFFER_BYTES;
use onbeat_record::{
    Control, FileOptions, Observer, PlacementPolicy, Progress, RecordError, RecordOptions, Target,
    Way,
};
use onbeat_terminal::live::LiveLine;
use onbeat_terminal::units::{parse_duration, parse_size};
use onbeat_terminal::CliError;
use onbeat_terminal::{date, ExitStatus};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Record a running ROS 2 system, or one that this command starts, into a trace directory
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo onbeat record                          everything that runs, until Ctrl-C
  sudo onbeat record -o urban1 --mode urban --duration 60s
  sudo onbeat record -o trace -- ros2 launch my_robot all.launch.py
  onbeat record -o trace --preload -- ros2 launch my_robot all.launch.py
  sudo onbeat record --pid 4711 --pid 4712
  sudo onbeat record --container $(docker inspect -f '{{.State.Pid}}' robot)
  sudo onbeat record --keep 10 --segment 64M  flight recorder: the last 640 MB

Under sudo, COMMAND runs as the user who called sudo. If this user or kernel may not probe
programs from outside, COMMAND is recorded as with --preload.

Exit codes: 0 recorded; 1 failed; 2 wrong command line; 3 recorded, but no ROS 2 process was seen;
4 this kernel or user may not record. With COMMAND: its own code where that is not 0.")]
pub struct Args {
    /// Directory to write [default: trace-DATE-TIME]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Mode of operation that this recording shows (urban, highway ...)
    #[arg(long, value_name = "NAME")]
    pub mode: Option<String>,
    /// Stop recording after this time, for example 500ms, 60s, 10min or 2h
    #[arg(long, value_name = "T", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Observe only the process with this id and its children; repeatable
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pub pid: Vec<u32>,
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Record scheduler events of all threads of the observed processes, including the middleware's
    /// threads
    #[arg(long, conflicts_with = "preload")]
    pub all_threads: bool,
    /// File with type information of the running kernel (BTF), for a kernel without
    /// /sys/kernel/btf/vmlinux
    #[arg(long, value_name = "FILE", conflicts_with = "preload")]
    pub btf: Option<PathBuf>,
    /// Size of the ring buffer between kernel and recorder [default: 16M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value_t = DEFAULT_BUFFER_BYTES.into(), hide_default_value = true)]
    pub buffer: u64,
    /// Begin a new segment file when the current file has this size
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub segment: Option<u64>,
    /// Keep only the latest N segments (a flight recorder)
    #[arg(long, value_name = "N")]
    pub keep: Option<usize>,
    /// Record calls with a library that onbeat loads into COMMAND. This way needs no special rights
    /// and costs less than probes
    #[arg(long, requires = "command")]
    pub preload: bool,
    /// Where onbeat sets probes in a function
    #[arg(long, value_name = "WHERE", value_parser = ["cheapest", "entry"], default_value = "cheapest", hide = true)]
    pub placement: String,
    /// Start this command and record it from its first instruction to its end
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

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

struct Shown(LiveLine);

impl Observer for Shown {
    fn events(&mut self, _: &[onbeat_trace::Event], _: &Control<'_>) {}

    fn progress(&mut self, progress: &Progress) {
        self.0.show(&line(progress));
    }

    fn refused(&mut self, why: &RecordError) {
        let why = onbeat_terminal::term::one_line(&why.to_string());
        let _ = writeln!(
            io::stderr(),
            "note: BPF programs were refused, so onbeat records as with --preload: {why}"
        );
    }
}

fn options(args: Args, output: PathBuf) -> RecordOptions {
    let files = FileOptions::default();
    RecordOptions {
        files: FileOptions {
            output,
            segment_bytes: args.segment.unwrap_or(files.segment_bytes),
            max_segments: args.keep,
            ..files
        },
        mode: args.mode.unwrap_or_default(),
        limits: args.limits.limits(),
        all_threads: args.all_threads,
        btf: args.btf,
        duration: args.duration,
        way: match args.preload {
            true => Way::Preload,
            false => Way::Either,
        },
        target: Target::new(args.command, false, args.pid),
        buffer_bytes: u32::try_from(args.buffer).unwrap_or(u32::MAX),
        placement: if args.placement == "entry" {
            PlacementPolicy::Entry
        } else {
            PlacementPolicy::Cheapest
        },
        ..RecordOptions::default()
    }
}

pub fn run(mut args: Args) -> Result<ExitStatus, CliError> {
    let output = args.output.take().unwrap_or_else(date::trace_directory);
    let options = options(args, output.clone());
    let mut shown = Shown(LiveLine::new());
    let summary = onbeat_record::record_observed(&options, &mut shown);
    shown.0.clear();
    let summary = summary.map_err(|e| match e {
        e if e.is_refusal() => CliError::Refused(e.to_string()),
        e if e.is_usage() => CliError::Usage(e.to_string()),
        e => CliError::failed(e),
    })?;
    let mut err = io::stderr();
    let _ = writeln!(err, "{}  ->  {}", line(&summary.progress), output.display());
    for note in &summary.notes {
        let _ = writeln!(err, "note: {}", onbeat_terminal::term::one_line(note));
    }
    match summary.command_status {
        Some(code) if code != 0 => {
            let _ = writeln!(err, "note: the command ended with status {code}.");
            Ok(ExitStatus::Command(code))
        }
        _ if summary.progress.processes == 0 => {
            let _ = writeln!(
                err,
                "note: no ROS 2 process was seen. Check that a ROS 2 process is running and uses libtracetools."
            );
            Ok(ExitStatus::NothingFound)
        }
        _ => Ok(ExitStatus::Success),
    }
}
