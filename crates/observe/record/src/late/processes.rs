//! Decides when the memory of processes that ran before the recording is searched.

use super::owners::{search, Target};
use super::{Memory, ProcessMemory};
use onbeat_trace::{EndpointKind, EventKind};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The time from the first endpoint of a process to the first search of its memory. By then, the
/// process has used most of its endpoints.
const FIRST_SEARCH_AFTER: Duration = Duration::from_millis(300);

const SEARCH_INTERVAL: Duration = Duration::from_secs(1);

const SEARCHES_MAX: u32 = 8;

#[derive(Debug, Default)]
pub struct LateProcess {
    targets: BTreeSet<Target>,
    owned: BTreeSet<Target>,
    due: Option<Instant>,
    searches: u32,
    nodes: usize,
    seen_publishers: BTreeSet<u64>,
    seen_timers: BTreeSet<u64>,
}

const LOOKED_AT_MAX: usize = 1 << 12;

#[derive(Debug, Default)]
pub struct Searched {
    pub events: Vec<EventKind>,
    /// The number of endpoints whose node stays unknown, in a process with several nodes.
    pub unowned: usize,
    pub is_cut: bool,
}

#[derive(Debug, Default)]
pub struct LateProcesses {
    processes: BTreeMap<u32, LateProcess>,
}

impl LateProcesses {
    pub fn begin(&mut self, pid: u32) {
        self.processes.insert(pid, LateProcess::default());
    }

    pub fn is_new_publisher(&mut self, pid: u32, rcl: u64) -> bool {
        let process = self.processes.get_mut(&pid).filter(|_| rcl != 0);
        process.is_some_and(|process| {
            let looked = &mut process.seen_publishers;
            looked.len() < LOOKED_AT_MAX && looked.insert(rcl)
        })
    }

    /// Notes a timer that is created during the recording. [`Self::is_new_timer`] then returns
    /// false for this timer, because events describe it.
    pub fn timer_made(&mut self, pid: u32, timer: u64) {
        self.is_new_timer(pid, timer);
    }

    pub fn is_new_timer(&mut self, pid: u32, timer: u64) -> bool {
        let process = self.processes.get_mut(&pid).filter(|_| timer != 0);
        process.is_some_and(|process| {
            let looked = &mut process.seen_timers;
            looked.len() < LOOKED_AT_MAX && looked.insert(timer)
        })
    }

    pub fn publisher(&mut self, pid: u32, rcl: u64, memory: &impl Memory) -> Option<EventKind> {
        let (rmw, name) = super::find_rmw(memory, rcl)?;
        let endpoint = EndpointKind::Publisher;
        self.endpoint(pid, endpoint, rcl, rmw);
        Some(EventKind::EndpointFound {
            endpoint,
            rcl,
            rmw,
            name: name.into(),
        })
    }

    pub fn endpoint(&mut self, pid: u32, endpoint: EndpointKind, rcl: u64, rmw: u64) {
        let now = Instant::now();
        let process = self.processes.entry(pid).or_default();
        let by_rmw = Target::new(endpoint, 0, rmw);
        if rcl != 0 {
            process.targets.remove(&by_rmw);
        } else if process.targets.iter().any(|t| t.is_more_of(&by_rmw)) {
            return;
        }
        let new = process.targets.insert(Target::new(endpoint, rcl, rmw));
        if new && process.due.is_none() && process.searches < SEARCHES_MAX {
            process.due = Some(
                now + if process.searches == 0 {
                    FIRST_SEARCH_AFTER
                } else {
                    SEARCH_INTERVAL
                },
            );
        }
    }

    pub fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    /// Returns the processes whose memory should be searched now. If `last` is true, also returns
    /// the processes whose search is planned for later.
    pub fn due(&self, last: bool) -> Vec<u32> {
        let now = Instant::now();
        let due = |p: &LateProcess| p.due.is_some_and(|at| last || at <= now);
        let mut pids = Vec::new();
        pids.extend(self.processes.iter().filter(|p| due(p.1)).map(|p| *p.0));
        pids
    }

    /// Removes a process from this list and returns it, so that its memory can be searched.
    /// [`LateProcesses::searched`] puts the process back.
    pub fn take(&mut self, pid: u32) -> Option<LateProcess> {
        self.processes.remove(&pid)
    }

    pub fn searched(&mut self, pid: u32, process: LateProcess) {
        self.processes.insert(pid, process);
    }
}

impl LateProcess {
    /// Searches the process's memory. If the time limit of `memory` is reached before the search is
    /// complete, the result is discarded: a layout that holds for a part of the endpoints may be
    /// wrong.
    pub fn search(&mut self, memory: &ProcessMemory<'_>) -> Searched {
        self.search_in(memory, || memory.is_over())
    }

    fn search_in(&mut self, memory: &impl Memory, is_over: impl Fn() -> bool) -> Searched {
        let process = self;
        process.due = None;
        process.searches += 1;
        let targets: Vec<Target> = process.targets.iter().copied().collect();
        let found = search(memory, &targets);
        if is_over() {
            // The machine may be busy, so the search is repeated.
            process.due =
                (process.searches < SEARCHES_MAX).then(|| Instant::now() + SEARCH_INTERVAL);
            return Searched {
                is_cut: true,
                ..Searched::default()
            };
        }
        process.nodes = process.nodes.max(found.nodes.len());
        let mut searched = Searched::default();
        let named = found.nodes.into_iter();
        searched
            .events
            .extend(named.map(|(node, name)| EventKind::NodeFound {
                node: node.unwrap_or(0),
                name: name.into(),
            }));
        for owner in found.owners {
            let (target, rcl, endpoint) = (owner.target, owner.rcl, owner.target.endpoint());
            if !process.owned.insert(target) {
                continue;
            }
            if target.rcl == 0 {
                let Some((rmw, name)) = super::find_rmw(memory, rcl) else {
                    continue;
                };
                searched.events.push(EventKind::EndpointFound {
                    endpoint,
                    rcl,
                    rmw,
                    name: name.into(),
                });
            }
            let node = owner.node;
            searched.events.push(EventKind::EndpointNode {
                endpoint,
                rcl,
                node,
            });
        }
        if process.nodes > 1 {
            searched.unowned = process.targets.difference(&process.owned).count();
        }
        searched
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Image;
    use super::*;

    #[test]
    fn an_unfinished_search_of_a_late_process_is_repeated() {
        let mut process = LateProcess::default();
        let image = Image::new();
        for more in (0..SEARCHES_MAX).rev() {
            assert!(process.search_in(&image, || true).is_cut);
            assert_eq!(process.due.is_some(), more > 0);
        }
        let mut process = LateProcess::default();
        assert!(process.search_in(&image, || true).is_cut);
        assert!(!process.search_in(&image, || false).is_cut);
        assert_eq!(process.due, None, "it is done");
    }

    #[test]
    fn a_publisher_is_named_at_its_first_publication_within_a_late_process() {
        let mut image = Image::new();
        let (rcl, private, rmw) = (5000, 8192, 16384);
        image.word_at(rcl, private);
        image.word_at(private + 8, rmw);
        image.word_at(rmw, 20000);
        image.word_at(rmw + 16, 21000);
        image.put(20000, b"rmw_x\0");
        image.put(21000, b"/scan\0");
        let found = EventKind::EndpointFound {
            endpoint: EndpointKind::Publisher,
            rcl,
            rmw,
            name: "/scan".into(),
        };
        let mut late = LateProcesses::default();
        assert!(!late.is_new_publisher(7, rcl), "not a late one");
        late.begin(7);
        assert!(late.is_new_publisher(7, rcl));
        assert_eq!(late.publisher(7, rcl, &image), Some(found));
        assert!(!late.is_new_publisher(7, rcl), "once");
        assert_eq!(late.publisher(7, 6000, &image), None, "nothing there");
        late.begin(7);
        assert!(late.is_new_publisher(7, rcl), "of another program");
    }
}
