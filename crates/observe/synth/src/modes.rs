//! Finds when each mode of a run begins by applying the user's rules to events.

use super::Synth;
use crate::mode_rules::{ModeId, ModeRule};
use onbeat_trace::{Event, EventKind};
use rustc_hash::FxHashMap;

#[derive(Debug, Clone, Default)]
pub(super) struct Modes {
    /// The names of the modes, by mode number. The first is the mode of the whole run, which is
    /// active where no rule applies.
    pub(super) names: Vec<String>,
    rules: Vec<ModeRule>,
    messages: Vec<usize>,
    /// The index of the time or lifecycle rule whose mode is active now. `None` if no such rule
    /// applies.
    lasting: Option<usize>,
    /// The times at which time rules begin or end, latest first. Each entry contains the time in ns
    /// since the start of the recording, the index of the rule, and `true` for a begin.
    times: Vec<(u64, usize, bool)>,
    /// By process id and address of a node's state machine: the address of the lifecycle node.
    machines: FxHashMap<(u32, u64), u64>,
    pub(super) unknown_machines: u64,
}

impl Modes {
    pub(super) fn new(own: &str, rules: &[ModeRule]) -> Self {
        let mut names = vec![own.to_string()];
        for mode in rules.iter().flat_map(ModeRule::modes) {
            if !names.iter().any(|n| n == mode) {
                names.push(mode.into());
            }
        }
        let mut times = Vec::new();
        for (i, rule) in rules.iter().enumerate() {
            if let ModeRule::Time { from_ns, to_ns, .. } = rule {
                times.push((*from_ns, i, true));
                times.extend(to_ns.map(|to| (to, i, false)));
            }
        }
        // At equal times, ends come before begins.
        times.sort_by_key(|&(time, rule, begins)| (time, begins, rule));
        times.reverse();
        Modes {
            names,
            rules: rules.to_vec(),
            messages: vec![0; rules.len()],
            times,
            ..Modes::default()
        }
    }

    fn id(&self, mode: &str) -> ModeId {
        let known = self.names.iter().position(|n| n == mode);
        ModeId::new(known.unwrap_or_default())
    }

    /// Records that the rule with this index begins or ends. Returns the mode that is active from
    /// then on, or `None` if the mode stays the same.
    fn begin_or_end(&mut self, rule: usize, begins: bool) -> Option<ModeId> {
        if begins {
            self.lasting = Some(rule);
            return self.rules[rule].modes().next().map(|mode| self.id(mode));
        }
        // Another rule that began later stays active.
        (self.lasting == Some(rule)).then(|| {
            self.lasting = None;
            ModeId::default()
        })
    }

    /// Removes the next begin or end of a time rule, if it is due at `elapsed` ns after the start
    /// of the recording. Returns the time at which the begin or end was due, and the new mode if
    /// the mode changes.
    fn next_due(&mut self, elapsed: u64) -> Option<(u64, Option<ModeId>)> {
        let &(time, rule, begins) = self.times.last().filter(|t| t.0 <= elapsed)?;
        self.times.pop();
        Some((time, self.begin_or_end(rule, begins)))
    }

    fn mode_after_message(&mut self, topic: &str) -> Option<ModeId> {
        let mut to = None;
        for i in 0..self.rules.len() {
            let ModeRule::Topic { modes, topic: own } = &self.rules[i] else {
                continue;
            };
            if own == topic {
                to = Some(self.id(&modes[self.messages[i] % modes.len()]));
                self.messages[i] += 1;
                self.lasting = None;
            }
        }
        to
    }

    fn mode_after_transition(&mut self, node: &str, from: &str, to: &str) -> Option<ModeId> {
        let mut mode = None;
        for begins in [false, true] {
            for i in 0..self.rules.len() {
                let ModeRule::Lifecycle { node: n, state, .. } = &self.rules[i] else {
                    continue;
                };
                if n == node && from != to && state == if begins { to } else { from } {
                    mode = self.begin_or_end(i, begins).or(mode);
                }
            }
        }
        mode
    }
}

impl Synth {
    /// Switches the mode if the event or its time requires it. Must be called before the event is
    /// handled. `time` is at least the time of every earlier event.
    pub(super) fn switch_modes(&mut self, event: &Event, time: u64) {
        if self.modes.rules.is_empty() {
            return;
        }
        if let Some(first) = self.recording.first {
            while let Some((after, mode)) = self.modes.next_due(time.saturating_sub(first)) {
                self.begin_mode(first + after, mode);
            }
        }
        match event.kind {
            EventKind::Publish { rmw, message, .. } => {
                let topic = self.published_topic(event, time, rmw, message);
                let mode = topic.and_then(|topic| self.modes.mode_after_message(&topic));
                self.begin_mode(time, mode);
            }
            EventKind::LifecycleInit { node, machine } => {
                self.modes.machines.insert((event.pid, machine), node);
            }
            EventKind::LifecycleTransition {
                machine,
                ref from,
                ref to,
            } => {
                let node = self.modes.machines.get(&(event.pid, machine));
                match node.and_then(|&node| self.node_of(event.pid, node)) {
                    Some(node) => {
                        let mode = self.modes.mode_after_transition(&node, from, to);
                        self.begin_mode(time, mode);
                    }
                    None => self.modes.unknown_machines += 1,
                }
            }
            EventKind::Exit if event.pid == event.tid => {
                self.modes.machines.retain(|key, _| key.0 != event.pid);
            }
            _ => {}
        }
    }

    fn begin_mode(&mut self, time: u64, mode: Option<ModeId>) {
        if let Some(mode) = mode {
            self.flow.graph.switches.begin(time, mode);
            self.flow.lineage.paths.switches.begin(time, mode);
        }
    }

    fn node_of(&self, pid: u32, handle: u64) -> Option<String> {
        let p = self.cx.entities.processes.known(pid)?;
        let node = self.cx.entities.node_of_handle(p, handle)?;
        Some(self.cx.entities.node_id(node))
    }
}
