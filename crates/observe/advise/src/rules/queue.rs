//! Rule: a queue drops items of a chain.

use super::{number, OnChain};
use crate::view::Step;
use crate::{Advice, Rule};
use onbeat_document::text::{duration, percent};

pub(super) fn find(on: &OnChain<'_, '_>, step: &Step<'_>) -> Option<Advice> {
    let (edge, _) = step.from?;
    let figures = &edge.figures;
    let gone = figures.overwritten + figures.lost;
    let share = gone as f64 / figures.published.max(1) as f64;
    if gone == 0 || share < on.options.min_loss {
        return None;
    }
    let callback = step.callback;
    let exec = &callback.figures.exec_ns;
    let gap_ns = callback.figures.interarrival_ns.quantile(0.5);
    let is_slow = figures.overwritten > 0 && exec.mean() > 0.9 * gap_ns as f64;
    let remedy = match (figures.overwritten > figures.lost, is_slow) {
        (true, true) => format!(
            "make the callback faster (an execution takes {} on average, and one starts every {}), or let it take fewer items. A deeper queue would only make the items older",
            duration(exec.mean()),
            duration(gap_ns as f64)
        ),
        (true, false) => "give the callback's subscription a deeper queue, or give the callback a thread that is free when items come".to_owned(),
        (false, _) => "check the QoS settings of publisher and subscription: with best effort, the middleware drops items for which it has no room".to_owned(),
    };
    let counts = [
        ("overwritten", figures.overwritten),
        ("lost", figures.lost),
        ("published", figures.published),
    ];
    Some(Advice {
        rule: Rule::Queue,
        chain: Some(on.place),
        subject: callback.id.clone(),
        cost_ns: None,
        share,
        finding: format!(
            "{} never takes {} of the {} items on {}: {} were overwritten by later items, {} were lost for other reasons",
            callback.id,
            percent(share),
            figures.published,
            edge.topic,
            figures.overwritten,
            figures.lost
        ),
        remedy,
        evidence: counts
            .map(|(name, count)| number(name, &edge.topic, count as f64, figures.published))
            .to_vec(),
    })
}
