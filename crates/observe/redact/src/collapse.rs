//! Decides which hidden callbacks become one part.
//!
//! A hidden callback joins the part that alone feeds it, as long as no two chains become equal. So
//! each chain, edge and subscriber at the interface keeps its own figures.

use crate::names::{Key, Names};
use crate::policy::Policy;
use onbeat_document::cuts::Cut;
use onbeat_document::schema::{Callback, CallbackType, Chain, Model};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) type Heads<'m> = BTreeMap<&'m str, &'m str>;

/// The properties that distinguish a chain after hidden callbacks were collapsed: its callbacks,
/// its topics, whether it is a cut, and whether it begins at an input.
type Way<'m> = (Vec<&'m str>, Vec<&'m str>, bool, bool);

/// Returns the head of each callback of a model: the callback that stands for the part to which
/// this callback belongs. A callback that belongs to no part is its own head.
pub(crate) fn heads<'m>(model: &'m Model, names: &Names<'_>, collapse: bool) -> Heads<'m> {
    let mut all = Collapse::of(model, names);
    if collapse {
        while all.round() {}
    }
    all.heads
}

struct Collapse<'m> {
    model: &'m Model,
    heads: Heads<'m>,
    inner: BTreeSet<&'m str>,
    hidden: BTreeSet<&'m str>,
    feeders: BTreeMap<&'m str, BTreeSet<&'m str>>,
    chains: BTreeMap<&'m str, Vec<usize>>,
}

impl<'m> Collapse<'m> {
    fn of(model: &'m Model, names: &Names<'_>) -> Self {
        let hidden: BTreeMap<&str, &Callback> = model
            .callbacks
            .iter()
            .filter(|c| !names.shows(c))
            .map(|c| (c.id.as_str(), c))
            .collect();
        let mut feeders: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let mut inner: BTreeSet<&str> = hidden.keys().copied().collect();
        // A callback that takes a visible topic begins a part, and so does a callback where chains
        // begin.
        inner.retain(|id| !names.shows_topic(&hidden[id].input));
        for e in &model.edges {
            feeders.entry(&e.to).or_default().insert(&e.from);
            let joins = hidden.get(e.to.as_str()).map(|c| c.kind) == Some(CallbackType::Sync);
            if names.shows_topic(&e.topic) && !joins {
                inner.remove(e.to.as_str());
            }
            // A callback that feeds a synchroniser stays separate, because a part ends with a
            // publication.
            if joins {
                inner.remove(e.from.as_str());
            }
        }
        let mut chains: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (i, chain) in model.chains.iter().enumerate() {
            for id in &chain.callbacks {
                chains.entry(id).or_default().push(i);
            }
            // The beginning of a cut chain does not begin a part: the user may cut anywhere.
            if !chain.cut {
                inner.remove(chain.callbacks[0].as_str());
            }
        }
        Collapse {
            model,
            heads: model
                .callbacks
                .iter()
                .map(|c| (c.id.as_str(), c.id.as_str()))
                .collect(),
            inner,
            hidden: hidden.into_keys().collect(),
            feeders,
            chains,
        }
    }

    /// Tries once to join each hidden part to the only part that feeds it. A part is known by its
    /// head, the callback that stands for the part. Returns whether any part was joined.
    fn round(&mut self) -> bool {
        let inner: Vec<&str> = self.inner.iter().copied().collect();
        let mut changed = false;
        for id in inner {
            let Some(into) = self.only_feeder(id) else {
                continue;
            };
            let before = self.heads.clone();
            for head in self.heads.values_mut().filter(|h| **h == id) {
                *head = into;
            }
            match self.keeps_chains_apart(into) {
                true => {
                    self.inner.remove(id);
                    changed = true;
                }
                false => self.heads = before,
            }
        }
        changed
    }

    fn only_feeder(&self, id: &str) -> Option<&'m str> {
        let feeders = self.feeders.get(id)?.iter();
        let feeders: BTreeSet<&str> = feeders
            .map(|f| self.heads.get(f).copied().unwrap_or(f))
            .filter(|head| *head != id)
            .collect();
        let mut feeders = feeders.into_iter();
        let one = feeders.next().filter(|f| self.hidden.contains(f))?;
        feeders.next().is_none().then_some(one)
    }

    fn keeps_chains_apart(&self, head: &str) -> bool {
        let members = self.heads.iter().filter(|(_, h)| **h == head);
        let passing: BTreeSet<usize> = members
            .flat_map(|(id, _)| self.chains.get(id).into_iter().flatten().copied())
            .collect();
        let mut seen: BTreeSet<Way<'_>> = BTreeSet::new();
        passing.into_iter().all(|i| {
            let chain = &self.model.chains[i];
            let way = way(chain, &self.heads);
            let once: BTreeSet<&&str> = way.0.iter().collect();
            // A cut chain inside a collapsed part does not distinguish chains.
            let within = chain.cut && (way.0.len() == 1 || way.0[0] != chain.callbacks[0]);
            once.len() == way.0.len() && (within || seen.insert(way))
        })
    }
}

pub(crate) fn way<'m>(chain: &'m Chain, heads: &Heads<'m>) -> Way<'m> {
    let (mut callbacks, mut topics): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for (i, id) in chain.callbacks.iter().enumerate() {
        let head = heads.get(id.as_str()).copied().unwrap_or(id);
        if callbacks.last() == Some(&head) {
            topics.pop();
        } else {
            callbacks.push(head);
        }
        topics.extend(chain.topics.get(i).map(String::as_str));
    }
    (callbacks, topics, chain.cut, chain.from_input)
}

/// Returns the cuts that must be measured so that each collapsed part has a distribution of its
/// latency. See `cuts` of `onbeat-synth`.
pub fn cuts(model: &Model, policy: &Policy) -> Vec<Cut> {
    let key = Key::new(&[0; 32]).expect("long enough");
    let names = Names::new(model, policy, &key);
    let heads = heads(model, &names, policy.collapse);
    let is_sync = |id: &str| {
        let mut callbacks = model.callbacks.iter();
        callbacks.any(|c| c.id == id && c.kind == CallbackType::Sync)
    };
    let mut cuts = BTreeSet::new();
    for chain in model.chains.iter().filter(|c| !c.cut) {
        for (first, last) in parts(chain, &heads) {
            // A synchroniser has no start of its own, so the cut begins at the callback that feeds
            // it.
            let first = if is_sync(&chain.callbacks[first]) {
                first.saturating_sub(1)
            } else {
                first
            };
            let from = &chain.callbacks[first];
            if let Some(topic) = chain.topics.get(last).filter(|_| !is_sync(from)) {
                cuts.insert(Cut {
                    from: Some(from.clone()),
                    to: Some(topic.clone()),
                });
            }
        }
    }
    cuts.into_iter().collect()
}

pub(crate) fn parts(chain: &Chain, heads: &Heads<'_>) -> Vec<(usize, usize)> {
    let head = |i: usize| heads.get(chain.callbacks[i].as_str());
    let mut parts = Vec::new();
    let mut first = 0;
    for i in 1..=chain.callbacks.len() {
        if i == chain.callbacks.len() || head(i) != head(first) {
            if i - first > 1 {
                parts.push((first, i - 1));
            }
            first = i;
        }
    }
    parts
}
