//! Figures that can be added, for merging runs and for totals over modes.

use super::{MemberEvidence, PathFigures};
use crate::dist::Dist;
use crate::schema::{
    ActionFigures, ByMode, CallbackFigures, Cause, Component, EdgeFigures, HelperFigures,
};
use std::collections::BTreeMap;

/// A set of figures that can be summed. The default value is zero.
pub trait Figures: Clone + Default {
    fn add(&mut self, other: &Self);
}

impl Figures for CallbackFigures {
    fn add(&mut self, other: &Self) {
        self.exec_ns.merge(&other.exec_ns);
        self.response_ns.merge(&other.response_ns);
        self.interarrival_ns.merge(&other.interarrival_ns);
        self.release_jitter_ns.merge(&other.release_jitter_ns);
        self.preempted_ns.merge(&other.preempted_ns);
        self.blocked_ns.merge(&other.blocked_ns);
        self.preemptions.add(&other.preemptions);
        self.blockings.add(&other.blockings);
        self.untimed.add(&other.untimed);
        self.observed_ns.add(&other.observed_ns);
        if !other.causes.is_empty() {
            add_causes(&mut self.causes, other.causes.iter().cloned());
        }
        self.load = if self.observed_ns == 0 {
            0.0
        } else {
            let timed = self.exec_ns.sum() as f64;
            timed / self.observed_ns as f64 * share_of_all(self)
        };
    }
}

fn share_of_all(figures: &CallbackFigures) -> f64 {
    match figures.exec_ns.count() {
        0 => 1.0,
        timed => figures.executions() as f64 / timed as f64,
    }
}

impl Figures for EdgeFigures {
    fn add(&mut self, other: &Self) {
        self.latency_ns.merge(&other.latency_ns);
        self.transport_ns.merge(&other.transport_ns);
        self.waiting_ns.merge(&other.waiting_ns);
        self.published.add(&other.published);
        self.taken.add(&other.taken);
        self.lost.add(&other.lost);
        self.overwritten.add(&other.overwritten);
        self.unselected.add(&other.unselected);
    }
}

impl Figures for ActionFigures {
    fn add(&mut self, other: &Self) {
        self.goals.add(&other.goals);
        self.served.add(&other.served);
        self.cancels.add(&other.cancels);
        self.feedback.add(&other.feedback);
        self.results.add(&other.results);
        self.untimed.add(&other.untimed);
        self.goal_to_result_ns.merge(&other.goal_to_result_ns);
    }
}

impl Figures for HelperFigures {
    fn add(&mut self, other: &Self) {
        self.ready_ns.merge(&other.ready_ns);
        self.exec_ns.add(&other.exec_ns);
        self.observed_ns.add(&other.observed_ns);
    }
}

impl Figures for PathFigures {
    fn add(&mut self, other: &Self) {
        if self.age_ns.is_some() || other.age_ns.is_some() {
            let mine = self.age_ns.get_or_insert_with(|| self.latency_ns.clone());
            mine.merge(other.age_ns.as_ref().unwrap_or(&other.latency_ns));
        }
        self.crossed.add(&other.crossed);
        self.reaction_ns.merge(&other.reaction_ns);
        self.latency_ns.merge(&other.latency_ns);
        if self.sums.len() < other.sums.len() {
            self.sums.resize(other.sums.len(), 0);
        }
        for (sum, more) in self.sums.iter_mut().zip(&other.sums) {
            *sum = sum.saturating_add(*more);
        }
    }
}

impl Figures for MemberEvidence {
    fn add(&mut self, other: &Self) {
        self.instances.add(&other.instances);
        self.productive.add(&other.productive);
        self.synchronised.add(&other.synchronised);
        self.published.add(&other.published);
        self.fresh.add(&other.fresh);
        self.once.add(&other.once);
        self.shared.add(&other.shared);
        self.alone.add(&other.alone);
        self.held.add(&other.held);
        self.awaited.add(&other.awaited);
        self.followed.add(&other.followed);
        self.passed_over.add(&other.passed_over);
        self.after.extend(other.after.iter().cloned());
    }
}

impl Figures for Dist {
    fn add(&mut self, other: &Self) {
        self.merge(other);
    }
}

impl<F: Figures> Figures for Box<F> {
    fn add(&mut self, other: &Self) {
        self.as_mut().add(other);
    }
}

impl Figures for u64 {
    fn add(&mut self, other: &Self) {
        *self = self.saturating_add(*other);
    }
}

pub fn add_all<K: Ord + Clone, F: Figures>(to: &mut BTreeMap<K, F>, from: &BTreeMap<K, F>) {
    for (key, figures) in from {
        to.entry(key.clone()).or_default().add(figures);
    }
}

pub fn total<F: Figures>(modes: &ByMode<F>) -> F {
    let mut all = F::default();
    for figures in modes.values() {
        all.add(figures);
    }
    all
}

pub fn add_causes(to: &mut Vec<Cause>, more: impl Iterator<Item = Cause>) {
    let old = std::mem::take(to);
    let mut all: BTreeMap<Component, Cause> = BTreeMap::new();
    for cause in old.into_iter().chain(more) {
        match all.get_mut(&cause.by) {
            None => drop(all.insert(cause.by.clone(), cause)),
            Some(mine) => {
                mine.preempted_ns.add(&cause.preempted_ns);
                mine.preempted.add(&cause.preempted);
                mine.delayed_ns.add(&cause.delayed_ns);
                mine.delayed.add(&cause.delayed);
                mine.blocked_ns.add(&cause.blocked_ns);
                mine.blocked.add(&cause.blocked);
            }
        }
    }
    *to = all.into_values().collect();
}
