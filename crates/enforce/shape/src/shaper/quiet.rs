//! Finds the time in a cycle at which no output is on its way: between the last slot and the next
//! release. Pure.
//!
//! If the origin moves at that time, each execution has a single origin. The distance between its
//! input and its output is then as planned. A plan whose slots reach into the next cycle (logical
//! execution time) has no such time, and a step affects the output that waits.

use onbeat_ros::page::OutputTable;
use onbeat_time::Cycle;

/// Returns the middle of the next interval between the last slot of a cycle and the next release,
/// searched from `now_ns` on. Returns `now_ns` if slots fill the cycle.
pub(super) fn next_ns(cycle_ns: u64, outputs: &[OutputTable], origin_ns: u64, now_ns: u64) -> u64 {
    let slots = outputs.iter().flat_map(|o| &o.slots);
    let last_ns = slots.map(|s| s.end_ns).max().unwrap_or(0);
    let from = origin_ns.saturating_add(last_ns / 2 + cycle_ns / 2);
    match i64::try_from(from)
        .ok()
        .and_then(|from| Cycle::new(cycle_ns, from))
    {
        Some(rests) if last_ns < cycle_ns => rests.next_start_ns(now_ns).max(0) as u64,
        _ => now_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_time::Slot;

    fn output(slots: &[(u64, u64)]) -> OutputTable {
        let slots = slots.iter().map(|&(start, end)| Slot::new(start, end));
        OutputTable {
            earliest_ns: 0,
            slots: slots.collect(),
        }
    }

    #[test]
    fn the_quiet_time_lies_between_the_last_slot_and_next_release() {
        let outputs = [output(&[(0, 2)]), output(&[(30, 31), (38, 40)])];
        assert_eq!(next_ns(100, &outputs, 1000, 1000), 1070);
        assert_eq!(next_ns(100, &outputs, 1000, 1070), 1070);
        assert_eq!(next_ns(100, &outputs, 1000, 1071), 1170);
        // The time may also be before the origin.
        assert_eq!(next_ns(100, &outputs, 1000, 900), 970);
    }

    #[test]
    fn the_quiet_time_is_now_if_slots_fill_the_cycle() {
        assert_eq!(next_ns(100, &[output(&[(100, 101)])], 1000, 1033), 1033);
        assert_eq!(next_ns(100, &[output(&[(90, 100)])], 1000, 1033), 1033);
        assert_eq!(next_ns(100, &[], 1000, 1033), 1050);
    }
}
