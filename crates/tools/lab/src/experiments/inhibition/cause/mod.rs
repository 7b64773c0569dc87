//! What decides between the patterns, from recordings: which of the middleware's threads was ready and
//! had no CPU, who had it, and for which lock a main thread slept whose holder was such a thread.

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

/// Room for all events of a run of threads that the recorder shares its CPU with.
const BUFFER: &str = "64M";

/// A recorded run.
pub struct Recorded {
    /// Under which condition.
    pub condition: Condition,
    /// Which of its runs.
    pub round: usize,
    /// What it has measured.
    pub run: Run,
    /// What the recording shows of it.
    pub course: Course,
}

/// Records runs of every middleware, and looks into them.
pub fn measure(context: &mut Context, report: &mut Report, programs: &Programs) -> Result<()> {
    let mut judged = Judged::default();
    for middleware in MIDDLEWARES.into_iter().filter(|m| programs.has(*m)) {
        let recorded = record(context, report, programs, middleware)?;
        judged.add(context, report, middleware, &recorded)?;
    }
    judged.tell(report);
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
            "{}: the recording lost {lost} events",
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
