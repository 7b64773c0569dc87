//! Builds the notes for the user about gates that stayed open. Pure.

use onbeat_reserve::Pauses;

pub(crate) fn sentences(reported: Pauses, now: Pauses) -> Vec<String> {
    let mut sentences = Vec::new();
    if now.thawed_by_guard > reported.thawed_by_guard {
        sentences.push(format!(
            "onbeat did not run for a cycle, because it was stopped or had no CPU. The guard opened all gates. They stayed open until onbeat ran again and its next cycle began. The guard has opened all gates {} so far.",
            times(now.thawed_by_guard)
        ));
    }
    if now.guard_silent > reported.guard_silent && !now.guard_lost {
        sentences.push(format!(
            "The guard (process gate-keeper) does not run, because it is stopped or has no CPU. All gates stay open until the guard runs again. The guard has stopped running {} so far.",
            times(now.guard_silent)
        ));
    }
    if now.guard_lost && !reported.guard_lost {
        sentences.push(
            "The guard (process gate-keeper) has ended. Shaping ends, because nothing would put threads back after a crash."
                .into(),
        );
    }
    sentences
}

fn times(count: u64) -> String {
    match count {
        1 => "once".into(),
        n => format!("{n} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_for_open_gates_is_reported_when_its_count_rises() {
        let pauses = |thawed_by_guard, guard_silent, guard_lost| Pauses {
            thawed_by_guard,
            guard_silent,
            guard_lost,
        };
        let none = pauses(0, 0, false);
        let reported = |reported, now| sentences(reported, now).join(" ");
        assert_eq!(reported(none, none), "");
        let once = reported(none, pauses(1, 0, false));
        assert!(once.contains("opened all gates once so far"));
        let thrice = reported(pauses(1, 0, false), pauses(3, 2, false));
        assert!(thrice.contains("3 times") && thrice.contains("2 times"));
        let lost = reported(pauses(3, 2, false), pauses(3, 3, true));
        assert!(lost.contains("Shaping ends") && !lost.contains("3 times"));
        assert_eq!(reported(pauses(3, 3, true), pauses(3, 3, true)), "");
    }
}
