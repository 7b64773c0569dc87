//! Counts outcomes by topic and cause, in memory that does not grow with the number of items.

use super::kinds::{LossReason, RequestKind};
use crate::cut::{By, Meanwhile, Piece};
use crate::kind::Kind;
use onbeat_synth::outcomes::{ItemOutcome, Loss, Outcome, RequestOutcome, Setting};
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, VecDeque};

const WITHDRAWABLE_LOSSES_MAX: usize = 64;

const BURSTS_MAX: usize = 3;

const NAMED_PUBLISHERS_MAX: usize = 16;

const CULPRITS_MAX: usize = 256;

const INSTANTS_MAX: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Key {
    Overwritten {
        depth: u64,
    },
    Refused(Setting),
    PassedOver {
        lacks: Option<u32>,
    },
    Read,
    Discarded,
    SubscriptionEnded,
    RecordingEnded,
    /// The local port of the socket.
    Socket(u16),
    Unknown(LossReason),
}

/// The sums over those overwritten items for which one and the same state took most of the time
/// that they waited.
#[derive(Debug, Clone, Default)]
pub(super) struct Culprit {
    pub(super) count: u64,
    pub(super) ns: u64,
    /// For each state that the culprit was in while these items waited: the duration of the state
    /// in ns.
    pub(super) during: FxHashMap<Meanwhile, u64>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct OfCause {
    pub(super) count: u64,
    pub(super) culprits: FxHashMap<(Kind, By), Culprit>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) count: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct OfTopic {
    pub(super) from: BTreeSet<u32>,
    pub(super) executed: u64,
    pub(super) causes: FxHashMap<Key, OfCause>,
    run: Option<Run>,
    pub(super) runs: Vec<Run>,
    recent: VecDeque<(u64, Key)>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct OfService {
    pub(super) from: BTreeSet<u32>,
    /// For each outcome: the number of requests with this outcome, and the instants at which the
    /// first of these requests were sent (CLOCK_MONOTONIC, ns).
    pub(super) kinds: FxHashMap<RequestKind, (u64, Vec<u64>)>,
    pub(super) slowest: u64,
}

#[derive(Debug, Default)]
pub(super) struct Sums {
    late_above: Option<u64>,
    pub(super) topics: FxHashMap<(u32, u32), OfTopic>,
    pub(super) services: FxHashMap<(u32, Option<u32>), OfService>,
}

impl OfTopic {
    fn lost(&mut self, time: u64) {
        let run = self.run.get_or_insert(Run {
            begin: time,
            end: time,
            count: 0,
        });
        run.end = run.end.max(time);
        run.count += 1;
    }

    fn end_run(&mut self) {
        let Some(run) = self.run.take() else {
            return;
        };
        let at = self.runs.partition_point(|r| r.count >= run.count);
        self.runs.insert(at, run);
        self.runs.truncate(BURSTS_MAX);
    }
}

fn key(loss: Loss, events_lost: bool, dropped_at: Option<u16>) -> Key {
    use LossReason::{BeforeFirstTake, DepthUnknown, LostEvents};
    match (key_without_sockets(loss, events_lost), dropped_at) {
        // The item may have been taken or overwritten, or was perhaps not sent to this process.
        (key @ Key::Unknown(LostEvents | DepthUnknown | BeforeFirstTake), _) => key,
        (Key::Unknown(_), Some(port)) => Key::Socket(port),
        (key, _) => key,
    }
}

fn key_without_sockets(loss: Loss, events_lost: bool) -> Key {
    match loss {
        Loss::Refused(setting) => Key::Refused(setting),
        Loss::PassedOver { lacks } => Key::PassedOver { lacks },
        _ if events_lost => Key::Unknown(LossReason::LostEvents),
        Loss::Overwritten { depth, .. } => Key::Overwritten { depth },
        Loss::Discarded => Key::Discarded,
        Loss::SubscriptionEnded => Key::SubscriptionEnded,
        Loss::RecordingEnded => Key::RecordingEnded,
        Loss::BeforeFirstTake => Key::Unknown(LossReason::BeforeFirstTake),
        Loss::NeverTaken => Key::Unknown(LossReason::NeverTaken),
        Loss::PublisherEnded => Key::Unknown(LossReason::PublisherEnded),
        Loss::Skipped {
            depth_known: false, ..
        } => Key::Unknown(LossReason::DepthUnknown),
        Loss::Skipped {
            has_lifespan: true, ..
        } => Key::Unknown(LossReason::Lifespan),
        Loss::Skipped {
            reliable: Some(true),
            ..
        } => Key::Unknown(LossReason::Reliable),
        Loss::Skipped {
            reliable: Some(false),
            ..
        } => Key::Unknown(LossReason::BestEffort),
        Loss::Skipped { reliable: None, .. } => Key::Unknown(LossReason::QosUnknown),
    }
}

impl Sums {
    pub(super) fn new(late_above_ns: Option<u64>) -> Sums {
        Sums {
            late_above: late_above_ns,
            ..Sums::default()
        }
    }

    pub(super) fn receivers(&self) -> BTreeSet<u32> {
        self.topics.keys().map(|k| k.1).collect()
    }

    /// Counts an item, and returns the cause if the item was not executed. `dropped_at` is the port of
    /// a socket at which the kernel dropped datagrams while the item was on its way.
    pub(super) fn item(
        &mut self,
        item: &ItemOutcome,
        events_lost: bool,
        dropped_at: Option<u16>,
    ) -> Option<Key> {
        let of = self.topics.entry((item.name, item.to)).or_default();
        if let (Some(from), true) = (item.from, of.from.len() < NAMED_PUBLISHERS_MAX) {
            of.from.insert(from);
        }
        let key = match item.outcome {
            Outcome::Executed => {
                of.end_run();
                of.executed += 1;
                return None;
            }
            Outcome::Back => return None,
            Outcome::Read => {
                of.end_run();
                Key::Read
            }
            Outcome::Lost(loss) => key(loss, events_lost, dropped_at),
        };
        let ended = matches!(
            key,
            Key::Read | Key::RecordingEnded | Key::SubscriptionEnded
        );
        if !ended {
            of.lost(item.published_ns);
        }
        of.causes.entry(key).or_default().count += 1;
        of.recent.push_back((item.published_ns, key));
        if of.recent.len() > WITHDRAWABLE_LOSSES_MAX {
            of.recent.pop_front();
        }
        Some(key)
    }

    pub(super) fn take_back(&mut self, back: &ItemOutcome) {
        let Some(of) = self.topics.get_mut(&(back.name, back.to)) else {
            return;
        };
        let is_meant = |r: &(u64, Key)| r.0 == back.published_ns;
        let at = of.recent.iter().rposition(is_meant);
        if let Some((_, key)) = at.and_then(|at| of.recent.remove(at)) {
            if let Some(cause) = of.causes.get_mut(&key) {
                cause.count = cause.count.saturating_sub(1);
            }
        }
    }

    pub(super) fn stretches(&mut self, way: (u32, u32), key: Key, pieces: &[Piece]) {
        let mut sums: Vec<((Kind, By), u64)> = Vec::new();
        for piece in pieces {
            let what = (piece.kind, piece.by);
            let ns = piece.end - piece.begin;
            match sums.iter_mut().find(|s| s.0 == what) {
                Some(sum) => sum.1 += ns,
                None => sums.push((what, ns)),
            }
        }
        // The last maximum would win, so the order is turned around.
        let Some(&(what, ns)) = sums.iter().rev().max_by_key(|s| s.1) else {
            return;
        };
        let of = self.topics.get_mut(&way);
        let Some(cause) = of.and_then(|of| of.causes.get_mut(&key)) else {
            return;
        };
        let is_full = cause.culprits.len() >= CULPRITS_MAX;
        let what = match is_full && !cause.culprits.contains_key(&what) {
            true => (what.0, By::Nobody),
            false => what,
        };
        let culprit = cause.culprits.entry(what).or_default();
        culprit.count += 1;
        culprit.ns += ns;
        for piece in pieces.iter().filter(|p| (p.kind, p.by) == what) {
            let during = piece
                .meanwhile
                .filter(|d| culprit.during.len() < CULPRITS_MAX || culprit.during.contains_key(d));
            if let Some(during) = during {
                *culprit.during.entry(during).or_default() += piece.end - piece.begin;
            }
        }
    }

    pub(super) fn request(&mut self, request: &RequestOutcome, events_lost: bool) {
        let took = request
            .received_ns
            .map(|r| r.saturating_sub(request.sent_ns));
        let is_late = |took: u64| self.late_above.is_some_and(|most| took > most);
        let kind = match (took, request.responded_ns, request.began_ns) {
            (Some(took), ..) if is_late(took) => RequestKind::Late,
            (Some(_), ..) => RequestKind::Answered,
            _ if request.open => RequestKind::RecordingEnded,
            _ if events_lost || request.perhaps_executed => RequestKind::Unknown,
            (None, Some(_), _) => RequestKind::ResponseNotTaken,
            (None, None, Some(_)) => RequestKind::NoResponse,
            (None, None, None) if request.to.is_some() => RequestKind::NotExecuted,
            (None, None, None) => RequestKind::NoServer,
        };
        let of = self.services.entry((request.name, request.to)).or_default();
        if let (Some(from), true) = (request.from, of.from.len() < NAMED_PUBLISHERS_MAX) {
            of.from.insert(from);
        }
        of.slowest = of.slowest.max(took.unwrap_or(0));
        let (count, instants) = of.kinds.entry(kind).or_default();
        *count += 1;
        if instants.len() < INSTANTS_MAX {
            instants.push(request.sent_ns);
        }
    }

    pub(super) fn end(&mut self) {
        for of in self.topics.values_mut() {
            of.end_run();
        }
    }
}
