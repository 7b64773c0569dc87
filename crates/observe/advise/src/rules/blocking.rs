//! Rule: a callback sleeps while it has an item in hand.

use super::{mean, number, OnChain};
use crate::view::Step;
use crate::{Advice, Rule};
use onbeat_document::text::duration;

pub(super) fn find(on: &OnChain<'_, '_>, step: &Step<'_>) -> Option<Advice> {
    let callback = step.callback;
    let blocked = &callback.figures.blocked_ns;
    let cost_ns = blocked.mean().min(step.own_ns);
    let share = on.share_if_large(cost_ns)?;
    let times = callback.figures.blockings as f64 / blocked.count().max(1) as f64;
    Some(Advice {
        rule: Rule::Blocking,
        chain: Some(on.place),
        subject: callback.id.clone(),
        cost_ns: Some(cost_ns),
        share,
        finding: format!(
            "{} sleeps for {} per execution on average (at most {}; {times:.1} sleeps per execution)",
            callback.id,
            duration(blocked.mean()),
            duration(blocked.max() as f64)
        ),
        remedy: "do not let the callback wait for a service's response, for a device, or for a lock that is held during longer work. \
                 Take the response in a callback of its own"
            .to_owned(),
        evidence: vec![
            mean("blocked_ns", &callback.id, blocked),
            number("blockings", &callback.id, callback.figures.blockings as f64, blocked.count()),
        ],
    })
}
