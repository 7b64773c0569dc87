//! Exports a CARET architecture file (YAML), so that CARET can plot a system recorded with onbeat.
//!
//! CARET supports timer and subscription callbacks. The export leaves out services, clients, tasks,
//! threads, and chains through them, and the file lists the omissions. CARET also requires
//! executors and callback groups, which no probe shows. Each node gets one of its own, for the user
//! to correct.

use onbeat_document::schema::{Callback, CallbackType, Chain, Edge, Model};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

const UNDEFINED: &str = "UNDEFINED";

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            ' '..='~' => out.push(c),
            // Letters of other scripts are kept. Characters that YAML does not call printable, or
            // that turn the direction of writing, are written as numbers.
            c if c.is_alphanumeric() && (c as u32) < 0xfffe => out.push(c),
            c => {
                let _ = write!(out, "\\U{:08X}", c as u32);
            }
        }
    }
    out.push('"');
    out
}

fn is_known(callback: &Callback) -> bool {
    matches!(
        callback.kind,
        CallbackType::Timer | CallbackType::Subscription
    )
}

/// Returns the model as CARET's architecture file (YAML).
pub fn caret(model: &Model) -> String {
    let mut nodes: BTreeMap<&str, Vec<&Callback>> = BTreeMap::new();
    for c in &model.callbacks {
        nodes.entry(&c.node).or_default().push(c);
    }
    let left_out = model
        .callbacks
        .iter()
        .filter(|c| c.kind != CallbackType::Sync && !is_known(c));
    let mut out = format!(
        "# Made by onbeat. Executors and callback groups are assumed: one per node.\n\
         # Left out, because CARET does not support them: {} service and client callbacks, tasks and threads.\n",
        left_out.count()
    );
    named_paths(&mut out, model);
    out.push_str(if nodes.is_empty() {
        "executors: []\n"
    } else {
        "executors:\n"
    });
    for (i, node) in nodes.keys().enumerate() {
        let _ = writeln!(
            out,
            "  - executor_type: single_threaded_executor\n    executor_name: executor_{i}\n    \
             callback_group_names:\n      - {}",
            quoted(&format!("{node}/callback_group_0"))
        );
    }
    out.push_str(if nodes.is_empty() {
        "nodes: []\n"
    } else {
        "nodes:\n"
    });
    for (node, callbacks) in &nodes {
        write_node(&mut out, model, node, callbacks);
    }
    out
}

fn named_paths(out: &mut String, model: &Model) {
    let find = |id: &str| model.callbacks.iter().find(|c| c.id == id);
    let paths: Vec<&Chain> = model
        .chains
        .iter()
        .filter(|chain| {
            chain
                .callbacks
                .iter()
                .all(|id| find(id).is_some_and(|c| is_known(c) || c.kind == CallbackType::Sync))
        })
        .collect();
    out.push_str(if paths.is_empty() {
        "named_paths: []\n"
    } else {
        "named_paths:\n"
    });
    for chain in paths {
        measured(out, chain);
        let _ = writeln!(out, "  - path_name: {}\n    node_chain:", quoted(&chain.id));
        let steps = steps(model, chain);
        let last = steps.len().saturating_sub(1);
        for (i, (node, takes, publishes)) in steps.iter().enumerate() {
            let publishes = if i == last { None } else { *publishes };
            let _ = writeln!(
                out,
                "      - node_name: {}\n        publish_topic_name: {}\n        subscribe_topic_name: {}",
                quoted(node),
                publishes.map_or(UNDEFINED.into(), quoted),
                takes.map_or(UNDEFINED.into(), quoted)
            );
        }
    }
}

fn measured(out: &mut String, chain: &Chain) {
    let f = &chain.figures;
    let age = f.age_ns.as_ref().unwrap_or(&f.latency_ns);
    let times = [
        ("latency", &f.latency_ns),
        ("data age", age),
        ("reaction time", &f.reaction_ns),
    ];
    let times = times.iter().filter(|(_, dist)| dist.count() > 0);
    let times: Vec<String> = times
        .map(|(name, dist)| {
            let ms = |ns: u64| ns as f64 / 1e6;
            let (median, most) = (ms(dist.quantile(0.5)), ms(dist.max()));
            format!("{name}: median {median:.3} ms, at most {most:.3} ms")
        })
        .collect();
    if !times.is_empty() {
        let _ = writeln!(out, "  # Measured {}", times.join("; "));
    }
}

/// A step of a chain: the node, the topic that it takes, and the topic that it publishes.
type Step<'a> = (&'a str, Option<&'a str>, Option<&'a str>);

/// Returns the nodes of a chain. Consecutive callbacks of one node, for example into a
/// synchroniser, are one step.
fn steps<'a>(model: &'a Model, chain: &'a Chain) -> Vec<Step<'a>> {
    let mut steps: Vec<Step> = Vec::new();
    for (i, id) in chain.callbacks.iter().enumerate() {
        let Some(c) = model.callbacks.iter().find(|c| &c.id == id) else {
            continue;
        };
        let publishes = chain.topics.get(i).map(String::as_str);
        match steps.last_mut() {
            Some(last) if last.0 == c.node => last.2 = publishes,
            _ => {
                let takes = i.checked_sub(1).and_then(|i| chain.topics.get(i));
                steps.push((&c.node, takes.map(String::as_str), publishes));
            }
        }
    }
    steps
}

fn list(out: &mut String, key: &str, entries: &[String]) {
    if entries.is_empty() {
        let _ = writeln!(out, "    {key}: []");
        return;
    }
    let _ = writeln!(out, "    {key}:");
    for entry in entries {
        out.push_str(entry);
    }
}

fn write_node(out: &mut String, model: &Model, name: &str, all: &[&Callback]) {
    let node = Node {
        model,
        all,
        callbacks: all.iter().copied().filter(|c| is_known(c)).collect(),
    };
    let callbacks = node.callbacks.iter();
    let names: String = callbacks
        .map(|c| format!("          - {}\n", quoted(&c.id)))
        .collect();
    let _ = writeln!(
        out,
        "  - node_name: {}\n    callback_groups:\n      - callback_group_type: mutually_exclusive\n        \
         callback_group_name: {}",
        quoted(name),
        quoted(&format!("{name}/callback_group_0"))
    );
    if names.is_empty() {
        out.push_str("        callback_names: []\n");
    } else {
        let _ = write!(out, "        callback_names:\n{names}");
    }
    list(out, "callbacks", &node.entries());
    list(out, "variable_passings", &node.variable_passings());
    let (publishes, contexts) = node.publishes();
    list(out, "publishes", &publishes);
    list(out, "subscribes", &node.subscribes());
    list(out, "message_contexts", &contexts);
}

struct Node<'a> {
    model: &'a Model,
    all: &'a [&'a Callback],
    /// The callbacks of the node that have a type which CARET supports.
    callbacks: Vec<&'a Callback>,
}

impl<'a> Node<'a> {
    fn find(&self, id: &str) -> Option<&'a Callback> {
        self.callbacks.iter().copied().find(|c| c.id == id)
    }

    /// Returns the entries of the node's callbacks for CARET's file. CARET distinguishes callbacks
    /// by type, then by period or topic, symbol and order.
    fn entries(&self) -> Vec<String> {
        let mut alike: BTreeMap<(CallbackType, Option<u64>, &str, &str), usize> = BTreeMap::new();
        let entry = |c: &&'a Callback| {
            let symbol = c.symbol.as_deref().unwrap_or(UNDEFINED);
            let timer = c.kind == CallbackType::Timer;
            let period = c.period_ns.filter(|_| timer);
            let order = alike.entry((c.kind, period, &c.input, symbol)).or_insert(0);
            let (kind, what) = if timer {
                let period = period.unwrap_or(0);
                ("timer_callback", format!("period_ns: {period}"))
            } else {
                let topic = quoted(&c.input);
                ("subscription_callback", format!("topic_name: {topic}"))
            };
            let entry = format!(
                "      - callback_name: {}\n        callback_type: {kind}\n        symbol: {}\n        \
                 {what}\n        construction_order: {order}\n",
                quoted(&c.id),
                quoted(symbol)
            );
            *order += 1;
            entry
        };
        self.callbacks.iter().map(entry).collect()
    }

    fn variable_passings(&self) -> Vec<String> {
        let within = |e: &&Edge| self.find(&e.from).is_some() && self.find(&e.to).is_some();
        let passing = |e: &Edge| {
            format!(
                "      - callback_name_write: {}\n        callback_name_read: {}\n",
                quoted(&e.from),
                quoted(&e.to)
            )
        };
        let linked = self.model.edges.iter().filter(|e| e.assumed.is_some());
        linked.filter(within).map(passing).collect()
    }

    fn subscribes(&self) -> Vec<String> {
        let entry = |c: &&Callback| {
            format!(
                "      - topic_name: {}\n        callback_name: {}\n",
                quoted(&c.input),
                quoted(&c.id)
            )
        };
        let mut subscriptions = self.callbacks.clone();
        subscriptions.retain(|c| c.kind == CallbackType::Subscription);
        subscriptions.iter().map(entry).collect()
    }

    fn publishes(&self) -> (Vec<String>, Vec<String>) {
        let mut publishers: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let mut contexts: BTreeMap<(&str, &str), Context> = BTreeMap::new();
        for c in self.all {
            let (feeding, context) = self.feeding(c);
            for topic in c.outputs.iter().map(String::as_str) {
                for callback in feeding.iter().filter_map(|id| self.find(id)) {
                    publishers.entry(topic).or_default().insert(&callback.id);
                    if callback.kind == CallbackType::Subscription {
                        // A pair has one context. The synchroniser's context takes precedence.
                        let pair = contexts.entry((&callback.input, topic));
                        let known = pair.or_insert(context);
                        *known = context.max(*known);
                    }
                }
            }
        }
        let publishes = publishers.into_iter().map(published).collect();
        let context = |((takes, publishes), context): ((&str, &str), Context)| {
            format!(
                "      - context_type: {}\n        subscription_topic_name: {}\n        \
                 publisher_topic_name: {}\n",
                context.name(),
                quoted(takes),
                quoted(publishes)
            )
        };
        (publishes, contexts.into_iter().map(context).collect())
    }

    /// Returns the ids of the callbacks whose publications count as the output of `c`: `c` itself
    /// or, for a synchroniser, the callbacks of its inputs. The second value says how CARET relates
    /// an input to an output.
    fn feeding(&self, c: &'a Callback) -> (Vec<&'a str>, Context) {
        if c.kind != CallbackType::Sync {
            return (vec![&c.id], Context::Chain);
        }
        let junctions = self.model.junctions.iter().filter(|j| j.callback == c.id);
        let inputs = junctions.flat_map(|j| j.inputs.iter().map(String::as_str));
        (inputs.collect(), Context::Latest)
    }
}

fn published((topic, ids): (&str, BTreeSet<&str>)) -> String {
    let id = |id: &&str| format!("          - {}\n", quoted(id));
    let ids: String = ids.iter().map(id).collect();
    format!(
        "      - topic_name: {}\n        callback_names:\n{ids}",
        quoted(topic)
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Context {
    /// CARET's `callback_chain`: a callback takes a message and then publishes.
    Chain,
    /// CARET's `use_latest_message`: a synchroniser publishes with the latest message of each
    /// input.
    Latest,
}

impl Context {
    fn name(self) -> &'static str {
        match self {
            Context::Chain => "callback_chain",
            Context::Latest => "use_latest_message",
        }
    }
}
