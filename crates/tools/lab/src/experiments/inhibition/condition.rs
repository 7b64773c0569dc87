//! Under which conditions the ping-pong runs.

/// Where the nodes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One executor, one node (1e1n).
    OneNode,
    /// One executor, two nodes (1e2n).
    TwoNodes,
    /// Two processes (2e).
    TwoProcesses,
}

/// What the middleware's threads are, and the main thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// Main 98, the others time-sharing (RR-TS).
    TimeSharing,
    /// All 98 (RR-RR).
    RealTime,
    /// What the paper advises: main 97, the others 96.
    Remedy,
}

/// When the inhibitor begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// There is none.
    None,
    /// Before the benchmark is started.
    Before,
    /// 0 to 300 ms after the benchmark was started: while the two sides look for each other, or
    /// soon after. The paper's "immediately".
    AtOnce,
    /// 50 to 150 ms after the first answer.
    Later,
}

/// A condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    /// Where the nodes are.
    pub layout: Layout,
    /// Scheduling of the benchmark's threads.
    pub threads: Threads,
    /// When the inhibitor begins.
    pub order: Order,
    /// The inhibitor is on the benchmark's core, and not on the other.
    pub same_core: bool,
    /// The middleware's threads may run anywhere; only main threads are on the core.
    pub free: bool,
}

impl Layout {
    /// The paper's name.
    pub fn name(self) -> &'static str {
        match self {
            Layout::OneNode => "1e1n",
            Layout::TwoNodes => "1e2n",
            Layout::TwoProcesses => "2e",
        }
    }
}

impl Threads {
    /// SCHED_RR priorities of main and of the others; 0 for time-sharing.
    pub fn priorities(self) -> (u32, u32) {
        match self {
            Threads::TimeSharing => (98, 0),
            Threads::RealTime => (98, 98),
            Threads::Remedy => (97, 96),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Threads::TimeSharing => "RR-TS",
            Threads::RealTime => "RR-RR",
            Threads::Remedy => "RR 97-96",
        }
    }
}

impl Condition {
    const fn new(layout: Layout, threads: Threads, order: Order) -> Condition {
        Condition {
            layout,
            threads,
            order,
            same_core: true,
            free: false,
        }
    }

    /// All that are measured.
    pub fn all() -> Vec<Condition> {
        use Threads::*;
        let layouts = [Layout::OneNode, Layout::TwoNodes, Layout::TwoProcesses];
        let orders = [Order::None, Order::Before, Order::AtOnce];
        let mut all = Vec::new();
        for layout in layouts {
            all.extend(orders.map(|order| Condition::new(layout, TimeSharing, order)));
        }
        let two = |threads, order| Condition::new(Layout::TwoProcesses, threads, order);
        all.push(two(TimeSharing, Order::Later));
        all.push(Condition {
            same_core: false,
            ..two(TimeSharing, Order::AtOnce)
        });
        all.push(Condition {
            free: true,
            ..two(TimeSharing, Order::AtOnce)
        });
        for threads in [RealTime, Remedy] {
            all.extend([Order::Before, Order::AtOnce].map(|order| two(threads, order)));
        }
        all
    }

    /// For people.
    pub fn name(&self) -> String {
        let order = match self.order {
            Order::None => "no inhibitor",
            Order::Before => "inhibitor before",
            Order::AtOnce => "inhibitor at once",
            Order::Later => "inhibitor later",
        };
        let place = match (self.same_core, self.free) {
            (false, _) => ", other core",
            (_, true) => ", middleware's threads anywhere",
            _ => "",
        };
        format!(
            "{}, {}, {order}{place}",
            self.layout.name(),
            self.threads.name()
        )
    }

    /// For figures and files.
    pub fn key(&self) -> String {
        let words = self.name().to_lowercase().replace("middleware's ", "");
        let parts: Vec<String> = words
            .split(", ")
            .map(|w| w.replace([' ', '-'], "_"))
            .collect();
        parts.join(".")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_condition_has_a_name_of_its_own() {
        let all = Condition::all();
        let mut keys: Vec<String> = all.iter().map(Condition::key).collect();
        assert!(keys.contains(&"2e.rr_ts.inhibitor_at_once.other_core".to_owned()));
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), all.len());
    }
}
