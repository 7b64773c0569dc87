//! The sources of events: a running system, and a recorded trace.

use crate::feed::Feed;
use crate::sink::Sink;
use onbeat_record::{Control, Observer, Progress, RecordError, RecordOptions, Summary};
use onbeat_synth::SynthOptions;
use onbeat_terminal::traces::{run_of, warn};
use onbeat_terminal::{files, term, CliError};
use onbeat_trace::Event;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const HINT: &str = "; show a model with `onbeat show`";

const PART_NS: u64 = 100_000_000;

struct Watching<'a> {
    feed: Feed,
    sink: &'a mut dyn Sink,
    failed: Option<CliError>,
    last: Instant,
}

impl Watching<'_> {
    fn show(&mut self, is_last: bool) {
        if self.failed.is_none() {
            self.failed = self.sink.show(&mut self.feed, is_last).err();
        }
    }
}

const EVERY: Duration = Duration::from_millis(950);

impl Observer for Watching<'_> {
    fn events(&mut self, events: &[Event], _: &Control<'_>) {
        self.feed.push(events);
        if self.last.elapsed() >= EVERY || self.sink.is_urgent() {
            self.last = Instant::now();
            self.show(false);
        }
    }

    fn refused(&mut self, why: &RecordError) {
        let why = term::one_line(&why.to_string());
        self.sink.note(&format!(
            "BPF programs were refused, so onbeat watches as with --preload: {why}"
        ));
    }

    fn progress(&mut self, _: &Progress) {}

    fn is_kept(&self, _: &Event) -> bool {
        self.sink.keeps_events()
    }

    fn is_over(&self) -> bool {
        self.failed.is_some() || self.sink.is_over()
    }
}

pub fn watch(
    options: &RecordOptions,
    feed: Feed,
    sink: &mut dyn Sink,
) -> Result<Summary, CliError> {
    let mut watching = Watching {
        feed,
        sink,
        failed: None,
        last: Instant::now(),
    };
    let summary = onbeat_record::record_observed(options, &mut watching);
    let summary = summary.map_err(|e| match e {
        e if e.is_refusal() => CliError::Refused(e.to_string()),
        e if e.is_usage() => CliError::Usage(e.to_string()),
        e => CliError::failed(e),
    })?;
    watching.feed.end();
    watching.show(true);
    match watching.failed {
        Some(error) => Err(error),
        None => Ok(summary),
    }
}

pub fn catch_signals() -> Result<Arc<AtomicBool>, CliError> {
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let caught = signal_hook::flag::register(signal, Arc::clone(&asked));
        caught.map_err(|e| CliError::failed(format!("cannot catch signals: {e}")))?;
    }
    Ok(asked)
}

pub struct Pace {
    /// The factor by which the trace is played faster than it was recorded. If it is infinite,
    /// playing does not wait.
    pub speed: f64,
    pub duration: Option<Duration>,
}

/// Plays a recorded trace. Ends early if the sink needs no more figures or a signal comes.
pub fn play(
    path: &Path,
    pace: &Pace,
    requirements: Option<onbeat_check::Requirements>,
    sink: &mut dyn Sink,
) -> Result<(), CliError> {
    let mut reader = files::open_trace(path, "`onbeat top`", HINT)?;
    warn(path, reader.warnings());
    let mut options = SynthOptions::new(run_of(&reader, None));
    options.shortened = !reader.has_beginning();
    let mut feed = Feed::new(options, requirements);
    let asked = catch_signals()?;
    let begin = Instant::now();
    let (mut part, mut first, mut part_end, mut shown) = (Vec::new(), None, 0, 0);
    let is_over = |sink: &dyn Sink| sink.is_over() || asked.load(Relaxed);
    for event in reader.events() {
        let since = event
            .time_ns
            .saturating_sub(*first.get_or_insert(event.time_ns));
        if pace
            .duration
            .is_some_and(|d| u128::from(since) >= d.as_nanos())
        {
            break;
        }
        if since >= part_end {
            feed.push(&part);
            part.clear();
            let due = Duration::from_secs_f64(part_end as f64 / 1e9 / pace.speed.max(1e-3));
            part_end = (since / PART_NS + 1) * PART_NS;
            if wait(begin + due, || is_over(sink)) {
                break;
            }
            if since / 1_000_000_000 > shown || sink.is_urgent() {
                shown = since / 1_000_000_000;
                sink.show(&mut feed, false)?;
            }
        }
        part.push(event);
    }
    feed.push(&part);
    feed.end();
    sink.show(&mut feed, true)
}

fn wait(due: Instant, is_over: impl Fn() -> bool) -> bool {
    loop {
        if is_over() {
            return true;
        }
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}
