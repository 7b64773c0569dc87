//! Converts the plan's servers to reservation servers.

use crate::slots::slots;
use onbeat_plan::Plan;
use onbeat_reserve::{
    AssignError, Change, Move, Pauses, Pulse, Report, Reservation, Seen, Server, Stats, SwapError,
};
use onbeat_time::Slot;

/// The time before the start of a cycle at which the first callback may already start, in ns.
const GUARD_NS: u64 = 1_000_000;

// A plan's priorities must be valid in a reservation.
const _: () = assert!(onbeat_plan::schema::MAX_PRIORITY <= onbeat_reserve::MAX_PRIORITY);

pub(crate) trait Servers {
    fn assign(&self, thread: Seen, server: &str) -> Result<(), AssignError>;
    fn forget_ended(&self) -> Vec<u32>;
    fn free_heirs(&self) -> usize {
        0
    }
    fn place(&self, tid: u32, cpu: u16, priority: u8) -> Result<(), AssignError>;
    fn set_origin(&self, origin_ns: u64);
    fn swap_table(&self, servers: &[Server]) -> Result<(), SwapError>;
    #[allow(dead_code)]
    fn pulse(&self) -> Pulse;
    fn stats(&self) -> Stats;
    fn changes_since(&self, seen: &mut u64) -> Vec<Change>;
    fn moves_since(&self, _: &mut u64) -> Vec<Move> {
        Vec::new()
    }
    fn pauses(&self) -> Pauses;
    fn warnings(&self) -> Vec<String>;
    fn stop(self: Box<Self>) -> Report;
}

impl Servers for Reservation {
    fn assign(&self, thread: Seen, server: &str) -> Result<(), AssignError> {
        Reservation::assign_seen(self, thread, server)
    }

    fn forget_ended(&self) -> Vec<u32> {
        Reservation::forget_ended(self)
    }

    fn free_heirs(&self) -> usize {
        Reservation::free_heirs(self)
    }

    fn place(&self, tid: u32, cpu: u16, priority: u8) -> Result<(), AssignError> {
        Reservation::place(self, tid, cpu, priority)
    }

    fn set_origin(&self, origin_ns: u64) {
        Reservation::set_origin(self, origin_ns);
    }

    fn swap_table(&self, servers: &[Server]) -> Result<(), SwapError> {
        Reservation::swap_table(self, servers)
    }

    fn pulse(&self) -> Pulse {
        Reservation::pulse(self)
    }

    fn stats(&self) -> Stats {
        Reservation::stats(self)
    }

    fn changes_since(&self, seen: &mut u64) -> Vec<Change> {
        Reservation::changes_since(self, seen)
    }

    fn moves_since(&self, seen: &mut u64) -> Vec<Move> {
        Reservation::moves_since(self, seen)
    }

    fn pauses(&self) -> Pauses {
        Reservation::pauses(self)
    }

    fn warnings(&self) -> Vec<String> {
        let warnings = Reservation::warnings(self).iter();
        warnings.map(|w| format!("{w}.")).collect()
    }

    fn stop(self: Box<Self>) -> Report {
        Reservation::stop(*self)
    }
}

/// Returns the plan's servers. The server of the first callback opens [`GUARD_NS`] before a cycle
/// begins.
///
/// onbeat estimates the start of a cycle from the starts of the first callback. If the gate opened
/// exactly at the estimated start, the gate would determine the callback's starts. The estimate
/// would then follow the gate instead of the callback's releases.
pub(crate) fn guarded(plan: &Plan) -> Vec<Server> {
    let cycle_ns = plan.cycle_ms.0;
    let convert = |server: &onbeat_plan::schema::Server| Server {
        name: server.name.clone(),
        cpu: server.cpu,
        priority: server.priority,
        slots: slots(server),
    };
    let mut servers: Vec<Server> = plan.servers.iter().map(convert).collect();
    let runs_first = |s: &onbeat_plan::schema::Server| s.callbacks.contains(&plan.origin);
    let first = plan.servers.iter().position(runs_first);
    if let Some(first) = first.filter(|_| plan.inputs.is_empty()) {
        let slots = &mut servers[first].slots;
        let begins = slots.first().is_some_and(|s| s.start_ns == 0);
        let end = slots.last().map_or(cycle_ns, |s| s.end_ns);
        let from = end.max(cycle_ns.saturating_sub(GUARD_NS));
        if begins && from < cycle_ns {
            slots.push(Slot::new(from, cycle_ns));
        }
    }
    servers
}

/// Returns true if a server's threads have to wait for slots. They do not wait if the server has no
/// slots, or if one slot is as long as the cycle.
pub(crate) fn is_gated(server: &Server, cycle_ns: u64) -> bool {
    let whole = |s: &Slot| s.end_ns - s.start_ns >= cycle_ns;
    !server.slots.is_empty() && !server.slots.iter().any(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_plan::schema::Ms;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_server_of_the_first_callback_opens_before_the_cycle() {
        let text = include_bytes!("../../../plan/tests/golden/plan.yaml");
        let mut plan = onbeat_plan::file::read(text).expect("a plan");
        plan.inputs.clear();
        plan.cycle_ms = Ms(100 * MS);
        let first = plan
            .servers
            .iter()
            .position(|s| s.callbacks.contains(&plan.origin));
        let first = first.expect("a server of the first callback");
        let mut with = |slots: &[(u64, u64)]| {
            let slots = slots
                .iter()
                .map(|&(s, e)| onbeat_plan::schema::Slot(Ms(s), Ms(e)));
            plan.servers[first].slots_ms = slots.collect();
            guarded(&plan)[first].slots.clone()
        };
        let slot = |s, e| Slot::new(s, e);
        let guard = slot(99 * MS, 100 * MS);
        assert_eq!(with(&[(0, 50 * MS)]), [slot(0, 50 * MS), guard]);
        // The guard touches the last slot, is not needed, or does not fit.
        let late = 100 * MS - 1000;
        assert_eq!(with(&[(0, late)]), [slot(0, late), slot(late, 100 * MS)]);
        assert_eq!(with(&[(MS, 50 * MS)]), [slot(MS, 50 * MS)]);
        assert_eq!(with(&[(0, 100 * MS)]), [slot(0, 100 * MS)]);
        assert_eq!(with(&[]), []);
    }

    #[test]
    fn a_server_that_is_always_open_is_not_gated() {
        let gated = |slots: &[(u64, u64)]| {
            let slots = slots.iter().map(|&(s, e)| Slot::new(s, e)).collect();
            let server = Server {
                name: "gamma".into(),
                cpu: 1,
                priority: 80,
                slots,
            };
            is_gated(&server, 100 * MS)
        };
        assert!(gated(&[(0, 99 * MS)]));
        assert!(!gated(&[(0, 100 * MS)]) && !gated(&[(50 * MS, 150 * MS)]) && !gated(&[]));
    }
}
