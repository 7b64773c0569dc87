//! Tells the BPF programs how the chain's executions begin and where they are joined, so that an
//! item's cycle travels with it to the shaper.

use crate::observe::{JoinChange, Joins, RootChange, Roots};
use onbeat_plan::Plan;
use onbeat_record::{Lineage, Root};
use onbeat_ros::lineage::layout;
use onbeat_trace::{Event, EventKind};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

// Ensures that both sides of the table have the same layout.
const _: () = {
    let [entries, shift, factor, check] = Lineage::LAYOUT;
    assert!(entries == layout::ENTRIES && shift == layout::SHIFT);
    assert!(factor == layout::FACTOR && check == layout::CHECK);
};

/// The processes that throttle the plan's inputs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Throttlers {
    None,
    Shaper(u32),
    /// The application's processes that publish the inputs.
    Application,
}

pub(crate) struct LineageFeed<'a> {
    plan: &'a Plan,
    /// The recorder's BPF maps for lineage. `None` before the recording begins, and if this kernel
    /// does not support lineage.
    lineage: Option<Arc<Lineage>>,
    roots: Roots,
    waiting: Vec<RootChange>,
    inputs: Vec<(u32, Root)>,
    joins: Joins,
}

const MAX_WAITING: usize = 64;

impl<'a> LineageFeed<'a> {
    pub(super) fn new(plan: &'a Plan, first: &str) -> LineageFeed<'a> {
        LineageFeed {
            plan,
            lineage: None,
            roots: Roots::new(first),
            waiting: Vec::new(),
            inputs: Vec::new(),
            joins: Joins::new(plan),
        }
    }

    pub(crate) fn set(&mut self, lineage: impl FnOnce() -> Option<Arc<Lineage>>) {
        if self.lineage.is_none() {
            self.lineage = lineage();
            for change in std::mem::take(&mut self.waiting) {
                self.pass_on_root(change);
            }
        }
    }

    pub(super) fn table(&self) -> Option<BorrowedFd<'_>> {
        self.lineage.as_ref().map(|l| l.table())
    }

    /// Finds in `events` where executions begin and where a synchroniser joins them. `throttlers`
    /// says which processes throttle the inputs.
    pub(crate) fn push(&mut self, events: &[Event], throttlers: Throttlers) {
        if let Some(change) = self.roots.push(events) {
            self.pass_on_root(change);
        }
        for change in self.joins.push(events) {
            self.pass_on_join(change);
        }
        for event in events {
            match &event.kind {
                EventKind::PublisherInit { rmw, topic, .. } if self.is_input(topic) => {
                    self.add_input(throttlers, (event.pid, *rmw));
                }
                EventKind::Exit if event.pid == event.tid => {
                    self.remove_inputs(|pid| pid != event.pid)
                }
                _ => {}
            }
        }
    }

    fn is_input(&self, topic: &str) -> bool {
        self.plan.inputs.iter().any(|input| input.topic == *topic)
    }

    fn add_input(&mut self, throttlers: Throttlers, (pid, rmw): (u32, u64)) {
        match throttlers {
            // Removes the inputs of a shaper that has ended.
            Throttlers::Shaper(shaper) if shaper == pid => self.remove_inputs(|of| of == pid),
            Throttlers::Application => {}
            Throttlers::Shaper(_) | Throttlers::None => return,
        }
        let root = Root::Publisher(rmw);
        if self.inputs.contains(&(pid, root)) {
            return;
        }
        self.inputs.push((pid, root));
        self.pass_on_root(RootChange {
            pid,
            was: None,
            now: Some(root),
        });
    }

    fn remove_inputs(&mut self, is_kept: impl Fn(u32) -> bool) {
        let (kept, gone): (Vec<_>, Vec<_>) = self.inputs.iter().partition(|i| is_kept(i.0));
        self.inputs = kept;
        for (pid, was) in gone {
            self.pass_on_root(RootChange {
                pid,
                was: Some(was),
                now: None,
            });
        }
    }

    /// Records a run of the first callback. If inputs are throttled, the run does not begin an
    /// execution, because the inputs do.
    pub(crate) fn first_ran(&mut self, pid: u32, tid: u32, start_ns: u64) {
        if self.plan.inputs.is_empty() {
            if let Some(change) = self.roots.ran(pid, tid, start_ns) {
                self.pass_on_root(change);
            }
        }
    }

    pub(crate) fn ran(&mut self, callback: &str, (pid, tid): (u32, u32), start_ns: u64) {
        // A change is returned only once, so nothing is asked for before it can be passed on.
        if self.lineage.is_some() {
            if let Some(change) = self.joins.ran(callback, (pid, tid), start_ns) {
                self.pass_on_join(change);
            }
        }
    }

    fn pass_on_join(&self, change: JoinChange) {
        let Some(lineage) = &self.lineage else { return };
        if let Some(was) = change.was {
            lineage.remove_join(change.pid, was);
        }
        if let Some(now) = change.now {
            // If this fails, cycles are inferred from arrivals, and these are counted.
            let _ = lineage.add_join(change.pid, now);
        }
    }

    fn pass_on_root(&mut self, change: RootChange) {
        let Some(lineage) = &self.lineage else {
            if self.waiting.len() < MAX_WAITING {
                self.waiting.push(change);
            }
            return;
        };
        if let Some(was) = change.was {
            lineage.remove_root(change.pid, was);
        }
        if let Some(now) = change.now {
            // If this fails, cycles are inferred from arrivals, and these are counted.
            let _ = lineage.add_root(change.pid, now);
        }
    }
}
