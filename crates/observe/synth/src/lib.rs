//! Makes the timing model of an application from recorded events, in one streaming pass.
//!
//! Memory is bounded by the data that is in flight. [`Synth`] passes each event to the trackers
//! that it concerns (`dispatch`):
//!
//! - [`entities`] tracks what was created (processes, nodes, endpoints, timers) and which handle
//!   names which of them.
//! - [`spans`] finds out which callback each thread ran, and when. It turns events of threads
//!   into [`events::SpanEvent`]s, for example that a callback began, published or ended.
//! - [`flow`] follows items. It receives the span events in order, matches items with takes, and
//!   adds to the figures of callbacks, edges and chains.
//! - [`observe`] reports single executions and items while synthesis runs.
//!
//! `spans` does not use `flow`, and `flow` does not see threads. [`finish`] turns their results
//! into evidence and then into the model.

mod batch_means;
mod causes;
mod chains;
pub mod detail;
mod dispatch;
mod entities;
mod events;
mod finish;
mod flow;
pub mod followed;
mod forget;
mod helpers;
pub mod hosts;
mod ids;
mod index;
pub mod links;
mod marks;
pub mod mode_rules;
mod modes;
pub mod named;
pub mod naming;
mod notes;
pub mod observe;
mod options;
mod origins;
pub mod outcomes;
mod parts;
mod running_median;
mod spans;
#[cfg(test)]
mod testing;
mod values;

pub use forget::{Forgotten, KeptCounts};
pub use links::Link;
pub use naming::NameRule;
pub use options::{SynthOptions, CALLBACK_COST, INFRASTRUCTURE};

use crate::index::{NameId, PathId, VertexId};
use crate::mode_rules::PerMode;
use crate::naming::NameRules;
use causes::Causes;
use detail::{ExecutionSeen, ItemSeen};
use entities::Entities;
use events::SpanEvent;
use flow::Flow;
use followed::{Arrival, Asked, ChainEnd, ChainStep, Held, Joined, PathStep, Shaped};
use helpers::Helpers;
use modes::Modes;
use named::{Named, ThreadNames};
use notes::{Note, Notes};
use observe::Observation;
use onbeat_document::evidence::MEMORY;
use onbeat_document::schema::{CallbackType, Model};
use onbeat_trace::Event;
use outcomes::{ItemOutcome, RequestOutcome};
use spans::Spans;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default)]
struct Context {
    entities: Entities,
    notes: Notes,
    causes: Causes,
    helpers: Helpers,
}

/// The kind of a callback or synchroniser and the number of its node, as far as a synthesis knows
/// them.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallbackFacts {
    pub kind: CallbackType,
    pub node: u32,
}

#[derive(Debug, Clone, Default)]
struct Recording {
    first: Option<u64>,
    now: u64,
    events: PerMode<u64>,
    lost: PerMode<BTreeMap<String, u64>>,
}

/// Makes a model from one recording. The caller pushes the events in order of time.
#[derive(Debug, Clone)]
pub struct Synth {
    options: SynthOptions,
    recording: Recording,
    cx: Context,
    spans: Spans,
    flow: Flow,
    modes: Modes,
    /// A buffer for the events that `spans` passes to `flow`. It is reused, so that `deliver` does
    /// not allocate.
    room: Vec<SpanEvent>,
    #[cfg(test)]
    delivered: Vec<SpanEvent>,
}

impl Synth {
    /// Creates a synthesis that has no events yet.
    pub fn new(options: SynthOptions) -> Self {
        let spans = Spans::new(options.own_threads);
        let mut cx = Context::default();
        cx.entities.keep_infrastructure = options.infrastructure;
        cx.entities.processes.created_max = options.created_max;
        cx.entities.name_rules = NameRules::with(&options.names);
        let names = &mut cx.entities.names;
        let memory = names.intern(MEMORY);
        let inputs = options.inputs.iter().map(|n| names.intern(n));
        let mut flow = Flow::new(options.links.clone(), options.ids.clone(), memory, inputs);
        let asked = |n: &&String| !options.inputs.contains(n);
        let ignored = options.ignore.iter().filter(asked);
        flow.ignore(ignored.map(|n| names.intern(n)).collect());
        flow.state_junctions(options.junctions.clone());
        flow.cut(&mut cx, &options.cuts);
        let modes = Modes::new(&options.run.mode, &options.modes);
        Synth {
            modes,
            options,
            recording: Recording::default(),
            cx,
            spans,
            flow,
            room: Vec::new(),
            #[cfg(test)]
            delivered: Vec::new(),
        }
    }

    /// Processes the next event. If its time is before the time of an earlier event, the event gets
    /// the latest time so far, and the model's coverage counts the event.
    pub fn push(&mut self, event: &Event) {
        let recording = &mut self.recording;
        if event.time_ns < recording.now {
            self.cx.notes.count(Note::OutOfOrder, 1);
        }
        recording.now = recording.now.max(event.time_ns);
        self.cx.entities.now_ns = recording.now;
        if recording.first.is_none()
            && !(self.options.shortened && onbeat_trace::table::is_state(&event.kind))
        {
            recording.first = Some(recording.now);
        }
        let time = recording.now;
        self.switch_modes(event, time);
        let mode = self.flow.graph.switches.last();
        *self.recording.events.of(mode) += 1;
        self.flow.advance(&mut self.cx, time);
        self.dispatch(event, time);
        self.deliver();
        if self.cx.entities.some_ended() {
            self.forget_ended();
        }
    }

    fn deliver(&mut self) {
        if !self.spans.has_events() {
            return;
        }
        let mut events = self.spans.take_events(std::mem::take(&mut self.room));
        for (instance, waits) in self.spans.take_waits() {
            self.cx.causes.keep_waits(instance, waits);
        }
        for event in &events {
            self.flow.receive(&mut self.cx, event);
        }
        #[cfg(test)]
        self.delivered.extend_from_slice(&events);
        events.clear();
        self.room = events;
        while let Some(instance) = self.flow.take_ended() {
            self.spans.release(instance);
        }
    }

    fn forget_ended(&mut self) {
        while let Some(e) = self.cx.entities.take_freed() {
            self.flow.forget(&self.cx, e);
            self.spans.forget(e);
        }
        while let Some(e) = self.cx.entities.take_gone() {
            self.flow.gone(&self.cx, e);
        }
    }

    /// Ends all callbacks that still run. The caller must not push further events.
    pub fn end_of_events(&mut self) {
        let now = self.recording.now;
        self.spans.end_all(&mut self.cx, now);
        self.deliver();
        self.flow.settle(&mut self.cx, now);
    }

    /// Returns the model of the events so far. The caller may push more events afterwards.
    pub fn snapshot(&self) -> Model {
        self.clone().finish()
    }
}

impl Synth {
    /// Starts to keep observations. From now on, the caller must call [`Synth::drain_observations`]
    /// after every few events.
    pub fn observe(&mut self) {
        self.flow.observer.list();
    }

    /// Starts to keep observations of executions, but no other observations. From now on, the
    /// caller must call [`Synth::drain_observations`] after every few events.
    pub fn observe_executions(&mut self) {
        self.flow.observer.list_executions();
    }

    /// Starts to keep the names of threads. From now on, the caller must call
    /// [`Synth::drain_named`] after every few events.
    pub fn keep_named(&mut self) {
        self.cx.causes.named.get_or_insert_default();
    }

    /// Returns the names of threads that were reported since the last call, and removes them.
    pub fn drain_named(&mut self) -> std::vec::Drain<'_, Named> {
        self.cx.causes.named.get_or_insert_default().drain(..)
    }

    /// Returns the observations since the last call, and removes them.
    pub fn drain_observations(&mut self) -> std::vec::Drain<'_, Observation> {
        self.flow.observer.list().drain(..)
    }

    /// Starts to keep executions of chains, joins of synchronisers, arrivals, answered requests and
    /// waits for CPUs.
    /// From now on, the caller must drain them after every few events.
    pub fn follow(&mut self) {
        self.flow.lineage.paths.followed.get_or_insert_default();
        self.cx.causes.held.get_or_insert_default();
    }

    /// Starts to keep executions and items in detail, and everything that [`Synth::follow`] keeps.
    ///
    /// From now on, executions of chains include repeated outputs, whose data were published
    /// before. The caller must drain everything after every few events.
    pub fn detail(&mut self) {
        self.follow();
        self.flow.details.get_or_insert_default();
        self.flow
            .lineage
            .paths
            .followed
            .get_or_insert_default()
            .ages = true;
    }

    /// Returns the executions that ended since the last call, in detail, and removes them.
    pub fn drain_executions(&mut self) -> std::vec::Drain<'_, ExecutionSeen> {
        let details = self.flow.details.get_or_insert_default();
        details.executions.drain(..)
    }

    /// Returns the items whose fate became known since the last call, in detail, and removes them.
    pub fn drain_items(&mut self) -> std::vec::Drain<'_, ItemSeen> {
        self.flow.details.get_or_insert_default().items.drain(..)
    }

    /// Starts to keep the outcomes of items and requests. From now on, the caller must drain both
    /// after every few events.
    pub fn keep_outcomes(&mut self) {
        self.flow.outcomes.get_or_insert_default();
    }

    /// Returns the outcomes of items since the last call, and removes them.
    ///
    /// The outcomes of one publisher and one subscription are in the order of publication, except
    /// for [`outcomes::Outcome::Back`].
    pub fn drain_item_outcomes(&mut self) -> std::vec::Drain<'_, ItemOutcome> {
        let outcomes = self.flow.outcomes.get_or_insert_default();
        outcomes.items.drain(..)
    }

    /// Returns the outcomes of requests since the last call, and removes them.
    pub fn drain_request_outcomes(&mut self) -> std::vec::Drain<'_, RequestOutcome> {
        let outcomes = self.flow.outcomes.get_or_insert_default();
        outcomes.requests.drain(..)
    }

    /// Reports whether the synthesis keeps something that the caller must drain, for example
    /// observations, executions of chains or outcomes. The process ids that
    /// [`Synth::drain_left_out`] returns do not count.
    #[inline]
    pub fn has_followed(&self) -> bool {
        let followed = &self.flow.lineage.paths.followed;
        followed.as_ref().is_some_and(|f| !f.is_empty())
            || self.cx.causes.held.as_ref().is_some_and(|h| !h.is_empty())
            || self.cx.causes.named.as_ref().is_some_and(|n| !n.is_empty())
            || !self.flow.observer.is_empty()
            || self.flow.details.as_ref().is_some_and(|d| !d.is_empty())
            || self.flow.outcomes.as_ref().is_some_and(|o| !o.is_empty())
    }

    /// Returns the executions of chains that ended since the last call, and removes them.
    pub fn drain_chain_ends(&mut self) -> std::vec::Drain<'_, ChainEnd> {
        let followed = &mut self.flow.lineage.paths.followed;
        followed.get_or_insert_default().ends.drain(..)
    }

    /// Takes back a list of steps that the caller does not need any more, and uses its memory
    /// again.
    pub fn take_back(&mut self, mut steps: Vec<ChainStep>) {
        if let Some(followed) = &mut self.flow.lineage.paths.followed {
            steps.clear();
            followed.spare.push(steps);
        }
    }

    /// Returns the joins of synchronisers since the last call, and removes them.
    pub fn drain_joins(&mut self) -> std::vec::Drain<'_, Joined> {
        let followed = &mut self.flow.lineage.paths.followed;
        followed.get_or_insert_default().joined.drain(..)
    }

    /// Returns the requests that were answered since the last call, and removes them.
    pub fn drain_asked(&mut self) -> std::vec::Drain<'_, Asked> {
        let followed = &mut self.flow.lineage.paths.followed;
        followed.get_or_insert_default().asked.drain(..)
    }

    /// Returns the items that shapers have sent since the last call, and removes them.
    pub fn drain_shaped(&mut self) -> std::vec::Drain<'_, Shaped> {
        let followed = &mut self.flow.lineage.paths.followed;
        followed.get_or_insert_default().shaped.drain(..)
    }

    /// Returns the waits for CPUs that ended since the last call, and removes them. Returns none if
    /// the recording does not name the threads that had the CPU.
    pub fn drain_held(&mut self) -> std::vec::Drain<'_, Held> {
        self.cx.causes.held.get_or_insert_default().drain(..)
    }

    /// Returns the number of the component that a thread belongs to now, as an index into
    /// [`Synth::components`]. `tid` may be 0 for an idle CPU, or `UNTOLD` for an unknown thread.
    pub fn component_of(&mut self, tid: u32) -> u32 {
        self.cx.causes.component_number(tid)
    }

    /// Returns the number of the component to which the thread `tid` belongs according to `names`.
    /// `tid` may be 0 or `UNTOLD`, as for [`Synth::component_of`].
    pub fn component_in(&mut self, names: &ThreadNames, tid: u32) -> u32 {
        self.cx.causes.component_number_in(names, tid)
    }

    /// Returns the arrivals since the last call, and removes them. An arrival is the start of a
    /// callback, with the publication time of its item or the release of its timer.
    pub fn drain_arrivals(&mut self) -> std::vec::Drain<'_, Arrival> {
        let followed = &mut self.flow.lineage.paths.followed;
        followed.get_or_insert_default().arrivals.drain(..)
    }

    /// Returns the ids of the processes that have exceeded [`SynthOptions::created_max`] since the
    /// last call of this function. The synthesis leaves out the further events of these processes.
    pub fn drain_left_out(&mut self) -> std::vec::Drain<'_, u32> {
        self.cx.entities.processes.left_out.drain(..)
    }

    /// Returns the kind of a callback or synchroniser.
    pub fn kind_of(&self, callback: u32) -> CallbackType {
        let vertex = self.flow.graph.vertex(VertexId::new(callback as usize));
        vertex.kind()
    }

    /// Returns the number of callbacks and synchronisers so far.
    pub fn callback_count(&self) -> usize {
        self.flow.graph.vertices.len()
    }

    /// Returns what the synthesis knows of a callback or synchroniser so far.
    pub fn callback_facts(&self, callback: u32) -> CallbackFacts {
        let vertex = self.flow.graph.vertex(VertexId::new(callback as usize));
        CallbackFacts {
            kind: vertex.kind(),
            node: self.cx.entities.nodes.settled(vertex.node()).index() as u32,
        }
    }

    /// Returns the number of the name that edges through a node's memory have instead of a topic
    /// name.
    pub fn memory_name(&self) -> u32 {
        self.flow.memory().index() as u32
    }

    /// Reports whether two callbacks, given by their numbers, belong to the same node.
    pub fn are_of_same_node(&self, a: u32, b: u32) -> bool {
        self.callback_facts(a).node == self.callback_facts(b).node
    }

    /// Returns the name of the topic or service with this number. Names come from the recorded
    /// application and are untrusted.
    pub fn name(&self, number: u32) -> &str {
        self.cx.entities.names.get(NameId::new(number as usize))
    }

    /// Sets whether chains begin with this callback even if its data comes from other callbacks.
    /// `callback` is an index into [`Synth::callback_ids`].
    pub fn begin_chains(&mut self, callback: u32, begins: bool) {
        self.flow
            .graph
            .set_cut(VertexId::new(callback as usize), begins);
    }

    /// Returns the callbacks of a path, first to last, as indices into [`Synth::callback_ids`].
    pub fn path(&self, path: u32) -> Vec<u32> {
        let paths = &self.flow.lineage.paths;
        let vertices = paths.vertices(PathId::new(path as usize));
        vertices.into_iter().map(|v| v.index() as u32).collect()
    }

    /// Returns the callbacks and synchronisers of a path, first to last.
    pub fn path_steps(&self, path: u32) -> Vec<PathStep> {
        let paths = &self.flow.lineage.paths;
        paths.steps_of(PathId::new(path as usize))
    }
}
