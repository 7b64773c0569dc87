//! Checks a plan, whether `onbeat plan` made it or a person edited it.

use crate::fault::{PlanFault, MAX_CYCLE_NS, MAX_ENTRIES};
use crate::schema::{Hold, Ms, Plan, Server, Slot, MAX_HELD, MAX_PRIORITY, MAX_SLOTS, SCHEMA};
use std::collections::{BTreeMap, BTreeSet};

/// The highest priority of the middleware. The dispatcher and threads of the kernel run above it.
const MAX_MIDDLEWARE_PRIORITY: u8 = 97;

/// Checks that a plan can be enforced.
///
/// # Errors
/// Fails with the first fault that it finds.
pub fn validate(plan: &Plan) -> Result<(), PlanFault> {
    if plan.schema != SCHEMA {
        return Err(PlanFault::Schema {
            found: plan.schema.clone(),
        });
    }
    counts(plan)?;
    let cycle = plan.cycle_ms;
    if !(1..=MAX_CYCLE_NS).contains(&cycle.0) {
        return Err(PlanFault::Cycle { cycle });
    }
    for chain in &plan.chains {
        if chain.callbacks.first() != Some(&plan.origin) {
            return Err(PlanFault::Origin {
                chain: chain.id.clone(),
                origin: plan.origin.clone(),
            });
        }
    }
    priority(
        "middleware",
        plan.middleware.priority,
        1,
        MAX_MIDDLEWARE_PRIORITY,
    )?;
    servers(plan)?;
    rules(plan)?;
    held(plan)?;
    promises(plan)
}

fn counts(plan: &Plan) -> Result<(), PlanFault> {
    let (chains, servers) = (plan.chains.len(), plan.servers.len());
    for (what, count) in [("chains", chains), ("servers", servers)] {
        if count == 0 {
            return Err(PlanFault::Empty { what });
        }
    }
    let lists = [
        ("chains", chains),
        ("servers", servers),
        ("outputs", plan.outputs.len()),
        ("inputs", plan.inputs.len()),
        ("callbacks", plan.callbacks.len()),
        ("assumes", plan.assumes.len()),
        ("bands", plan.promises.bands.len()),
    ];
    let callbacks = plan.chains.iter().map(|c| ("callbacks", c.callbacks.len()));
    let of_servers = plan.servers.iter().flat_map(|s| {
        [
            ("slots_ms", s.slots_ms.len()),
            ("callbacks", s.callbacks.len()),
        ]
    });
    for (what, count) in lists.into_iter().chain(callbacks).chain(of_servers) {
        if count > MAX_ENTRIES {
            return Err(PlanFault::TooMany { what, count });
        }
    }
    Ok(())
}

fn priority(of: &str, priority: u8, low: u8, high: u8) -> Result<(), PlanFault> {
    if (low..=high).contains(&priority) {
        return Ok(());
    }
    Err(PlanFault::Priority {
        of: of.into(),
        priority,
        low,
        high,
    })
}

fn servers(plan: &Plan) -> Result<(), PlanFault> {
    let (mut names, mut callbacks) = (BTreeSet::new(), BTreeSet::new());
    for server in &plan.servers {
        if server.name.is_empty() {
            return Err(PlanFault::Empty {
                what: "name of a server",
            });
        }
        if !names.insert(&server.name) {
            return Err(twice("server", &server.name));
        }
        priority(&server.name, server.priority, 0, MAX_PRIORITY)?;
        for callback in &server.callbacks {
            if !callbacks.insert(callback) {
                return Err(twice("callback", callback));
            }
        }
        slots(server, plan.cycle_ms)?;
    }
    competing(plan)
}

fn rules(plan: &Plan) -> Result<(), PlanFault> {
    let mut ids = BTreeSet::new();
    for rule in &plan.callbacks {
        let callback = || rule.id.clone();
        if !ids.insert(&rule.id) {
            return Err(twice("callback", &rule.id));
        }
        if !plan.servers.iter().any(|s| s.callbacks.contains(&rule.id)) {
            return Err(PlanFault::NoCallback {
                callback: callback(),
            });
        }
        let chain = plan.chains.iter().find(|c| c.callbacks.contains(&rule.id));
        if let Some(chain) = chain.filter(|_| !rule.required) {
            return Err(PlanFault::Required {
                callback: callback(),
                chain: chain.id.clone(),
            });
        }
    }
    Ok(())
}

/// Refuses two servers on one CPU that have the same real-time priority and slots that overlap.
fn competing(plan: &Plan) -> Result<(), PlanFault> {
    let mut groups: BTreeMap<(u16, u8), Vec<&Server>> = BTreeMap::new();
    for server in plan.servers.iter().filter(|s| s.priority > 0) {
        groups
            .entry((server.cpu, server.priority))
            .or_default()
            .push(server);
    }
    for ((cpu, priority), servers) in groups {
        let mut spans: Vec<(u64, u64, &str)> = Vec::new();
        for server in &servers {
            spans.extend(spans_of(server, plan.cycle_ms.0));
        }
        spans.sort_unstable();
        if let Some(w) = spans
            .windows(2)
            .find(|w| w[1].0 < w[0].1 && w[0].2 != w[1].2)
        {
            return Err(PlanFault::Overlap {
                a: w[0].2.into(),
                b: w[1].2.into(),
                priority,
                cpu,
                at: Ms(w[1].0),
            });
        }
    }
    Ok(())
}

fn spans_of(server: &Server, cycle: u64) -> Vec<(u64, u64, &str)> {
    let name = server.name.as_str();
    if server.slots_ms.is_empty() {
        return vec![(0, cycle, name)];
    }
    let mut spans = Vec::new();
    for &Slot(Ms(start), Ms(end)) in &server.slots_ms {
        spans.push((start, end.min(cycle), name));
        if end > cycle {
            spans.push((0, end - cycle, name));
        }
    }
    spans
}

fn slots(server: &Server, cycle: Ms) -> Result<(), PlanFault> {
    for &slot in &server.slots_ms {
        let Slot(Ms(start), Ms(end)) = slot;
        if start >= cycle.0 || end <= start || end - start > cycle.0 {
            return Err(PlanFault::Slot {
                server: server.name.clone(),
                slot,
                cycle,
            });
        }
    }
    let order = |a: Slot, b: Slot| PlanFault::Order {
        server: server.name.clone(),
        a,
        b,
    };
    if let Some(w) = server.slots_ms.windows(2).find(|w| w[1].0 < w[0].1) {
        return Err(order(w[0], w[1]));
    }
    // The last slot may wrap around, but not onto the first.
    match (server.slots_ms.first(), server.slots_ms.last()) {
        (Some(&first), Some(&last))
            if last.1 .0 > cycle.0 + first.0 .0 && server.slots_ms.len() > 1 =>
        {
            Err(order(last, first))
        }
        _ => Ok(()),
    }
}

fn held(plan: &Plan) -> Result<(), PlanFault> {
    outputs(plan)?;
    inputs(plan)?;
    let outputs = plan.outputs.iter().filter_map(|o| o.held_topic.as_ref());
    let inputs = plan.inputs.iter().map(|i| &i.held_topic);
    let topics: BTreeSet<&String> = outputs.chain(inputs).collect();
    if topics.len() > MAX_HELD {
        return Err(PlanFault::ManyHeld {
            count: topics.len(),
        });
    }
    Ok(())
}

fn outputs(plan: &Plan) -> Result<(), PlanFault> {
    let mut seen = BTreeSet::new();
    for output in &plan.outputs {
        if !seen.insert((&output.topic, &output.callback)) {
            return Err(twice("output", &output.topic));
        }
        check_output_server(plan, &output.topic, &output.server)?;
        match (output.hold, &output.held_topic) {
            (Hold::Republish, Some(held)) if *held != output.topic && !held.is_empty() => {}
            (Hold::PublisherThread, None) => {}
            (Hold::Republish, _) => {
                return Err(wrong_held_topic(&output.topic, "republish", OTHER_TOPIC));
            }
            (Hold::PublisherThread, Some(_)) => {
                let must = "held_topic must be left out, because no topic is remapped";
                return Err(wrong_held_topic(&output.topic, "publisher_thread", must));
            }
        }
    }
    Ok(())
}

fn inputs(plan: &Plan) -> Result<(), PlanFault> {
    let mut seen = BTreeSet::new();
    for input in &plan.inputs {
        if !seen.insert((&input.topic, &input.node)) {
            return Err(twice("input", &input.topic));
        }
        check_output_server(plan, &input.topic, &input.server)?;
        if input.held_topic == input.topic || input.held_topic.is_empty() {
            return Err(wrong_held_topic(&input.topic, "the throttler", OTHER_TOPIC));
        }
    }
    Ok(())
}

const OTHER_TOPIC: &str = "held_topic must name another topic than the output or input itself";

fn wrong_held_topic(topic: &str, hold: &'static str, must: &'static str) -> PlanFault {
    PlanFault::Held {
        topic: topic.into(),
        hold,
        must,
    }
}

fn twice(what: &'static str, twice: &str) -> PlanFault {
    PlanFault::Twice {
        what,
        twice: twice.into(),
    }
}

fn check_output_server(plan: &Plan, topic: &str, server: &str) -> Result<(), PlanFault> {
    let found = plan.servers.iter().find(|s| s.name == server);
    let (topic, server) = (topic.to_string(), server.to_string());
    match found.map(|s| s.slots_ms.len()) {
        None => Err(PlanFault::NoServer { topic, server }),
        Some(0) => Err(PlanFault::NoSlots { topic, server }),
        Some(count) if count > MAX_SLOTS => Err(PlanFault::ManySlots {
            topic,
            server,
            count,
        }),
        Some(_) => Ok(()),
    }
}

fn promises(plan: &Plan) -> Result<(), PlanFault> {
    let wrong = |what: String| Err(PlanFault::Promise { what });
    for band in &plan.promises.bands {
        let Slot(start, end) = band.latency_ms;
        if end < start {
            return wrong(format!("a band ends at {end}, before its start at {start}"));
        }
        if !(0.0..=1.0).contains(&band.share) {
            return wrong(format!(
                "the share {} of a band does not lie between 0 and 1",
                band.share
            ));
        }
    }
    if let Some(miss) = plan.promises.miss {
        for share in [miss.rate, miss.confidence] {
            if !(share > 0.0 && share < 1.0) {
                return wrong(format!(
                    "the miss rate or confidence {share} does not lie between 0 and 1"
                ));
            }
        }
    }
    for (&cpu, &share) in &plan.promises.utilisation {
        if share.is_nan() || share < 0.0 {
            return wrong(format!(
                "the share {share} of CPU {cpu} that the servers use is negative or not a number"
            ));
        }
        // A rounding error does not count as overload.
        if share > 1.0 + 1e-9 {
            return Err(PlanFault::Utilisation { cpu, share });
        }
    }
    Ok(())
}
