//! Rule: a chain's timer starts late.

use super::priority::yields_to_important_only;
use super::{first_three, mean, number, OnChain};
use crate::view::Step;
use crate::{Advice, Rule};
use onbeat_document::schema::CallbackType;
use onbeat_document::text::{duration, percent};

/// The limit above which the delay of a timer is reported. The delay is the 99th percentile of the
/// lateness of its starts, as a share of the period.
const MAX_LATE: f64 = 0.1;

pub(super) fn find(on: &OnChain<'_, '_>, step: &Step<'_>) -> Option<Advice> {
    let callback = step.callback;
    if callback.kind != CallbackType::Timer || step.from.is_some() {
        return None;
    }
    let period_ns = callback.period_ns.filter(|&p| p > 0)? as f64;
    let late = &callback.figures.release_jitter_ns;
    let p99_ns = late.quantile(0.99) as f64;
    if late.count() == 0 || p99_ns < MAX_LATE * period_ns || p99_ns < on.options.min_time_ns {
        return None;
    }
    let beside = || on.view.beside(callback);
    let is_alone = beside().next().is_none();
    if is_alone && yields_to_important_only(on, callback) {
        return None;
    }
    let (why, remedy) = match is_alone {
        false => (
            format!(
                "; the thread of this callback also runs {}",
                first_three(beside(), |c| c.id.clone())
            ),
            "give the callback a callback group and an executor of its own",
        ),
        true => (
            String::new(),
            "give the callback's thread a real-time priority, or move the threads that run before this thread to another CPU",
        ),
    };
    Some(Advice {
        rule: Rule::Release,
        chain: Some(on.place),
        subject: callback.id.clone(),
        cost_ns: None,
        share: p99_ns / period_ns,
        finding: format!(
            "one in a hundred executions of {} starts at least {} after its release ({} of the period){why}",
            callback.id,
            duration(p99_ns),
            percent(p99_ns / period_ns)
        ),
        remedy: remedy.to_owned(),
        evidence: vec![
            mean("release_jitter_ns", &callback.id, late),
            number("release_jitter_ns.p99", &callback.id, p99_ns, late.count()),
        ],
    })
}
