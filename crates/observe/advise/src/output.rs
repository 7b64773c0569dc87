//! Writes a report as JSON.

use crate::{ChainBound, NoBound, Priorities, Report};
use onbeat_document::Model;
use serde_json::{json, Value};

/// Returns the report as JSON, with the suggested priorities and the bounds of the chains.
pub fn json(
    model: &Model,
    report: &Report,
    priorities: &Priorities,
    bounds: &[ChainBound],
) -> Value {
    let titles = onbeat_document::titles::titles(model);
    let chain = |i: usize| json!({"id": model.chains[i].id, "title": titles[i]});
    let advices = report.advices.iter().map(|a| {
        let evidence = a.evidence.iter().map(
            |e| json!({"figure": e.figure, "of": e.of, "value": e.value, "samples": e.samples}),
        );
        json!({
            "rule": a.rule.name(), "chain": a.chain.map(chain), "subject": a.subject,
            "cost_ns": a.cost_ns, "share": a.share, "finding": a.finding, "remedy": a.remedy,
            "evidence": evidence.collect::<Vec<_>>(),
        })
    });
    let assigned = priorities.assigned.iter().map(|p| {
        json!({"callback": p.callback, "policy": "fifo", "priority": p.priority, "before": p.before,
               "cpus": p.cpus, "shared": p.shared})
    });
    let bounds = bounds.iter().map(|b| {
        let steps = b.steps.as_ref().map_or(&[][..], |s| s);
        let steps = steps.iter().map(|s| {
            json!({"callback": s.callback, "transport_ns": s.transport_ns,
                   "response_ns": s.response_ns, "others_ns": s.others_ns})
        });
        json!({
            "chain": chain(b.chain), "measured_ns": b.measured_ns, "bound_ns": b.bound_ns(),
            "why_none": b.steps.as_ref().err().map(NoBound::sentence),
            "steps": steps.collect::<Vec<_>>(),
        })
    });
    json!({
        "schema": "onbeat-advice/1",
        "chains": report.order.iter().map(|&i| chain(i)).collect::<Vec<_>>(),
        "advices": advices.collect::<Vec<_>>(),
        "priorities": assigned.collect::<Vec<_>>(),
        "bounds": bounds.collect::<Vec<_>>(),
        "not_judged": report.not_judged,
    })
}
