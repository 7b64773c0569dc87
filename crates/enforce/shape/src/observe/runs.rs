//! Keeps the latest runs of callbacks and how long they usually take. Pure.

const RUNS_KEPT: usize = 64;

/// The latest runs of each callback, from which its usual duration is known.
#[derive(Debug, Clone)]
pub struct Runs {
    recent: Vec<Vec<Run>>,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    start_ns: u64,
    end_ns: u64,
    tid: u32,
}

/// A callback's run that may have delayed an output, and the callback's usual duration.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cause {
    /// The index of the callback in [`crate::observe::Watcher::callbacks`].
    pub callback: usize,
    pub tid: u32,
    /// The time from the run's start to its end, in ns.
    pub took_ns: u64,
    /// The median of the callback's latest durations, in ns.
    pub usual_ns: u64,
}

impl Runs {
    /// Creates a value without runs for `callbacks` callbacks.
    pub fn new(callbacks: usize) -> Runs {
        Runs {
            recent: vec![Vec::new(); callbacks],
        }
    }

    /// Records a run of a callback on a thread. The run then counts for the callback's usual
    /// duration, and can be named as the cause of a late output.
    pub fn ran(&mut self, callback: usize, tid: u32, start_ns: u64, end_ns: u64) {
        if let Some(runs) = self.recent.get_mut(callback) {
            if runs.len() == RUNS_KEPT {
                runs.remove(0);
            }
            runs.push(Run {
                start_ns,
                end_ns,
                tid,
            });
        }
    }

    /// Returns the runs that started from `from_ns` to `until_ns` (both included), with the usual
    /// durations of their callbacks.
    pub fn between(&self, from_ns: u64, until_ns: u64) -> Vec<Cause> {
        let mut found = Vec::new();
        for (callback, runs) in self.recent.iter().enumerate() {
            let length = |run: &Run| run.end_ns.saturating_sub(run.start_ns);
            let mut lengths: Vec<u64> = runs.iter().map(length).collect();
            lengths.sort_unstable();
            let usual_ns = lengths.get(lengths.len() / 2).copied().unwrap_or(0);
            // The start counts because the last callback may publish before it ends.
            let inside = runs
                .iter()
                .filter(|r| (from_ns..=until_ns).contains(&r.start_ns));
            found.extend(inside.map(|run| Cause {
                callback,
                tid: run.tid,
                took_ns: length(run),
                usual_ns,
            }));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_execution_has_its_duration_and_the_usual_duration_of_its_callback() {
        let mut runs = Runs::new(3);
        for n in 0..100u64 {
            let at = n * 1000;
            let long = if n == 99 { 400 } else { 100 };
            runs.ran(0, 7, at, at + 300);
            runs.ran(1, 8, at + 300, at + 300 + long);
        }
        let cause = |callback, took_ns, usual_ns| Cause {
            callback,
            tid: 7 + callback as u32,
            took_ns,
            usual_ns,
        };
        let found = runs.between(99_000, 99_900);
        assert_eq!(found, [cause(0, 300, 300), cause(1, 400, 100)]);
        assert_eq!(runs.between(200_000, 300_000), []);
    }
}
