//! Writes the sentence that reports a late output. Pure.

use crate::observe::{Execution, Fate};
use onbeat_plan::schema::Overshoot;

pub(crate) fn late_note(
    execution: &Execution,
    cycle: i64,
    overshoot: Overshoot,
    cause: &str,
) -> String {
    let after = execution.left_ns.saturating_sub(execution.start_ns) as f64 / 1e6;
    let consequence = match (execution.fate, overshoot) {
        (Fate::Discarded, _) => "the output is discarded",
        (_, Overshoot::Stop) => "shaping ends",
        (Fate::Refused, _) => "the middleware did not publish the output",
        (Fate::Delivered, _) => "the output leaves after its last slot",
    };
    format!(
        "cycle {cycle}: output {after:.1} ms after the chain's start, late for its last slot: {consequence}: {cause}."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Attribution;

    #[test]
    fn a_late_output_is_reported_with_its_consequence_and_cause() {
        let mut execution = Execution {
            chain: 0,
            start_ns: 0,
            left_ns: 62_300_000,
            output_ns: 162_300_000,
            fate: Fate::Delivered,
            late: true,
            attribution: Attribution::Lineage,
        };
        let cause = "/a:timer(1ms) took 40.0 ms, usually 12.3 ms";
        assert_eq!(
            late_note(&execution, 7, Overshoot::Carry, cause),
            "cycle 7: output 62.3 ms after the chain's start, late for its last slot: the output \
             leaves after its last slot: /a:timer(1ms) took 40.0 ms, usually 12.3 ms."
        );
        let stops = late_note(&execution, 7, Overshoot::Stop, cause);
        assert!(stops.contains("slot: shaping ends: "), "{stops}");
        execution.fate = Fate::Discarded;
        let drops = late_note(&execution, 7, Overshoot::Drop, cause);
        assert!(drops.contains("slot: the output is discarded: "), "{drops}");
    }
}
