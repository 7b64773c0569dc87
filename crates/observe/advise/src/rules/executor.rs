//! Rule: an urgent callback waits because its executor is running other callbacks.

use super::{first_three, mean, number, OnChain, NAMED};
use crate::view::Step;
use crate::{Advice, Rule};
use onbeat_document::text::duration;

/// Finds items that wait in a thread's queue while the thread runs other callbacks. A
/// single-threaded executor runs ready callbacks one after another without preemption. An item may
/// therefore wait for the executor's longest other callback (Casini et al., ECRTS 2019, section 3).
pub(super) fn find(on: &OnChain<'_, '_>, step: &Step<'_>) -> Option<Advice> {
    let (edge, part_ns) = step.from?;
    let waiting = &edge.figures.waiting_ns;
    let cost_ns = waiting.mean().min(part_ns);
    let share = on.share_if_large(cost_ns)?;
    let others = || on.view.beside(step.callback);
    // Others that never run long cannot be the cause.
    let longest_ns = others().next()?.figures.exec_ns.max();
    if (longest_ns as f64) < on.options.min_time_ns {
        return None;
    }
    let id = &step.callback.id;
    let named = first_three(others(), |c| {
        let longest = duration(c.figures.exec_ns.max() as f64);
        format!("{} (longest {longest})", c.id)
    });
    let mut evidence = vec![
        mean("waiting_ns", &edge.topic, waiting),
        number(
            "waiting_ns.p99",
            &edge.topic,
            waiting.quantile(0.99) as f64,
            waiting.count(),
        ),
    ];
    evidence.extend(others().take(NAMED).map(|c| {
        let exec = &c.figures.exec_ns;
        number("exec_ns.max", &c.id, exec.max() as f64, exec.count())
    }));
    Some(Advice {
        rule: Rule::Executor,
        chain: Some(on.place),
        subject: id.clone(),
        cost_ns: Some(cost_ns),
        share,
        finding: format!(
            "{id} waits for its thread, {} on average and {} at the 99th percentile. The thread also runs {named}",
            duration(waiting.mean()),
            duration(waiting.quantile(0.99) as f64)
        ),
        remedy: "give the callback a callback group and an executor of its own, whose thread has a higher priority"
            .to_owned(),
        evidence,
    })
}
