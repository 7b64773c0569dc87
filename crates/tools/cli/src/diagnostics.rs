//! `onbeat diagnostics`: the process that publishes a session's status. `onbeat shape` starts it,
//! and the help does not list it.

use onbeat_ros::diagnostics::Config;
use onbeat_terminal::CliError;
use onbeat_terminal::ExitStatus;
use std::io::Read;
use std::path::PathBuf;

const MOST: u64 = 1 << 20;

/// Publish a session's status on /diagnostics (onbeat starts this command itself)
#[derive(clap::Args)]
pub struct Args {
    /// Read the configuration from the standard input ('-')
    #[arg(value_name = "-", value_parser = ["-"])]
    pub config: String,
}

pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    let path = PathBuf::from(args.config);
    let mut text = String::new();
    let read = std::io::stdin().take(MOST).read_to_string(&mut text);
    read.map_err(|source| CliError::Read {
        path: path.clone(),
        source,
    })?;
    let config: Config = serde_json::from_str(&text).map_err(crate::shaper::wrong_config(&path))?;
    let ended = onbeat_ros::diagnostics::run(&config);
    ended.map_err(CliError::failed)?;
    Ok(ExitStatus::Success)
}
