//! `onbeat shaper`: the process that holds topics back. `onbeat shape` starts it, and the help does
//! not list it.

use onbeat_ros::config::Config;
use onbeat_ros::shaper::Ended;
use onbeat_terminal::CliError;
use onbeat_terminal::ExitStatus;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Hold topics back until their slots (onbeat starts this command itself)
#[derive(clap::Args)]
#[command(after_help = "\
The configuration is JSON; one topic that leaves 60 to 61 ms after each release:
  {\"rcl\": \"/opt/ros/jazzy/lib/librcl.so\",
   \"outputs\": [{\"held_topic\": \"/pose/onbeat_held\", \"topic\": \"/pose\"}],
   \"table\": {\"cycle_ns\": 100000000, \"origin_ns\": 0,
             \"outputs\": [{\"slots\": [{\"start_ns\": 60000000, \"end_ns\": 61000000}]}]}}

Examples:
  onbeat shaper shaper.json
  onbeat shaper - < shaper.json

Exit codes: 0 asked to end, or nobody publishes any more; 1 failed; 2 wrong command line.")]
pub struct Args {
    /// Configuration file, JSON ('-': standard input)
    #[arg(value_name = "FILE")]
    pub config: PathBuf,
}

pub fn wrong_config(path: &Path) -> impl FnOnce(serde_json::Error) -> CliError + '_ {
    |e| {
        CliError::in_file(path)(format!(
            "{e}. See `onbeat shaper --help` for the form of the configuration"
        ))
    }
}

pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    let read = |source| CliError::Read {
        path: args.config.clone(),
        source,
    };
    let mut text = String::new();
    if args.config.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text).map_err(read)?;
    } else {
        text = std::fs::read_to_string(&args.config).map_err(read)?;
    }
    let config: Config = serde_json::from_str(&text).map_err(wrong_config(&args.config))?;
    match onbeat_ros::shaper::run(&config).map_err(CliError::failed)? {
        Ended::Asked | Ended::Orphaned => Ok(ExitStatus::Success),
    }
}
