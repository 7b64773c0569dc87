//! The program `onbeat-top`.
use std::process::ExitCode;

fn main() -> ExitCode {
    onbeat_top_cli::main(std::env::args_os().collect())
}
