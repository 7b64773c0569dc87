//! Keeps the largest latency of each chain since the latest message, for its topic. Pure.

use onbeat_ros::diagnostics::MAX_VALUE_TOPICS;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Latencies {
    longest_ns: BTreeMap<String, u64>,
}

impl Latencies {
    /// Adds latencies in ns, by chain id.
    pub fn add(&mut self, longest: BTreeMap<String, u64>) {
        for (chain, ns) in longest {
            let is_full = self.longest_ns.len() >= MAX_VALUE_TOPICS;
            if !is_full || self.longest_ns.contains_key(&chain) {
                let of_chain = self.longest_ns.entry(chain).or_default();
                *of_chain = ns.max(*of_chain);
            }
        }
    }

    /// Removes and returns the latencies in ms, each with its topic.
    pub fn take(&mut self) -> Vec<(String, f64)> {
        let longest = std::mem::take(&mut self.longest_ns);
        let in_ms = |(chain, ns): (String, u64)| (topic(&chain), ns as f64 / 1e6);
        longest.into_iter().map(in_ms).collect()
    }
}

/// Returns the topic of a chain. Names in ROS 2 have only letters, digits and underscores.
fn topic(chain: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric();
    let name: String = chain
        .chars()
        .map(|c| if fits(c) { c } else { '_' })
        .collect();
    format!("/onbeat/{name}/latency_ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(all: &[(&str, u64)]) -> BTreeMap<String, u64> {
        all.iter().map(|(id, ns)| (id.to_string(), *ns)).collect()
    }

    #[test]
    fn a_chain_has_its_largest_latency_since_the_last_message_on_its_topic() {
        let mut latencies = Latencies::default();
        latencies.add(of(&[
            ("chain-664e64ef4c8d", 61_250_000),
            ("chain-2", 1_000_000),
        ]));
        latencies.add(of(&[("chain-664e64ef4c8d", 60_000_000)]));
        latencies.add(of(&[("chain-2", 3_500_000)]));
        assert_eq!(
            latencies.take(),
            [
                ("/onbeat/chain_2/latency_ms".to_string(), 3.5),
                ("/onbeat/chain_664e64ef4c8d/latency_ms".to_string(), 61.25),
            ]
        );
        assert_eq!(latencies.take(), [], "each latency is published once");
        let many: Vec<String> = (0..100).map(|n| format!("chain-{n:03}")).collect();
        latencies.add(many.iter().map(|id| (id.clone(), 5)).collect());
        latencies.add(of(&[("chain-000", 2_000_000)]));
        let taken = latencies.take();
        assert_eq!((taken.len(), taken[0].1), (MAX_VALUE_TOPICS, 2.0));
    }
}
