//! Measures the CPU time of this process and of the shaper.

use onbeat_time::clock::{monotonic_ns, process_cpu_ns};

#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuUsage {
    at_ns: u64,
    own_ns: u64,
    shaper: Option<(u32, u64)>,
}

impl CpuUsage {
    pub(crate) fn now(shaper: Option<u32>) -> CpuUsage {
        CpuUsage {
            at_ns: monotonic_ns(),
            own_ns: process_cpu_ns(std::process::id()).unwrap_or(0),
            shaper: shaper.and_then(|pid| Some((pid, process_cpu_ns(pid)?))),
        }
    }

    /// Returns the share of one CPU that each part of onbeat used since `then` was measured, by the
    /// part's name. The shaper's share is missing if the shaper was restarted in between.
    pub(crate) fn shares_since(&self, then: &CpuUsage) -> Vec<(&'static str, f64)> {
        let elapsed = self.at_ns.saturating_sub(then.at_ns).max(1) as f64;
        let share = |from: u64, to: u64| to.saturating_sub(from) as f64 / elapsed;
        let mut shares = vec![("CPU of onbeat", share(then.own_ns, self.own_ns))];
        if let (Some((pid, from)), Some((same, to))) = (then.shaper, self.shaper) {
            if pid == same {
                shares.push(("CPU of the shaper", share(from, to)));
            }
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_share_of_a_restarted_shaper_is_left_out() {
        let used = |at_ns, own_ns, shaper| CpuUsage {
            at_ns,
            own_ns,
            shaper,
        };
        let then = used(1000, 10, Some((7, 100)));
        let now = used(2000, 260, Some((7, 200)));
        let shares = now.shares_since(&then);
        assert_eq!(
            shares,
            [("CPU of onbeat", 0.25), ("CPU of the shaper", 0.1)]
        );
        let anew = used(2000, 260, Some((8, 200)));
        assert_eq!(anew.shares_since(&then).len(), 1);
    }
}
