//! Late processes whose memory is still to be searched, and when.

use super::owners::{search, Target};
use super::{Memory, ProcessMemory};
use onbeat_trace::{EndpointKind, EventKind};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// From the first endpoint of a process to the first search: by then most of them were used.
const FIRST: Duration = Duration::from_millis(300);

/// Between two searches in a process.
const AGAIN: Duration = Duration::from_secs(1);

/// Searches in a process, at most.
const SEARCHES: u32 = 8;

/// A process that ran before the recording.
#[derive(Debug, Default)]
pub struct LateProcess {
    /// Endpoints seen.
    targets: BTreeSet<Target>,
    /// Those whose node is known.
    owned: BTreeSet<Target>,
    /// When to search, if there is something new.
    due: Option<Instant>,
    searches: u32,
    nodes: usize,
    /// Handles of publishers that were looked at.
    publishers: BTreeSet<u64>,
    /// The same of timers; also those that were made under our eyes.
    timers: BTreeSet<u64>,
}

/// Publishers of a process that are looked at, and its timers, at most.
const LOOKED_AT: usize = 1 << 12;

/// What a search in a process has shown.
#[derive(Debug, Default)]
pub struct Searched {
    /// Nodes, and which endpoints belong to them.
    pub events: Vec<EventKind>,
    /// Endpoints whose node is not known, of a process with several.
    pub unowned: usize,
    /// The time was over before the end of the search.
    pub is_cut: bool,
}

/// Processes that ran before the recording.
#[derive(Debug, Default)]
pub struct LateProcesses {
    processes: BTreeMap<u32, LateProcess>,
}

impl LateProcesses {
    /// A process ran before the recording.
    pub fn begin(&mut self, pid: u32) {
        self.processes.insert(pid, LateProcess::default());
    }

    /// Whether a late process publishes within itself by an rcl handle for the first time.
    pub fn is_new_publisher(&mut self, pid: u32, rcl: u64) -> bool {
        let process = self.processes.get_mut(&pid).filter(|_| rcl != 0);
        process.is_some_and(|process| {
            let looked = &mut process.publishers;
            looked.len() < LOOKED_AT && looked.insert(rcl)
        })
    }

    /// A timer is made under our eyes.
    pub fn timer_made(&mut self, pid: u32, timer: u64) {
        self.is_new_timer(pid, timer);
    }

    /// Whether a timer of a late process is seen for the first time.
    pub fn is_new_timer(&mut self, pid: u32, timer: u64) -> bool {
        let process = self.processes.get_mut(&pid).filter(|_| timer != 0);
        process.is_some_and(|process| {
            let looked = &mut process.timers;
            looked.len() < LOOKED_AT && looked.insert(timer)
        })
    }

    /// What is found behind the rcl handle of a new publisher.
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

    /// An endpoint of a late process was found; `rcl` may be 0.
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
        if new && process.due.is_none() && process.searches < SEARCHES {
            process.due = Some(now + if process.searches == 0 { FIRST } else { AGAIN });
        }
    }

    /// A process ended, or runs another program now.
    pub fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    /// The processes to search in now; with `last`, all with something new.
    pub fn due(&self, last: bool) -> Vec<u32> {
        let now = Instant::now();
        let due = |p: &LateProcess| p.due.is_some_and(|at| last || at <= now);
        let mut pids = Vec::new();
        pids.extend(self.processes.iter().filter(|p| due(p.1)).map(|p| *p.0));
        pids
    }

    /// Takes a process out, to search in its memory. [`LateProcesses::searched`] puts it back.
    pub fn take(&mut self, pid: u32) -> Option<LateProcess> {
        self.processes.remove(&pid)
    }

    /// A process whose memory was searched.
    pub fn searched(&mut self, pid: u32, process: LateProcess) {
        self.processes.insert(pid, process);
    }
}

impl LateProcess {
    /// Searches in the process's memory. Nothing was found if the time for it was over before its
    /// end: a layout that holds for a part of the endpoints may be none.
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
            // The machine may be busy.
            process.due = (process.searches < SEARCHES).then(|| Instant::now() + AGAIN);
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
    fn a_search_that_did_not_come_to_its_end_is_made_again() {
        let mut process = LateProcess::default();
        let image = Image::new();
        for more in (0..SEARCHES).rev() {
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
