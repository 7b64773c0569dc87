//! When timers are due.

use super::{Entities, Role};
use crate::synth::events::Idle;
use crate::synth::ids::EntityId;

impl Entities {
    /// When the timer called at `time` was due, by the grid of its period. `idle` is the
    /// executor's last wait. None while the period is not known.
    pub(in crate::synth) fn timer_called(
        &mut self,
        e: EntityId,
        time: u64,
        idle: Option<Idle>,
    ) -> Option<u64> {
        let timer = self.get_mut(e);
        let period = timer.looks.period_ns?;
        let Role::Timer { due: next } = &mut timer.role else {
            return None;
        };
        let mut due = next.unwrap_or_else(|| idle.map_or(time, |i| i.woken));
        if let Some(idle) = idle {
            // The executor slept past that time, so the timer was not due then: it was reset.
            let tolerance = (period / 4).clamp(1_000_000, 5_000_000);
            if idle.from < due && idle.woken > due.saturating_add(tolerance) {
                due = idle.woken;
            }
        }
        due = due.min(time);
        let mut after = due.saturating_add(period);
        if after < time {
            after = after.saturating_add((1 + (time - after) / period).saturating_mul(period));
        }
        *next = Some(after);
        Some(due)
    }
}
