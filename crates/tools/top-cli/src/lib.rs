//! `onbeat-top`: the program behind `onbeat top`, which watches a running system.

mod app;
mod draw;
mod feed;
mod options;
mod pages;
mod save;
mod screen;
mod shared;
mod sink;
mod source;
mod table;
#[cfg(test)]
mod tests;
mod tty;

use feed::Feed;
use onbeat_check::Requirements;
use onbeat_document::schema::{Run, DEFAULT_MODE};
use onbeat_record::Summary;
use onbeat_synth::SynthOptions;
use onbeat_terminal::{files, term, CliError, ExitStatus};
use options::{Args, Output};
use screen::{Caught, Screen};
use shared::Shared;
use sink::{OnScreen, Printed};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

#[derive(clap::Parser)]
#[command(name = "onbeat", max_term_width = 100)]
enum Words {
    Top(Box<Args>),
}

/// Gives up all rights except those for recording, and deactivates these until they are needed. So
/// no special right is active when the program reads the files that the caller named.
fn confine() -> io::Result<()> {
    onbeat_rights::limit_to(onbeat_record::AT_START)
}

/// Runs the program with these words of its command line. The first word is the name under which
/// `onbeat` started it.
pub fn main(words: Vec<OsString>) -> ExitCode {
    onbeat_terminal::helper(
        words,
        &["top"],
        |_| confine(),
        |Words::Top(args)| run(&args),
    )
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
    // A wrong path is reported before the screen begins.
    files::open_trace(trace, "`onbeat top`", source::HINT)?;
    let pace = source::Pace {
        speed: args.speed(),
        duration: args.duration,
    };
    if args.output() == Output::Screen {
        let shared = Shared::new(None);
        let screen = begin_screen(&shared, true)?;
        let mut sink = OnScreen {
            shared,
            found: false,
        };
        let played = source::play(trace, &pace, requirements, &mut sink);
        if played.is_err() {
            sink.shared.end();
        }
        screen.wait().map_err(CliError::failed)?;
        return played.map(|()| status(sink.found));
    }
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
    if args.output() == Output::Screen {
        let shared = Shared::new(Some(directory));
        let screen = begin_screen(&shared, false)?;
        let caught = Caught::begin().map_err(CliError::failed)?;
        let mut sink = OnScreen {
            shared,
            found: false,
        };
        let summary = source::watch(&options, feed, &mut sink);
        let shown = screen.wait();
        caught.end();
        shown.map_err(CliError::failed)?;
        // The user has ended the command together with the screen.
        let ends = sink.shared.is_ended();
        return ended(&summary?, sink.found, ends);
    }
    let mut printed = Printed::new(args.output());
    let summary = source::watch(&options, feed, &mut printed)?;
    ended(&summary, printed.found, args.once)
}

fn begin_screen(shared: &Arc<Shared>, stays: bool) -> Result<Screen, CliError> {
    Screen::begin(Arc::clone(shared), stays).map_err(|e| {
        CliError::failed(format!(
            "cannot use the terminal: {e}. Without one, use --once or --json"
        ))
    })
}

fn ended(summary: &Summary, found: bool, asked: bool) -> Result<ExitStatus, CliError> {
    let mut err = io::stderr();
    for note in &summary.notes {
        let _ = writeln!(err, "note: {}", term::one_line(note));
    }
    match summary.command_status {
        // A command that was asked to end may well report that.
        Some(code) if code != 0 && !asked => Ok(ExitStatus::Command(code)),
        _ => Ok(status(found)),
    }
}
