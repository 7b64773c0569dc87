//! `onbeat convert`: writes recordings in the format of another tool.

use super::list::{instant, size};
use super::selection::Selection;
use super::{failed, keys, opener, PATIENCE, SHOW_EVERY};
use onbeat_replay::chain::Chain;
use onbeat_replay::writer::loss::Losses;
use onbeat_replay::writer::save;
use onbeat_replay::writer::{Plan, Target, WriteError};
use onbeat_terminal::live::LiveLine;
use onbeat_terminal::term::{one_line, write_json};
use onbeat_terminal::{CliError, ExitStatus};
use serde::Serialize;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Write recordings in another format, or a part of them
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat convert can.log -o can.blf
  onbeat convert can0.asc can1.asc -o both.pcapng
  onbeat convert drive_bag -o part.mcap --topics '/front/*' --start 10s --duration 5s
  onbeat convert drive.mcap -o drive_bag --to rosbag2
  onbeat convert drive.blf --ids 123,200-2ff --to candump -o - | canplayer

The ending of the output's name gives the format: .log means a candump log, .asc and .blf mean logs
of Vector's tools, .mcap and .pcapng mean these formats. For other endings, give --to. MCAP files and
bags hold messages of ROS 2. Candump and ASC logs hold CAN frames. BLF logs and pcapng files hold CAN
frames and packets.

convert reads the recordings twice. Before it writes, it prints what will be lost: data that the
format cannot store, attachments and metadata. It writes under a temporary name, and renames the output when it is complete.

Exit codes: 0 written; 1 failed; 2 wrong command line; 3 nothing to write; 5 nothing was written,
because something would be lost (--strict).")]
pub struct Args {
    /// Recordings: rosbag2 and ROS 1 bags, MCAP, logs (candump, ASC, BLF, MDF, TRC), pcap, pcapng;
    /// also packed with gzip, xz, zstd or bzip2. Several recordings become one
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// File to write, or directory of the bag to write; - is the standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Format of the output, if the ending of its name does not give it
    #[arg(long, value_name = "FORMAT", value_parser = parse_target)]
    to: Option<Target>,
    /// Shift recordings that were made at different times so that all begin at the same time
    #[arg(long)]
    align: bool,
    #[command(flatten)]
    selection: Selection,
    /// Write nothing and exit with code 5 if something of the recordings would be lost
    #[arg(long)]
    strict: bool,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

fn parse_target(word: &str) -> Result<Target, String> {
    let mut targets = Target::ALL.into_iter();
    targets
        .find(|target| target.word() == word)
        .ok_or_else(|| format!("write {}", words()))
}

fn words() -> String {
    Target::ALL.map(Target::word).join(", ")
}

impl Args {
    fn target(&self) -> Result<Target, CliError> {
        let target = self.to.or(Target::of_ending(&self.output));
        let target = target.ok_or_else(|| {
            CliError::Usage(format!(
                "the ending of {} does not show the format. Choose the format with --to: {}",
                self.output.display(),
                words()
            ))
        })?;
        if self.is_pipe() && !target.is_stream() {
            return Err(CliError::Usage(format!(
                "a {} cannot be written to the standard output. Name a file with -o",
                target.name()
            )));
        }
        if self.is_pipe() && self.json {
            return Err(CliError::Usage(
                "--json and -o - both write to the standard output. Name a file with -o".into(),
            ));
        }
        Ok(target)
    }

    fn is_pipe(&self) -> bool {
        self.output == Path::new("-")
    }

    fn open(&self) -> Result<Chain, CliError> {
        Chain::new(
            opener(self.files.clone(), self.align),
            self.selection.choice()?,
        )
        .map_err(failed)
    }
}

/// Returns an error if the output is one of the input recordings, or if it exists and may not be
/// replaced.
fn check_output(args: &Args, target: Target) -> Result<(), CliError> {
    let shown = args.output.display();
    if args.is_pipe() {
        return Ok(());
    }
    let parent = args.output.parent().and_then(|at| at.canonicalize().ok());
    for input in &args.files {
        let is_same = match (fs::metadata(input), fs::metadata(&args.output)) {
            (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
            _ => false,
        };
        let is_within = input.is_dir() && input.canonicalize().ok() == parent;
        if is_same || is_within {
            return Err(failed(format!(
                "{shown} is one of the recordings that are read. Choose another output with -o"
            )));
        }
    }
    let Ok(there) = fs::symlink_metadata(&args.output) else {
        return Ok(());
    };
    if there.is_file() || there.is_symlink() {
        return match args.force && target != Target::Rosbag2 {
            true => Ok(()),
            false => Err(exists(args, target)),
        };
    }
    let what = match there.is_dir() {
        true => "is a directory, which onbeat does not replace",
        false => "is not a file",
    };
    Err(failed(format!(
        "{shown} {what}. Choose another output with -o"
    )))
}

fn exists(args: &Args, target: Target) -> CliError {
    let shown = args.output.display();
    failed(match target {
        Target::Rosbag2 => format!("{shown} exists already. Choose another output with -o"),
        _ => format!("{shown} exists already. Choose another output with -o, or give --force"),
    })
}

#[derive(Serialize)]
struct Summary<'p> {
    output: &'p Path,
    format: &'static str,
    /// Whether an output was written. No output is written, for example, if `--strict` found that
    /// data would be lost.
    written: bool,
    items: u64,
    first_ns: Option<i64>,
    last_ns: Option<i64>,
    streams: Vec<StreamSummary<'p>>,
    lost: &'p Losses,
    damage: &'p [String],
}

#[derive(Serialize)]
struct StreamSummary<'p> {
    name: &'p str,
    written_as: &'p str,
    items: u64,
}

/// Returns a function that shows how many items were read or written (`what`) in the progress line.
/// The progress line stays empty in the first two seconds, and then changes at most twice per
/// second. The returned function returns false after an interrupt.
fn progress(what: &'static str, of: Option<u64>) -> impl FnMut(u64) -> bool {
    let mut line = LiveLine::new();
    let (started, mut shown) = (Instant::now(), Instant::now());
    move |items| {
        // The clock is read rarely, because reading it takes as long as an item.
        let is_time = items.is_multiple_of(1 << 12) && started.elapsed() > PATIENCE;
        if is_time && shown.elapsed() > SHOW_EVERY {
            shown = Instant::now();
            let of = of.map_or(String::new(), |of| format!(" of {of}"));
            line.show(&format!("{items}{of} items {what}"));
        }
        if of == Some(items) {
            line.clear();
        }
        !keys::was_interrupted()
    }
}

fn write_error(args: &Args, target: Target, error: WriteError) -> CliError {
    match error {
        WriteError::Write(source) if source.kind() == io::ErrorKind::AlreadyExists => {
            exists(args, target)
        }
        WriteError::Write(source) if args.is_pipe() => CliError::Stdout(source),
        WriteError::Write(source) => CliError::Write {
            path: args.output.clone(),
            source,
        },
        WriteError::Read(error) => failed(format!("{error}. Nothing was written")),
        WriteError::Stopped => failed("interrupted. Nothing was written"),
    }
}

pub fn run(args: &Args) -> Result<ExitStatus, CliError> {
    let target = args.target()?;
    check_output(args, target)?;
    keys::catch_signals();
    let failed = |error| write_error(args, target, error);
    let mut chain = args.open()?;
    let plan = Plan::of(&mut chain, target, &mut progress("read", None));
    let mut plan = plan.map_err(failed)?;
    if chain.unplayable() > 0 {
        let what = "streams left out, because onbeat cannot read their messages";
        plan.losses.add(what, chain.unplayable());
    }
    for damage in &plan.damage {
        eprintln!("onbeat: damage: {}", one_line(damage));
    }
    for loss in &plan.losses.0 {
        eprintln!("onbeat: lost: {}: {}", one_line(&loss.what), loss.count);
    }
    let is_refused = args.strict && !plan.losses.0.is_empty();
    let status = match (plan.items, is_refused) {
        (_, true) => {
            eprintln!(
                "onbeat: nothing was written, because --strict allows no loss. Leave --strict out, or choose another format"
            );
            ExitStatus::PromiseBroken
        }
        (0, false) => {
            eprintln!(
                "onbeat: nothing to write: none of the selected items can be stored in a {}",
                target.name()
            );
            ExitStatus::NothingFound
        }
        _ => ExitStatus::Success,
    };
    let is_written = status == ExitStatus::Success;
    if is_written {
        let mut go_on = progress("written", Some(plan.items));
        let mut source = args.open()?;
        let written = match args.is_pipe() {
            true => save::pipe(&plan, &mut source, io::stdout().lock(), &mut go_on),
            false => save::save(&plan, &mut source, &args.output, args.force, &mut go_on),
        };
        written.map_err(failed)?;
    }
    report(args, &plan, is_written)?;
    Ok(status)
}

fn report(args: &Args, plan: &Plan, is_written: bool) -> Result<(), CliError> {
    let streams = plan.streams.iter().filter(|stream| stream.items > 0);
    let mut out = io::stdout().lock();
    if args.json {
        let summary = Summary {
            output: &args.output,
            format: plan.target.name(),
            written: is_written,
            items: plan.items,
            first_ns: plan.first_ns,
            last_ns: plan.last_ns,
            streams: streams
                .map(|stream| StreamSummary {
                    name: &stream.stream.name,
                    written_as: &stream.written_as,
                    items: stream.items,
                })
                .collect(),
            lost: &plan.losses,
            damage: &plan.damage,
        };
        return write_json(&mut out, &summary);
    }
    let (Some(first_ns), Some(last_ns)) = (plan.first_ns, plan.last_ns) else {
        return Ok(());
    };
    if !is_written || args.is_pipe() {
        return Ok(());
    }
    let bytes = fs::metadata(&args.output).ok();
    let bytes = bytes.filter(fs::Metadata::is_file).map(|file| file.len());
    writeln!(
        out,
        "{file}: {format}{of_size}, items: {items}, streams: {streams}, from {first} to {last}",
        file = one_line(&args.output.display().to_string()),
        format = plan.target.name(),
        of_size = bytes.map_or(String::new(), |bytes| format!(" of {}", size(bytes))),
        items = plan.items,
        streams = streams.count(),
        first = instant(first_ns),
        last = instant(last_ns),
    )
    .map_err(CliError::Stdout)
}
