//! The releases of timers: when each timer is due, by its creation, resets, cancellations, calls
//! and clock.

use super::entity::{TimeBase, Timer};
use super::{Entities, EntityKind, HandleKind, Role};
use crate::ids::{EntityId, ProcessIndex};
use crate::values::{Idle, Release};

impl Entities {
    pub(super) fn timer_mut(&mut self, p: ProcessIndex, timer: u64) -> Option<&mut Timer> {
        let e = self.handle(p, HandleKind::Timer, timer)?;
        self.get_mut(e).timer_mut()
    }

    fn timers_mut(&mut self, p: ProcessIndex, mut change: impl FnMut(&mut Timer)) {
        for e in self.processes.list[p.index()].entities.iter() {
            if let Some(timer) = self.list[e.index()].timer_mut() {
                change(timer);
            }
        }
    }

    pub(crate) fn timer_reset(&mut self, p: ProcessIndex, timer: u64, time: u64) {
        let Some(e) = self.handle(p, HandleKind::Timer, timer) else {
            return;
        };
        let was_spent = self.get(e).is_spent();
        if let Some(timer) = self.get_mut(e).timer_mut() {
            timer.cancelled = false;
            timer.due = timer.period_ns.map(|period| time.saturating_add(period));
        }
        if was_spent && self.is_replaced(e) {
            let looks = self.get(e).looks;
            let slot = self.free_slot(p, &looks, Some(e));
            self.change_looks(p, e, looks, slot);
            self.get_mut(e).vertex = None;
        }
    }

    fn is_replaced(&self, e: EntityId) -> bool {
        let it = self.get(e);
        let members = &self.process(it.process).entities;
        let mut holders = members.holders(&it.looks, it.slot.number);
        holders.any(|x| {
            let o = self.get(x);
            x != e && o.slot == it.slot && !o.is_spent()
        })
    }

    pub(crate) fn timer_cancel(&mut self, p: ProcessIndex, timer: u64) {
        let Some(e) = self.handle(p, HandleKind::Timer, timer) else {
            return;
        };
        if let Some(timer) = self.get_mut(e).timer_mut() {
            timer.cancelled = true;
            let (looks, number) = (self.get(e).looks, self.get(e).slot.number);
            self.process_mut(p).entities.may_be_free(&looks, number);
        }
    }

    /// Handles `rcl_timer_exchange_period`. The new period applies from the next call or reset on.
    /// Returns the timer if its period has changed.
    pub(crate) fn timer_period(
        &mut self,
        p: ProcessIndex,
        timer: u64,
        period_ns: i64,
    ) -> Option<EntityId> {
        let e = self.handle(p, HandleKind::Timer, timer)?;
        let set = u64::try_from(period_ns).ok().filter(|&p| p > 0);
        if self.get(e).looks.period_ns.is_none() && self.get(e).vertex.is_none() {
            // Late attach: it is still unknown when the timer is due.
            self.set_looks(p, e, |looks| looks.period_ns = set);
            return None;
        }
        let timer = self.get_mut(e).timer_mut()?;
        let before = std::mem::replace(&mut timer.period_ns, set);
        (before.is_some() && before != set).then_some(e)
    }

    pub(crate) fn clock_override(&mut self, p: ProcessIndex, clock: u64, active: bool) {
        let time = match active {
            true => TimeBase::Simulated,
            false => TimeBase::System,
        };
        let known = self.process_mut(p).clocks.entry(clock).or_default();
        let before = std::mem::replace(&mut known.time, time);
        let changed = (before == TimeBase::Simulated) != active;
        self.timers_mut(p, |timer| {
            if timer.clock == clock {
                timer.time = time;
                if changed {
                    timer.due = None;
                }
            }
        });
    }

    /// Records that the machine's clock was set. It is then unknown when timers on system time are
    /// due.
    pub(crate) fn clock_stepped(&mut self) {
        for entity in &mut self.list {
            if let Some(timer) = entity.timer_mut() {
                if timer.time == TimeBase::System {
                    timer.due = None;
                }
            }
        }
    }

    pub(crate) fn resets_lost(&mut self) {
        for entity in &mut self.list {
            if let Some(timer) = entity.timer_mut() {
                timer.cancelled = false;
                timer.due = None;
            }
        }
    }

    pub(crate) fn clock_of(&self, e: EntityId) -> u64 {
        match &self.get(e).role {
            Role::Timer(timer) => timer.clock,
            _ => 0,
        }
    }

    pub(crate) fn is_cancelled(&self, e: EntityId) -> bool {
        matches!(&self.get(e).role, Role::Timer(timer) if timer.cancelled)
    }

    /// Returns when a timer that is called at `time` was due, according to its period. `idle` is
    /// the executor's last sleep.
    pub(crate) fn timer_called(&mut self, e: EntityId, time: u64, idle: Option<Idle>) -> Release {
        debug_assert_eq!(self.get(e).kind(), EntityKind::Timer);
        let p = self.get(e).process;
        self.process_mut(p).unseen_calls = false;
        match self.get_mut(e).timer_mut() {
            Some(timer) => timer.called(time, idle),
            None => Release::Unknown,
        }
    }
}

impl Timer {
    fn called(&mut self, time: u64, idle: Option<Idle>) -> Release {
        (self.ran, self.cancelled) = (true, false);
        if self.time == TimeBase::Simulated {
            return Release::Simulated;
        }
        let Some(period) = self.period_ns else {
            return Release::Unknown;
        };
        let woken = idle.map_or(time, |i| i.woken);
        let mut due = self.due.unwrap_or(woken);
        if let Some(idle) = idle {
            // The executor slept past the due time, so the timer had been reset and was not due
            // then.
            let tolerance = (period / 4).clamp(1_000_000, 5_000_000);
            if idle.from < due && idle.woken > due.saturating_add(tolerance) {
                due = idle.woken;
            }
        }
        let known = self.due.is_some();
        due = due.min(time);
        let mut after = due.saturating_add(period);
        if after <= time {
            after = after.saturating_add((1 + (time - after) / period).saturating_mul(period));
        }
        self.due = Some(after);
        match known {
            true => Release::At(due),
            false => Release::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::entities::HandleKind;
    use crate::testing::Harness;
    use crate::values::{Idle, Release};

    const MS: u64 = 1_000_000;

    fn called(harness: &mut Harness, time: u64, idle: Option<Idle>) -> Option<u64> {
        let timer = harness.entity(10, HandleKind::Timer, 0x50).unwrap();
        let entities = &mut harness.synth.cx.entities;
        match entities.timer_called(timer, time * MS, idle) {
            Release::At(due) => Some(due / MS),
            Release::Unknown | Release::Simulated => None,
        }
    }

    #[test]
    fn a_timer_is_due_at_multiples_of_its_period_after_its_creation() {
        let mut harness = Harness::new("1ms cpu0 10/10 timer_init timer=0x50 period_ns=10ms");
        let mut due = |time, idle| called(&mut harness, time, idle);
        assert_eq!(due(12, None), Some(11), "late by 1 ms");
        assert_eq!(due(45, None), Some(21), "two periods were missed");
        assert_eq!(due(51, None), Some(51), "the missed periods are skipped");
        let slept = |from: u64, woken: u64| Idle {
            from: from * MS,
            woken: woken * MS,
        };
        assert_eq!(due(61, Some(slept(55, 61))), Some(61));
        assert_eq!(due(78, Some(slept(62, 78))), Some(78), "it was reset");
    }

    #[test]
    fn a_reset_moves_a_timers_due_times_and_a_changed_period_applies_from_the_next_call_on() {
        let mut harness = Harness::new("1ms cpu0 10/10 timer_init timer=0x50 period_ns=10ms");
        harness.push("9ms cpu0 10/10 timer_reset timer=0x50");
        assert_eq!(called(&mut harness, 20, None), Some(19));
        harness.push("21ms cpu0 10/10 timer_period timer=0x50 period_ns=30ms");
        assert_eq!(
            called(&mut harness, 30, None),
            Some(29),
            "the old period still holds"
        );
        assert_eq!(called(&mut harness, 60, None), Some(59));
        harness.push("61ms cpu0 10/10 timer_reset timer=0x50");
        assert_eq!(called(&mut harness, 92, None), Some(91));
    }

    #[test]
    fn releases_are_unknown_on_simulated_time_and_after_the_clock_was_set() {
        let mut harness = Harness::new(
            "
1ms cpu0 10/10 clock_kind clock=0x7 time=1
1ms cpu0 10/10 timer_clock timer=0x50 clock=0x7
1ms cpu0 10/10 timer_init timer=0x50 period_ns=10ms
2ms cpu0 10/10 clock_offset realtime_minus_monotonic_ns=1000000000ms
3ms cpu0 10/10 clock_offset realtime_minus_monotonic_ns=1000000000ms",
        );
        assert_eq!(called(&mut harness, 11, None), Some(11));
        harness.push("12ms cpu0 10/10 clock_offset realtime_minus_monotonic_ns=1000000500ms");
        assert_eq!(called(&mut harness, 25, None), None);
        assert_eq!(called(&mut harness, 36, None), Some(35));
        harness.push("40ms cpu0 10/10 clock_override clock=0x7 active=yes");
        assert_eq!(called(&mut harness, 50, None), None);
        assert_eq!(called(&mut harness, 60, None), None);
        harness.push("61ms cpu0 10/10 clock_override clock=0x7 active=no");
        assert_eq!(called(&mut harness, 70, None), None);
        assert_eq!(called(&mut harness, 80, None), Some(80));
    }
}
