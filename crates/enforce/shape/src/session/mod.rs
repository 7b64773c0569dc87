//! A session: a recording whose observer finds, shapes and judges the application.
//!
//! All information about threads and executions comes from the recording, never from names.

mod begin;
mod follow;
mod listeners;
mod observations;
mod reload;
mod results;
mod run;

pub(crate) use run::Trace;
pub use run::{rights, shape, shape_on};

use crate::error::ShapeError;
use crate::flight::Flight;
use crate::judge::CpuUsage;
use crate::observe::{Application, Execution, PlanObservation};
use crate::options::ShapeOptions;
use crate::plans::Plans;
use crate::report::{Live, Notes};
use crate::shaper::Supervisor;
use crate::stages::{Finding, Stage, Stopped, StoppedBy};
use crate::threads::{Servers, WhoWaits};
use crate::trust::Trust;
use listeners::Listeners;
use onbeat_plan::Plan;
use onbeat_record::{Control, Observer, Progress};
use onbeat_reserve::{GateKind, Server, StartError};
use onbeat_time::clock::monotonic_ns;
use onbeat_trace::Event;
use std::sync::Arc;
use std::time::Duration;

type StartServers<'a> = Box<dyn Fn(&[Server], u64) -> Result<Box<dyn Servers>, StartError> + 'a>;

const NOT_HELD: &str = "A message could not be held inside the application, and left at once. The message was lent by the middleware (loaned), had more than 256 KiB, or 16 other messages waited already. Use --hold outside if this occurs often.";

struct Session<'a> {
    plan: &'a Plan,
    options: &'a ShapeOptions,
    listeners: Listeners<'a>,
    start_servers: StartServers<'a>,
    waits: Arc<WhoWaits>,
    trust: Trust,
    application: Application<'a>,
    supervisor: Supervisor<'a>,
    stage: Stage<'a>,
    /// The present plan and the earlier ones. These plans differ from [`Session::plan`] only in
    /// slots and in values that follow from slots.
    plans: Plans,
    notes: Notes,
    flight: Flight,
    lost_reports: u64,
    error: Option<ShapeError>,
}

impl<'a> Session<'a> {
    fn new(
        plan: &'a Plan,
        options: &'a ShapeOptions,
        report: &'a mut dyn FnMut(&Live),
        (start_servers, waits): (StartServers<'a>, Arc<WhoWaits>),
    ) -> Session<'a> {
        Session {
            plan,
            options,
            listeners: Listeners::new(report),
            start_servers,
            waits,
            trust: Trust::new(options.application.users.as_deref(), |pid| {
                onbeat_proc::user(pid).map(|user| user.uid)
            }),
            application: Application::new(plan, |pid| {
                onbeat_proc::Stat::of(pid).is_some_and(|stat| !stat.has_ended())
            }),
            supervisor: Supervisor::new(plan, &options.program),
            stage: Stage::Finding(Finding::new()),
            plans: Plans::new(plan),
            notes: Notes::default(),
            flight: Flight::default(),
            lost_reports: 0,
            error: None,
        }
    }

    /// Processes events in order of time. `record_also` makes the recorder observe one more
    /// process. After an error, the session ignores events.
    fn push(&mut self, events: &[Event], record_also: &dyn Fn(u32)) {
        if self.error.is_some() {
            return;
        }
        let events = self.trust.of_application(events, &mut self.notes);
        let events = self.application.instances.without_second_instances(events);
        if let Err(error) = self.advance(&events, record_also) {
            if self.runs_on() {
                self.stop_by(StoppedBy::Error);
                self.notes.add(format!(
                    "{error}. The application continues to run, unshaped."
                ));
            }
            self.error = Some(error);
        }
    }

    fn advance(&mut self, events: &[Event], record_also: &dyn Fn(u32)) -> Result<(), ShapeError> {
        let mut completed = self.poll_shaper()?;
        if let Stage::Shaping(shaping) = &mut self.stage {
            shaping.take_changes();
            shaping.free_heirs(events);
            self.flight.moved(shaping.moves());
        }
        if let Some((course, until_ns)) = self.stage.course_mut() {
            course.push_switches(events, until_ns);
            self.flight.push(events);
        }
        self.supervisor.push(events);
        self.ensure_shaper(record_also)?;
        let found = self.application.observe(events);
        let seconds = self.starts_of_second_instances(&found);
        let is_seconds = |o: &PlanObservation| matches!(o, PlanObservation::Left { start_ns, .. } if seconds.contains(start_ns));
        for observation in found.into_iter().filter(|o| !is_seconds(o)) {
            self.application
                .executions
                .see(&observation, &mut completed);
            self.take(&observation, record_also)?;
        }
        for execution in completed {
            self.count(execution);
        }
        self.forget_ended(events);
        self.advance_stage()
    }

    fn poll_shaper(&mut self) -> Result<Vec<Execution>, ShapeError> {
        let polled = self.supervisor.poll()?;
        self.lost_reports += polled.lost;
        if polled.not_held > 0 {
            self.notes.add_once(NOT_HELD.into());
        }
        self.follow_inputs(&polled.arrivals);
        let mut completed = Vec::new();
        for release in polled.releases {
            self.flight.released(release);
            self.application
                .executions
                .released(release, &mut completed);
        }
        if polled.has_stopped && !self.stage.is_stopped() {
            let note = "Shaping ends, because an output was late for its last slot.";
            self.notes.add(note.into());
            self.stop_by(StoppedBy::Overshoot);
        }
        Ok(completed)
    }

    fn ensure_shaper(&mut self, record_also: &dyn Fn(u32)) -> Result<(), ShapeError> {
        if self.stage.is_stopped() {
            return Ok(());
        }
        let Some(beside) = self.supervisor.ensure_shaper()? else {
            return Ok(());
        };
        let Some(shaper) = self.supervisor.shaper_mut() else {
            return Ok(());
        };
        shaper.pid().into_iter().for_each(record_also);
        if let Stage::Shaping(shaping) = &mut self.stage {
            shaping.course.unsettle(self.plan, monotonic_ns());
            let plan = self.plans.newest();
            shaper.shape(shaping.course.phase.phase().origin_ns(), plan);
            self.notes.add(format!(
                "The shaper ended together with the application's process to which it belonged. A new shaper belongs to the application's process {beside}."
            ));
        }
        Ok(())
    }

    fn advance_stage(&mut self) -> Result<(), ShapeError> {
        self.handle_pauses();
        self.handle_reload();
        let shaper = self.supervisor.pid();
        let has_policy = match &mut self.stage {
            Stage::Finding(_) => return self.find(),
            Stage::Shaping(shaping) => {
                shaping.begin_cpu_usage(shaper);
                Some(shaping.has_policy(self.plan))
            }
            Stage::Stopped(_) => None,
        };
        if let Some(shaper) = self.supervisor.shaper_mut() {
            shaper.beat();
            if let Some(has_policy) = has_policy {
                shaper.set_settling(!has_policy);
            }
        }
        Ok(())
    }

    fn handle_pauses(&mut self) {
        if let Stage::Shaping(shaping) = &mut self.stage {
            if !shaping.report_pauses(&mut self.notes) {
                self.stop_by(StoppedBy::Guard);
            }
        }
    }

    fn stop(&mut self) {
        self.stop_by(StoppedBy::Request);
    }

    fn stop_by(&mut self, by: StoppedBy) {
        if self.stage.is_stopped() {
            return;
        }
        let at_ns = monotonic_ns();
        let usage = CpuUsage::now(self.supervisor.pid());
        if let Some(shaper) = self.supervisor.shaper_mut() {
            shaper.pass_through();
        }
        let nothing = Stage::Stopped(Stopped {
            at_ns,
            by,
            shaped: None,
        });
        if let Stage::Shaping(mut shaping) = std::mem::replace(&mut self.stage, nothing) {
            shaping.report_pauses(&mut self.notes);
            let shaped = Some(Box::new(shaping.stop(usage, &mut self.notes)));
            self.stage = Stage::Stopped(Stopped { at_ns, by, shaped });
        }
    }

    /// Returns true if the application continues to run after an error of the session. It continues
    /// if the session started the application and has begun to shape it, because the application
    /// may be at work.
    fn runs_on(&self) -> bool {
        self.stage.course().is_some() && !self.options.application.command.is_empty()
    }

    fn is_done(&self) -> bool {
        let elapsed: Option<Duration> = self.stage.course().map(|c| c.elapsed());
        matches!((elapsed, self.options.duration), (Some(e), Some(d)) if e >= d)
    }
}

impl Observer for Session<'_> {
    fn events(&mut self, events: &[Event], control: &Control<'_>) {
        self.waits.set_table(|| control.waits());
        self.supervisor.lineage_feed_mut().set(|| control.lineage());
        self.push(events, &|pid| control.observe(pid));
    }

    fn ending(&mut self) {
        // The application ends as it would without onbeat: its threads are no longer gated, and its
        // outputs are no longer held back.
        self.stop();
    }

    fn progress(&mut self, progress: &Progress) {
        self.trust.report_outside(
            progress.outside,
            &self.options.application.limits,
            &mut self.notes,
        );
        self.application.instances.refresh();
        self.handle_pauses();
        self.handle_reload();
        let senders = self.supervisor.senders();
        if let Stage::Shaping(shaping) = &mut self.stage {
            shaping.course.passed(monotonic_ns(), self.options.duration);
            // The middleware starts threads when other processes join.
            let is_ours = |pid| self.trust.still_holds(pid);
            shaping.find_threads(&self.application, &senders, &is_ours, &mut self.notes);
            if self.options.enforcement.gate == GateKind::Soft && self.waits.has_table() {
                shaping.name_unknown(&mut self.notes);
            }
        }
        self.report_state();
    }

    /// Returns true if an event belongs into the recording. Only events from the time in which the
    /// application was shaped belong there. After that time, threads of unfinished executions have
    /// lost their priority and their CPU. If the user wants no recording, the result is always
    /// false: writing costs time, and the kernel's writing keeps other threads off the CPU.
    fn is_kept(&self, event: &Event) -> bool {
        let ended_ns = match &self.stage {
            Stage::Stopped(stopped) => stopped.at_ns,
            Stage::Finding(_) | Stage::Shaping(_) => u64::MAX,
        };
        let course = self.stage.course();
        self.options.trace.is_some()
            && (course.is_some_and(|c| (c.settled_ns..ended_ns).contains(&event.time_ns))
                || onbeat_trace::table::is_state(&event.kind))
    }

    fn is_over(&self) -> bool {
        (self.error.is_some() && !self.runs_on()) || self.is_done()
    }
}

#[cfg(test)]
mod memory_test;
#[cfg(test)]
mod tests;
