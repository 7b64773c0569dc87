//! The instant of a cycle at which no output is under way: between the last slot and the next release.
//! Pure.
//!
//! Where the origin moves then, each execution has one origin: its input is let in and its output leaves as
//! far apart as the plan says. A plan whose slots reach into the next cycle (logical execution time) has no
//! such instant: there a step is felt by the output that waits.

use onbeat_ros::page::OutputTable;
use onbeat_time::Cycle;

/// The next one from `now_ns` on, in the middle of its time; `now_ns` if there is none.
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
    fn it_lies_between_the_last_slot_and_the_next_release() {
        let outputs = [output(&[(0, 2)]), output(&[(30, 31), (38, 40)])];
        assert_eq!(next_ns(100, &outputs, 1000, 1000), 1070);
        assert_eq!(next_ns(100, &outputs, 1000, 1070), 1070);
        assert_eq!(next_ns(100, &outputs, 1000, 1071), 1170);
        // Before the origin, too.
        assert_eq!(next_ns(100, &outputs, 1000, 900), 970);
    }

    #[test]
    fn where_an_output_is_always_under_way_it_is_now() {
        assert_eq!(next_ns(100, &[output(&[(100, 101)])], 1000, 1033), 1033);
        assert_eq!(next_ns(100, &[output(&[(90, 100)])], 1000, 1033), 1033);
        assert_eq!(next_ns(100, &[], 1000, 1033), 1050);
    }
}
