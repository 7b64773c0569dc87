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
    /// As `onbeat shape` has them: main in a server (at most 94), the others at 95.
    Shaped,
}

/// Where the middleware's threads are. Main threads are on the benchmark's core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On the same core.
    Together,
    /// They may run anywhere.
    Anywhere,
    /// On the other core, as a plan of `onbeat shape` has them where it can.
    Apart,
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
    /// Where the middleware's threads are.
    pub place: Place,
}

impl Place {
    /// The word for the program.
    pub fn word(self) -> &'static str {
        match self {
            Place::Together => "all",
            Place::Anywhere => "main",
            Place::Apart => "apart",
        }
    }
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
            Threads::Shaped => (94, 95),
        }
    }

    /// For tables.
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

    /// Those with an inhibited thread, whose cause is looked for.
    pub fn inhibited() -> Vec<Condition> {
        [Order::AtOnce, Order::Later]
            .map(|order| Condition::new(Layout::TwoProcesses, Threads::TimeSharing, order))
            .to_vec()
    }

    /// For people.
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
