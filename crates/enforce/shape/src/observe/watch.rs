//! Turns events into observations of a plan's callbacks: which thread runs which callback, and when
//! an execution of a chain publishes its output. Pure.

use onbeat_plan::Plan;
use onbeat_synth::observe::Observation;
use onbeat_synth::{Synth, SynthOptions};
use onbeat_trace::{Event, EventKind, Holder};
use rustc_hash::{FxHashMap, FxHashSet};
use std::borrow::Cow;

/// Returns an event as the synthesis of a session gets it. For a session, an item that is held back
/// ends an execution when it is published, and begins the next one when it is sent: the records of
/// the holder join the two. So both count as publications, and the holder's own marks do not count.
fn without_holds(event: &Event) -> Option<Cow<'_, Event>> {
    let EventKind::Publish {
        rmw,
        message,
        source_ns,
    } = event.kind
    else {
        return Some(Cow::Borrowed(event));
    };
    match (Holder::of(message), source_ns) {
        (None, _) => Some(Cow::Borrowed(event)),
        (Some(Holder::Shaper), _) | (_, Some(0)) => None,
        (Some(Holder::Application), _) => {
            let message = message & !7;
            Some(Cow::Owned(Event {
                kind: EventKind::Publish {
                    rmw,
                    message,
                    source_ns,
                },
                ..event.clone()
            }))
        }
    }
}

/// An event of a plan's callbacks: a run, a publication, or a start with a message. `callback` and
/// `from` are indices in [`Watcher::callbacks`]. Times are in ns of CLOCK_MONOTONIC, except for the
/// source time stamp `source_ns` (CLOCK_REALTIME).
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanObservation {
    Ran {
        callback: usize,
        pid: u32,
        tid: u32,
        start_ns: u64,
        end_ns: u64,
    },
    /// A callback of the plan published a message, or ended without publishing.
    Left {
        callback: usize,
        /// The topic of the publication. `None` if the callback ended without publishing.
        topic: Option<String>,
        time_ns: u64,
        source_ns: Option<i64>,
        /// The index of the first callback of the execution that led to this publication. If a
        /// shaper republished the data on the way, it is the first callback after that shaper.
        from: usize,
        /// The start of the callback `from`, CLOCK_MONOTONIC.
        start_ns: u64,
    },
    Taken {
        topic: String,
        published_ns: u64,
        start_ns: u64,
    },
}

/// A callback outside of the plan, with the number of its runs on one thread.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unplanned {
    /// The id that the callback has now in the model. It can change when a node of the same name
    /// appears.
    pub id: String,
    pub pid: u32,
    pub tid: u32,
    pub runs: u64,
}

const UNPLANNED_MAX: usize = 4096;

/// Finds the runs and publications of a plan's callbacks in a stream of events.
pub struct Watcher {
    synth: Synth,
    callbacks: Vec<String>,
    index: FxHashMap<String, usize>,
    chains: Vec<Vec<usize>>,
    numbers: Vec<Number>,
    homes: Vec<Option<u32>>,
    foreign: FxHashSet<u32>,
    paths: FxHashMap<u32, Option<(usize, usize)>>,
    /// The number of runs of each callback outside of the plan. The key is the callback's number in
    /// synthesis, the process id and the thread id. `None` once [`Watcher::take_unplanned`] was
    /// called.
    unplanned: Option<FxHashMap<(u32, u32, u32), u64>>,
    numbers_are_stale: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    Of(usize),
    /// A second instance of the plan's callback with this index. The ids of the two instances
    /// differ only in the part that distinguishes nodes of the same name.
    Twin(usize),
    Synchroniser,
    Other,
}

/// Reports whether `id` is the id of a synchroniser, which runs as part of a subscription's
/// callback.
pub fn is_synchroniser(id: &str) -> bool {
    id.split_once(':')
        .is_some_and(|(_, kind)| kind.starts_with("sync("))
}

/// Removes the part of an id that distinguishes nodes of the same name (`#2`, `#program`). Returns
/// `None` if the id has no such part.
fn without_instance(id: &str) -> Option<String> {
    let (node, callback) = id.split_once(':')?;
    let (name, _) = node.split_once('#')?;
    Some(format!("{name}:{callback}"))
}

impl Watcher {
    /// Creates a watcher for the callbacks of a plan's chains and servers.
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
        let homes = vec![None; callbacks.len()];
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
            .filter(|chain: &Vec<usize>| !chain.is_empty())
            .collect();
        let mut options = SynthOptions::new(onbeat_document::schema::Run {
            host: String::new(),
            boot: String::new(),
            id: String::new(),
            mode: String::new(),
            distribution: Vec::new(),
            start: 0,
            duration_ns: 0,
            lost: std::collections::BTreeMap::new(),
            events: 0,
        });
        // `Executions` joins the messages of the shaper's threads, and no plan contains other
        // threads of the application's own.
        options.own_threads = false;
        let mut synth = Synth::new(options);
        synth.observe();
        Watcher {
            synth,
            callbacks,
            index,
            chains,
            numbers: Vec::new(),
            homes,
            foreign: FxHashSet::default(),
            paths: FxHashMap::default(),
            unplanned: Some(FxHashMap::default()),
            numbers_are_stale: true,
        }
    }

    /// Returns the ids of the watched callbacks. The first id is that of the callback with which
    /// all chains of the plan begin.
    pub fn callbacks(&self) -> &[String] {
        &self.callbacks
    }

    /// Reads events in order of time. Appends the runs, publications and starts of the plan's
    /// callbacks to `found`.
    pub fn push(&mut self, events: &[Event], found: &mut Vec<PlanObservation>) {
        for event in events {
            if let Some(event) = without_holds(event) {
                self.synth.push(&event);
            }
        }
        let seen: Vec<Observation> = self.synth.drain_observations().collect();
        // A callback that appears can change the names of others (a number distinguishes two timers
        // of one node with one period). So the names are read again when a callback is new.
        let unknown = |n: u32| {
            self.numbers
                .get(n as usize)
                .is_none_or(|n| *n == Number::Other)
        };
        self.numbers_are_stale |= seen
            .iter()
            .any(|s| matches!(s, Observation::Execution { callback, .. } if unknown(*callback)));
        if self.numbers_are_stale {
            self.rename();
        }
        for seen in seen {
            self.translate(seen, found);
        }
    }

    fn rename(&mut self) {
        let numbers: Vec<Number> = self
            .synth
            .callback_ids()
            .into_iter()
            .enumerate()
            .map(|(n, id)| match id {
                Some(id) if is_synchroniser(&id) => Number::Synchroniser,
                Some(id) => self.named(n, &id),
                None => Number::Other,
            })
            .collect();
        if numbers != self.numbers {
            // A plan's chain may begin in the middle of a chain of the application.
            let firsts: Vec<Number> = self.chains.iter().map(|c| Number::Of(c[0])).collect();
            for (number, callback) in (0..).zip(&numbers) {
                self.synth.begin_chains(number, firsts.contains(callback));
            }
            self.numbers = numbers;
            self.paths.clear();
        }
        self.numbers_are_stale = false;
    }

    /// Returns how the callback `id` relates to the plan. `number` is the callback's number in
    /// synthesis. When a node of the same name appears, the ids of both nodes' callbacks may
    /// change. A callback that was in the plan then stays in the plan.
    fn named(&self, number: usize, id: &str) -> Number {
        if let Some(&i) = self.index.get(id) {
            return Number::Of(i);
        }
        let twin = without_instance(id).and_then(|id| self.index.get(&id));
        match (twin, self.numbers.get(number)) {
            (Some(&i), Some(&Number::Of(was))) if was == i => Number::Of(i),
            (Some(&i), _) => Number::Twin(i),
            (None, _) => Number::Other,
        }
    }

    fn number(&self, callback: u32) -> Number {
        self.numbers
            .get(callback as usize)
            .copied()
            .unwrap_or(Number::Other)
    }

    /// Removes and returns the callbacks outside of the plan. Later runs of such callbacks are not
    /// recorded.
    pub fn take_unplanned(&mut self) -> Vec<Unplanned> {
        let unplanned = self.unplanned.take();
        let ids = self.synth.callback_ids();
        let of = |((number, pid, tid), runs): ((u32, u32, u32), u64)| {
            // Leaves out callbacks that turned out to be of the plan once their name was known.
            let is_other = self.number(number) == Number::Other;
            let id = ids.get(number as usize).cloned().flatten();
            id.filter(|_| is_other)
                .map(|id| Unplanned { id, pid, tid, runs })
        };
        unplanned.into_iter().flatten().filter_map(of).collect()
    }

    fn note_unplanned(&mut self, number: u32, pid: u32, tid: u32) {
        let is_other = self.number(number) == Number::Other;
        let Some(unplanned) = self.unplanned.as_mut().filter(|_| is_other) else {
            return;
        };
        let key = (number, pid, tid);
        if unplanned.len() < UNPLANNED_MAX || unplanned.contains_key(&key) {
            *unplanned.entry(key).or_default() += 1;
        }
    }

    /// Returns the index of the plan's callback whose number in synthesis is `number`. If `number`
    /// is that of a second instance of the callback, returns the index only if the second instance
    /// runs in another process than the first.
    fn of_plan(&mut self, number: u32, pid: u32) -> Option<usize> {
        match self.number(number) {
            Number::Of(i) => {
                self.homes[i] = Some(pid);
                Some(i)
            }
            Number::Twin(i) if self.homes[i] != Some(pid) => {
                if self.foreign.insert(number) {
                    self.paths.clear();
                }
                Some(i)
            }
            Number::Twin(_) | Number::Synchroniser | Number::Other => None,
        }
    }

    fn part(&mut self, path: u32) -> Option<(usize, usize)> {
        if let Some(&known) = self.paths.get(&path) {
            return known;
        }
        let mut on_path = Vec::new();
        let mut inside = true;
        for callback in self.synth.path(path) {
            match self.number(callback) {
                Number::Of(i) => on_path.push(i),
                Number::Twin(i) if self.foreign.contains(&callback) => on_path.push(i),
                Number::Synchroniser => {}
                Number::Twin(_) | Number::Other => inside = false,
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

    fn translate(&mut self, seen: Observation, found: &mut Vec<PlanObservation>) {
        match seen {
            Observation::Execution {
                callback,
                pid,
                tid,
                start_ns,
                end_ns,
                ..
            } => {
                self.note_unplanned(callback, pid, tid);
                if let Some(callback) = self.of_plan(callback, pid) {
                    found.push(PlanObservation::Ran {
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
                    found.push(PlanObservation::Left {
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
            } => found.push(PlanObservation::Taken {
                topic: self.synth.name(name).to_owned(),
                published_ns,
                start_ns,
            }),
            Observation::Published { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_trace::text;

    #[test]
    fn a_held_item_counts_when_the_application_publishes_it_and_when_it_is_sent() {
        let events = text::parse(
            "
1ms cpu0 7/7 publish rmw=0x10 message=0x901 source_ns=1ms
2ms cpu0 7/8 publish rmw=0x10 message=0x901 source_ns=0
3ms cpu0 9/9 publish rmw=0x20 message=0xa03 source_ns=3ms
4ms cpu0 9/8 publish rmw=0x20 message=0xa00 source_ns=4ms
5ms cpu0 9/9 publish rmw=0x20 message=0xa03 source_ns=0
6ms cpu0 7/7 publish rmw=0x10 message=0x77 source_ns=6ms
7ms cpu0 7/7 wait
",
        )
        .expect("events");
        let seen = events.iter().filter_map(without_holds);
        let seen = seen.map(|event| match event.kind {
            EventKind::Publish { message, .. } => (event.time_ns / 1_000_000, message),
            _ => (event.time_ns / 1_000_000, 0),
        });
        assert_eq!(
            seen.collect::<Vec<_>>(),
            [(1, 0x900), (4, 0xa00), (6, 0x77), (7, 0)]
        );
    }
}
