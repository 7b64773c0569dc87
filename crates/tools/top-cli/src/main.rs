//! `onbeat-top`: the program behind `onbeat top`, which watches a running system.

mod feed;
mod options;
mod shared;
mod sink;
mod source;
mod table;

use feed::Feed;
use onbeat_check::Requirements;
use onbeat_document::schema::{Run, DEFAULT_MODE};
use onbeat_record::Summary;
use onbeat_synth::SynthOptions;
use onbeat_terminal::{files, term, CliError, ExitStatus};
use options::{Args, Output};
use sink::Printed;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

#[derive(clap::Parser)]
#[command(name = "onbeat", max_term_width = 100)]
enum Words {
    Top(Box<Args>),
}

/// Sets the rights of recording aside until files that the caller named have been read.
fn confine() -> io::Result<()> {
    onbeat_rights::limit_to(onbeat_record::AT_START)
}

fn main() -> ExitCode {
    onbeat_terminal::helper(&["top"], confine, |Words::Top(args)| run(&args))
}

fn run(args: &Args) -> Result<ExitStatus, CliError> {
    args.check()?;
    let requirements = args.requirements.as_deref().map(read_requirements);
    let requirements = requirements.transpose()?;
    match &args.trace {
        Some(trace) => of_trace(args, trace, requirements),
        None => of_system(args, requirements),
    }
}

fn read_requirements(path: &Path) -> Result<Requirements, CliError> {
    let bytes = files::read_at_most(path, onbeat_check::MAX_BYTES)?;
    onbeat_check::read(&bytes).map_err(CliError::in_file(path))
}

fn of_trace(
    args: &Args,
    trace: &Path,
    requirements: Option<Requirements>,
) -> Result<ExitStatus, CliError> {
    onbeat_rights::give_up(&[]).map_err(CliError::failed)?;
    let pace = source::Pace {
        speed: args.speed(),
        duration: args.duration,
    };
    let mut printed = Printed::new(args.output());
    source::play(trace, &pace, requirements, &mut printed)?;
    Ok(status(printed.found))
}

fn status(found: bool) -> ExitStatus {
    match found {
        true => ExitStatus::Success,
        false => ExitStatus::NothingFound,
    }
}

/// Describes a run that is not written to a file.
fn run_now() -> Run {
    Run {
        id: "live".into(),
        host: String::new(),
        boot: String::new(),
        mode: DEFAULT_MODE.into(),
        distribution: Vec::new(),
        start: 0,
        duration_ns: 0,
        lost: Default::default(),
        events: 0,
    }
}

fn of_system(args: &Args, requirements: Option<Requirements>) -> Result<ExitStatus, CliError> {
    let held = tempfile::Builder::new().prefix("onbeat-top-").tempdir();
    let held = held.map_err(|e| {
        CliError::failed(format!(
            "cannot make a temporary directory: {e}. Set TMPDIR"
        ))
    })?;
    let directory = held.path().join("trace");
    let options = args.record_options(&directory);
    let feed = Feed::new(SynthOptions::new(run_now()), requirements);
    let mut printed = Printed::new(args.output());
    let summary = source::watch(&options, feed, &mut printed)?;
    ended(&summary, printed.found, args.once)
}

/// Prints the notes of the recorder, and returns the exit status.
fn ended(summary: &Summary, found: bool, once: bool) -> Result<ExitStatus, CliError> {
    let mut err = io::stderr();
    for note in &summary.notes {
        let _ = writeln!(err, "note: {}", term::one_line(note));
    }
    match summary.command_status {
        // The command was asked to end when the table was complete.
        Some(code) if code != 0 && !once => Ok(ExitStatus::Command(code)),
        _ => Ok(status(found)),
    }
}
