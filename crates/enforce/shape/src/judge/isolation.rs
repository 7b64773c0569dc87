//! Measures how far threads ran outside of their server's slots, from the kernel's switch events.
//! Pure.

use onbeat_reserve::Change;
use onbeat_time::{Cycle, Slot};
use onbeat_trace::{Event, EventKind};
use std::collections::{HashMap, VecDeque};

const MAX_RUNS: usize = 1_000_000;

/// Compares the times in which one thread runs with the slots of its server.
#[derive(Debug, Clone)]
pub struct Isolation {
    cycle_ns: u64,
    slots: Vec<Slot>,
    running_since_ns: Option<u64>,
}

impl Isolation {
    /// Creates the comparison for a server with these slots, in cycles of `cycle_ns`.
    pub fn new(cycle_ns: u64, slots: &[Slot]) -> Isolation {
        Isolation {
            cycle_ns: cycle_ns.max(1),
            slots: slots.to_vec(),
            running_since_ns: None,
        }
    }

    /// Records that the thread begins to run at `at_ns`.
    pub fn runs(&mut self, at_ns: u64) {
        self.running_since_ns = Some(at_ns);
    }

    /// Records that the thread stops running at `at_ns`. Returns the longest time in ns that the
    /// thread ran without a break outside of all slots. Returns `None` if the start of the run is
    /// unknown. `origin_ns` is the start of any cycle.
    pub fn stops(&mut self, at_ns: u64, origin_ns: u64) -> Option<u64> {
        let from_ns = self.running_since_ns.take()?;
        let origin_ns = i64::try_from(origin_ns).unwrap_or(i64::MAX);
        let cycle = Cycle::new(self.cycle_ns, origin_ns)?;
        Some(cycle.longest_outside_ns(&self.slots, from_ns, at_ns))
    }
}

fn is_real_time(policy: u8) -> bool {
    i32::from(policy) == libc::SCHED_FIFO || i32::from(policy) == libc::SCHED_RR
}

#[derive(Debug)]
struct Watched {
    server: usize,
    is_on_cpu: bool,
    isolation: Isolation,
}

/// Watches the runs of all threads that belong to servers with slots. With soft gates, only runs at
/// a real-time priority count. The gates report each change of a thread's priority.
#[derive(Debug, Default)]
pub struct IsolationMonitor {
    threads: HashMap<u32, Watched>,
    only_real_time: bool,
    changes: VecDeque<Change>,
    swaps: VecDeque<(u64, Vec<Option<Isolation>>)>,
    outside_ns: Vec<u64>,
    /// The index of the oldest run in `outside_ns`. Once [`MAX_RUNS`] runs are stored, the next run
    /// replaces this one.
    oldest: usize,
}

impl IsolationMonitor {
    /// Creates a monitor for soft gates, which counts only runs at a real-time priority.
    pub fn of_soft_gates() -> IsolationMonitor {
        IsolationMonitor {
            only_real_time: true,
            ..IsolationMonitor::default()
        }
    }

    /// Watches a thread of a server from now on. `server` is the server's index in the plan, and
    /// `isolation` compares the thread's runs with the server's slots.
    pub fn watch(&mut self, tid: u32, server: usize, isolation: Isolation) {
        let watched = Watched {
            server,
            is_on_cpu: false,
            isolation,
        };
        self.threads.insert(tid, watched);
    }

    /// Adds changes of the threads' priorities, in order of time. The caller may later push events
    /// from before the first change.
    pub fn changed(&mut self, changes: Vec<Change>) {
        self.changes.extend(changes);
    }

    /// Replaces the slots of all servers from `from_ns` on. `by_server` contains a comparison with
    /// the new slots for each server of the plan, or `None`. The caller may later push events from
    /// before `from_ns`.
    pub fn swap(&mut self, from_ns: u64, by_server: Vec<Option<Isolation>>) {
        self.swaps.push_back((from_ns, by_server));
    }

    /// Measures each run of a watched thread that ends before `until_ns` according to `events`.
    /// `origin_ns` is the start of any cycle.
    pub fn push(&mut self, events: &[Event], until_ns: u64, origin_ns: u64) {
        for event in events.iter().take_while(|e| e.time_ns < until_ns) {
            while self
                .changes
                .front()
                .is_some_and(|c| c.at_ns <= event.time_ns)
            {
                if let Some(change) = self.changes.pop_front() {
                    self.apply(change, origin_ns);
                }
            }
            while self.swaps.front().is_some_and(|s| s.0 <= event.time_ns) {
                if let Some((at_ns, by_server)) = self.swaps.pop_front() {
                    self.set_slots(at_ns, &by_server, origin_ns);
                }
            }
            let Some(thread) = self.threads.get_mut(&event.tid) else {
                continue;
            };
            match event.kind {
                EventKind::SwitchIn { policy, .. } => {
                    thread.is_on_cpu = true;
                    if !self.only_real_time || is_real_time(policy) {
                        thread.isolation.runs(event.time_ns);
                    }
                }
                EventKind::SwitchOut { .. } => {
                    thread.is_on_cpu = false;
                    let outside_ns = thread.isolation.stops(event.time_ns, origin_ns);
                    self.count(outside_ns);
                }
                // A new thread may get the id.
                EventKind::Exit => {
                    self.threads.remove(&event.tid);
                }
                _ => {}
            }
        }
    }

    fn apply(&mut self, change: Change, origin_ns: u64) {
        let running = self.threads.values_mut();
        let running = running.filter(|t| t.server == change.server && t.is_on_cpu);
        let mut ended = Vec::new();
        for thread in running {
            if change.is_raised {
                thread.isolation.runs(change.at_ns);
            } else {
                ended.push(thread.isolation.stops(change.at_ns, origin_ns));
            }
        }
        ended
            .into_iter()
            .for_each(|outside_ns| self.count(outside_ns));
    }

    /// Applies the slots `by_server` from `at_ns` on. A run that is going on at `at_ns` counts as
    /// two runs, each with the slots of its time.
    fn set_slots(&mut self, at_ns: u64, by_server: &[Option<Isolation>], origin_ns: u64) {
        let mut ended = Vec::new();
        for thread in self.threads.values_mut() {
            let Some(Some(isolation)) = by_server.get(thread.server) else {
                continue;
            };
            let runs = thread.isolation.running_since_ns.is_some();
            ended.push(thread.isolation.stops(at_ns, origin_ns));
            thread.isolation = isolation.clone();
            if runs {
                thread.isolation.runs(at_ns);
            }
        }
        ended
            .into_iter()
            .for_each(|outside_ns| self.count(outside_ns));
    }

    fn count(&mut self, outside_ns: Option<u64>) {
        self.count_up_to(outside_ns, MAX_RUNS);
    }

    fn count_up_to(&mut self, outside_ns: Option<u64>, most: usize) {
        let Some(outside_ns) = outside_ns else {
            return;
        };
        if self.outside_ns.len() < most {
            self.outside_ns.push(outside_ns);
            return;
        }
        self.outside_ns[self.oldest] = outside_ns;
        self.oldest = (self.oldest + 1) % most;
    }

    /// Returns, for each of the latest runs of watched threads, the longest time in ns that the
    /// thread ran without a break outside of its slots. The order is arbitrary.
    pub fn outside_ns(&self) -> &[u64] {
        &self.outside_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn open(slots: &[(u64, u64)], cycle: u64, at: i64) -> bool {
        let within = at.rem_euclid(cycle as i64) as u64;
        slots
            .iter()
            .any(|&(s, e)| (s..e).contains(&within) || (s..e).contains(&(within + cycle)))
    }

    proptest! {
        #[test]
        fn the_longest_run_outside_slots_equals_an_exhaustive_search(
            cuts in prop::collection::btree_set(0u64..60, 2..7),
            from in 0i64..200,
            long in 1i64..100,
            origin in 0u64..300,
        ) {
            let cuts: Vec<u64> = cuts.into_iter().collect();
            let slots: Vec<(u64, u64)> = cuts.chunks_exact(2).map(|c| (c[0], c[1])).collect();
            let (mut longest, mut now) = (0, 0);
            for at in from..from + long {
                now = if open(&slots, 50, at - origin as i64) { 0 } else { now + 1 };
                longest = longest.max(now);
            }
            // Slots that wrap into the first slot of the next cycle would overlap it.
            prop_assume!(slots.last().is_some_and(|l| l.1 <= 50 + slots[0].0));
            let slots: Vec<Slot> = slots.iter().map(|&(s, e)| Slot::new(s, e)).collect();
            let mut isolation = Isolation::new(50, &slots);
            isolation.runs(from as u64);
            prop_assert_eq!(isolation.stops((from + long) as u64, origin), Some(longest));
        }
    }

    #[test]
    fn without_the_start_of_a_threads_run_there_is_no_isolation_figure() {
        assert_eq!(Isolation::new(10, &[]).stops(5, 0), None);
    }

    #[test]
    fn isolation_counts_only_watched_threads_while_shaping() {
        let text = "
5ns cpu0 1/2 switch_in
25ns cpu0 1/2 switch_out state=1
30ns cpu0 1/3 switch_in
60ns cpu0 1/3 switch_out state=1
105ns cpu0 1/2 switch_in
190ns cpu0 1/2 switch_out state=1
";
        let events = onbeat_trace::text::parse(text).expect("events");
        let mut monitor = IsolationMonitor::default();
        monitor.watch(2, 0, Isolation::new(100, &[Slot::new(0, 20)]));
        monitor.push(&events, 150, 0);
        assert_eq!(monitor.outside_ns(), [5]);
    }

    #[test]
    fn the_isolation_monitor_keeps_only_the_latest_runs_and_no_ended_threads() {
        let mut monitor = IsolationMonitor::default();
        for n in 0..1000 {
            monitor.count_up_to(Some(n), 100);
        }
        let mut kept = monitor.outside_ns().to_vec();
        kept.sort_unstable();
        assert_eq!(kept, (900..1000).collect::<Vec<_>>());
        for tid in 1..1000 {
            monitor.watch(tid, 0, Isolation::new(100, &[Slot::new(0, 20)]));
            let exit = format!("{tid}ns cpu0 1/{tid} exit\n");
            let exit = onbeat_trace::text::parse(&exit).expect("events");
            monitor.push(&exit, u64::MAX, 0);
        }
        assert!(monitor.threads.is_empty());
    }

    #[test]
    fn a_run_at_a_normal_priority_is_not_outside_of_a_slot() {
        let text = "
5ns cpu0 1/2 switch_in policy=2
45ns cpu0 1/2 switch_out state=1
50ns cpu0 1/2 switch_in policy=0
60ns cpu0 1/2 switch_out state=1
70ns cpu0 1/2 switch_in policy=0
130ns cpu0 1/2 switch_out state=1
140ns cpu0 1/2 switch_in policy=2
150ns cpu0 1/2 switch_out state=1
";
        let events = onbeat_trace::text::parse(text).expect("events");
        let change = |at_ns, server, is_raised| Change {
            at_ns,
            server,
            is_raised,
        };
        let mut monitor = IsolationMonitor::of_soft_gates();
        monitor.watch(2, 7, Isolation::new(100, &[Slot::new(0, 20)]));
        // Lowered 3 ns after its slot; raised with the next one, and not lowered again.
        let changes = vec![
            change(22, 1, false),
            change(23, 7, false),
            change(98, 7, true),
        ];
        monitor.changed(changes);
        monitor.push(&events[..3], 1000, 0);
        assert_eq!(monitor.outside_ns(), [3]);
        monitor.push(&events[3..], 1000, 0);
        assert_eq!(monitor.outside_ns(), [3, 10, 10]);
    }
}
