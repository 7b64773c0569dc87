//! `onbeat replay`: recorded traffic, played again without loss and on time.

mod keys;
mod options;
mod show;

use crate::error::CliError;
use crate::live::LiveLine;
use crate::term;
use crate::{files, ExitStatus};
use keys::{Key, Keys};
use onbeat_replay::chain::Chain;
use onbeat_replay::control::Control;
use onbeat_replay::item::Source;
use onbeat_replay::session::{Played, Session};
use onbeat_replay::{picture, route, source};
pub use options::Args;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often it looks for keys and signals.
const LOOK: Duration = Duration::from_millis(50);
/// Nothing is shown before this time, and then once in so long.
const PATIENCE: Duration = Duration::from_secs(2);
const SHOW_EVERY: Duration = Duration::from_millis(500);

fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::Replay(error.to_string())
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    let settings = args.settings()?;
    let reports = args.reports()?;
    let chain = Chain::new(opener(args.source.clone()), args.choice()).map_err(failed)?;
    let streams = chain.streams().to_vec();
    let targets = route::targets(&streams, &args.to).map_err(failed)?;
    let outputs = route::open(&streams, &targets, |_| {
        Err(onbeat_replay::sink::SinkError {
            sink: "ros".into(),
            fault: "not built in: use --to udp:HOST:PORT".into(),
        })
    });
    let outputs = outputs.map_err(failed)?;
    let control = Arc::new(Control::default());
    if args.paused {
        control.pause();
    }
    // Before the threads start, which inherit it.
    keys::catch_signals();
    let session = Session::start(Box::new(chain), outputs, &settings, control.clone());
    let session = session.map_err(failed)?;
    watch(&session, &control);
    let played = session.finish().map_err(failed)?;
    for (path, kind) in &reports {
        write_report(path, *kind, &played)?;
    }
    let mut out = BufWriter::new(io::stdout().lock());
    match args.json {
        true => term::write_json(&mut out, &played)?,
        false => show::table(&mut out, &played)?,
    }
    out.flush().map_err(CliError::Stdout)?;
    verdict(&args, &played)
}

/// Opens the recording, as often as it is played.
fn opener(path: PathBuf) -> onbeat_replay::chain::Open {
    Box::new(move || source::open(&path))
}

/// Shows how far it is, and passes keys and signals on, until it is over.
fn watch(session: &Session, control: &Control) {
    let mut line = LiveLine::new();
    let keys = Keys::of_terminal();
    if keys.is_some() && control.state().paused {
        line.print("Paused: space goes on, s plays one item, q ends.");
    }
    let (started, mut shown) = (Instant::now(), Instant::now());
    while !session.is_over() {
        match Keys::wait(keys.as_ref(), LOOK) {
            Some(Key::Pause) if control.state().paused => control.go_on(),
            Some(Key::Pause) => control.pause(),
            Some(Key::Step) => control.step(),
            Some(Key::End) => control.stop(),
            None => {}
        }
        if keys::was_interrupted() {
            control.stop();
        }
        if started.elapsed() > PATIENCE && shown.elapsed() > SHOW_EVERY {
            shown = Instant::now();
            line.show(&show::progress(&control.state()));
        }
    }
    line.clear();
}

/// Which form a report has.
#[derive(Debug, Clone, Copy)]
enum Report {
    Json,
    Html,
    Svg,
}

fn write_report(path: &Path, kind: Report, played: &Played) -> Result<(), CliError> {
    files::write_whole(path, |out| match kind {
        Report::Json => {
            serde_json::to_writer_pretty(&mut *out, played)?;
            out.write_all(b"\n")
        }
        Report::Html => out.write_all(picture::html(played).as_bytes()),
        Report::Svg => out.write_all(picture::svg(&played.figures).as_bytes()),
    })
}

fn verdict(args: &Args, played: &Played) -> Result<ExitStatus, CliError> {
    if let Some(why) = &played.failed {
        return Err(failed(why));
    }
    if played.items.lost > 0 {
        return Err(failed(format!(
            "{} items were read and have not left: report this as a bug",
            played.items.lost
        )));
    }
    let late = Duration::from_nanos(played.figures.lateness_ns.extent.max);
    Ok(match args.max_late {
        _ if played.items.read == 0 && !played.stopped => ExitStatus::NothingFound,
        Some(most) if late > most => ExitStatus::PromiseBroken,
        _ => ExitStatus::Success,
    })
}
