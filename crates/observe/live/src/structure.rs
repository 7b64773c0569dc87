//! The names of callbacks, and the chain of the model to which each path of the synthesis belongs.

use crate::PathNumber;
use onbeat_document::schema::{CallbackType, Chain};
use onbeat_document::{titles, Model};
use onbeat_synth::followed::ChainStep;
use onbeat_synth::Synth;
use onbeat_why::leads_along;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
pub(crate) struct KnownChain {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) callbacks: Vec<String>,
    pub(crate) topics: Vec<String>,
    pub(crate) is_assumed: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct KnownCallback {
    pub(crate) node: String,
    pub(crate) kind: CallbackType,
    pub(crate) period_ns: Option<u64>,
}

/// The callbacks and chains of the system at the last [`Structure::read`].
#[derive(Debug, Clone, Default)]
pub(crate) struct Structure {
    cut_to: Vec<String>,
    pub(crate) ids: Vec<Option<String>>,
    pub(crate) callbacks: BTreeMap<String, KnownCallback>,
    pub(crate) chains: Vec<KnownChain>,
    /// For each path that belongs to a chain: the index of this chain in `chains`.
    pub(crate) chain_of: FxHashMap<PathNumber, usize>,
    paths: FxHashSet<PathNumber>,
}

impl Structure {
    pub(crate) fn new(cut_to: Vec<String>) -> Structure {
        Structure {
            cut_to,
            ..Structure::default()
        }
    }

    pub(crate) fn has_callback(&self, number: u32) -> bool {
        let id = self.ids.get(number as usize);
        id.is_some_and(Option::is_some)
    }

    pub(crate) fn has_path(&self, path: PathNumber) -> bool {
        self.paths.contains(&path)
    }

    /// Reads callbacks and chains from a model of `synth`. `paths` are the paths on which
    /// executions have ended: the number of each path, whether it is a part of a chain (a cut), and
    /// its steps.
    pub(crate) fn read<'a>(
        &mut self,
        synth: &Synth,
        model: &Model,
        paths: impl Iterator<Item = (PathNumber, bool, &'a [ChainStep])>,
    ) {
        self.ids = synth.callback_ids();
        self.callbacks.clear();
        for callback in &model.callbacks {
            let known = KnownCallback {
                node: callback.node.clone(),
                kind: callback.kind,
                period_ns: callback.period_ns,
            };
            self.callbacks.insert(callback.id.clone(), known);
        }
        let titles = titles::titles(model);
        let chains = model.chains.iter().zip(titles);
        let known = |(chain, title): (&Chain, String)| KnownChain {
            id: chain.id.clone(),
            title,
            callbacks: chain.callbacks.clone(),
            topics: chain.topics.clone(),
            is_assumed: chain.assumed,
        };
        self.chains = chains.map(known).collect();
        self.chain_of.clear();
        self.paths.clear();
        for (number, cut, steps) in paths {
            self.paths.insert(number);
            let is_it = |chain: &Chain| {
                self.is_cut(chain) == cut && leads_along(chain, steps, &self.ids, |n| synth.name(n))
            };
            if let Some(at) = model.chains.iter().position(is_it) {
                self.chain_of.insert(number, at);
            }
        }
    }

    /// Forgets the callbacks and paths whose numbers the synthesis reuses from now on.
    pub(crate) fn forget(&mut self, callbacks: &[u32], is_gone: impl Fn(PathNumber) -> bool) {
        for &callback in callbacks {
            if let Some(id) = self.ids.get_mut(callback as usize) {
                *id = None;
            }
        }
        self.paths.retain(|path| !is_gone(*path));
        self.chain_of.retain(|path, _| !is_gone(*path));
    }

    fn is_cut(&self, chain: &Chain) -> bool {
        let output = chain.topics.get(chain.callbacks.len().max(1) - 1);
        output.is_some_and(|output| self.cut_to.contains(output))
    }
}

/// Returns for each step of a path the index of the chain's callback to which the step's time is
/// added. The time of a synchroniser that is not in the chain is added to the callback before it.
pub(crate) fn places(
    steps: &[ChainStep],
    callbacks: &[String],
    ids: &[Option<String>],
) -> Vec<usize> {
    let mut at = 0;
    let mut places = Vec::with_capacity(steps.len());
    for step in steps {
        let id = ids.get(step.callback as usize).and_then(Option::as_ref);
        if id.is_some() && id == callbacks.get(at) {
            at += 1;
        }
        places.push(at.saturating_sub(1));
    }
    places
}
