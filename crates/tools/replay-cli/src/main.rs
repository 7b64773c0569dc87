//! The program `onbeat-replay`.
use std::process::ExitCode;

fn main() -> ExitCode {
    onbeat_replay_cli::main(std::env::args_os().collect())
}
