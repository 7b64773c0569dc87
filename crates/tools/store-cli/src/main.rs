//! The program `onbeat-store`.
use std::process::ExitCode;

fn main() -> ExitCode {
    onbeat_store_cli::main(std::env::args_os().collect())
}
