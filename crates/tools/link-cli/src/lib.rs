//! The program `onbeat-link` behind `onbeat link`: keys, bounds, benches and status of links
//! between processes and machines.

mod bench;
mod bound;
mod key;
mod status;

use onbeat_rights::Capability;
use std::ffi::OsString;
use std::process::ExitCode;

/// Links between processes and machines: make keys, compute bounds, measure, show status.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat link key link.key                                  a key for both machines
  onbeat link bench --listen 0.0.0.0:7400 --key link.key    on one machine
  onbeat link bench --connect 10.0.0.2:7400 --key link.key  on the other
  onbeat link bound --rate 1G --channel stop=9,1K,10ms --channel scans=1,4M,100ms
  onbeat link status                                        the links of this machine

Exit codes: 0 done; 1 failed; 2 wrong command line; 5 a channel has no bound, or misses its
deadline.")]
struct Args {
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

#[derive(clap::Parser)]
#[command(name = "onbeat", max_term_width = 100)]
enum Words {
    Link(Args),
}

/// Gives up all rights that the command does not need. `status` and `bound` keep the right to read
/// the descriptors of processes that may have more rights.
fn confine(needs_descriptors: bool) -> std::io::Result<()> {
    match needs_descriptors {
        true => onbeat_rights::give_up(&[Capability::CAP_SYS_PTRACE]),
        false => onbeat_rights::give_up(&[]),
    }
}

/// Runs the program with these words of its command line. The first word is the name under which
/// `onbeat` started it.
pub fn main(words: Vec<OsString>) -> ExitCode {
    let word = words.get(1).cloned().unwrap_or_default();
    let needs_descriptors = ["status", "bound"].iter().any(|what| word == *what);
    onbeat_terminal::helper(
        words,
        &["link"],
        |_| confine(needs_descriptors),
        |Words::Link(args)| match args.what {
            What::Key(args) => key::run(args),
            What::Bound(args) => bound::run(args),
            What::Bench(args) => bench::run(args),
            What::Status(args) => status::run(args),
        },
    )
}
