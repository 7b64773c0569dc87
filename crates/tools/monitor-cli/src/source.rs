//! The sources of events: a running system, and a recorded trace.

use crate::journal::Level;
use crate::read_requirements;
use crate::session::Session;
use onbeat_document::schema::{Run, DEFAULT_MODE};
use onbeat_record::{Control, Observer, Progress, RecordError, RecordOptions, Summary};
use onbeat_synth::SynthOptions;
use onbeat_terminal::notify::Notifier;
use onbeat_terminal::traces::{run_of, warn};
use onbeat_terminal::{files, term, CliError};
use onbeat_trace::{Event, Reader};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The recorded time in ns that each part of a trace covers. The monitor reads a trace part by
/// part.
const PART_NS: u64 = 100_000_000;

/// The time between two watchdog messages to the service manager (systemd).
const NOTIFY: Duration = Duration::from_millis(500);

pub struct Reload {
    /// The flag that the handler of SIGHUP sets. The monitor then reads the requirements again.
    pub asked: Arc<AtomicBool>,
    pub path: PathBuf,
}

struct Watching<'a> {
    session: &'a mut Session,
    reload: Reload,
    notifier: Notifier,
    notified: Option<Instant>,
    keeps: bool,
}

impl Watching<'_> {
    fn live(&mut self) {
        if self.reload.asked.swap(false, Relaxed) {
            let read = onbeat_rights::as_caller(|| read_requirements(&self.reload.path));
            self.session.reload(read.map_err(|e| e.to_string()));
        }
        let is_due = self.notified.is_none_or(|at| at.elapsed() >= NOTIFY);
        if is_due {
            self.notified = Some(Instant::now());
            let status = self.session.status();
            self.notifier.lives(&status);
        }
    }
}

impl Observer for Watching<'_> {
    fn events(&mut self, events: &[Event], _: &Control<'_>) {
        self.session.push(events);
        self.live();
    }

    fn refused(&mut self, why: &RecordError) {
        let why = term::one_line(&why.to_string());
        let text = format!("BPF programs were refused, so onbeat watches as with --preload: {why}");
        self.session.say(Level::Notice, &text);
    }

    fn progress(&mut self, _: &Progress) {
        self.live();
    }

    fn is_kept(&self, _: &Event) -> bool {
        self.keeps
    }
}

pub fn watch(
    options: &RecordOptions,
    session: &mut Session,
    reload: Reload,
    keeps: bool,
) -> Result<Summary, CliError> {
    let mut watching = Watching {
        session,
        reload,
        notifier: Notifier::of_environment(),
        notified: None,
        keeps,
    };
    let summary = onbeat_record::record_observed(options, &mut watching);
    watching.notifier.ends();
    let summary = summary.map_err(|e| match e {
        e if e.is_refusal() => CliError::Refused(e.to_string()),
        e if e.is_usage() => CliError::Usage(e.to_string()),
        e => CliError::failed(e),
    });
    session.end();
    let summary = summary?;
    for note in &summary.notes {
        session.say(Level::Notice, note);
    }
    Ok(summary)
}

pub fn open(path: &Path) -> Result<Reader, CliError> {
    let hint = "; judge a model with `onbeat check`";
    let reader = files::open_trace(path, "`onbeat monitor`", hint)?;
    warn(path, reader.warnings());
    Ok(reader)
}

pub fn synth_options(reader: &Reader) -> SynthOptions {
    let mut options = SynthOptions::new(run_of(reader, None));
    options.shortened = !reader.has_beginning();
    options
}

pub fn live_options() -> SynthOptions {
    SynthOptions::new(Run {
        id: "live".into(),
        host: String::new(),
        boot: String::new(),
        mode: DEFAULT_MODE.into(),
        distribution: Vec::new(),
        start: 0,
        duration_ns: 0,
        lost: Default::default(),
        events: 0,
    })
}

/// Judges a whole recorded trace as fast as possible. Ends early on a signal.
pub fn play(mut reader: Reader, session: &mut Session) -> Result<(), CliError> {
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let caught = signal_hook::flag::register(signal, Arc::clone(&asked));
        caught.map_err(|e| CliError::failed(format!("cannot catch signals: {e}")))?;
    }
    let mut part = Vec::new();
    let mut part_end = 0;
    for event in reader.events() {
        if event.time_ns >= part_end {
            session.push(&part);
            part.clear();
            part_end = (event.time_ns / PART_NS + 1) * PART_NS;
            if asked.load(Relaxed) {
                break;
            }
        }
        part.push(event);
    }
    session.push(&part);
    session.end();
    Ok(())
}
