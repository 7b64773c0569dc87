//! Applies observations of the application to the session: which process has a callback, which
//! thread belongs to which server, and which execution is complete.

use super::Session;
use crate::error::ShapeError;
use crate::flight::Late;
use crate::judge::{late_note, Judgement};
use crate::observe::{Conflict, Execution, PlanObservation, Standing};
use crate::stages::{left_alone, Stage, StoppedBy};
use crate::threads::Thread;
use onbeat_plan::schema::{Output, Overshoot};
use onbeat_trace::{Event, EventKind};

const FIRST_CALLBACK: usize = 0;

impl Session<'_> {
    pub(super) fn starts_of_second_instances(&self, found: &[PlanObservation]) -> Vec<u64> {
        let start = |o: &PlanObservation| match *o {
            PlanObservation::Ran {
                callback,
                pid,
                start_ns,
                ..
            } => self
                .application
                .instances
                .is_second(callback, pid)
                .then_some(start_ns),
            _ => None,
        };
        found.iter().filter_map(start).collect()
    }

    pub(super) fn forget_ended(&mut self, events: &[Event]) {
        for event in events.iter().filter(|e| e.kind == EventKind::Exit) {
            self.application.roles.forget(event.tid);
            if event.pid == event.tid {
                self.application.instances.ended(event.pid);
            }
        }
    }

    pub(super) fn has_callback(&mut self, callback: usize, pid: u32) -> Result<bool, ShapeError> {
        let standing = self.application.instances.ran(callback, pid);
        let name = self.application.name(callback);
        match standing {
            Standing::Holds => Ok(true),
            Standing::Anew { was } => {
                self.notes.add(format!(
                    "{name} now runs in process {pid}, because process {was} has ended."
                ));
                if let (FIRST_CALLBACK, Stage::Shaping(shaping)) = (callback, &mut self.stage) {
                    shaping.first_restarted(self.plan);
                }
                Ok(true)
            }
            Standing::Second { of } if self.options.enforcement.strict => {
                Err(ShapeError::SecondInstance {
                    callback: name.to_owned(),
                    pid,
                    of,
                })
            }
            Standing::Second { of } => {
                self.notes.add_once(format!(
                    "Processes {of} and {pid} both run {name}. onbeat ignores the second instance, process {pid}."
                ));
                Ok(false)
            }
        }
    }

    pub(super) fn note_or_fail(&mut self, error: ShapeError) -> Result<(), ShapeError> {
        let is_shaping = matches!(self.stage, Stage::Shaping(_));
        if self.options.enforcement.strict || !is_shaping || !error.is_of_one_thread() {
            return Err(error);
        }
        self.notes.add_once(left_alone(&error));
        Ok(())
    }

    pub(super) fn take(
        &mut self,
        observation: &PlanObservation,
        record_also: &dyn Fn(u32),
    ) -> Result<(), ShapeError> {
        match *observation {
            PlanObservation::Ran {
                callback,
                pid,
                tid,
                start_ns,
                end_ns,
            } => {
                if !self.has_callback(callback, pid)? {
                    return Ok(());
                }
                self.offer_to_diagnostics(pid, end_ns);
                self.application.runs.ran(callback, tid, start_ns, end_ns);
                let shaped = matches!(self.stage, Stage::Shaping(_));
                let run = (start_ns, end_ns);
                self.application.others.ran(callback, run, shaped);
                let name = self.application.name(callback);
                let lineage_feed = self.supervisor.lineage_feed_mut();
                lineage_feed.ran(name, (pid, tid), start_ns);
                if callback == FIRST_CALLBACK {
                    let lineage_feed = self.supervisor.lineage_feed_mut();
                    lineage_feed.first_ran(pid, tid, start_ns);
                    self.first_started(start_ns);
                    if self.plan.inputs.is_empty() {
                        self.chain_started(start_ns);
                    }
                }
                if self.application.needs_shaper(callback) {
                    self.supervisor.add_publisher(pid, end_ns);
                    self.ensure_shaper(record_also)?;
                }
                self.assign(
                    callback,
                    Thread {
                        pid,
                        tid,
                        seen_ns: start_ns,
                    },
                )
            }
            PlanObservation::Left {
                callback,
                ref topic,
                ..
            } => match self
                .application
                .output_past_shaper(callback, topic.as_deref())
            {
                Some(output) => {
                    self.note_or_fail(not_held(self.application.name(callback), output))
                }
                None => Ok(()),
            },
            PlanObservation::Taken {
                ref topic,
                published_ns,
                ..
            } => {
                if self.plan.inputs.iter().any(|input| input.topic == *topic) {
                    self.chain_started(published_ns);
                }
                Ok(())
            }
        }
    }

    pub(super) fn first_started(&mut self, start_ns: u64) {
        match &mut self.stage {
            Stage::Finding(finding) => finding.started(start_ns),
            // A throttler sets its own cycle.
            Stage::Shaping(_) if self.plan.inputs.is_empty() => self.follow_first(start_ns),
            Stage::Shaping(_) | Stage::Stopped(_) => {}
        }
    }

    pub(super) fn chain_started(&mut self, start_ns: u64) {
        if let Some((course, _)) = self.stage.course_mut() {
            course.started(start_ns);
        }
    }

    pub(super) fn assign(&mut self, callback: usize, thread: Thread) -> Result<(), ShapeError> {
        let roles = &mut self.application.roles;
        let server = match roles.ran(callback, thread.pid, thread.tid) {
            Ok(role) => role.and_then(|role| role.server),
            Err(Conflict { tid, callbacks }) => {
                let first = self.application.name(callbacks[0]).to_owned();
                let second = self.application.name(callbacks[1]).to_owned();
                return self.note_or_fail(ShapeError::TwoServers { tid, first, second });
            }
        };
        self.application.roles.saw(thread.tid, thread.seen_ns);
        if let (Stage::Shaping(shaping), Some(server)) = (&mut self.stage, server) {
            let job = self.application.name(callback);
            let may = self.trust.still_holds(thread.pid);
            let assigned = may.then(|| shaping.assign(thread, job, server));
            match assigned {
                Some(Ok(true)) => {}
                // The thread has ended, or its process belongs to another user now.
                None | Some(Ok(false)) => self.application.roles.forget(thread.tid),
                Some(Err(error)) => return self.note_or_fail(error),
            }
        }
        Ok(())
    }

    pub(super) fn count(&mut self, execution: Execution) {
        let Some((course, until_ns)) = self.stage.course_mut() else {
            return;
        };
        // The execution is judged by the slots of its own cycle.
        let plan = self.plans.plan_at(execution.start_ns);
        let duration = self.options.duration;
        let Some(cycle) = course.count(plan, execution, until_ns, duration) else {
            return;
        };
        let promises = &plan.promises;
        let last = promises.bands.last().map(|b| b.latency_ms.1);
        let due_ns = last.unwrap_or(promises.worst_ms).0;
        let placed = Judgement::new(plan, execution, course.phase.origin_at(execution.output_ns));
        let origin_ns = course.phase.origin_at(execution.left_ns);
        let has_policy = course.has_policy(execution.start_ns);
        self.follow_load(&execution, origin_ns);
        let cycle_ns = execution.output_ns.saturating_add_signed(-placed.offset_ns);
        let usual_start_ns = self
            .flight
            .began(execution.start_ns.saturating_sub(cycle_ns));
        if execution.late {
            let late = Late {
                cycle,
                cycle_ns,
                start_ns: execution.start_ns,
                ready_ns: execution.left_ns,
                output_ns: execution.output_ns,
                due_ns: cycle_ns + due_ns,
                usual_start_ns,
            };
            let runs = self.application.runs.between(late.start_ns, late.ready_ns);
            let name = |callback: usize| self.application.name(callback).to_owned();
            let cause = self.flight.explain(late, &runs, (&name, &thread_name));
            let note = late_note(&execution, cycle, self.plan.overshoot, &cause);
            self.notes.add(note);
            if self.plan.overshoot == Overshoot::Stop && has_policy {
                self.stop_by(StoppedBy::Overshoot);
            }
        }
    }
}

fn not_held(callback: &str, output: &Output) -> ShapeError {
    let held_topic = output.held_topic.as_deref().unwrap_or_default();
    let words = onbeat_ros::remap::remap_args(&output.node, &output.topic, held_topic);
    ShapeError::NotHeld {
        callback: callback.to_owned(),
        topic: output.topic.clone(),
        remap: words.map_or_else(|e| e.to_string(), |words| words.join(" ")),
    }
}

fn thread_name(tid: u32) -> String {
    if tid == 0 {
        return "the idle CPU".into();
    }
    let name = std::fs::read_to_string(format!("/proc/{tid}/comm"));
    let name = name.map_or("ended".to_owned(), |n| n.trim_end().to_owned());
    format!("{name} (thread {tid})")
}
