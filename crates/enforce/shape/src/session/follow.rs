//! What follows the application: bands its load, the origin of throttled plans its inputs, the phase
//! its first callback.

use super::Session;
use crate::observe::{Execution, Moved};
use crate::stages::Stage;
use onbeat_time::clock::monotonic_ns;

/// A phase that moves by more than this part of a cycle was found again, and is told.
const FOUND_PART: u64 = 20;

impl Session<'_> {
    /// Bands follow what has completed: changes go to the shaper, and are told.
    pub(super) fn follow_load(&mut self, execution: &Execution, origin_ns: u64) {
        let is_shaping = matches!(self.stage, Stage::Shaping(_));
        let Some(following) = self.plans.following.as_mut().filter(|_| is_shaping) else {
            return;
        };
        let Some((sentence, swap)) = following.completed(execution, origin_ns, monotonic_ns())
        else {
            return;
        };
        self.notes.add(format!("{sentence}."));
        if let (Some(swap), Some(shaper)) = (swap, self.supervisor.shaper()) {
            shaper.swap(&swap);
        }
    }

    /// From when on an origin counts that is found now: no output is under way then, where there is such
    /// a time. So none feels the step.
    fn rest_ns(&self) -> u64 {
        let (shaper, course) = (self.supervisor.shaper(), self.stage.course());
        let rest = shaper.zip(course).map(|(shaper, course)| {
            let origin_ns = course.phase.phase().origin_ns();
            shaper.rest_ns(self.plans.newest(), origin_ns)
        });
        rest.unwrap_or_else(monotonic_ns)
    }

    /// Throttled inputs have arrived: the origin follows their clock.
    pub(super) fn follow_inputs(&mut self, arrivals: &[(usize, u64)]) {
        // Asked often: nothing moves without an arrival.
        if arrivals.is_empty() {
            return;
        }
        let rest_ns = self.rest_ns();
        let Stage::Shaping(shaping) = &mut self.stage else {
            return;
        };
        let (moved, slips) = shaping.inputs_arrived(arrivals, rest_ns);
        if let Some(note) = slips {
            self.notes.add(note);
        }
        let Some(moved) = moved else { return };
        let (Moved::Slewed(origin_ns) | Moved::FoundAgain(origin_ns)) = moved;
        if let Some(shaper) = self.supervisor.shaper() {
            shaper.move_origin(origin_ns, rest_ns);
        }
        if let Moved::FoundAgain(_) = moved {
            let note = "The inputs come at another time: their phase was found again.";
            self.notes.add(note.into());
        }
    }

    /// The first callback started in a plan without throttled inputs: the cycles follow it.
    pub(super) fn follow_first(&mut self, start_ns: u64) {
        let rest_ns = self.rest_ns();
        let Stage::Shaping(shaping) = &mut self.stage else {
            return;
        };
        let before_ns = shaping.course.phase.phase().origin_ns();
        let Some(origin_ns) = shaping.started(start_ns, rest_ns) else {
            return;
        };
        if let Some(shaper) = self.supervisor.shaper() {
            shaper.move_origin(origin_ns, rest_ns);
        }
        let by_ns = origin_ns.abs_diff(before_ns);
        if by_ns > self.plan.cycle_ms.0 / FOUND_PART {
            let by_ms = by_ns as f64 / 1e6;
            self.notes.add(format!(
                "The first callback starts at another time: the phase was found again, {by_ms:.1} ms away."
            ));
        }
    }
}
