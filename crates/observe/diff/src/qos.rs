//! Compares the QoS settings of publishers and subscriptions.

use onbeat_document::schema::{Endpoint, EndpointKind, Model, Qos};
use onbeat_document::text::duration;
use std::collections::BTreeMap;

/// Returns the changed publishers and subscriptions with a description of each change, and a note
/// if some cannot be compared.
pub(crate) fn changes(a: &Model, b: &Model) -> (Vec<(String, String)>, Option<String>) {
    if a.endpoints.is_empty() || b.endpoints.is_empty() {
        let none = a.endpoints.is_empty() && b.endpoints.is_empty();
        let which = if none { "Neither" } else { "One" };
        let note = format!("{which} of the models has QoS settings, so QoS settings were not compared. A recording contains the settings of publishers and subscriptions that are created while it runs.");
        return (Vec::new(), Some(note));
    }
    let (a, b) = (by_id(&a.endpoints), by_id(&b.endpoints));
    let both = a.iter().filter_map(|(id, a)| Some((id, *a, *b.get(id)?)));
    let alone = a.len() + b.len() - 2 * both.clone().count();
    let changed = both.filter(|(_, a, b)| a.qos != b.qos);
    let changed = changed.map(|(id, a, b)| (id.clone(), change(&a.qos, &b.qos)));
    let note = (alone > 0).then(|| {
        format!("The QoS settings of publishers or subscriptions that only one of the models shows ({alone}) were not compared.")
    });
    (changed.collect(), note)
}

fn by_id(all: &[Endpoint]) -> BTreeMap<String, &Endpoint> {
    all.iter().map(|e| (id(e), e)).collect()
}

fn id(e: &Endpoint) -> String {
    match e.kind {
        EndpointKind::Publisher => format!("{} publishes {}", e.node, e.topic),
        EndpointKind::Subscription => format!("{} subscribes to {}", e.node, e.topic),
    }
}

/// Describes each changed setting if each model has only one set of QoS settings here (`before`,
/// `now`). Otherwise describes all sets before and after the change.
fn change(before: &[Qos], now: &[Qos]) -> String {
    let all = |qos: &[Qos]| {
        let texts = qos.iter().map(|q| {
            let words = settings(q)
                .into_iter()
                .map(|(name, value)| format!("{name} {value}"));
            words.collect::<Vec<_>>().join(", ")
        });
        texts.collect::<Vec<_>>().join("; or ")
    };
    let ([a], [b]) = (before, now) else {
        return format!("{}; was {}", all(now), all(before));
    };
    let both = settings(a).into_iter().zip(settings(b));
    let changed = both.filter(|(a, b)| a != b);
    let words = changed.map(|((name, a), (_, b))| format!("{name} {b}, was {a}"));
    words.collect::<Vec<_>>().join("; ")
}

fn settings(qos: &Qos) -> Vec<(&'static str, String)> {
    let time = |ns: Option<u64>| ns.map_or("none".into(), |ns| duration(ns as f64));
    vec![
        ("history", qos.history.text().into()),
        ("depth", qos.depth.to_string()),
        ("reliability", qos.reliability.text().into()),
        ("durability", qos.durability.text().into()),
        ("deadline", time(qos.deadline_ns)),
        ("lifespan", time(qos.lifespan_ns)),
        ("liveliness", qos.liveliness.text().into()),
        ("lease", time(qos.lease_ns)),
    ]
}
