//! When the modes of a run begin: applies the user's rules to events.

use super::Synth;
use crate::mode_rules::{ModeId, ModeRule};
use onbeat_trace::{Event, EventKind};
use rustc_hash::FxHashMap;

/// The state of the rules.
#[derive(Debug, Clone, Default)]
pub(super) struct Modes {
    /// By number. The first is the run's own, which is active where no rule says otherwise.
    pub(super) names: Vec<String>,
    rules: Vec<ModeRule>,
    /// By rule of a topic: messages so far.
    messages: Vec<usize>,
    /// The rule that holds as long as its time or state lasts.
    lasting: Option<usize>,
    /// Times at which a rule of time begins or ends, since the recording's start, last first.
    times: Vec<(u64, usize, bool)>,
    /// Nodes of state machines: by process and machine, (process, node's handle).
    machines: FxHashMap<(u32, u64), u64>,
    /// Transitions of state machines whose node is not known.
    pub(super) unknown_machines: u64,
}

impl Modes {
    /// The rules, with the mode of the run where none applies.
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
        // Of one time, what ends comes before what begins.
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

    /// A rule begins to hold, or ends: the mode that is active from here on, if that changes it.
    fn lasts(&mut self, rule: usize, begins: bool) -> Option<ModeId> {
        if begins {
            self.lasting = Some(rule);
            return self.rules[rule].modes().next().map(|mode| self.id(mode));
        }
        // Another one that began since goes on.
        (self.lasting == Some(rule)).then(|| {
            self.lasting = None;
            ModeId::default()
        })
    }

    /// The next switch by time that is due so long after the recording's start, and when it was.
    fn due(&mut self, elapsed: u64) -> Option<(u64, Option<ModeId>)> {
        let &(time, rule, begins) = self.times.last().filter(|t| t.0 <= elapsed)?;
        self.times.pop();
        Some((time, self.lasts(rule, begins)))
    }

    /// A message was published on a topic.
    fn message(&mut self, topic: &str) -> Option<ModeId> {
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

    /// A node went from one state into another.
    fn transition(&mut self, node: &str, from: &str, to: &str) -> Option<ModeId> {
        let mut mode = None;
        for begins in [false, true] {
            for i in 0..self.rules.len() {
                let ModeRule::Lifecycle { node: n, state, .. } = &self.rules[i] else {
                    continue;
                };
                if n == node && from != to && state == if begins { to } else { from } {
                    mode = self.lasts(i, begins).or(mode);
                }
            }
        }
        mode
    }
}

impl Synth {
    /// Switches the mode where a rule says so. To be called before the event is handled, with its
    /// time put in order.
    pub(super) fn switch_modes(&mut self, event: &Event, time: u64) {
        if self.modes.rules.is_empty() {
            return;
        }
        if let Some(first) = self.recording.first {
            while let Some((after, mode)) = self.modes.due(time.saturating_sub(first)) {
                self.begin_mode(first + after, mode);
            }
        }
        match event.kind {
            EventKind::Publish { rmw, message, .. } => {
                let topic = self.topic_of(event, time, rmw, message);
                let mode = topic.and_then(|topic| self.modes.message(&topic));
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
                        let mode = self.modes.transition(&node, from, to);
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

    /// A mode is active from a time on.
    fn begin_mode(&mut self, time: u64, mode: Option<ModeId>) {
        if let Some(mode) = mode {
            self.flow.graph.switches.begin(time, mode);
            self.flow.lineage.paths.switches.begin(time, mode);
        }
    }

    /// The name of a node by its handle.
    fn node_of(&self, pid: u32, handle: u64) -> Option<String> {
        let p = self.cx.entities.processes.known(pid)?;
        let node = self.cx.entities.node_of_handle(p, handle)?;
        Some(self.cx.entities.node_id(node))
    }
}
