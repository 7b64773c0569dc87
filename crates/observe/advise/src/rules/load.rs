//! Rule: a CPU or an executor's threads have no room left.

use super::{first_three, number};
use crate::view::{cpus, View};
use crate::{Advice, Options, Rule};
use onbeat_document::schema::Callback;
use onbeat_document::text::percent;
use std::collections::BTreeMap;

pub(super) fn find(view: &View<'_>, options: &Options) -> Vec<Advice> {
    let mut found = executors(view, options);
    found.extend(of_cpus(view, options));
    found
}

fn executors(view: &View<'_>, options: &Options) -> Vec<Advice> {
    let mut found = Vec::new();
    for executor in &view.model.executors {
        let ids = executor.callbacks.iter();
        let callbacks: Vec<&Callback> = ids.filter_map(|id| view.callback(id)).collect();
        let sum: f64 = callbacks.iter().map(|c| c.figures.load).sum();
        let load = sum / executor.threads.max(1) as f64;
        if load <= options.max_load {
            continue;
        }
        let threads = match executor.threads {
            0 | 1 => "the thread".to_owned(),
            n => format!("the {n} threads"),
        };
        found.push(Advice {
            rule: Rule::Load,
            chain: None,
            subject: format!(
                "executor of {}",
                executor.callbacks.first().map_or("", |c| c)
            ),
            cost_ns: None,
            share: load,
            finding: format!(
                "callbacks keep {threads} of their executor busy for {} of the time: {}",
                percent(load),
                loads(&callbacks)
            ),
            remedy: "spread the callbacks of this executor over more executors, or let the callbacks run less often"
                .to_owned(),
            evidence: evidence(&callbacks),
        });
    }
    found
}

fn of_cpus(view: &View<'_>, options: &Options) -> Vec<Advice> {
    let mut bound: BTreeMap<u16, Vec<&Callback>> = BTreeMap::new();
    for callback in &view.model.callbacks {
        let cpus = cpus(callback);
        if let (1, Some(&cpu)) = (cpus.len(), cpus.first()) {
            bound.entry(cpu).or_default().push(callback);
        }
    }
    let total = |on: &[&Callback]| on.iter().map(|c| c.figures.load).sum::<f64>();
    let mut found = Vec::new();
    for (cpu, callbacks) in &bound {
        let load = total(callbacks);
        if load <= options.max_load {
            continue;
        }
        let others = bound.iter().filter(|(other, _)| *other != cpu);
        let least = others.min_by(|a, b| total(a.1).total_cmp(&total(b.1)));
        let where_to = match least {
            Some((other, on)) => format!(
                "CPU {other}, which is busy for {} of the time with callbacks that run on no other CPU",
                percent(total(on))
            ),
            None => "another CPU".to_owned(),
        };
        found.push(Advice {
            rule: Rule::Load,
            chain: None,
            subject: format!("CPU {cpu}"),
            cost_ns: None,
            share: load,
            finding: format!(
                "CPU {cpu} is busy for {} of the time with callbacks that run on no other CPU: {}",
                percent(load),
                loads(callbacks)
            ),
            remedy: format!("move some of the callbacks of this CPU to {where_to}"),
            evidence: evidence(callbacks),
        });
    }
    found
}

fn loads(callbacks: &[&Callback]) -> String {
    let mut sorted = callbacks.to_vec();
    sorted.sort_by(|a, b| b.figures.load.total_cmp(&a.figures.load));
    first_three(sorted.iter(), |c| {
        format!("{} ({})", c.id, percent(c.figures.load))
    })
}

fn evidence(callbacks: &[&Callback]) -> Vec<crate::Evidence> {
    let each = callbacks.iter();
    each.map(|c| number("load", &c.id, c.figures.load, c.figures.exec_ns.count()))
        .collect()
}
