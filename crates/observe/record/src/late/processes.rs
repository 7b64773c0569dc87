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
#[derive(Debug)]
struct LateProcess {
    /// Endpoints seen.
    targets: BTreeSet<Target>,
    /// Those whose node is known.
    owned: BTreeSet<Target>,
    /// When to search, if there is something new.
    due: Option<Instant>,
    searches: u32,
    nodes: usize,
}

/// What a search in a process has shown.
#[derive(Debug, Default)]
pub struct Searched {
    /// Nodes, and which endpoints belong to them.
    pub events: Vec<EventKind>,
    /// Endpoints whose node is not known, of a process with several.
    pub unowned: usize,
}

/// Processes that ran before the recording.
#[derive(Debug, Default)]
pub struct LateProcesses {
    processes: BTreeMap<u32, LateProcess>,
}

impl LateProcesses {
    /// An endpoint of a late process was found; `rcl` may be 0.
    pub fn endpoint(&mut self, pid: u32, endpoint: EndpointKind, rcl: u64, rmw: u64) {
        let now = Instant::now();
        let process = self.processes.entry(pid).or_insert(LateProcess {
            targets: BTreeSet::new(),
            owned: BTreeSet::new(),
            due: None,
            searches: 0,
            nodes: 0,
        });
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

    /// Searches in a process.
    pub fn search(&mut self, pid: u32) -> Searched {
        self.search_in(pid, &ProcessMemory { pid })
    }

    fn search_in(&mut self, pid: u32, memory: &impl Memory) -> Searched {
        let Some(process) = self.processes.get_mut(&pid) else {
            return Searched::default();
        };
        process.due = None;
        process.searches += 1;
        let targets: Vec<Target> = process.targets.iter().copied().collect();
        let found = search(memory, &targets);
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
