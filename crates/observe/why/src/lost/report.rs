//! The losses of a recording, with names. Names come from the recorded system: escape them before
//! showing.

use super::kinds::{LossKind, LossReason, RequestKind};
use super::sums::{Culprit as Sum, Key, OfCause, OfTopic, Sums};
use crate::cut::By;
use crate::kind::{Kind, Reason};
use crate::stretch::{Culprit, During, Names};
use onbeat_synth::outcomes::Setting;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// The lost items and requests of a recording.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Losses {
    /// One entry for each topic and each of its subscriptions or synchronisers. The entry with the
    /// most losses comes first.
    pub topics: Vec<TopicLosses>,
    /// One entry for each service and each of its servers. The entry with the most unanswered
    /// requests comes first.
    pub services: Vec<ServiceLosses>,
}

/// The items of a topic on their way to one subscription or synchroniser.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Serialize)]
pub struct TopicLosses {
    pub topic: String,
    /// The id of the subscription's callback, or of the synchroniser.
    pub to: String,
    /// The ids of the callbacks that published the items, at most 16.
    pub from: Vec<String>,
    /// The number of items that were published while the subscription existed.
    pub published: u64,
    /// The number of items on which the callback ran, or that the synchroniser joined.
    pub executed: u64,
    pub causes: Vec<Cause>,
    /// The bursts with the most lost items, the longest first.
    pub bursts: Vec<Burst>,
}

/// Items that were lost one after another, without an executed one between them.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Burst {
    /// The instant at which the first item was published, CLOCK_MONOTONIC.
    pub start_ns: u64,
    pub end_ns: u64,
    pub count: u64,
}

/// A cause of lost items of a topic, with the number of these items.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cause {
    pub kind: LossKind,
    pub count: u64,
    /// The depth of the subscription's history, in items. Set only for overwritten items.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u64>,
    /// The QoS setting that does not match. Set only for refused items.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "setting")]
    pub setting: Option<Setting>,
    /// The id of the callback that gave the synchroniser the fewest inputs since its previous
    /// output. Set only for items that were passed over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
    /// The local port of the socket that was full. Set only for items that were dropped at a socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The reason why the cause is unknown. Set only for unknown causes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<LossReason>,
    /// The states of the subscription's thread while overwritten items waited: for each item, the
    /// state that took most of its waiting time. The most frequent state comes first. Set only for
    /// overwritten items.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub meanwhile: Vec<Meanwhile>,
}

fn setting<S: serde::Serializer>(of: &Option<Setting>, serializer: S) -> Result<S::Ok, S::Error> {
    let name = of.map(|setting| match setting {
        Setting::Reliability => "reliability",
        Setting::Durability => "durability",
        Setting::Deadline => "deadline",
        Setting::Liveliness => "liveliness",
    });
    name.serialize(serializer)
}

/// A state of the subscription's thread that took most of the waiting time of some items.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Meanwhile {
    pub kind: Kind,
    /// The callback, thread or mutex owner that caused the state. `None` if the state has no
    /// culprit, or if the culprit is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<Culprit>,
    /// The state that the culprit was in for at least half of the time for which it was the
    /// culprit. `None` if no state took half of this time, for example because the culprit ran on a
    /// CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub during: Option<During>,
    /// The reason why the state is unknown. `None` for all other states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The number of items for which this state took most of the time.
    pub count: u64,
    /// The mean time in this state per item, in ns. Counts only the items for which this state took
    /// most of the time.
    pub mean_ns: u64,
}

/// The requests to one server of a service, and their outcomes.
#[allow(missing_docs)]
#[derive(Debug, Clone, Serialize)]
pub struct ServiceLosses {
    pub service: String,
    /// The id of the callback that runs on the requests. `None` if the recording has no server.
    pub to: Option<String>,
    /// The ids of the callbacks that sent the requests, at most 16.
    pub from: Vec<String>,
    pub sent: u64,
    /// For each outcome: the number of requests with this outcome, and the instants at which the
    /// first of these requests were sent (CLOCK_MONOTONIC).
    pub kinds: Vec<(RequestKind, u64, Vec<u64>)>,
    /// The longest time from a request to its response, ns.
    pub slowest_ns: u64,
}

impl TopicLosses {
    /// Returns the number of items on which no callback ran and that no synchroniser joined.
    pub fn lost(&self) -> u64 {
        self.published - self.executed.min(self.published)
    }
}

impl ServiceLosses {
    /// Returns the number of requests that were late or never answered.
    pub fn missed(&self) -> u64 {
        let is_missed = |k: RequestKind| k.is_never() || k == RequestKind::Late;
        let missed = self.kinds.iter().filter(|k| is_missed(k.0));
        missed.map(|k| k.1).sum()
    }
}

pub(super) fn losses(mut sums: Sums, names: &Names, name: impl Fn(u32) -> String) -> Losses {
    sums.end();
    let ids = |from: &BTreeSet<u32>| from.iter().map(|f| names.id(*f)).collect();
    let mut topics: Vec<TopicLosses> = Vec::new();
    for (&(topic, to), of) in &sums.topics {
        let causes = causes(of, names);
        topics.push(TopicLosses {
            topic: name(topic),
            to: names.id(to),
            from: ids(&of.from),
            published: of.executed + causes.iter().map(|c| c.count).sum::<u64>(),
            executed: of.executed,
            causes,
            bursts: bursts(of),
        });
    }
    topics.sort_by_cached_key(|t| (Reverse(t.lost()), t.topic.clone(), t.to.clone()));
    let mut services = Vec::new();
    for (&(service, to), of) in &sums.services {
        let mut kinds: Vec<_> = of
            .kinds
            .iter()
            .map(|(kind, (count, instants))| (*kind, *count, instants.clone()))
            .collect();
        kinds.sort();
        services.push(ServiceLosses {
            service: name(service),
            to: to.map(|to| names.id(to)),
            from: ids(&of.from),
            sent: kinds.iter().map(|k| k.1).sum(),
            kinds,
            slowest_ns: of.slowest,
        });
    }
    services.sort_by_cached_key(|s| (Reverse(s.missed()), s.service.clone(), s.to.clone()));
    Losses { topics, services }
}

fn bursts(of: &OfTopic) -> Vec<Burst> {
    let burst = |run: &super::sums::Run| Burst {
        start_ns: run.begin,
        end_ns: run.end,
        count: run.count,
    };
    of.runs.iter().map(burst).collect()
}

fn causes(of: &OfTopic, names: &Names) -> Vec<Cause> {
    let mut sorted: Vec<(&Key, &OfCause)> = of.causes.iter().filter(|c| c.1.count > 0).collect();
    sorted.sort_by_key(|(key, of)| (Reverse(of.count), **key));
    let cause = |(key, of): (&Key, &OfCause)| {
        let mut cause = Cause {
            kind: LossKind::Unknown,
            count: of.count,
            depth: None,
            setting: None,
            lacks: None,
            port: None,
            reason: None,
            meanwhile: meanwhile(of, names),
        };
        cause.kind = match *key {
            Key::Overwritten { depth } => {
                cause.depth = Some(depth).filter(|d| *d > 0);
                LossKind::Overwritten
            }
            Key::Refused(setting) => {
                cause.setting = Some(setting);
                LossKind::Refused
            }
            Key::PassedOver { lacks } => {
                cause.lacks = lacks.map(|lacks| names.id(lacks));
                LossKind::PassedOver
            }
            Key::Read => LossKind::Read,
            Key::Discarded => LossKind::Discarded,
            Key::SubscriptionEnded => LossKind::SubscriptionEnded,
            Key::RecordingEnded => LossKind::RecordingEnded,
            Key::Socket(port) => {
                cause.port = Some(port);
                LossKind::Socket
            }
            Key::Unknown(reason) => {
                cause.reason = Some(reason);
                LossKind::Unknown
            }
        };
        cause
    };
    sorted.into_iter().map(cause).collect()
}

fn meanwhile(of: &OfCause, names: &Names) -> Vec<Meanwhile> {
    let line = |(&(kind, by), sum): (&(Kind, By), &Sum)| {
        let most = sum.during.iter().max_by_key(|d| *d.1);
        let during = most.filter(|d| 2 * d.1 >= sum.ns);
        Meanwhile {
            kind,
            by: names.culprit(by),
            during: during.map(|d| names.during(*d.0)),
            reason: match by {
                By::Reason(reason) => Some(reason),
                _ => None,
            },
            count: sum.count.min(of.count),
            mean_ns: sum.ns / sum.count.max(1),
        }
    };
    let mut lines: Vec<Meanwhile> = of.culprits.iter().map(line).collect();
    lines.sort_by_cached_key(|l| {
        let by = l.by.as_ref().map(Culprit::text);
        (Reverse(l.count), Reverse(l.mean_ns), l.kind, by)
    });
    lines
}
