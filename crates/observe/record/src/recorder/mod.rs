//! Records a system into a trace directory until the duration is over, a signal comes, or the
//! command has ended.

mod crowd;
mod error;
mod log;
mod losses;
mod manifest;
mod observer;
mod options;
mod output;
mod place;
mod preloaded;
mod readiness;
mod recording;
mod session;
mod threads;
mod tracepoints;

pub use error::RecordError;
pub use observer::{Control, Observer, Progress, Summary};
pub use options::{FileOptions, RecordOptions, Target, Way, DEFAULT_BUFFER_BYTES};

use crate::command::RecordedCommand;
use observer::ProgressOnly;
use preloaded::Preloaded;
use recording::Recording;
use session::Session;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest time that the recorder waits for records before it does its other work.
const POLL: Duration = Duration::from_millis(250);
const MANIFEST_EVERY: Duration = Duration::from_secs(10);
const CLOCK_EVERY: Duration = Duration::from_secs(1);
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Records until the duration is over, a signal arrives, or the command has ended. Calls `report`
/// about once a second.
pub fn record(
    options: &RecordOptions,
    report: impl FnMut(&Progress),
) -> Result<Summary, RecordError> {
    record_observed(options, &mut ProgressOnly(report))
}

/// Records like [`record`], and also passes the events to `observer`, which may end the recording.
pub fn record_observed(
    options: &RecordOptions,
    observer: &mut dyn Observer,
) -> Result<Summary, RecordError> {
    // Signals come first, because attaching all probes takes seconds on a busy machine.
    let signals = Signals::catch(options.hangup.as_ref()).map_err(RecordError::Signals)?;
    if options.way == Way::Preload {
        return observe(Preloaded::begin(options)?, options, &signals, observer);
    }
    match Recording::begin(options) {
        Err(refusal) if refusal.is_refusal() && options.is_either() => {
            let preloaded = Preloaded::begin(options)?;
            observer.refused(&refusal);
            observe(preloaded, options, &signals, observer)
        }
        recording => observe(recording?, options, &signals, observer),
    }
}

fn observe(
    mut recording: impl Session,
    options: &RecordOptions,
    signals: &Signals,
    observer: &mut dyn Observer,
) -> Result<Summary, RecordError> {
    let mut command = match &options.target {
        Target::Command { words, to_stderr } => {
            Some(recording.start_command(words, *to_stderr, options.library.as_ref())?)
        }
        Target::Everything | Target::Processes(_) => None,
    };
    recording.drop_privileges(false);
    let result = run(&mut recording, command.as_mut(), options, signals, observer);
    // This runs also when writing failed, so that no process of the command stays stopped.
    recording.stop_suspending();
    let resume = || {
        if let Some(command) = &command {
            command.resume_all();
        }
    };
    resume();
    let summary = result.and_then(|status| recording.finish(status, observer));
    resume();
    summary
}

/// Records until a signal, the duration, the observer or the command's end stops the recording.
/// Returns the command's exit status if the command has ended.
fn run(
    recording: &mut impl Session,
    mut command: Option<&mut RecordedCommand>,
    options: &RecordOptions,
    signals: &Signals,
    observer: &mut dyn Observer,
) -> Result<Option<i32>, RecordError> {
    let begin = Instant::now();
    let mut upkeep = Upkeep::new(begin, options.files.flush_every);
    loop {
        recording.turn(POLL, observer)?;
        upkeep.run(recording, observer)?;
        let is_over = observer.is_over() || options.duration.is_some_and(|d| begin.elapsed() >= d);
        let stop = signals.stop().or(is_over.then_some(Stop::Over));
        match (&mut command, stop) {
            (None, Some(_)) => return Ok(None),
            (None, None) => {}
            (Some(command), stop) => {
                if let Some(status) = command.exit_status() {
                    return Ok(Some(status));
                }
                if let Some(stop) = stop {
                    if !command.is_ending() {
                        observer.ending();
                    }
                    command.ask_to_end(stop == Stop::Interrupted);
                }
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    Over,
    Interrupted,
    Terminated,
}

struct Signals {
    interrupt: Arc<AtomicBool>,
    terminate: Arc<AtomicBool>,
}

impl Signals {
    fn catch(hangup: Option<&Arc<AtomicBool>>) -> std::io::Result<Signals> {
        let signals = Signals {
            interrupt: Arc::default(),
            terminate: Arc::default(),
        };
        for (signal, flag) in [
            (libc::SIGINT, &signals.interrupt),
            (libc::SIGTERM, &signals.terminate),
            (libc::SIGHUP, hangup.unwrap_or(&signals.terminate)),
        ] {
            signal_hook::flag::register(signal, Arc::clone(flag))?;
        }
        Ok(signals)
    }

    fn stop(&self) -> Option<Stop> {
        if self.terminate.load(Ordering::Relaxed) {
            Some(Stop::Terminated)
        } else if self.interrupt.load(Ordering::Relaxed) {
            Some(Stop::Interrupted)
        } else {
            None
        }
    }
}

struct Upkeep {
    clock: Interval,
    report: Interval,
    flush: Interval,
    manifest: Interval,
    last_report: Progress,
}

impl Upkeep {
    fn new(now: Instant, flush_every: Duration) -> Upkeep {
        Upkeep {
            clock: Interval::new(now, CLOCK_EVERY),
            report: Interval::new(now + REPORT_EVERY, REPORT_EVERY),
            flush: Interval::new(now + flush_every, flush_every),
            manifest: Interval::new(now, MANIFEST_EVERY),
            last_report: Progress::default(),
        }
    }

    fn run(
        &mut self,
        recording: &mut impl Session,
        observer: &mut dyn Observer,
    ) -> Result<(), RecordError> {
        let now = Instant::now();
        if self.clock.is_due(now) {
            recording.log().note_clock_offset();
            recording.count_losses();
        }
        if self.report.is_due(now) {
            let progress = recording.progress().since(&self.last_report);
            self.last_report = progress;
            observer.progress(&progress);
        }
        if self.flush.is_due(now) {
            recording.log().flush()?;
        }
        if self.manifest.is_due(now) {
            let described = recording.described();
            recording.log().write_manifest(described)?;
        }
        Ok(())
    }
}

struct Interval {
    next: Instant,
    period: Duration,
}

impl Interval {
    fn new(first: Instant, period: Duration) -> Interval {
        Interval {
            next: first,
            period,
        }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = now >= self.next;
        if is_due {
            self.next = now + self.period;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_skips_the_due_times_that_were_missed() {
        let begin = Instant::now();
        let second = Duration::from_secs(1);
        let mut every = Interval::new(begin + second, second);
        assert!(!every.is_due(begin));
        assert!(every.is_due(begin + 5 * second));
        assert!(!every.is_due(begin + 5 * second + second / 2));
        assert!(every.is_due(begin + 6 * second));
    }
}
