//! Priorities for the threads of chains, by importance.

use crate::view::{cpus, real_time, View};
use onbeat_document::Model;
use std::collections::BTreeMap;

/// The highest priority that is given: above it are the kernel's own threads, and what enforces plans.
pub const HIGHEST: u8 = 80;

/// The priority of a callback's thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assigned {
    /// Id of the callback (untrusted).
    pub callback: String,
    /// SCHED_FIFO priority. Callbacks of one executor have the highest of theirs.
    pub priority: u8,
    /// What it had; None: no real-time one.
    pub before: Option<u8>,
    /// The CPUs it was seen on.
    pub cpus: Vec<u16>,
    /// Others run on its thread, and get its priority with it.
    pub shared: bool,
}

/// Priorities of all callbacks of chains, the highest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Priorities {
    /// In the order of the model's chains by importance.
    pub assigned: Vec<Assigned>,
    /// More threads than priorities: the least important ones share the lowest.
    pub crowded: bool,
}

impl Priorities {
    /// Gives priorities as PiCAS does (Choi, Xiang, Kim, RTAS 2021, section 4): all callbacks of a more
    /// important chain above those of a less important one, and within a chain the nearer to its end the
    /// higher, so that an item that is under way goes before the next one.
    ///
    /// `order` has chains by their place in the model, the most important first.
    pub fn of(model: &Model, order: &[usize]) -> Self {
        let view = View::of(model, order);
        let mut levels: Vec<(Key, Vec<&str>)> = Vec::new();
        for (_, chain) in view.chains() {
            let steps = view.steps(chain);
            for step in steps.iter().rev() {
                let id = step.callback.id.as_str();
                let key = match view.executor(step.callback) {
                    Some(executor) => Key::Executor(executor),
                    None => Key::Callback(id.to_owned()),
                };
                match levels.iter_mut().find(|(k, _)| *k == key) {
                    Some((_, ids)) if ids.contains(&id) => {}
                    Some((_, ids)) => ids.push(id),
                    None => levels.push((key, vec![id])),
                }
            }
        }
        let mut assigned = Vec::new();
        let mut given: BTreeMap<usize, u8> = BTreeMap::new();
        for (level, (_, ids)) in levels.iter().enumerate() {
            let below = u8::try_from(level).unwrap_or(u8::MAX);
            let priority = *given
                .entry(level)
                .or_insert_with(|| HIGHEST.saturating_sub(below).max(1));
            for id in ids {
                let Some(callback) = view.callback(id) else {
                    continue;
                };
                assigned.push(Assigned {
                    callback: (*id).to_owned(),
                    priority,
                    before: real_time(callback),
                    cpus: cpus(callback).into_iter().collect(),
                    shared: !view.beside(callback).is_empty(),
                });
            }
        }
        Priorities {
            assigned,
            crowded: levels.len() > usize::from(HIGHEST),
        }
    }
}

/// What has one priority: an executor's threads.
#[derive(Debug, PartialEq, Eq)]
enum Key {
    Executor(usize),
    Callback(String),
}
