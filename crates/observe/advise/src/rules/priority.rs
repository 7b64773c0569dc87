//! Rule: a callback of a chain is preempted, or waits for a CPU.

use super::{first_three, mean, number, OnChain, NAMED};
use crate::view::{cpus, real_time, Step};
use crate::{Advice, Rule};
use onbeat_document::schema::Callback;
use onbeat_document::text::{duration, percent};

/// Finds callbacks that wait for a CPU while other threads have it. A thread of a more important
/// chain should have the higher priority (PiCAS: Choi, Xiang, Kim, RTAS 2021, section 4).
pub(super) fn find(on: &OnChain<'_, '_>, step: &Step<'_>) -> Option<Advice> {
    let callback = step.callback;
    let preempted = &callback.figures.preempted_ns;
    let waits_ns = wait_for_cpu_ns(on, step).unwrap_or(0.0);
    let cost_ns = preempted.mean().min(step.own_ns) + waits_ns;
    let share = on.share_if_large(cost_ns)?;
    let own = real_time(callback);
    let above = less_important_ahead(on, callback, own);
    if yields_to_important_only(on, callback) {
        return None;
    }
    let mut evidence = vec![
        mean("preempted_ns", &callback.id, preempted),
        number(
            "preemptions",
            &callback.id,
            callback.figures.preemptions as f64,
            preempted.count(),
        ),
    ];
    if let Some((edge, _)) = step.from.filter(|_| waits_ns > 0.0) {
        evidence.push(mean("waiting_ns", &edge.topic, &edge.figures.waiting_ns));
    }
    evidence.extend(
        above
            .iter()
            .take(NAMED)
            .map(|c| number("load", &c.id, c.figures.load, c.figures.exec_ns.count())),
    );
    Some(Advice {
        rule: Rule::Priority,
        chain: Some(on.place),
        subject: callback.id.clone(),
        cost_ns: Some(cost_ns),
        share,
        finding: finding(on, callback, own, &above, (preempted.mean(), waits_ns)),
        remedy: remedy(own, &above),
        evidence,
    })
}

pub(super) fn yields_to_important_only(on: &OnChain<'_, '_>, callback: &Callback) -> bool {
    let own = real_time(callback);
    let mut others = on.view.on_its_cpus(callback);
    own.is_some()
        && less_important_ahead(on, callback, own).is_empty()
        && others.any(|c| real_time(c) > own)
}

/// Returns the mean time in ns that the callback's items wait for a CPU. Returns `None` if the
/// items can wait for another reason: the thread also runs other callbacks, or the callback is
/// slower than its input.
fn wait_for_cpu_ns(on: &OnChain<'_, '_>, step: &Step<'_>) -> Option<f64> {
    let (edge, part_ns) = step.from?;
    // A callback that is behind its input waits for itself.
    let exec = &step.callback.figures.exec_ns;
    let gap_ns = step.callback.figures.interarrival_ns.quantile(0.01);
    let is_alone = on.view.beside(step.callback).next().is_none() && exec.max() < gap_ns;
    is_alone.then(|| edge.figures.waiting_ns.mean().min(part_ns))
}

/// Returns the callbacks that have a higher real-time priority than `callback` on one of its CPUs,
/// although they belong only to less important chains or to none.
fn less_important_ahead<'m>(
    on: &OnChain<'_, 'm>,
    callback: &Callback,
    own: Option<u8>,
) -> Vec<&'m Callback> {
    let own_place = on.view.importance(callback);
    let others = on.view.on_its_cpus(callback);
    let is_ahead = |other: &&Callback| {
        let is_less = match (on.view.importance(other), own_place) {
            (None, _) => true,
            (Some(theirs), Some(ours)) => theirs > ours,
            (Some(_), None) => false,
        };
        is_less && real_time(other) > own
    };
    others.filter(is_ahead).collect()
}

fn finding(
    on: &OnChain<'_, '_>,
    callback: &Callback,
    own: Option<u8>,
    above: &[&Callback],
    (preempted_ns, waits_ns): (f64, f64),
) -> String {
    let mut costs = Vec::new();
    if preempted_ns >= on.options.min_time_ns {
        costs.push(format!(
            "is preempted for {} per execution on average",
            duration(preempted_ns)
        ));
    }
    if waits_ns >= on.options.min_time_ns {
        costs.push(format!(
            "waits {} for a CPU on average before it starts",
            duration(waits_ns)
        ));
    }
    let how = match own {
        None => "at a normal priority".to_owned(),
        Some(priority) => format!("at real-time priority {priority}"),
    };
    let cpus: Vec<String> = cpus(callback).iter().map(u16::to_string).collect();
    let named = first_three(above.iter(), |c| {
        let priority = real_time(c).map_or("normal".into(), |p| p.to_string());
        format!(
            "{} (priority {priority}, {} of a CPU)",
            c.id,
            percent(c.figures.load)
        )
    });
    let who = match (above.is_empty(), own) {
        (false, _) => {
            format!("; less important callbacks run before this callback: {named}")
        }
        (true, None) => {
            let others = on.view.on_its_cpus(callback);
            let load: f64 = others.map(|c| c.figures.load).sum();
            format!(
                "; other callbacks use {} of the time of these CPUs",
                percent(load)
            )
        }
        (true, Some(_)) => {
            "; the cause is not a callback of the model but another thread or the host".to_owned()
        }
    };
    format!(
        "{} {} ({how}, CPU {}){who}",
        callback.id,
        costs.join(" and "),
        cpus.join(", ")
    )
}

fn remedy(own: Option<u8>, above: &[&Callback]) -> String {
    let highest = above.iter().filter_map(|c| real_time(c)).max();
    match (own, highest) {
        (_, Some(highest)) => {
            format!(
                "give the callback's thread a real-time priority above {highest}, or give the other callbacks' threads a lower priority"
            )
        }
        (None, None) => "give the callback's thread a real-time priority (SCHED_FIFO)".to_owned(),
        (Some(_), None) => {
            "keep other real-time threads off the callback's CPU. The callback's field `causes` in the model names these threads"
                .to_owned()
        }
    }
}
