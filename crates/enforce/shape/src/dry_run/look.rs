//! A recording observer that changes nothing: it finds the plan's callbacks and the threads that
//! run them.

use crate::error::ShapeError;
use crate::observe::{Application, Conflict, PlanObservation, Standing};
use crate::options::ShapeOptions;
use crate::report::Notes;
use crate::threads::WhoWaits;
use crate::trust::Trust;
use onbeat_plan::Plan;
use onbeat_record::{Control, Observer};
use onbeat_trace::Event;
use std::time::{Duration, Instant};

/// The minimum time for which the dry run records. The dry run uses it to find callbacks outside of
/// the plan that run on the threads of the plan's callbacks.
const MIN_LOOK: Duration = Duration::from_secs(2);
const MIN_CYCLES: u32 = 5;

pub(super) struct Look<'a> {
    application: Application<'a>,
    trust: Trust,
    notes: Notes,
    waits: &'a WhoWaits,
    began: Option<Instant>,
    min_time: Duration,
    max_time: Duration,
}

impl<'a> Look<'a> {
    pub(super) fn new(plan: &'a Plan, options: &'a ShapeOptions, waits: &'a WhoWaits) -> Look<'a> {
        let cycles = Duration::from_nanos(plan.cycle_ms.0) * MIN_CYCLES;
        Look {
            application: Application::new(plan, onbeat_proc::is_alive),
            trust: Trust::new(options.application.users.as_deref(), |pid| {
                onbeat_proc::user(pid).map(|user| user.uid)
            }),
            notes: Notes::default(),
            waits,
            began: None,
            min_time: MIN_LOOK.max(cycles),
            max_time: options.application.find_within,
        }
    }

    pub(super) fn end(self) -> (Application<'a>, Vec<String>) {
        (self.application, self.notes.into_all())
    }

    pub(super) fn push(&mut self, events: &[Event]) {
        let events = self.trust.of_application(events, &mut self.notes);
        let events = self.application.instances.without_second_instances(events);
        for observation in self.application.observe(&events) {
            self.take(&observation);
        }
    }

    fn take(&mut self, observation: &PlanObservation) {
        match *observation {
            PlanObservation::Ran {
                callback, pid, tid, ..
            } => self.ran(callback, pid, tid),
            PlanObservation::Left {
                callback,
                ref topic,
                ..
            } => {
                if let Some(output) = self
                    .application
                    .output_past_shaper(callback, topic.as_deref())
                {
                    let name = self.application.name(callback);
                    self.notes.add_once(format!(
                        "{name} publishes directly on {}, so no shaper can hold the output back. Start its node with the \
                         arguments that `onbeat shape PLAN --remap` prints.",
                        output.topic
                    ));
                }
            }
            PlanObservation::Taken { .. } => {}
        }
    }

    fn ran(&mut self, callback: usize, pid: u32, tid: u32) {
        if let Standing::Second { of } = self.application.instances.ran(callback, pid) {
            let name = self.application.name(callback);
            self.notes.add_once(format!(
                "Processes {of} and {pid} both run {name}. onbeat would ignore the second instance, process {pid}."
            ));
            return;
        }
        if let Err(Conflict { tid, callbacks }) = self.application.roles.ran(callback, pid, tid) {
            let [first, second] = callbacks.map(|c| self.application.name(c).to_owned());
            let error = ShapeError::TwoServers { tid, first, second };
            self.notes.add_once(format!("{error}."));
        }
    }
}

impl Observer for Look<'_> {
    fn events(&mut self, events: &[Event], control: &Control<'_>) {
        self.began.get_or_insert_with(Instant::now);
        self.waits.set_table(|| control.waits());
        self.push(events);
    }

    fn progress(&mut self, _: &onbeat_record::Progress) {
        self.began.get_or_insert_with(Instant::now);
        self.application.instances.refresh();
    }

    fn is_kept(&self, _: &Event) -> bool {
        false
    }

    fn is_over(&self) -> bool {
        let elapsed = self.began.map_or(Duration::ZERO, |b| b.elapsed());
        elapsed >= self.max_time
            || (elapsed >= self.min_time && self.application.missing().is_empty())
    }
}
