//! Finds out why items were published and not executed, and why requests were not answered.
//!
//! [`Lost`] reads the events of a recording once. Synthesis reports the outcome of each item. For an
//! item that was overwritten, the time until a later item took its place is cut into stretches like
//! the latency of an execution. The longest sum names the callback or thread that kept the
//! subscription's callback from it.
//!
//! - `sums` counts outcomes and sums up stretches.
//! - `kinds` names the kinds of losses and requests.
//! - `report` holds the result, with names.
//! - `sentence` says the result in sentences.

mod kinds;
mod report;
mod sentence;
mod sums;

pub use kinds::{LossKind, LossReason, RequestKind};
pub use report::{Burst, Cause, Losses, Meanwhile, ServiceLosses, TopicLosses};

use crate::drops::Drops;
use crate::follow::{Ended, Follow};
use crate::history::{DEFERRAL_NS, LOSS_WINDOW_NS};
use crate::stretch::Names;
use onbeat_document::schema::CallbackType;
use onbeat_synth::followed::ChainStep;
use onbeat_synth::observe::Observation;
use onbeat_synth::outcomes::{ItemOutcome, Loss, Outcome};
use onbeat_synth::{Synth, SynthOptions};
use onbeat_trace::{Event, EventKind};
use rustc_hash::FxHashMap;
use std::collections::{HashSet, VecDeque};
use sums::{Key, Sums};

/// The longest time in ns that an overwritten item may have waited. For longer waits, the history
/// of threads may be incomplete.
const LONGEST_NS: u64 = 60_000_000_000;

/// The longest time from a publication to the drop of one of its datagrams, ns. Large items are sent
/// piece by piece.
const ON_THE_WAY_NS: u64 = 1_000_000_000;

#[derive(Debug, Clone, Copy)]
struct OfItem {
    name: u32,
    to: u32,
    key: Key,
}

/// Finds the causes of losses while it processes the events of a recording.
pub struct Lost {
    synth: Synth,
    follow: Follow<OfItem>,
    waiting: VecDeque<ItemOutcome>,
    sums: Sums,
    threads: FxHashMap<u32, (u32, u32)>,
    lossy: Vec<(u64, u64)>,
    drops: Drops,
    now: u64,
}

impl Lost {
    /// Starts to look for losses. `options` are the options of the synthesis. Responses that take
    /// longer than `late_above_ns` count as late.
    pub fn new(options: SynthOptions, late_above_ns: Option<u64>) -> Lost {
        let mut synth = Synth::new(options);
        synth.observe();
        synth.follow();
        synth.keep_outcomes();
        Lost {
            synth,
            follow: Follow::new(LONGEST_NS),
            waiting: VecDeque::new(),
            sums: Sums::new(late_above_ns),
            threads: FxHashMap::default(),
            lossy: Vec::new(),
            drops: Drops::default(),
            now: 0,
        }
    }

    /// Processes the next event. The caller must pass events in time order.
    pub fn push(&mut self, event: &Event) {
        self.now = self.now.max(event.time_ns);
        if let EventKind::Lost { .. } = event.kind {
            let begin = event.time_ns.saturating_sub(LOSS_WINDOW_NS);
            match self.lossy.last_mut() {
                Some(last) if last.1 >= begin => last.1 = event.time_ns,
                _ => self.lossy.push((begin, event.time_ns)),
            }
        }
        if let EventKind::SocketDrop { port, .. } = event.kind {
            self.drops.add(event.pid, self.now, port);
        }
        self.follow.push(event);
        self.synth.push(event);
        self.take();
        self.count(false);
        self.follow.forget();
    }

    /// Ends the events and returns all losses of the recording.
    pub fn finish(mut self) -> Losses {
        self.synth.end_of_events();
        self.take();
        self.count(true);
        let ids = (0..).zip(self.synth.callback_ids());
        // A subscription that is refused has no execution, and so no id in the model.
        let ids = ids.map(|(n, id)| id.or_else(|| Some(self.synth.provisional_id(n))));
        let names = Names {
            ids: ids.collect(),
            components: self.synth.components(),
        };
        let mut synchronisers = Vec::new();
        for to in self.sums.receivers() {
            if self.synth.kind_of(to) == CallbackType::Sync {
                synchronisers.push(to);
            }
        }
        let (sums, synth) = (self.sums, &self.synth);
        let mut losses = report::losses(sums, &names, |n| synth.name(n).to_string());
        let synchronisers: HashSet<String> = synchronisers.iter().map(|s| names.id(*s)).collect();
        let model = self.synth.finish();
        let known: HashSet<&str> = model.callbacks.iter().map(|c| c.id.as_str()).collect();
        // Subscriptions that do not wait for one another have no synchroniser in the model.
        let is_known =
            |t: &TopicLosses| !synchronisers.contains(&t.to) || known.contains(t.to.as_str());
        losses.topics.retain(is_known);
        losses
    }

    fn take(&mut self) {
        if !self.synth.has_followed() {
            return;
        }
        for held in self.synth.drain_held() {
            self.follow.held(held);
        }
        self.synth.drain_joins();
        self.synth.drain_asked();
        self.synth.drain_shaped();
        self.synth.drain_chain_ends();
        self.synth.drain_arrivals();
        for observation in self.synth.drain_observations() {
            if let Observation::Execution {
                callback,
                pid,
                tid,
                start_ns,
                end_ns,
                ..
            } = observation
            {
                self.threads.insert(callback, (pid, tid));
                self.follow.ran(tid, (start_ns, end_ns, callback));
            }
        }
        for outcome in self.synth.drain_item_outcomes() {
            if outcome.outcome == Outcome::Back {
                take_back(&mut self.waiting, &mut self.sums, &outcome);
            } else {
                self.waiting.push_back(outcome);
            }
        }
        for request in self.synth.drain_request_outcomes() {
            let last = request.received_ns.unwrap_or(self.now);
            let events_lost = is_within(&self.lossy, request.sent_ns, last);
            self.sums.request(&request, events_lost);
        }
    }

    fn count(&mut self, all: bool) {
        let now = self.now;
        let is_over = |o: &ItemOutcome| all || o.found_ns.saturating_add(DEFERRAL_NS) < now;
        while self.waiting.front().is_some_and(is_over) {
            let Some(outcome) = self.waiting.pop_front() else {
                return;
            };
            let events_lost = is_within(&self.lossy, outcome.published_ns, outcome.found_ns);
            let process = self.threads.get(&outcome.to).map(|thread| thread.0);
            let dropped_at = process.and_then(|pid| {
                let latest = outcome.published_ns.saturating_add(ON_THE_WAY_NS);
                let until = outcome.found_ns.min(latest);
                self.drops.at(pid, outcome.published_ns, until)
            });
            let key = self.sums.item(&outcome, events_lost, dropped_at);
            if let (Some(key), Outcome::Lost(Loss::Overwritten { replaced_ns, .. })) =
                (key, outcome.outcome)
            {
                self.cut_later(&outcome, key, replaced_ns);
            }
        }
        while let Some((ended, pieces)) = self.follow.cut_next(&mut self.synth, all) {
            self.sums
                .stretches((ended.what.name, ended.what.to), ended.what.key, &pieces);
        }
    }

    fn cut_later(&mut self, item: &ItemOutcome, key: Key, replaced_ns: u64) {
        let Some(&(pid, tid)) = self.threads.get(&item.to) else {
            return;
        };
        let step = ChainStep {
            callback: item.to,
            name: Some(item.name),
            own: false,
            published_ns: item.published_ns,
            start_ns: item.published_ns,
            began_ns: replaced_ns,
            released_ns: None,
            last_input: None,
            pid,
            tid,
        };
        self.follow.ended(Ended {
            steps: vec![step],
            end: replaced_ns,
            what: OfItem {
                name: item.name,
                to: item.to,
                key,
            },
        });
    }
}

fn take_back(waiting: &mut VecDeque<ItemOutcome>, sums: &mut Sums, back: &ItemOutcome) {
    let is_meant = |o: &ItemOutcome| {
        (o.to, o.name, o.published_ns) == (back.to, back.name, back.published_ns)
            && matches!(o.outcome, Outcome::Lost(_))
    };
    match waiting.iter().rposition(is_meant) {
        Some(at) => {
            waiting.remove(at);
        }
        None => sums.take_back(back),
    }
}

fn is_within(lossy: &[(u64, u64)], begin: u64, end: u64) -> bool {
    let from = lossy.partition_point(|l| l.1 < begin);
    lossy.get(from).is_some_and(|l| l.0 <= end)
}
