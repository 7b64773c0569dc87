//! Builds the notes for the user about gates that stayed open. Pure.

use onbeat_reserve::Pauses;

/// Returns a sentence for each kind of pause that has occurred since `told`.
pub(crate) fn sentences(told: Pauses, now: Pauses) -> Vec<String> {
    let mut sentences = Vec::new();
    if now.thawed_by_guard > told.thawed_by_guard {
        sentences.push(format!(
            "onbeat did not run for a cycle (stopped, or without its CPU): the guard opened all slots until the next cycle after it was back ({} so far).",
            times(now.thawed_by_guard)
        ));
    }
    if now.guard_silent > told.guard_silent && !now.guard_lost {
        sentences.push(format!(
            "The guard (process gate-keeper) does not run, stopped or without a CPU: all slots are open until it does ({} so far).",
            times(now.guard_silent)
        ));
    }
    if now.guard_lost && !told.guard_lost {
        sentences.push(
            "The guard (process gate-keeper) has ended, and nobody would put threads back after a crash: shaping ends."
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
    fn each_kind_is_told_when_it_is_new() {
        let pauses = |thawed_by_guard, guard_silent, guard_lost| Pauses {
            thawed_by_guard,
            guard_silent,
            guard_lost,
        };
        let none = pauses(0, 0, false);
        let told = |told, now| sentences(told, now).join(" ");
        assert_eq!(told(none, none), "");
        let once = told(none, pauses(1, 0, false));
        assert!(once.contains("opened all slots") && once.contains("(once so far)"));
        let thrice = told(pauses(1, 0, false), pauses(3, 2, false));
        assert!(thrice.contains("3 times") && thrice.contains("2 times"));
        let lost = told(pauses(3, 2, false), pauses(3, 3, true));
        assert!(lost.contains("shaping ends") && !lost.contains("3 times"));
        assert_eq!(told(pauses(3, 3, true), pauses(3, 3, true)), "");
    }
}
