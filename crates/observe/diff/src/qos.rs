//! QoS settings of publishers and subscriptions that are others in the second model.

use crate::structure::{pair, Difference, Part, What};
use onbeat_model::schema::{Endpoint, EndpointKind, Model, Qos};
use onbeat_model::text::duration;

/// Changed settings; and what cannot be compared, in a sentence.
pub(crate) fn compare(a: &Model, b: &Model, found: &mut Vec<Difference>) -> Option<String> {
    if a.endpoints.is_empty() || b.endpoints.is_empty() {
        let none = a.endpoints.is_empty() && b.endpoints.is_empty();
        let which = if none { "Neither" } else { "One" };
        return Some(format!("{which} of the models has QoS settings: they were not compared. Recordings show those of publishers and subscriptions that they see made."));
    }
    let mut alone = 0;
    for (id, both) in pair(&a.endpoints, &b.endpoints, id) {
        let (Some(a), Some(b)) = both else {
            alone += 1;
            continue;
        };
        if a.qos != b.qos {
            found.push(Difference {
                part: Part::Qos,
                what: What::Changed,
                title: id.clone(),
                id,
                why: change(&a.qos, &b.qos),
                follows: None,
            });
        }
    }
    (alone > 0).then(|| {
        format!("The QoS settings of publishers or subscriptions that only one of the models shows ({alone}) were not compared.")
    })
}

fn id(e: &Endpoint) -> String {
    match e.kind {
        EndpointKind::Publisher => format!("{} publishes {}", e.node, e.topic),
        EndpointKind::Subscription => format!("{} subscribes to {}", e.node, e.topic),
    }
}

/// What is different, setting by setting, where each has one of them.
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

/// All settings by name, as ROS 2 calls them.
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
