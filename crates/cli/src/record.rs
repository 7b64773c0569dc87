//! `onbeat record`: the words of the command line, handed to the recorder.

use crate::error::CliError;
use crate::Outcome;
use std::path::PathBuf;

/// Record a running ROS 2 system into a trace directory, without touching it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo onbeat record                          everything that runs, until Ctrl-C
  sudo onbeat record -o urban1 --mode urban --duration 60s
  sudo onbeat record -o trace -- ros2 launch my_robot all.launch.py
  sudo onbeat record --pid 4711 --pid 4712

Exit codes: 0 recorded; 1 failed; 2 wrong command line; 3 recorded, but no ROS 2 process was seen.")]
pub struct Args {
    /// Directory to write [default: trace-DATE-TIME]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Mode of operation that this run shows (urban, highway ...)
    #[arg(long, value_name = "NAME")]
    pub mode: Option<String>,
    /// Stop after this time: 500ms, 60s, 10min, 2h
    #[arg(long, value_name = "T")]
    pub duration: Option<String>,
    /// Observe only these processes (and what they start)
    #[arg(long, value_name = "PID")]
    pub pid: Vec<u32>,
    /// Start this command and record it from its first instruction until it ends
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Runs it.
pub fn run(_args: Args) -> Result<Outcome, CliError> {
    Err(CliError::Usage("this build has no recorder yet".into()))
}
