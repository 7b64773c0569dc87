//! The command `onbeat link key`: makes the key file that both ends of a link over TCP need.

use onbeat_link::Key;
use onbeat_terminal::CliError;
use onbeat_terminal::{term, ExitStatus};
use std::io::{self, Write};
use std::path::PathBuf;

/// Make a key file, to be copied to both machines.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat link key link.key
  scp -p link.key robot2:             copy it to the other machine; -p keeps its mode

The file holds 32 random bytes as hexadecimal digits, and has mode 0600. Anyone who has it can act
as either end. An existing file is never overwritten: delete it first.

Exit codes: 0 done; 1 failed; 2 wrong command line.")]
pub struct Args {
    /// File to make
    #[arg(value_name = "FILE", default_value = "link.key")]
    pub file: PathBuf,
}

pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    let made = Key::generate().create_file(&args.file);
    made.map_err(CliError::failed)?;
    let name = term::one_line(&args.file.display().to_string());
    writeln!(
        io::stdout(),
        "Made the key file {name}. Copy it to the other machine in a safe way: scp -p {name} HOST:"
    )
    .map(|()| ExitStatus::Success)
    .map_err(CliError::Stdout)
}
