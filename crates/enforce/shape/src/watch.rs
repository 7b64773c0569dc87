//! Events to what a plan asks about: which thread runs which callback, and when an execution of a
//! chain brings something. Pure.

use onbeat_model::synth::observe::Observation;
use onbeat_model::synth::{Synth, SynthOptions};
use onbeat_plan::Plan;
use onbeat_trace::Event;
use rustc_hash::FxHashMap;

/// Something that was seen of a plan's callbacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sight {
    /// A callback of the plan ran.
    Ran {
        /// Index into [`Watcher::callbacks`].
        callback: usize,
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// Start, CLOCK_MONOTONIC.
        start_ns: u64,
        /// End.
        end_ns: u64,
    },
    /// A callback of the plan published.
    Left {
        /// Index into [`Watcher::callbacks`].
        callback: usize,
        /// The topic under which it did; none where the callback ended without publishing.
        topic: Option<String>,
        /// When, CLOCK_MONOTONIC.
        time_ns: u64,
        /// Source time stamp, CLOCK_REALTIME.
        source_ns: Option<i64>,
        /// First callback that the data went through as far as it can be followed: where something
        /// is held back and published by another, this is the callback behind that.
        from: usize,
        /// Start of that callback.
        start_ns: u64,
    },
    /// A callback started on an item.
    Taken {
        /// The item's topic.
        topic: String,
        /// When the item was published.
        published_ns: u64,
        /// When the callback starts.
        start_ns: u64,
    },
}

/// Follows a plan's callbacks through a stream of events.
pub struct Watcher {
    synth: Synth,
    callbacks: Vec<String>,
    index: FxHashMap<String, usize>,
    /// Each chain without its synchronisers, as indices.
    chains: Vec<Vec<usize>>,
    /// What the synthesis calls by number: index of the plan's callback, [`OTHER`], or a
    /// synchroniser.
    numbers: Vec<Number>,
    /// By path: first and last callback, where all of it lies on a chain.
    paths: FxHashMap<u32, Option<(usize, usize)>>,
    stale: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    Of(usize),
    Synchroniser,
    Other,
}

/// Is this the id of a synchroniser? It runs as part of a subscription's callback.
pub fn is_synchroniser(id: &str) -> bool {
    id.split_once(':')
        .is_some_and(|(_, kind)| kind.starts_with("sync("))
}

impl Watcher {
    /// Looks out for the callbacks of a plan: those of its chains and of its servers.
    pub fn new(plan: &Plan) -> Watcher {
        let mut callbacks: Vec<String> = Vec::new();
        let of_chains = plan.chains.iter().flat_map(|c| &c.callbacks);
        let of_servers = plan.servers.iter().flat_map(|s| &s.callbacks);
        for id in std::iter::once(&plan.origin)
            .chain(of_chains)
            .chain(of_servers)
        {
            if !is_synchroniser(id) && !callbacks.contains(id) {
                callbacks.push(id.clone());
            }
        }
        let index: FxHashMap<String, usize> = callbacks
            .iter()
            .enumerate()
            .map(|(i, id)| (id.clone(), i))
            .collect();
        let chains = plan
            .chains
            .iter()
            .map(|c| c.callbacks.iter().filter_map(|id| index.get(id).copied()))
            .map(Iterator::collect)
            .collect();
        let mut synth = Synth::new(SynthOptions::new(onbeat_model::schema::Run {
            id: String::new(),
            mode: String::new(),
            distribution: Vec::new(),
            start: 0,
            duration_ns: 0,
            lost: std::collections::BTreeMap::new(),
            events: 0,
        }));
        synth.observe();
        Watcher {
            synth,
            callbacks,
            index,
            chains,
            numbers: Vec::new(),
            paths: FxHashMap::default(),
            stale: true,
        }
    }

    /// The callbacks that are looked out for, by id.
    pub fn callbacks(&self) -> &[String] {
        &self.callbacks
    }

    /// Takes events in order of time, and tells what they mean for the plan.
    pub fn push(&mut self, events: &[Event], sights: &mut Vec<Sight>) {
        for event in events {
            self.synth.push(event);
        }
        let seen: Vec<Observation> = self.synth.drain_observations().collect();
        // Names of callbacks can change while others appear (two timers of one node with one period
        // are told apart by their number), so they are asked for anew where something is new.
        let unknown = |n: u32| {
            self.numbers
                .get(n as usize)
                .is_none_or(|n| *n == Number::Other)
        };
        self.stale |= seen
            .iter()
            .any(|s| matches!(s, Observation::Execution { callback, .. } if unknown(*callback)));
        if self.stale {
            self.rename();
        }
        for seen in seen {
            self.sight(seen, sights);
        }
    }

    fn rename(&mut self) {
        let numbers: Vec<Number> = self
            .synth
            .callback_ids()
            .into_iter()
            .map(|id| match id {
                Some(id) if is_synchroniser(&id) => Number::Synchroniser,
                Some(id) => self
                    .index
                    .get(&id)
                    .map_or(Number::Other, |&i| Number::Of(i)),
                None => Number::Other,
            })
            .collect();
        if numbers != self.numbers {
            self.numbers = numbers;
            self.paths.clear();
        }
        self.stale = false;
    }

    fn number(&self, callback: u32) -> Number {
        self.numbers
            .get(callback as usize)
            .copied()
            .unwrap_or(Number::Other)
    }

    /// First and last callback of a path, if it is a part of a chain.
    fn part(&mut self, path: u32) -> Option<(usize, usize)> {
        if let Some(&known) = self.paths.get(&path) {
            return known;
        }
        let mut on_path = Vec::new();
        let mut inside = true;
        for callback in self.synth.path(path) {
            match self.number(callback) {
                Number::Of(i) => on_path.push(i),
                Number::Synchroniser => {}
                Number::Other => inside = false,
            }
        }
        let part = (inside && !on_path.is_empty())
            .then(|| {
                let is_part = |chain: &Vec<usize>| {
                    chain
                        .windows(on_path.len())
                        .any(|w| w == on_path.as_slice())
                };
                self.chains
                    .iter()
                    .any(is_part)
                    .then(|| (on_path[0], on_path[on_path.len() - 1]))
            })
            .flatten();
        self.paths.insert(path, part);
        part
    }

    fn sight(&mut self, seen: Observation, sights: &mut Vec<Sight>) {
        match seen {
            Observation::Execution {
                callback,
                pid,
                tid,
                start_ns,
                end_ns,
                ..
            } => {
                if let Number::Of(callback) = self.number(callback) {
                    sights.push(Sight::Ran {
                        callback,
                        pid,
                        tid,
                        start_ns,
                        end_ns,
                    });
                }
            }
            Observation::Left {
                name,
                time_ns,
                source_ns,
                path,
                start_ns,
            } => {
                if let Some((from, callback)) = self.part(path) {
                    sights.push(Sight::Left {
                        callback,
                        topic: name.map(|n| self.synth.name(n).to_owned()),
                        time_ns,
                        source_ns,
                        from,
                        start_ns,
                    });
                }
            }
            Observation::Taken {
                name,
                published_ns,
                start_ns,
                ..
            } => sights.push(Sight::Taken {
                topic: self.synth.name(name).to_owned(),
                published_ns,
                start_ns,
            }),
            Observation::Published { .. } => {}
        }
    }
}
