//! Finds the cause of each pattern in recordings: which middleware thread had no CPU, which thread
//! had it instead, and which lock the middleware thread held while a main thread slept for it.

mod course;
mod judge;

use super::condition::Condition;
use super::in_turns;
use super::programs::{Middleware, Programs, MIDDLEWARES};
use super::run::{Run, CORE};
use crate::frame::report::Report;
use crate::frame::{Context, Result};
use crate::measure::recorder::{self, Recorder};
use course::Course;
use judge::Judged;
use onbeat_trace::Event;
use std::path::Path;

/// The size of the recorder's buffer. The buffer has room for all events of a run, because the
/// recorder shares its CPU with the measured threads and may not run in time.
const BUFFER: &str = "64M";

pub struct Recorded {
    pub condition: Condition,
    pub round: usize,
    pub run: Run,
    pub course: Course,
}

pub fn measure(context: &mut Context, report: &mut Report, programs: &Programs) -> Result<()> {
    let mut judged = Judged::default();
    for middleware in MIDDLEWARES.into_iter().filter(|m| programs.has(*m)) {
        let recorded = record(context, report, programs, middleware)?;
        judged.add(context, report, middleware, &recorded)?;
    }
    judged.add_tables(report);
    Ok(())
}

fn record(
    context: &mut Context,
    report: &mut Report,
    programs: &Programs,
    middleware: Middleware,
) -> Result<Vec<Recorded>> {
    let conditions = Condition::inhibited();
    let rounds = context.pick(18, 3);
    let dir = context.dir().join(format!("{}.trace", middleware.part()));
    let arguments = ["--all-threads", "--buffer", BUFFER];
    let recorder = Recorder::attach(context, &dir, &[], &arguments)?;
    let turns = (&conditions[..], rounds, ", recorded");
    let runs = in_turns(context, programs, middleware, turns)?;
    context.step("end the recording", 120);
    let manifest = recorder.stop()?.manifest;
    let lost = recorder::lost(&manifest);
    if lost > 0 {
        report.note(format!(
            "{}: {lost} events are missing in the recording",
            middleware.name()
        ));
    }
    let events = read(&dir)?;
    let recorded = runs.into_iter().map(|(index, round, run)| Recorded {
        condition: conditions[index],
        round,
        course: course_of(&events, &run),
        run,
    });
    Ok(recorded.collect())
}

fn read(dir: &Path) -> Result<Vec<Event>> {
    let mut events: Vec<Event> = recorder::open(dir)?.events().collect();
    events.sort_by_key(|e| e.time_ns);
    Ok(events)
}

fn course_of(events: &[Event], run: &Run) -> Course {
    let (from, to) = run.identity.span_ns;
    let first = events.partition_point(|e| e.time_ns < from);
    let last = events.partition_point(|e| e.time_ns <= to);
    let processes: Vec<u32> = run.identity.processes.iter().map(|p| p.1).collect();
    Course::of(events[first..last].iter(), &processes, CORE, to)
}
