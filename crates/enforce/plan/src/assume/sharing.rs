//! Writes the assumptions about executors that run other callbacks too, or use several threads.

use super::{count, listed, Times};
use crate::executors::{room_ns, Group};
use crate::request::{Request, Strategy};
use crate::schema::{Ms, Plan, Server};
use crate::scope::Scope;
use onbeat_document::schema::Callback;
use std::collections::BTreeSet;

pub(super) fn sentences(
    scope: &Scope<'_>,
    request: &Request,
    plan: &Plan,
    times: &Times,
) -> Vec<String> {
    if !scope.executors.threads_are_known() {
        return vec![
            "The model does not say which callbacks share threads, for example because an older version of onbeat \
             made it. The plan assumes that only the callbacks of one node share threads."
                .into(),
        ];
    }
    let mut lines = Vec::new();
    for server in &plan.servers {
        lines.extend(unplanned(scope, request, plan, server));
        lines.extend(pools(scope, server));
    }
    lines.extend(beside(scope, request));
    lines.extend(wait(scope, request, times.added_ns));
    if times.late_ns > 0 {
        lines.push(format!(
            "The first callback starts up to {} after its release, because other callbacks run before it on its threads \
             or its CPU. This time is the longest delay that was measured in {}, plus one execution of another \
             callback, because a new start of the application can shift the callbacks against one another. An \
             execution that starts late uses the same slot for its output, so its latency is shorter.",
            Ms(times.late_ns),
            count(scope.model.runs.len(), "run"),
        ));
    }
    lines
}

fn beside(scope: &Scope<'_>, request: &Request) -> Vec<String> {
    if request.beside.is_empty() {
        return Vec::new();
    }
    let plans = count(request.beside.len(), "plan");
    let cpus = scope.cpus();
    let here = scope.beside.others.iter().filter(|o| cpus.contains(&o.cpu));
    let mut lines = vec![format!(
        "On the chain's CPUs, {} in servers of {plans} beside this plan (--beside) can preempt the chain's \
         callbacks. The plan assumes that each of these other callbacks runs as often as when it was measured, at \
         any phase of the chain's cycle.",
        count(here.count(), "callback"),
    )];
    let common = scope.parts.iter().filter(|p| scope.is_beside(p.callback));
    let ids: Vec<&str> = common.map(|p| p.callback.id.as_str()).collect();
    if !ids.is_empty() {
        lines.push(format!(
            "The threads of {} belong to the other plan (--beside), whose servers are open at all times ({}). The \
             other plan must be in force while this plan is in force.",
            count(ids.len(), "callback"),
            listed(&ids)
        ));
    }
    lines
}

fn wait(scope: &Scope<'_>, request: &Request, added_ns: u64) -> Option<String> {
    match request.strategy {
        Strategy::ServerPerCallback | Strategy::ServerPerChain => None,
        _ if added_ns > 0 && !request.beside.is_empty() => Some(format!(
            "The chain waits for other callbacks at most {} longer than when it was measured, if each of these \
             callbacks runs as often as when it was measured.",
            Ms(added_ns)
        )),
        _ if added_ns > 0 => Some(format!(
            "The chain waits for other callbacks at most {} longer than when it was measured, if each of these \
             callbacks runs as often as when it was measured. When measured, these callbacks ran beside the chain on \
             other CPUs. Under the plan, these callbacks can run before the chain on the chain's CPUs. Measure again \
             under `--strategy fifo` for a tighter plan.",
            Ms(added_ns)
        )),
        Strategy::Fifo if scope.wait_ns().is_none() => Some(
            "The chain may wait for other callbacks for a whole cycle or longer, and no promise contains this wait. \
             The reason: under the plan, callbacks that ran on other CPUs when the chain was measured can run \
             before the chain on the chain's CPUs."
                .into(),
        ),
        _ => None,
    }
}

fn unplanned(scope: &Scope<'_>, request: &Request, plan: &Plan, server: &Server) -> Option<String> {
    let is_adopted = |id: &str| plan.callbacks.iter().any(|r| r.id == id && !r.required);
    let found = callbacks(scope, server).filter(|c| is_adopted(&c.id));
    let mut others: Vec<&Callback> = found.collect();
    others.sort_by(|a, b| b.figures.load.total_cmp(&a.figures.load));
    let ids: Vec<&str> = others.iter().map(|c| c.id.as_str()).collect();
    if ids.is_empty() {
        return None;
    }
    let load: f64 = others.iter().map(|c| c.figures.load.max(0.0)).sum();
    let which = format!(
        "{} outside of the planned chains also run{} on the threads of server {} ({}), and took {:.1} % of a CPU when \
         measured",
        count(ids.len(), "callback"),
        if ids.len() == 1 { "s" } else { "" },
        server.name,
        listed(&ids),
        load * 100.0
    );
    let chain = scope
        .parts
        .iter()
        .any(|p| server.callbacks.contains(&p.callback.id));
    let how = match (chain, request.strategy.is_about_slots()) {
        (true, true) => {
            let others = scope.others.iter();
            let here = others.filter(|o| server.callbacks.contains(&o.callback.id));
            format!(
                ": these callbacks run only in the slots of this server, which keep {} of each cycle for these \
                 callbacks. A callback that comes several times in a cycle may lose messages or a timer's calls.",
                Ms(room_ns(here, scope.cycle_ns))
            )
        }
        (true, false) => {
            ": these callbacks run at the chain's priority and at any time, because none of them may wait for a slot."
                .into()
        }
        (false, _) => ": these callbacks get the same CPU, priority and slots as the other callbacks of that \
                       server."
            .into(),
    };
    Some(which + &how)
}

fn pools(scope: &Scope<'_>, server: &Server) -> Option<String> {
    let groups: BTreeSet<Group<'_>> = callbacks(scope, server)
        .map(|c| scope.executors.of(c))
        .collect();
    let threads = |group: &Group<'_>| scope.executors.threads(*group);
    let pools: Vec<usize> = groups.iter().map(threads).filter(|&n| n > 1).collect();
    if pools.is_empty() {
        return None;
    }
    Some(format!(
        "All {} threads of {} belong to server {}, because each thread may run any callback of its executor. On \
         CPU {}, only one of these threads runs at a time.",
        pools.iter().sum::<usize>(),
        count(pools.len(), "executor"),
        server.name,
        server.cpu
    ))
}

fn callbacks<'m>(scope: &Scope<'m>, server: &Server) -> impl Iterator<Item = &'m Callback> {
    let ids: BTreeSet<String> = server.callbacks.iter().cloned().collect();
    let all = scope.model.callbacks.iter();
    all.filter(move |c| ids.contains(&c.id))
}
