//! Writes a session of LTTng as a trace of onbeat, in two passes over the session.

use crate::convert::Converter;
use crate::kinds::{Kind, Needs};
use crate::notes::sentences;
use crate::session::{Session, SessionError, Trace, Visitor};
use crate::stream::Seen;
use crate::survey::Survey;
use onbeat_trace::manifest::{
    Machine, Manifest, Means, Observed, Probing, ProcessInfo, Scheduling, Span, SCHEMA,
};
use onbeat_trace::{Event, EventKind, TraceCreateError, TraceWriteError, Writer, WriterOptions};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ImportError {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("{}: the trace has no event of ROS 2 (ros2:*). Record with `lttng enable-event -u 'ros2:*'` or `ros2 trace`", .0.display())]
    NoRos(PathBuf),
    #[error("{}: the events of ROS 2 do not show their process and thread. Record with `lttng add-context -u -t vpid -t vtid -t procname`", .0.display())]
    NoThreads(PathBuf),
    #[error("{}: the trace has too many threads. Import a shorter session", .0.display())]
    TooLarge(PathBuf),
    #[error(transparent)]
    Create(#[from] TraceCreateError),
    #[error(transparent)]
    Write(#[from] TraceWriteError),
}

/// The counts of an import, and what the trace lacks.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug)]
pub struct Imported {
    pub events: u64,
    /// The number of processes with events of ROS 2.
    pub processes: usize,
    /// The time from the first to the last event that is a context switch or an event of ROS 2.
    pub duration_ns: u64,
    pub lost: u64,
    /// At least one process has events that only rclcpp makes, for example the start of a callback.
    pub has_callbacks: bool,
    /// Sentences about what the trace lacks. The importer also writes them into the manifest.
    pub notes: Vec<String>,
}

/// Imports the session of LTTng below `from` into a new trace in `to`. `mode` is the mode of the
/// run, or empty. `progress` is called from time to time with the number of bytes read so far and
/// in total. Each byte counts twice, because the session is read twice.
///
/// # Errors
///
/// Fails if the session has no usable events of ROS 2, or if the trace cannot be written. `to` then
/// has no files of the trace. Damaged parts of the session only add a note.
pub fn import(
    from: &Path,
    to: &Path,
    mode: &str,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Imported, ImportError> {
    let session = Session::open(from)?;
    let survey = survey(from, &session, progress)?;
    let is_new = !to.exists();
    let remove_directory = || {
        // Fails if the directory is not empty.
        let _ = std::fs::remove_dir(to);
    };
    let created = Writer::create(to, WriterOptions::default());
    let writer = created.inspect_err(|_| {
        if is_new {
            remove_directory();
        }
    })?;
    let unfinished = writer.unfinished();
    let written = write(writer, from, &session, &survey, mode, progress);
    if let (Err(_), Ok(unfinished)) = (&written, unfinished) {
        unfinished.remove();
        if is_new {
            remove_directory();
        }
    }
    written
}

fn write(
    mut writer: Writer,
    from: &Path,
    session: &Session,
    survey: &Survey,
    mode: &str,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Imported, ImportError> {
    let (start, end) = survey.span.unwrap_or_default();
    let offset = session.offset_ns();
    writer.push(&Event {
        time_ns: start,
        cpu: 0,
        pid: 0,
        tid: 0,
        kind: EventKind::ClockOffset {
            realtime_minus_monotonic_ns: offset,
        },
    })?;
    let mut second = Second {
        converter: Converter::new(survey),
        writer: &mut writer,
        out: Vec::new(),
        failed: None,
        progress,
    };
    let pass = session.each(&mut second)?;
    if let Some(error) = second.failed {
        return Err(error.into());
    }
    let notes = sentences(from, survey, second.converter.left_out, &pass);
    let lost = pass.gaps.iter().map(|(_, gaps)| gaps.discarded).sum();
    let duration_ns = end - start;
    let manifest = Manifest {
        schema: SCHEMA.into(),
        mode: mode.into(),
        span: Span {
            start_realtime_ns: start.saturating_add_signed(offset),
            start_monotonic_ns: start,
            duration_ns,
        },
        machine: machine(session),
        observed: observed(survey),
        lost: losses(lost),
        coverage: notes.clone(),
        ..Manifest::default()
    };
    let processes = survey.processes.len();
    writer.flush()?;
    let events = writer.events_written();
    writer.finish(manifest)?;
    Ok(Imported {
        events,
        processes,
        duration_ns,
        lost,
        has_callbacks: survey.processes.values().any(|p| p.is_of_rclcpp),
        notes,
    })
}

struct First<'a> {
    survey: Survey,
    progress: &'a mut dyn FnMut(u64, u64),
}

impl Visitor for First<'_> {
    fn needs(&self, kind: Kind) -> Needs {
        Survey::needs(kind)
    }

    fn event(&mut self, trace: &Trace, time_ns: u64, seen: &Seen) {
        self.survey.see(trace, time_ns, seen);
    }

    fn progress(&mut self, done: u64, total: u64) {
        (self.progress)(done, total.saturating_mul(2));
    }
}

struct Second<'a> {
    converter: Converter<'a>,
    writer: &'a mut Writer,
    out: Vec<Event>,
    failed: Option<TraceWriteError>,
    progress: &'a mut dyn FnMut(u64, u64),
}

impl Second<'_> {
    fn write(&mut self) {
        for event in self.out.drain(..) {
            if self.failed.is_none() {
                self.failed = self.writer.push(&event).err();
            }
        }
    }
}

impl Visitor for Second<'_> {
    fn needs(&self, kind: Kind) -> Needs {
        match kind {
            Kind::Other => Needs::Nothing,
            Kind::Ros { .. } | Kind::Scheduler(_) => Needs::ContextsAndFields,
        }
    }

    fn event(&mut self, trace: &Trace, time_ns: u64, seen: &Seen) {
        self.converter.convert(trace, time_ns, seen, &mut self.out);
        self.write();
    }

    fn lost(&mut self, time_ns: u64, count: u64) {
        self.out.push(Event {
            time_ns,
            cpu: 0,
            pid: 0,
            tid: 0,
            kind: EventKind::Lost {
                probe: LOST.into(),
                count,
            },
        });
        self.write();
    }

    fn progress(&mut self, done: u64, total: u64) {
        (self.progress)(total.saturating_add(done), total.saturating_mul(2));
    }
}

fn survey(
    from: &Path,
    session: &Session,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Survey, ImportError> {
    let mut first = First {
        survey: Survey::default(),
        progress,
    };
    session.each(&mut first)?;
    let survey = first.survey;
    if survey.is_too_large {
        return Err(ImportError::TooLarge(from.into()));
    }
    if survey.processes.is_empty() {
        return Err(match survey.nameless {
            0 => ImportError::NoRos(from.into()),
            _ => ImportError::NoThreads(from.into()),
        });
    }
    Ok(survey)
}

/// The name under which onbeat counts lost events. LTTng does not say which kinds of events it
/// lost.
const LOST: &str = "lttng";

fn losses(lost: u64) -> BTreeMap<String, BTreeMap<u16, u64>> {
    match lost {
        0 => BTreeMap::new(),
        lost => BTreeMap::from([(LOST.into(), BTreeMap::from([(0, lost)]))]),
    }
}

fn machine(session: &Session) -> Machine {
    let of = |name: &str| {
        let found = session
            .traces
            .iter()
            .find_map(|t| t.metadata.environment.get(name));
        found.map_or(String::new(), |text| text.to_string())
    };
    let clock = session
        .traces
        .first()
        .and_then(|t| t.metadata.clock.as_ref());
    Machine {
        hostname: of("hostname"),
        boot_id: clock.map_or(String::new(), |clock| clock.uuid.to_string()),
        kernel: of("kernel_release"),
        recorder_version: format!("LTTng {}.{}", of("tracer_major"), of("tracer_minor")),
    }
}

fn observed(survey: &Survey) -> Observed {
    let mut distributions: Vec<String> = survey
        .processes
        .values()
        .map(|p| p.distribution().to_string())
        .filter(|d| !d.is_empty())
        .collect();
    distributions.sort();
    distributions.dedup();
    let process = |(pid, p): (&u32, &crate::survey::Process)| ProcessInfo {
        pid: *pid,
        command: p.name.clone(),
        distribution: p.distribution().into(),
        rmw: String::new(),
        late: !p.has_nodes,
        nodes: p.nodes.iter().cloned().collect(),
    };
    Observed {
        distributions,
        processes: survey.processes.iter().map(process).collect(),
        threads: Vec::new(),
        probes: Vec::new(),
        means: Means {
            probing: Probing::Lttng,
            scheduling: match survey.scheduler.switches {
                Some(_) => Scheduling::Lttng,
                None => Scheduling::None,
            },
        },
    }
}
