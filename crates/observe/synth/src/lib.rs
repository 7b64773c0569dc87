//! Events to a model in one streaming pass, with memory bounded by what is in flight.
//!
//! [`Synth`] hands each event to the trackers that it concerns (`dispatch`), and does nothing else:
//!
//! - [`entities`]: what was created (processes, nodes, endpoints, timers), and which handle stands
//!   for which;
//! - [`spans`]: which stretch of which thread is which callback. It turns the events of threads
//!   into [`events::SpanEvent`]s: a callback began, published, ended;
//! - [`flow`]: what became of items. It takes the span events in order, matches items with takes,
//!   and adds to the figures of callbacks, edges and chains;
//! - [`observe`]: what is reported while synthesis runs.
//!
//! `spans` does not know `flow`, and `flow` does not know threads. [`finish`] makes evidence, and
//! with it the model, of what they found.

mod causes;
mod chains;
mod course;
mod dispatch;
mod entities;
mod events;
mod finish;
mod flow;
mod helpers;
pub mod hosts;
mod ids;
mod index;
pub mod links;
pub mod mode_rules;
mod modes;
pub mod naming;
mod notes;
pub mod observe;
mod options;
mod parts;
mod running_median;
mod spans;
#[cfg(test)]
mod testing;
mod values;

pub use links::Link;
pub use naming::NameRule;
pub use options::{SynthOptions, INFRASTRUCTURE};

use crate::index::{NameId, PathId, VertexId};
use crate::mode_rules::PerMode;
use crate::naming::NameRules;
use causes::Causes;
use entities::Entities;
use events::SpanEvent;
use flow::Flow;
use helpers::Helpers;
use modes::Modes;
use notes::{Note, Notes};
use observe::Observation;
use onbeat_document::evidence::MEMORY;
use onbeat_document::schema::Model;
use onbeat_trace::Event;
use spans::Spans;
use std::collections::BTreeMap;

/// What all trackers share.
#[derive(Debug, Clone, Default)]
struct Context {
    entities: Entities,
    notes: Notes,
    causes: Causes,
    helpers: Helpers,
}

/// The recording so far.
#[derive(Debug, Clone, Default)]
struct Recording {
    /// Time of the first event that counts.
    first: Option<u64>,
    /// Time of the last event.
    now: u64,
    events: PerMode<u64>,
    /// Lost events by probe.
    lost: PerMode<BTreeMap<String, u64>>,
}

/// Makes a model of one recording from its events, in time order.
#[derive(Debug, Clone)]
pub struct Synth {
    options: SynthOptions,
    recording: Recording,
    cx: Context,
    spans: Spans,
    flow: Flow,
    modes: Modes,
    /// Room for the events between `spans` and `flow`.
    room: Vec<SpanEvent>,
    /// All of them, for tests.
    #[cfg(test)]
    delivered: Vec<SpanEvent>,
}

impl Synth {
    /// Starts a model.
    pub fn new(options: SynthOptions) -> Self {
        let spans = Spans::new(options.own_threads);
        let mut cx = Context::default();
        cx.entities.keep_infrastructure = options.infrastructure;
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

    /// The next event. Events come in time order.
    pub fn push(&mut self, event: &Event) {
        let recording = &mut self.recording;
        if event.time_ns < recording.now {
            self.cx.notes.count(Note::OutOfOrder, 1);
        }
        recording.now = recording.now.max(event.time_ns);
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

    /// Hands what `spans` found to `flow`.
    fn deliver(&mut self) {
        if !self.spans.has_events() {
            return;
        }
        let mut events = self.spans.take_events(std::mem::take(&mut self.room));
        for (instance, waits) in self.spans.take_waits() {
            self.cx.causes.ended(instance, waits);
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

    /// Drops what is kept for entities that ended.
    fn forget_ended(&mut self) {
        while let Some(e) = self.cx.entities.take_freed() {
            self.flow.forget(&self.cx, e);
            self.spans.forget(e);
        }
        while let Some(e) = self.cx.entities.take_gone() {
            self.flow.gone(e);
        }
    }

    /// Ends everything that still runs: no event follows.
    pub fn end_of_events(&mut self) {
        let now = self.recording.now;
        self.spans.end_all(&mut self.cx, now);
        self.deliver();
        self.flow.settle(&mut self.cx, now);
    }

    /// The model so far; the recording goes on.
    pub fn snapshot(&self) -> Model {
        self.clone().finish()
    }
}

impl Synth {
    /// From here on, keeps observations for [`Synth::drain_observations`], which is then to be
    /// called after every few events.
    pub fn observe(&mut self) {
        self.flow.observer.list();
    }

    /// The observations since the last call.
    pub fn drain_observations(&mut self) -> std::vec::Drain<'_, Observation> {
        self.flow.observer.list().drain(..)
    }

    /// A topic's or service's name by its number (untrusted).
    pub fn name(&self, number: u32) -> &str {
        self.cx.entities.names.get(NameId::new(number as usize))
    }

    /// Whether chains begin with a callback, by its number, though others give it its data.
    pub fn begin_chains(&mut self, callback: u32, begins: bool) {
        self.flow
            .graph
            .set_cut(VertexId::new(callback as usize), begins);
    }

    /// The callbacks of a path, first to last: indices into [`Synth::callback_ids`].
    pub fn path(&self, path: u32) -> Vec<u32> {
        let paths = &self.flow.lineage.paths;
        let vertices = paths.vertices(PathId::new(path as usize));
        vertices.into_iter().map(|v| v.index() as u32).collect()
    }
}
