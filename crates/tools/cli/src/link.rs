//! `onbeat link`: links between processes and machines: keys, bounds, benches, status.

mod bench;
mod bound;
mod key;
mod status;

use crate::error::CliError;
use crate::ExitStatus;

/// Links between processes and machines: make a key, compute bounds, measure, look on.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat link key link.key                                  a key for both machines
  onbeat link bench --listen 0.0.0.0:7400 --key link.key    on one machine
  onbeat link bench --connect 10.0.0.2:7400 --key link.key  on the other
  onbeat link bound --rate 1G --channel stop=9,1K,10ms --channel scans=1,4M,100ms
  onbeat link status                                        what links on this machine do

Exit codes: 0 done; 1 failed; 2 wrong command line; 5 a channel has no bound, or misses its
deadline.")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Key(key::Args),
    Bound(bound::Args),
    Bench(bench::Args),
    Status(status::Args),
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    match args.what {
        What::Key(args) => key::run(args),
        What::Bound(args) => bound::run(args),
        What::Bench(args) => bench::run(args),
        What::Status(args) => status::run(args),
    }
}
