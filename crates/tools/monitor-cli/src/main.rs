//! The program `onbeat-monitor`.
use std::process::ExitCode;

fn main() -> ExitCode {
    onbeat_monitor_cli::main(std::env::args_os().collect())
}
