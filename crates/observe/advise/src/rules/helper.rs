//! Rule: the middleware thread that receives the items waits for a CPU.

use super::{mean, number, OnChain};
use crate::view::Step;
use crate::{Advice, Rule};
use onbeat_document::schema::{Edge, Helper};
use onbeat_document::text::duration;

const KERNEL_NORMAL_PRIORITY: u8 = 100;

/// Finds middleware threads of the receiver that wait for a CPU, which delays the items. These
/// threads run no callback, so no other figure shows their waits. The total time of a thread's
/// waits, divided by the number of items, is the largest mean delay per item that these waits can
/// have caused.
pub(super) fn find(on: &OnChain<'_, '_>, step: &Step<'_>) -> Option<Advice> {
    let (edge, part_ns) = step.from?;
    let items = edge.figures.taken.max(1) as f64;
    let transport_ns = edge.figures.transport_ns.mean().min(part_ns);
    let of_item = |h: &Helper| h.figures.ready_ns.sum() as f64 / items;
    let node = &step.callback.node;
    let helpers = on.view.model.helpers.iter();
    let most = helpers
        .filter(|h| h.nodes.contains(node))
        .max_by(|a, b| of_item(a).total_cmp(&of_item(b)))?;
    let cost_ns = of_item(most).min(transport_ns);
    let share = on.share_if_large(cost_ns)?;
    let ready = &most.figures.ready_ns;
    Some(Advice {
        rule: Rule::Helper,
        chain: Some(on.place),
        subject: format!("{} ({})", node, most.name),
        cost_ns: Some(cost_ns),
        share,
        finding: format!(
            "thread {} of {node} waits for a CPU: {} on average for each item on {}, and {} in the longest wait. The thread has no callbacks, and runs {}",
            most.name,
            duration(of_item(most)),
            edge.topic,
            duration(ready.max() as f64),
            scheduled(most)
        ),
        remedy: "give the waiting thread a higher priority than all other threads on its CPUs, also than a real-time \
                 executor that takes the items of the waiting thread. Or move the waiting thread to a CPU without \
                 real-time programs"
            .to_owned(),
        evidence: evidence(most, edge),
    })
}

fn scheduled(helper: &Helper) -> String {
    let lowest = helper.threads.iter().max_by_key(|t| t.priority);
    let Some(lowest) = lowest else {
        return "at an unknown priority".into();
    };
    let cpus: Vec<String> = lowest.cpus.iter().map(u16::to_string).collect();
    let cpus = match cpus.len() {
        1 => format!("CPU {}", cpus[0]),
        _ => format!("CPUs {}", cpus.join(", ")),
    };
    match lowest.priority {
        p if p < KERNEL_NORMAL_PRIORITY => format!(
            "at real-time priority {} on {cpus}",
            KERNEL_NORMAL_PRIORITY - 1 - p
        ),
        _ => format!("under time-sharing on {cpus}"),
    }
}

fn evidence(helper: &Helper, edge: &Edge) -> Vec<crate::Evidence> {
    let ready = &helper.figures.ready_ns;
    let of = format!("{} ({})", helper.nodes.join(" and "), helper.name);
    vec![
        number("ready_ns.sum", &of, ready.sum() as f64, ready.count()),
        number("ready_ns.max", &of, ready.max() as f64, ready.count()),
        mean("transport_ns", &edge.topic, &edge.figures.transport_ns),
    ]
}
