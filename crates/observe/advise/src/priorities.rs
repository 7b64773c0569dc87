//! Assigns priorities to the threads of chains by importance.

use crate::view::{cpus, real_time, View};
use onbeat_document::Model;
use std::collections::{HashMap, HashSet};

/// The highest priority that onbeat suggests. The kernel's own threads and the threads that enforce
/// plans run above it.
pub const HIGHEST: u8 = 80;

/// The suggested priority for the thread of one callback.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assigned {
    pub callback: String,
    /// The suggested SCHED_FIFO priority. Callbacks that share an executor get the same priority,
    /// which is the highest that one of them needs.
    pub priority: u8,
    /// The real-time priority that the thread had in the recording, or `None` if it had none.
    pub before: Option<u8>,
    pub cpus: Vec<u16>,
    /// Is true if the thread also runs other callbacks, which get the same priority.
    pub shared: bool,
}

/// The suggested priorities for all callbacks of chains, the highest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Priorities {
    /// The callbacks, each with its priority. Callbacks of the most important chain come first.
    pub assigned: Vec<Assigned>,
    /// Is true if there are more threads than priorities, so that the least important threads share
    /// the lowest priority.
    pub crowded: bool,
}

impl Priorities {
    /// Assigns priorities as PiCAS does (Choi, Xiang, Kim, RTAS 2021, section 4). All callbacks of
    /// a more important chain get higher priorities than those of a less important one. Within a
    /// chain, callbacks nearer to its end get higher priorities, so that the chain finishes one
    /// item before it begins the next.
    ///
    /// `order` has the indices of chains in the model, the most important first.
    pub fn of(model: &Model, order: &[usize]) -> Self {
        let view = View::of(model, order);
        let mut levels: Vec<Vec<&str>> = Vec::new();
        let (mut level_of, mut placed) = (HashMap::new(), HashSet::new());
        for (_, chain) in view.chains() {
            let steps = view.steps(chain);
            for step in steps.iter().rev() {
                let id = step.callback.id.as_str();
                let key = match view.executor(step.callback) {
                    Some(executor) => Key::Executor(executor),
                    None => Key::Callback(id),
                };
                let level = *level_of.entry(key).or_insert_with(|| {
                    levels.push(vec![]);
                    levels.len() - 1
                });
                if placed.insert(id) {
                    levels[level].push(id);
                }
            }
        }
        let mut assigned = Vec::new();
        for (level, ids) in levels.iter().enumerate() {
            let below = u8::try_from(level).unwrap_or(u8::MAX);
            let priority = HIGHEST.saturating_sub(below).max(1);
            for id in ids {
                let Some(callback) = view.callback(id) else {
                    continue;
                };
                assigned.push(Assigned {
                    callback: (*id).to_owned(),
                    priority,
                    before: real_time(callback),
                    cpus: cpus(callback).into_iter().collect(),
                    shared: view.beside(callback).next().is_some(),
                });
            }
        }
        Priorities {
            assigned,
            crowded: levels.len() > usize::from(HIGHEST),
        }
    }
}

#[derive(PartialEq, Eq, Hash)]
enum Key<'m> {
    Executor(usize),
    Callback(&'m str),
}
