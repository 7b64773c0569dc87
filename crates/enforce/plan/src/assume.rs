//! Writes the assumptions of a plan as sentences for its reader.

mod sharing;

use crate::chains::output;
use crate::request::Request;
use crate::schema::{Hold, Ms, Overshoot, Plan, Promises};
use crate::scope::Scope;
use onbeat_document::cuts;
use onbeat_document::schema::{Callback, Chain, JunctionKind};
use onbeat_document::text::visible;
use std::collections::BTreeSet;

pub(crate) struct Times {
    /// The length of an output's slot in ns, or 0 if no output is held back.
    pub(crate) output_ns: u64,
    pub(crate) let_in_ns: u64,
    pub(crate) input_delay_ns: u64,
    pub(crate) added_ns: u64,
    pub(crate) late_ns: u64,
}

pub(crate) fn sentences(
    scope: &Scope<'_>,
    request: &Request,
    plan: &Plan,
    times: &Times,
) -> Vec<String> {
    let mut lines = measured(scope, &plan.promises);
    lines.extend(scope.chains.iter().filter(|c| c.cut).map(|c| cut(scope, c)));
    lines.extend(redacted(scope));
    lines.extend(joined(scope));
    lines.extend(sharing::sentences(scope, request, plan, times));
    if times.output_ns > 0 {
        lines.extend(held_back(scope, request, times.output_ns));
        if request.outputs.overshoot == Overshoot::Drop && request.outputs.hold == Hold::Republish {
            lines.push(CANNOT_END.into());
        }
    }
    if !plan.inputs.is_empty() {
        lines.push(format!(
            "Inputs come at least once per cycle. They are let in within {} of the cycle's start, and the first \
             callback starts within {} after that. Latency counts from when the input is let in.",
            Ms(times.let_in_ns),
            Ms(times.input_delay_ns)
        ));
    }
    if plan.servers.iter().any(|s| s.cpu == plan.middleware.cpu) {
        lines.push(format!(
            "The model shows no other CPU, so the middleware's threads share CPU {} with servers. The plan assumes \
             that these threads run only briefly. Name another CPU with --middleware-cpu.",
            plan.middleware.cpu
        ));
    }
    lines
}

/// The thesis (end of chapter 4) discards the *execution* that overshoots. The application of the
/// thesis can do so because it cooperates with its scheduler.
const CANNOT_END: &str = "With `drop` a late output is discarded, but its execution runs on to its end. A callback \
    of rclcpp, rclpy or another executor cannot be ended from outside. Only an application that knows its scheduler \
    can end an execution early.";

fn measured(scope: &Scope<'_>, promises: &Promises) -> Vec<String> {
    let executions = scope.latency.count();
    let modes: BTreeSet<String> = scope.model.runs.iter().map(|r| visible(&r.mode)).collect();
    let modes = modes.into_iter().collect::<Vec<_>>().join(", ");
    let runs = format!(
        "{} of mode {}",
        count(scope.model.runs.len(), "run"),
        if modes.is_empty() { "default" } else { &modes },
    );
    let mut lines = vec![match (promises.miss, &promises.left_out) {
        (Some(miss), Some(_)) => format!(
            "The plan assumes that later executions are like the {} measured ones in {runs}, and that the load is the \
             same as in these runs. The measured executions count as {} independent ones, which is an estimate from \
             these runs alone.",
            miss.executions, miss.independent
        ),
        (Some(miss), None) => format!(
            "The plan assumes that later executions are like the {executions} measured ones in {runs}, where each \
             run is a start of the application. The measured executions count as {} independent ones. In m later \
             executions, the longest measured time is exceeded with probability m/({} + m).",
            miss.independent, miss.independent
        ),
        (None, _) => format!(
            "The plan assumes that no execution takes longer than {}. This time is the longest of {executions} \
             executions that were measured in {runs}, under the load of these runs. The probability that one of m \
             later executions takes longer is at least m/({executions} + m).",
            Ms(scope.latency.max()),
        ),
    }];
    let lost: u64 = scope.chains.iter().map(|c| c.figures.lost).sum();
    if lost > 0 {
        lines.push(format!(
            "In addition, {} did not reach the output, because an item was lost. No figure contains these executions.",
            count(lost as usize, "execution")
        ));
    }
    if !scope.has_real_time_priority() {
        lines.push(
            "The chain was measured without real-time priority, so its latencies contain interference that the plan \
             removes. Measure again under `--strategy fifo` for a tighter plan."
                .into(),
        );
    }
    if scope.chains.iter().any(|c| c.assumed) {
        lines.push(
            "The chain contains a link that was stated with --link. No recording shows this link."
                .into(),
        );
    }
    lines
}

fn cut(scope: &Scope<'_>, chain: &Chain) -> String {
    let first = chain.callbacks.first().map_or("", String::as_str);
    let output = output(chain).unwrap_or_default();
    let (before, beyond) = (
        cuts::sources(scope.model, chain),
        cuts::readers(scope.model, chain),
    );
    let mut lines = format!("The chain is cut: it begins with {}", visible(first));
    if !before.is_empty() {
        lines += &format!(" (its data come from {})", listed(&before));
    }
    lines += &format!(" and ends with {}", visible(output));
    if !beyond.is_empty() {
        lines += &format!(" (read by {})", listed(&beyond));
    }
    lines + "; the plan and its promises do not cover the callbacks before and after this part of the chain."
}

fn joined(scope: &Scope<'_>) -> Vec<String> {
    let ours: BTreeSet<&str> = scope
        .chains
        .iter()
        .flat_map(|c| c.callbacks.iter().map(String::as_str))
        .collect();
    let mut lines = Vec::new();
    for junction in &scope.model.junctions {
        let joins = |id: &String| !ours.contains(id.as_str());
        let others: Vec<String> = junction
            .inputs
            .iter()
            .filter(|id| joins(id))
            .map(|i| visible(i))
            .collect();
        if junction.kind == JunctionKind::And
            && ours.contains(junction.callback.as_str())
            && !others.is_empty()
        {
            lines.push(format!(
                "Inputs that join the chain at a synchroniser come in time, as they did when the chain was \
                 measured: {}.",
                others.join(", ")
            ));
        }
    }
    lines
}

fn redacted(scope: &Scope<'_>) -> Option<String> {
    let ours: BTreeSet<&str> = scope
        .chains
        .iter()
        .flat_map(|c| c.callbacks.iter().map(String::as_str))
        .collect();
    let is_part = |c: &&Callback| {
        let f = &c.figures;
        ours.contains(c.id.as_str()) && f.exec_ns.count() == 0 && f.load > 0.0
    };
    let parts: Vec<&Callback> = scope.model.callbacks.iter().filter(is_part).collect();
    let names: Vec<String> = parts.iter().map(|c| visible(&c.id)).collect();
    let load: f64 = parts.iter().map(|c| c.figures.load).sum();
    (!names.is_empty()).then(|| {
        format!(
            "The model is redacted: {} stands for hidden callbacks, which used {:.1} % of a CPU. The plan's CPU \
             shares and its servers leave these callbacks out. The plan's bands are those of the whole chain. To \
             enforce a plan, make it from the whole model.",
            names.join(", "),
            load * 100.0
        )
    })
}

fn held_back(scope: &Scope<'_>, request: &Request, output_ns: u64) -> [String; 2] {
    let whence = match (request.outputs.slot_ns, scope.transport_ns()) {
        (Some(_), _) => "as requested".to_string(),
        (None, None) => "the default, because the time from a publication to the receiver's executor was not \
                         measured"
            .into(),
        (None, Some(measured)) => format!(
            "99 % of the messages between the chain's callbacks reached the receiver's executor within {}; for each \
             output, a slot has this time, but at least 0.5 ms and at most 2 ms",
            Ms(measured.saturating_add(5_000) / 10_000 * 10_000)
        ),
    };
    let slot = format!(
        "A slot of {} is long enough to publish an output ({whence}).",
        Ms(output_ns)
    );
    let mechanism = match request.outputs.hold {
        Hold::Republish => {
            "The nodes that publish the outputs are started with the outputs' topics remapped, so that only the \
             shaper publishes on the topics' own names."
        }
        Hold::PublisherThread => {
            "The middleware publishes asynchronously, from a thread whose name differs from the names of its other \
             threads."
        }
    };
    [slot, mechanism.into()]
}

fn listed(ids: &[&str]) -> String {
    let shown: Vec<String> = ids.iter().take(5).map(|id| visible(id)).collect();
    match ids.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn count(n: usize, word: &str) -> String {
    format!("{n} {word}{}", if n == 1 { "" } else { "s" })
}
