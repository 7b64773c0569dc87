//! Forgets figures without recent events, and nodes and callbacks that ended, so that memory stays flat.

use crate::window::SECOND_NS;
use crate::Live;
use onbeat_synth::{Forgotten, KeptCounts};
use rustc_hash::FxHashSet;

/// The time in ns between two searches for nodes that have ended.
const SEARCH_NS: u64 = 60 * SECOND_NS;

/// The maximum number of ids of left-out processes that are stored until the caller takes them.
const LEFT_OUT_MAX: usize = 64;

#[derive(Debug, Clone)]
pub(crate) struct Forgetting {
    after_ns: u64,
    nodes_after_ns: u64,
    next_search_ns: u64,
    nodes: u64,
    /// The number of callbacks that were forgotten while their nodes stayed.
    lone_callbacks: u64,
    left_out_processes: u64,
    /// The ids of processes that have created more names and callbacks than
    /// `SynthOptions::created_max`. [`Live::drain_left_out_processes`] returns and removes them.
    new_left_out: Vec<u32>,
}

impl Forgetting {
    pub(crate) fn new(after_ns: u64, nodes_after_ns: u64) -> Forgetting {
        Forgetting {
            after_ns,
            nodes_after_ns,
            next_search_ns: 0,
            nodes: 0,
            lone_callbacks: 0,
            left_out_processes: 0,
            new_left_out: Vec::new(),
        }
    }
}

impl Live {
    /// Counts the processes that the synthesis has left out since the last call of this function,
    /// and stores their ids.
    pub(crate) fn take_left_out(&mut self) {
        for pid in self.synth.drain_left_out() {
            self.forgetting.left_out_processes += 1;
            if self.forgetting.new_left_out.len() < LEFT_OUT_MAX {
                self.forgetting.new_left_out.push(pid);
            }
        }
    }

    /// Returns the number of processes that have created more names and callbacks than
    /// [`SynthOptions::created_max`](onbeat_synth::SynthOptions::created_max). The model leaves out
    /// later events of these processes.
    pub fn left_out_processes(&self) -> u64 {
        self.forgetting.left_out_processes
    }

    /// Returns the ids of the processes that have exceeded, since the last call, the number of
    /// names and callbacks that the options allow. Returns at most 64 ids.
    pub fn drain_left_out_processes(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.forgetting.new_left_out)
    }

    /// Forgets the callbacks, paths, edges, topics and threads that were last seen longer before
    /// `now_ns` than the options allow. Once a minute, also forgets the nodes that ended longer
    /// before `now_ns` than the options allow.
    pub(crate) fn forget(&mut self, now_ns: u64) {
        let before = now_ns.saturating_sub(self.forgetting.after_ns);
        self.callbacks.forget_before(before);
        self.starts.forget_before(before);
        self.paths.forget_before(before);
        self.edges.forget_before(before);
        self.published.forget_before(before);
        if let Some(machine) = &mut self.machine {
            machine.forget_before(before);
        }
        let forgetting = &mut self.forgetting;
        if now_ns >= forgetting.next_search_ns {
            forgetting.next_search_ns = now_ns.saturating_add(SEARCH_NS);
            let forgotten = self.synth.forget(forgetting.nodes_after_ns);
            self.drop_numbers(&forgotten);
        }
    }

    /// Removes all entries that refer to numbers in `forgotten`, because the synthesis gives these
    /// numbers to other callbacks, paths, names and components from now on.
    fn drop_numbers(&mut self, forgotten: &Forgotten) {
        if forgotten.is_empty() {
            return;
        }
        self.forgetting.nodes += forgotten.nodes;
        self.forgetting.lone_callbacks += forgotten.lone_callbacks;
        let set = |numbers: &[u32]| numbers.iter().copied().collect::<FxHashSet<u32>>();
        let callbacks = set(&forgotten.callbacks);
        let (paths, names) = (set(&forgotten.paths), set(&forgotten.names));
        let components = set(&forgotten.components);
        let is_gone = |callback: u32| callbacks.contains(&callback);
        let is_gone_component = |component: u32| components.contains(&component);
        self.callbacks.retain(|&callback| !is_gone(callback));
        self.starts.retain(|&callback| !is_gone(callback));
        self.paths.retain(|path| !paths.contains(&path.0));
        self.edges.retain(|&(from, to, name)| {
            let ends_are_gone = is_gone(to) || from.is_some_and(is_gone);
            !ends_are_gone && !names.contains(&name)
        });
        self.published.retain(|name| !names.contains(name));
        for path in self.paths.values_mut() {
            path.causes.forget(is_gone, is_gone_component);
        }
        if let Some(machine) = &mut self.machine {
            machine.forget(is_gone, is_gone_component);
        }
        let is_gone_path = |path: crate::PathNumber| paths.contains(&path.0);
        self.structure.forget(&forgotten.callbacks, is_gone_path);
        self.is_stale |= !callbacks.is_empty();
    }

    /// Returns the number of nodes that were forgotten because they ended more than
    /// [`LiveOptions::forget_nodes_after_ns`](crate::LiveOptions::forget_nodes_after_ns) ago.
    pub fn forgotten_nodes(&self) -> u64 {
        self.forgetting.nodes
    }

    /// Returns the number of callbacks that were forgotten although their nodes stayed: their
    /// endpoint or timer had ended more than
    /// [`LiveOptions::forget_nodes_after_ns`](crate::LiveOptions::forget_nodes_after_ns) before.
    pub fn forgotten_callbacks(&self) -> u64 {
        self.forgetting.lone_callbacks
    }

    /// Returns the numbers of entities that the synthesis stores, and the number of entries with
    /// figures that the live model stores.
    pub fn kept(&self) -> (KeptCounts, usize) {
        let of_data = self.edges.len() + self.published.len() + self.paths.len();
        let of_machine = self.machine.as_ref();
        let of_machine = of_machine.map_or(0, |m| m.threads.len() + m.holders.len());
        let entries = self.callbacks.len() + of_data + of_machine;
        (self.synth.kept(), entries)
    }

    /// Returns the number of callbacks, paths, edges, topics and threads that were forgotten
    /// because they had not been seen for
    /// [`LiveOptions::forget_after_ns`](crate::LiveOptions::forget_after_ns).
    pub fn forgotten(&self) -> u64 {
        let of_machine = self.machine.as_ref();
        let of_machine = of_machine.map_or(0, |m| m.threads.forgotten() + m.holders.forgotten());
        let of_data = self.edges.forgotten() + self.published.forgotten();
        self.callbacks.forgotten() + self.paths.forgotten() + of_data + of_machine
    }

    /// Returns the number of values that were not counted. A value is not counted if it needs a new
    /// entry while there are 4096 entries of the same kind (callbacks, paths, edges, topics or
    /// threads).
    pub fn left_out(&self) -> u64 {
        let of_machine = self.machine.as_ref();
        let of_machine = of_machine.map_or(0, |m| m.threads.left_out() + m.holders.left_out());
        let of_data = self.edges.left_out() + self.published.left_out();
        self.callbacks.left_out() + self.paths.left_out() + of_data + of_machine
    }
}
