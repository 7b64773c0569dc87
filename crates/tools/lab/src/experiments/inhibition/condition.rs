//! The conditions under which the ping-pong runs.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    OneNode,
    TwoNodes,
    TwoProcesses,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// The main thread runs at priority 98, the other threads under the time-sharing policy (the
    /// paper's RR-TS).
    TimeSharing,
    /// All threads of the benchmark run at priority 98 (the paper's RR-RR).
    RealTime,
    /// The main thread runs at priority 97, the other threads at 96, as the paper advises.
    Remedy,
    /// The threads have the priorities that `onbeat shape` sets: at most 94 for the main thread,
    /// which is in a server, and 95 for the other threads.
    Shaped,
}

/// The core on which the middleware's threads run. Main threads are always on the benchmark's core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Together,
    Anywhere,
    /// The middleware's threads run on the core without the benchmark. `onbeat shape` puts them
    /// there if it can.
    Apart,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    None,
    Before,
    /// The inhibitor begins 0 to 300 ms after the benchmark's start, during or soon after the
    /// discovery between the two sides of the benchmark. The paper calls this "immediately".
    AtOnce,
    /// The inhibitor begins 50 to 150 ms after the benchmark has received its first answer.
    Later,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    pub layout: Layout,
    pub threads: Threads,
    pub order: Order,
    pub same_core: bool,
    pub place: Place,
}

impl Place {
    pub fn pin_argument(self) -> &'static str {
        match self {
            Place::Together => "all",
            Place::Anywhere => "main",
            Place::Apart => "apart",
        }
    }
}

impl Layout {
    pub fn name(self) -> &'static str {
        match self {
            Layout::OneNode => "1e1n",
            Layout::TwoNodes => "1e2n",
            Layout::TwoProcesses => "2e",
        }
    }
}

impl Threads {
    /// Returns the SCHED_RR priorities of the main thread and of the other threads. 0 stands for
    /// time-sharing.
    pub fn priorities(self) -> (u32, u32) {
        match self {
            Threads::TimeSharing => (98, 0),
            Threads::RealTime => (98, 98),
            Threads::Remedy => (97, 96),
            Threads::Shaped => (94, 95),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Threads::TimeSharing => "RR-TS",
            Threads::RealTime => "RR-RR",
            Threads::Remedy => "RR 97-96",
            Threads::Shaped => "as shaped",
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
            place: Place::Together,
        }
    }

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
            place: Place::Anywhere,
            ..two(TimeSharing, Order::AtOnce)
        });
        for threads in [RealTime, Remedy] {
            all.extend([Order::Before, Order::AtOnce].map(|order| two(threads, order)));
        }
        let shaped = |order, same_core| Condition {
            same_core,
            place: Place::Apart,
            ..two(Shaped, order)
        };
        all.push(shaped(Order::Before, true));
        all.push(shaped(Order::AtOnce, true));
        all.push(shaped(Order::Before, false));
        all.push(shaped(Order::AtOnce, false));
        all
    }

    pub fn inhibited() -> Vec<Condition> {
        [Order::AtOnce, Order::Later]
            .map(|order| Condition::new(Layout::TwoProcesses, Threads::TimeSharing, order))
            .to_vec()
    }

    pub fn name(&self) -> String {
        let order = match self.order {
            Order::None => "no inhibitor",
            Order::Before => "inhibitor before",
            Order::AtOnce => "inhibitor at once",
            Order::Later => "inhibitor later",
        };
        let place = match (self.same_core, self.place) {
            (false, _) => ", other core",
            (_, Place::Anywhere) => ", middleware's threads anywhere",
            _ => "",
        };
        format!(
            "{}, {}, {order}{place}",
            self.layout.name(),
            self.threads.name()
        )
    }

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
    fn every_condition_of_the_inhibition_experiment_has_a_unique_name() {
        let all = Condition::all();
        let mut keys: Vec<String> = all.iter().map(Condition::key).collect();
        assert!(keys.contains(&"2e.rr_ts.inhibitor_at_once.other_core".to_owned()));
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), all.len());
    }
}
