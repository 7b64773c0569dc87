//! When timers are due.

use super::{Entities, Role};
use crate::synth::ids::EntityId;
use crate::synth::values::Idle;

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

#[cfg(test)]
mod tests {
    use crate::synth::entities::HandleKind;
    use crate::synth::testing::Harness;
    use crate::synth::values::Idle;

    #[test]
    fn a_timer_is_due_on_the_grid_of_its_period() {
        let mut harness = Harness::new("1ms cpu0 10/10 timer_init timer=0x50 period_ns=10ms");
        let timer = harness.entity(10, HandleKind::Timer, 0x50).unwrap();
        let entities = &mut harness.synth.cx.entities;
        const MS: u64 = 1_000_000;
        let mut due = |time: u64, idle| entities.timer_called(timer, time * MS, idle);
        assert_eq!(due(12, None), Some(11 * MS), "late by 1 ms");
        assert_eq!(due(45, None), Some(21 * MS), "two periods were missed");
        assert_eq!(due(51, None), Some(51 * MS), "and left out");
        let slept = |from: u64, woken: u64| Idle {
            from: from * MS,
            woken: woken * MS,
        };
        assert_eq!(due(61, Some(slept(55, 61))), Some(61 * MS));
        assert_eq!(due(78, Some(slept(62, 78))), Some(78 * MS), "it was reset");
    }
}
