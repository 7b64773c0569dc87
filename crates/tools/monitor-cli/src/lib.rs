//! `onbeat-monitor`: the program behind `onbeat monitor`, which keeps watch over a system.

mod counters;
mod diagnosis;
mod exposition;
mod http;
mod incident;
mod journal;
mod memory;
mod metrics;
mod options;
mod otlp;
mod program;
mod save;
mod saver;
mod session;
mod source;
mod store;
mod watch;

use diagnosis::Diagnosis;
use http::Latest;
use journal::{Journal, Level};
use onbeat_check::Requirements;
use onbeat_record::Summary;
use onbeat_rights::Capability;
use onbeat_synth::SynthOptions;
use onbeat_terminal::{files, CliError, ExitStatus};
use options::{ns, Args};
use otlp::Otlp;
use program::Programs;
use saver::Saver;
use session::{Outputs, Saving, Session};
use source::Reload;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use store::Store;
use watch::{Watch, WatchOptions};

/// The longest time in ns from an event until a running recording has written the event to its
/// files. It allows for a slow disk.
const DELAY_NS: u64 = 2_500_000_000;

#[derive(clap::Parser)]
#[command(name = "onbeat", max_term_width = 100)]
enum Words {
    Monitor(Box<Args>),
}

/// The command line with which the monitor starts its own program as the publisher of diagnostics.
#[derive(clap::Parser)]
#[command(name = "onbeat")]
enum PublisherWords {
    Diagnostics {
        #[arg(value_parser = ["-"])]
        _config: String,
    },
}

/// Gives up all rights except those for recording and for entering a container. The remaining
/// rights stay inactive until the monitor has read the files that the user named.
fn confine() -> io::Result<()> {
    let recorder = onbeat_record::AT_START.iter().copied();
    // To enter the file systems of a container (`--diagnostics`).
    let all: Vec<_> = recorder.chain([Capability::CAP_SYS_CHROOT]).collect();
    onbeat_rights::limit_to(&all)
}

/// Runs the program with these words of its command line. The first word is the name under which
/// `onbeat` started it.
pub fn main(words: Vec<OsString>) -> ExitCode {
    memory::use_one_heap();
    if words.len() == 3 && words[1] == "diagnostics" && words[2] == "-" {
        let confine = || onbeat_rights::give_up(&[]);
        return onbeat_terminal::run(words, confine, |PublisherWords::Diagnostics { .. }| {
            diagnosis::publish().map(|()| ExitStatus::Success)
        });
    }
    onbeat_terminal::helper(
        words,
        &["monitor"],
        |_| confine(),
        |Words::Monitor(args)| run(&args),
    )
}

fn run(args: &Args) -> Result<ExitStatus, CliError> {
    args.check()?;
    let requirements = read_requirements(&args.requirements)?;
    match &args.trace {
        Some(trace) => of_trace(args, trace, requirements),
        None => of_system(args, requirements),
    }
}

fn read_requirements(path: &Path) -> Result<Requirements, CliError> {
    let bytes = files::read_at_most(path, onbeat_check::MAX_BYTES)?;
    onbeat_check::read(&bytes).map_err(CliError::in_file(path))
}

struct Recorded {
    host: String,
    /// The offset of CLOCK_REALTIME from CLOCK_MONOTONIC, in ns.
    offset_ns: i128,
}

fn outputs(
    args: &Args,
    store: Option<Store>,
    recorded: Option<Recorded>,
) -> Result<Outputs, CliError> {
    let is_live = recorded.is_none();
    let mut journal = Journal::begin(!is_live);
    let latest = match args.http {
        None => None,
        Some(at) => {
            let latest = Latest::default();
            let served = http::serve(at, Arc::clone(&latest));
            let at = served.map_err(|e| {
                CliError::Failed(format!(
                    "cannot serve metrics at {at}: {e}. Choose another port with --http"
                ))
            })?;
            journal.say(Level::Notice, &format!("metrics: http://{at}/metrics"));
            Some(latest)
        }
    };
    let diagnosis = args
        .diagnostics
        .then(|| Diagnosis::begin(args.latency_topics))
        .transpose();
    let diagnosis = diagnosis.map_err(CliError::failed)?;
    let otlp = args.otlp.clone().map(|endpoint| {
        let (host, offset_ns) = match recorded {
            Some(recorded) => (recorded.host, Some(recorded.offset_ns)),
            None => (onbeat_proc::system::hostname(), None),
        };
        Otlp::begin(endpoint, host, offset_ns)
    });
    let otlp = otlp.transpose().map_err(CliError::failed)?;
    Ok(Outputs {
        journal,
        otlp,
        diagnosis,
        saver: Saver::begin(store, args.saves.saves_per_hour, !is_live),
        programs: Programs::new(args.exec.as_deref(), !is_live),
        latest,
        textfile: args.textfile.clone(),
        incidents: args.saves.incidents.clone(),
    })
}

fn saving(args: &Args, recording: Option<PathBuf>, delay_ns: u64) -> Saving {
    Saving {
        recording,
        before_ns: ns(args.saves.before),
        after_ns: ns(args.saves.after),
        delay_ns,
    }
}

fn watch(args: &Args, synth: SynthOptions, requirements: Requirements, is_live: bool) -> Watch {
    Watch::new(WatchOptions {
        synth,
        requirements,
        span: args.window,
        join_ns: ns(args.saves.after),
        is_paced: is_live,
    })
}

fn store(args: &Args) -> Result<Option<Store>, CliError> {
    let path = args.saves.incidents.as_deref();
    path.map(|path| Store::open(path, args.saves.max_size))
        .transpose()
}

fn of_trace(args: &Args, trace: &Path, requirements: Requirements) -> Result<ExitStatus, CliError> {
    onbeat_rights::give_up(&[]).map_err(CliError::failed)?;
    let reader = source::open(trace)?;
    let store = store(args)?;
    let recording = store.is_some().then(|| trace.to_path_buf());
    let span = &reader.manifest().span;
    let recorded = Recorded {
        host: reader.manifest().machine.hostname.clone(),
        offset_ns: i128::from(span.start_realtime_ns) - i128::from(span.start_monotonic_ns),
    };
    let outputs = outputs(args, store, Some(recorded))?;
    let watch = watch(args, source::synth_options(&reader), requirements, false);
    let mut session = Session::new(watch, outputs, saving(args, recording, 0), true);
    source::play(reader, &mut session)?;
    Ok(ended(args, session))
}

fn of_system(args: &Args, requirements: Requirements) -> Result<ExitStatus, CliError> {
    let hangup = Arc::new(AtomicBool::new(false));
    // With a terminal, SIGHUP means that the terminal was closed.
    let is_service = std::fs::File::open("/dev/tty").is_err();
    if is_service {
        // The recorder catches the signal as soon as it records. A reload before that must not end the
        // monitor: a service manager does not restart what SIGHUP has ended.
        let caught = signal_hook::flag::register(libc::SIGHUP, Arc::clone(&hangup));
        caught.map_err(|e| CliError::failed(format!("cannot catch signals: {e}")))?;
    }
    let store = store(args)?;
    // Only a monitor without a store needs a temporary directory, because a killed one leaves it behind.
    let (held, directory) = match &store {
        Some(store) => (None, store.way(store::RECORDING)),
        None => {
            let held = temporary()?;
            let directory = held.path().join("trace");
            (Some(held), directory)
        }
    };
    let recording = store.is_some().then(|| directory.clone());
    let options = args.record_options(&directory, is_service.then(|| Arc::clone(&hangup)));
    let outputs = outputs(args, store, None)?;
    let watch = watch(args, source::live_options(), requirements, true);
    let keeps = recording.is_some();
    let mut session = Session::new(watch, outputs, saving(args, recording, DELAY_NS), false);
    let reload = Reload {
        asked: hangup,
        path: args.requirements.clone(),
    };
    let summary = source::watch(&options, &mut session, reload, keeps)?;
    drop(held);
    let status = ended(args, session);
    Ok(with_command(&summary, status))
}

fn temporary() -> Result<tempfile::TempDir, CliError> {
    let held = tempfile::Builder::new().prefix("onbeat-monitor-").tempdir();
    held.map_err(|e| {
        CliError::failed(format!(
            "cannot make a temporary directory: {e}. Set TMPDIR"
        ))
    })
}

fn ended(args: &Args, mut session: Session) -> ExitStatus {
    let has_found = session.has_found();
    let counters = session.close();
    match (has_found, counters.incidents > 0 && args.is_test()) {
        (_, true) => ExitStatus::PromiseBroken,
        (true, false) => ExitStatus::Success,
        (false, false) => ExitStatus::NothingFound,
    }
}

fn with_command(summary: &Summary, status: ExitStatus) -> ExitStatus {
    match summary.command_status {
        Some(code) if code != 0 => ExitStatus::Command(code),
        _ => status,
    }
}
