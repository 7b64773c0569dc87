//! Follows the application: bands follow its load, the cycles of throttled plans follow its inputs,
//! and other cycles follow its first callback.

use super::Session;
use crate::observe::{Execution, Moved};
use crate::stages::Stage;
use onbeat_time::clock::monotonic_ns;

/// The session reports a change of the phase only if the change exceeds a cycle divided by this
/// number.
const FOUND_PART: u64 = 20;

impl Session<'_> {
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

    /// Returns the time from which a new origin applies. If possible, this is a time at which no
    /// output waits, so that the change moves no output.
    fn quiet_ns(&self) -> u64 {
        let (shaper, course) = (self.supervisor.shaper(), self.stage.course());
        let quiet_ns = shaper.zip(course).map(|(shaper, course)| {
            let origin_ns = course.phase.phase().origin_ns();
            shaper.quiet_ns(self.plans.newest(), origin_ns)
        });
        quiet_ns.unwrap_or_else(monotonic_ns)
    }

    pub(super) fn follow_inputs(&mut self, arrivals: &[(usize, u64)]) {
        // This is called often, and nothing moves without an arrival.
        if arrivals.is_empty() {
            return;
        }
        let quiet_ns = self.quiet_ns();
        let Stage::Shaping(shaping) = &mut self.stage else {
            return;
        };
        let (moved, slips) = shaping.inputs_arrived(arrivals, quiet_ns);
        if let Some(note) = slips {
            self.notes.add(note);
        }
        let Some(moved) = moved else { return };
        let (Moved::Slewed(origin_ns) | Moved::FoundAgain(origin_ns)) = moved;
        if let Some(shaper) = self.supervisor.shaper() {
            shaper.move_origin(origin_ns, quiet_ns);
        }
        if let Moved::FoundAgain(_) = moved {
            let note =
                "The inputs now arrive at another phase of the cycle. The plan's cycles follow this phase.";
            self.notes.add(note.into());
        }
    }

    pub(super) fn follow_first(&mut self, start_ns: u64) {
        let quiet_ns = self.quiet_ns();
        let Stage::Shaping(shaping) = &mut self.stage else {
            return;
        };
        let before_ns = shaping.course.phase.phase().origin_ns();
        let Some(origin_ns) = shaping.started(start_ns, quiet_ns) else {
            return;
        };
        if let Some(shaper) = self.supervisor.shaper() {
            shaper.move_origin(origin_ns, quiet_ns);
        }
        let by_ns = origin_ns.abs_diff(before_ns);
        if by_ns > self.plan.cycle_ms.0 / FOUND_PART {
            let by_ms = by_ns as f64 / 1e6;
            self.notes.add(format!(
                "The phase of the first callback has changed by {by_ms:.1} ms. The plan's cycles follow this phase."
            ));
        }
    }
}
