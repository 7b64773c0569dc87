//! Looks up callbacks, executors and competitors in a model.

use onbeat_document::schema::{Callback, CallbackType, Chain, Edge};
use onbeat_document::Model;
use std::collections::{BTreeMap, BTreeSet};

const KERNEL_NORMAL_PRIORITY: u8 = 100;

pub(crate) struct View<'m> {
    pub(crate) model: &'m Model,
    pub(crate) order: &'m [usize],
    callbacks: BTreeMap<&'m str, &'m Callback>,
    executors: BTreeMap<&'m str, usize>,
}

pub(crate) struct Step<'m> {
    pub(crate) callback: &'m Callback,
    /// The mean time in ns from the callback's start to its publication, as a part of the chain's
    /// latency.
    pub(crate) own_ns: f64,
    /// The edge from the previous callback, and the mean time in ns that this edge adds to the
    /// chain's latency. `None` for the first callback of the chain.
    pub(crate) from: Option<(&'m Edge, f64)>,
}

impl<'m> View<'m> {
    pub(crate) fn of(model: &'m Model, order: &'m [usize]) -> Self {
        let mut executors = BTreeMap::new();
        for (i, executor) in model.executors.iter().enumerate() {
            for id in &executor.callbacks {
                executors.insert(id.as_str(), i);
            }
        }
        View {
            model,
            order,
            callbacks: model.callbacks.iter().map(|c| (c.id.as_str(), c)).collect(),
            executors,
        }
    }

    pub(crate) fn callback(&self, id: &str) -> Option<&'m Callback> {
        self.callbacks.get(id).copied()
    }

    pub(crate) fn chains(&self) -> impl Iterator<Item = (usize, &'m Chain)> + '_ {
        self.order.iter().map(|&i| (i, &self.model.chains[i]))
    }

    pub(crate) fn steps(&self, chain: &'m Chain) -> Vec<Step<'m>> {
        let mut steps = Vec::new();
        for (i, id) in chain.callbacks.iter().enumerate() {
            let Some(callback) = self.callback(id) else {
                continue;
            };
            let from = (i > 0).then(|| (&chain.callbacks[i - 1], &chain.topics[i - 1]));
            let from = from.and_then(|(before, topic)| {
                let mut edges = self.model.edges.iter();
                let edge = edges.find(|e| e.from == *before && e.to == *id && e.topic == *topic)?;
                Some((edge, part_ns(chain, Part::Into(i))))
            });
            if callback.kind != CallbackType::Sync {
                let own_ns = part_ns(chain, Part::Own(i));
                steps.push(Step {
                    callback,
                    own_ns,
                    from,
                });
            }
        }
        steps
    }

    pub(crate) fn executor(&self, callback: &Callback) -> Option<usize> {
        self.executors.get(callback.id.as_str()).copied()
    }

    pub(crate) fn beside(&self, callback: &Callback) -> Vec<&'m Callback> {
        let Some(executor) = self.executor(callback) else {
            return vec![];
        };
        let ids = self.model.executors[executor].callbacks.iter();
        let others = ids.filter(|id| **id != callback.id);
        let mut found: Vec<&Callback> = others.filter_map(|id| self.callback(id)).collect();
        found.retain(|c| c.figures.exec_ns.count() > 0);
        found.sort_by_key(|c| std::cmp::Reverse(c.figures.exec_ns.max()));
        found
    }

    /// Returns the callbacks of other executors that ran on any of the CPUs of `callback`, those
    /// with the most load first.
    pub(crate) fn on_its_cpus(&self, callback: &Callback) -> Vec<&'m Callback> {
        let cpus = cpus(callback);
        let executor = self.executor(callback);
        let mut found: Vec<&Callback> = self.model.callbacks.iter().collect();
        found.retain(|c| {
            let is_elsewhere =
                c.id != callback.id && (executor.is_none() || self.executor(c) != executor);
            is_elsewhere && !cpus.is_disjoint(&self::cpus(c)) && c.figures.load > 0.0
        });
        found.sort_by(|a, b| b.figures.load.total_cmp(&a.figures.load));
        found
    }

    /// Returns the rank of the most important chain that contains the callback. The most important
    /// chain of all has rank 0. Returns `None` if no chain contains the callback.
    pub(crate) fn importance(&self, callback: &Callback) -> Option<usize> {
        let mut chains = self.chains();
        chains.position(|(_, chain)| chain.callbacks.contains(&callback.id))
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    Own(usize),
    /// The edge into the callback with this index in the chain. The index is never 0, because no
    /// edge of the chain leads into its first callback.
    Into(usize),
}

pub(crate) fn part_ns(chain: &Chain, part: Part) -> f64 {
    let (place, element) = match part {
        Part::Own(i) => (2 * i, "callback"),
        Part::Into(i) => (2 * i - 1, "edge"),
    };
    let share = chain.figures.shares.get(place);
    let share = share.filter(|s| s.element == element);
    share.map_or(0.0, |s| s.mean_ns)
}

pub(crate) fn cpus(callback: &Callback) -> BTreeSet<u16> {
    let threads = callback.threads.iter();
    threads.flat_map(|t| t.cpus.iter().copied()).collect()
}

/// Returns the lowest real-time priority among the callback's threads, 1 to 99. Returns `None` if
/// one of the threads has no real-time priority.
pub(crate) fn real_time(callback: &Callback) -> Option<u8> {
    let threads = callback.threads.iter();
    let of_threads = threads.map(|t| {
        (t.priority < KERNEL_NORMAL_PRIORITY).then(|| KERNEL_NORMAL_PRIORITY - 1 - t.priority)
    });
    let all: Option<Vec<u8>> = of_threads.collect();
    all?.into_iter().min()
}
