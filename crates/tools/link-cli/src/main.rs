//! The program `onbeat-link`.
use std::process::ExitCode;

fn main() -> ExitCode {
    onbeat_link_cli::main(std::env::args_os().collect())
}
