//! The last runs of callbacks, and which one made an execution late. Pure.

/// Number of runs from which a callback's usual length is taken.
const RECENT: usize = 64;

/// The last runs of some callbacks.
#[derive(Debug, Clone)]
pub struct Runs {
    /// By callback: start and end of each.
    recent: Vec<Vec<(u64, u64)>>,
}

/// The callback that made an execution late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cause {
    /// Index of the callback.
    pub callback: usize,
    /// How long it took.
    pub took_ns: u64,
    /// How long it usually takes (median).
    pub usual_ns: u64,
}

impl Runs {
    /// For so many callbacks.
    pub fn new(callbacks: usize) -> Runs {
        Runs {
            recent: vec![Vec::new(); callbacks],
        }
    }

    /// A callback ran.
    pub fn ran(&mut self, callback: usize, start_ns: u64, end_ns: u64) {
        if let Some(runs) = self.recent.get_mut(callback) {
            if runs.len() == RECENT {
                runs.remove(0);
            }
            runs.push((start_ns, end_ns));
        }
    }

    /// The callback that took the most beyond its usual time, of those that started between two
    /// instants.
    pub fn cause(&self, from_ns: u64, until_ns: u64) -> Option<Cause> {
        let mut worst: Option<Cause> = None;
        for (callback, runs) in self.recent.iter().enumerate() {
            let mut lengths: Vec<u64> = runs.iter().map(|r| r.1.saturating_sub(r.0)).collect();
            lengths.sort_unstable();
            let usual_ns = lengths.get(lengths.len() / 2).copied().unwrap_or(0);
            // By their starts: the last callback may publish before it ends.
            for run in runs.iter().filter(|r| r.0 >= from_ns && r.0 <= until_ns) {
                let took_ns = run.1.saturating_sub(run.0);
                let excess = |c: &Cause| c.took_ns as i64 - c.usual_ns as i64;
                let cause = Cause {
                    callback,
                    took_ns,
                    usual_ns,
                };
                if worst.as_ref().is_none_or(|w| excess(&cause) > excess(w)) {
                    worst = Some(cause);
                }
            }
        }
        worst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_took_longest_beyond_the_usual_is_the_cause() {
        let mut runs = Runs::new(3);
        for n in 0..100u64 {
            let at = n * 1000;
            let long = if n == 99 { 400 } else { 100 };
            runs.ran(0, at, at + 300);
            runs.ran(1, at + 300, at + 300 + long);
        }
        let cause = runs.cause(99_000, 99_900).expect("something ran");
        assert_eq!(
            (cause.callback, cause.took_ns, cause.usual_ns),
            (1, 400, 100)
        );
        assert_eq!(runs.cause(200_000, 300_000), None);
    }
}
