//! Looks up callbacks, executors and competitors in a model.

use onbeat_document::schema::{Callback, CallbackType, Chain, Edge};
use onbeat_document::Model;
use std::collections::{BTreeSet, HashMap};

const KERNEL_NORMAL_PRIORITY: u8 = 100;

/// A model with indices. The rules look things up for each step of each chain, so a lookup must not
/// search all callbacks of a large model.
pub(crate) struct View<'m> {
    pub(crate) model: &'m Model,
    pub(crate) order: &'m [usize],
    callbacks: HashMap<&'m str, &'m Callback>,
    executors: HashMap<&'m str, usize>,
    /// For each executor, its callbacks that ran, those with the longest execution first.
    on_executor: Vec<Vec<&'m Callback>>,
    /// The callbacks that ran, with their CPUs, those with the most load first.
    by_load: Vec<(&'m Callback, BTreeSet<u16>)>,
    /// For each callback, the edges that lead into it.
    into: HashMap<&'m str, Vec<&'m Edge>>,
    importance: HashMap<&'m str, usize>,
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
        let callbacks: HashMap<_, _> = model.callbacks.iter().map(|c| (c.id.as_str(), c)).collect();
        let mut executors = HashMap::new();
        let mut on_executor = Vec::new();
        for (i, executor) in model.executors.iter().enumerate() {
            let ids = executor.callbacks.iter().map(String::as_str);
            executors.extend(ids.clone().map(|id| (id, i)));
            let mut ran: Vec<&Callback> = ids.filter_map(|id| callbacks.get(id).copied()).collect();
            ran.retain(|c| c.figures.exec_ns.count() > 0);
            ran.sort_by_key(|c| std::cmp::Reverse(c.figures.exec_ns.max()));
            on_executor.push(ran);
        }
        let loaded = model.callbacks.iter().filter(|c| c.figures.load > 0.0);
        let mut by_load: Vec<_> = loaded.map(|c| (c, cpus(c))).collect();
        by_load.sort_by(|a, b| b.0.figures.load.total_cmp(&a.0.figures.load));
        let mut into: HashMap<_, Vec<_>> = HashMap::new();
        for edge in &model.edges {
            into.entry(edge.to.as_str()).or_default().push(edge);
        }
        let mut importance = HashMap::new();
        for (rank, &chain) in order.iter().enumerate() {
            for id in &model.chains[chain].callbacks {
                importance.entry(id.as_str()).or_insert(rank);
            }
        }
        View {
            model,
            order,
            callbacks,
            executors,
            on_executor,
            by_load,
            into,
            importance,
        }
    }

    pub(crate) fn callback(&self, id: &str) -> Option<&'m Callback> {
        self.callbacks.get(id).copied()
    }

    pub(crate) fn chains(&self) -> impl Iterator<Item = (usize, &'m Chain)> + '_ {
        self.order.iter().map(|&i| (i, &self.model.chains[i]))
    }

    pub(crate) fn steps(&self, chain: &Chain) -> Vec<Step<'m>> {
        let mut steps = Vec::new();
        for (i, id) in chain.callbacks.iter().enumerate() {
            let Some(callback) = self.callback(id) else {
                continue;
            };
            let from = (i > 0).then(|| (&chain.callbacks[i - 1], &chain.topics[i - 1]));
            let from = from.and_then(|(before, topic)| {
                let mut edges = self.into(callback);
                let edge = edges.find(|e| e.from == *before && e.topic == *topic)?;
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

    /// Returns the edges that lead into the callback.
    pub(crate) fn into<'a>(&'a self, callback: &Callback) -> impl Iterator<Item = &'m Edge> + 'a {
        let edges = self.into.get(callback.id.as_str());
        edges.into_iter().flatten().copied()
    }

    pub(crate) fn executor(&self, callback: &Callback) -> Option<usize> {
        self.executors.get(callback.id.as_str()).copied()
    }

    /// Returns the callbacks of an executor that ran, those with the longest execution first.
    pub(crate) fn on_executor(&self, executor: usize) -> &[&'m Callback] {
        &self.on_executor[executor]
    }

    /// Returns the other callbacks of the callback's executor that ran, those with the longest
    /// execution first.
    pub(crate) fn beside<'a>(
        &'a self,
        callback: &'a Callback,
    ) -> impl Iterator<Item = &'m Callback> + 'a {
        let of_executor = self.executor(callback).map(|i| &self.on_executor[i]);
        let all = of_executor.into_iter().flatten().copied();
        all.filter(|other| other.id != callback.id)
    }

    /// Returns the callbacks of other executors that ran on any of the CPUs of `callback`, those
    /// with the most load first.
    pub(crate) fn on_its_cpus<'a>(
        &'a self,
        callback: &'a Callback,
    ) -> impl Iterator<Item = &'m Callback> + 'a {
        let cpus = cpus(callback);
        let executor = self.executor(callback);
        let all = self.by_load.iter();
        all.filter(move |(other, on)| {
            !cpus.is_disjoint(on)
                && other.id != callback.id
                && (executor.is_none() || self.executor(other) != executor)
        })
        .map(|(other, _)| *other)
    }

    /// Returns the rank of the most important chain that contains the callback. The most important
    /// chain of all has rank 0. Returns `None` if no chain contains the callback.
    pub(crate) fn importance(&self, callback: &Callback) -> Option<usize> {
        self.importance.get(callback.id.as_str()).copied()
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
