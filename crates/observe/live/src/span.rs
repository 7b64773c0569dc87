//! Puts the figures of a span of time into a model. Code that judges models can then judge spans,
//! too.

use crate::tally::{Add, CallbackTally, ChainTally, EdgeTally};
use crate::view::count;
use crate::window::Span;
use crate::{EdgeNumbers, Live};
use onbeat_document::schema::{Callback, CallbackFigures, CallbackType};
use onbeat_document::schema::{Chain, ChainFigures, Edge, EdgeFigures, EndToEndFigures};
use onbeat_document::Model;
use rustc_hash::FxHashMap;

/// The numbers of the callbacks with the same id, by id.
type Numbers<'a> = FxHashMap<&'a str, Vec<u32>>;

impl Live {
    /// Replaces figures of `model` by those of a span of time that ends now. `model` must be a
    /// clone of the model that [`Live::refresh`] returned last. `is_wanted` chooses callbacks and
    /// chains by their ids, and edges by their topics and by the ids of the callbacks to which they
    /// lead.
    ///
    /// A span has no figures of three kinds: the waiting on edges, all paths between two ends, and
    /// causes. In `model`, these become empty. Items count as lost on a chain if they were lost or
    /// overwritten on one of its edges.
    pub fn set_figures(&self, model: &mut Model, span: Span, is_wanted: impl Fn(&str) -> bool) {
        let mut numbers = Numbers::default();
        for (number, id) in self.structure.ids.iter().enumerate() {
            if let Some(id) = id {
                numbers.entry(id).or_default().push(number as u32);
            }
        }
        for pair in &mut model.end_to_end {
            pair.modes.clear();
            pair.figures = EndToEndFigures::default();
        }
        for callback in &mut model.callbacks {
            if is_wanted(&callback.id) {
                self.set_callback(callback, span, &numbers);
            }
        }
        for chain in &mut model.chains {
            if is_wanted(&chain.id) {
                self.set_chain(chain, span);
            }
        }
        for edge in &mut model.edges {
            if is_wanted(&edge.topic) || is_wanted(&edge.to) {
                self.set_edge(edge, span, &numbers);
            }
        }
    }

    fn set_callback(&self, callback: &mut Callback, span: Span, numbers: &Numbers<'_>) {
        let numbers = numbers.get(callback.id.as_str()).into_iter().flatten();
        let now = self.now_ns();
        let windows = numbers.filter_map(|number| self.callbacks.get(number));
        let parts: Vec<_> = windows.flat_map(|w| w.parts(span, now)).collect();
        let all = CallbackTally::sum(&parts);
        let observed_ns = now.saturating_sub(span.since_ns(self.start_ns(), now));
        // Executions with unknown CPU time count with the mean of the others.
        let untimed = all.exec_ns.mean() * all.untimed as f64;
        let ran_ns = all.exec_ns.sum() as f64 + untimed;
        callback.modes.clear();
        callback.figures = CallbackFigures {
            load: ran_ns / observed_ns.max(1) as f64,
            observed_ns,
            exec_ns: all.exec_ns,
            response_ns: all.response_ns,
            interarrival_ns: all.interarrival_ns,
            preempted_ns: all.preempted_ns,
            blocked_ns: all.blocked_ns,
            preemptions: all.preemptions,
            blockings: all.blockings,
            untimed: all.untimed,
            ..CallbackFigures::default()
        };
    }

    fn set_chain(&self, chain: &mut Chain, span: Span) {
        let now = self.now_ns();
        let mut parts = Vec::new();
        let mut edges: Vec<EdgeNumbers> = Vec::new();
        for (number, path) in self.paths.iter() {
            let at = self.structure.chain_of.get(number);
            let known = at.and_then(|&at| self.structure.chains.get(at));
            if known.is_none_or(|known| known.id != chain.id) {
                continue;
            }
            parts.extend(path.tally.parts(span, now));
            let pairs = path.steps.windows(2);
            edges.extend(pairs.filter_map(|pair| {
                Some((Some(pair[0].callback), pair[1].callback, pair[1].name?))
            }));
        }
        edges.sort_unstable();
        edges.dedup();
        let all = ChainTally::sum(&parts);
        let lost = self.lost(&edges, span);
        let mut age_ns = (all.reread_ns.count() > 0).then(|| all.latency_ns.clone());
        if let Some(age) = &mut age_ns {
            age.merge(&all.reread_ns);
        }
        chain.modes.clear();
        chain.figures = ChainFigures {
            executions: all.latency_ns.count(),
            jitter_ns: (all.latency_ns.max() - all.latency_ns.min()) / 2,
            latency_ns: all.latency_ns,
            reaction_ns: all.reaction_ns,
            age_ns,
            lost,
            ..ChainFigures::default()
        };
    }

    fn set_edge(&self, edge: &mut Edge, span: Span, numbers: &Numbers<'_>) {
        let of = |id: &str| numbers.get(id).map_or(&[][..], Vec::as_slice);
        let (from, to) = (of(&edge.from), of(&edge.to));
        // The edges of synchronisers are conclusions of the model.
        let is_sync = |id: &str| {
            let known = self.structure.callbacks.get(id);
            known.is_some_and(|known| known.kind == CallbackType::Sync)
        };
        if is_sync(&edge.from) || is_sync(&edge.to) {
            return;
        }
        let mut parts = Vec::new();
        for (key, windows) in self.edges.iter() {
            let is_from = key.0.is_some_and(|number| from.contains(&number));
            if is_from && to.contains(&key.1) && self.synth.name(key.2) == edge.topic {
                parts.extend(windows.parts(span, self.now_ns()));
            }
        }
        let all = EdgeTally::sum(&parts);
        let (lost, overwritten) = (count(all.lost), count(all.overwritten));
        edge.modes.clear();
        edge.figures = EdgeFigures {
            published: all.taken + lost + overwritten,
            taken: all.taken,
            lost,
            overwritten,
            latency_ns: all.latency_ns,
            transport_ns: all.transport_ns,
            ..EdgeFigures::default()
        };
    }
}
