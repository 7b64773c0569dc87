//! The architecture file of CARET (YAML), so that its plots can be used on a system that was
//! recorded with onbeat.
//!
//! CARET knows timer and subscription callbacks: services, clients and chains through them are
//! left out, and the file says so. It asks for executors and callback groups, which no probe
//! shows: each node gets one of its own, to be edited where that is not so.

use crate::schema::{Callback, CallbackType, Chain, Model};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// CARET's word for what is not known.
const UNDEFINED: &str = "UNDEFINED";

/// A double-quoted YAML scalar.
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
            // Letters of other scripts stand as they are; what YAML does not call printable, and
            // what turns the direction of writing, is written as a number.
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

/// The architecture file.
pub fn caret(model: &Model) -> String {
    let mut nodes: BTreeMap<&str, Vec<&Callback>> = BTreeMap::new();
    for c in &model.callbacks {
        nodes.entry(&c.node).or_default().push(c);
    }
    let left_out = model
        .callbacks
        .iter()
        .filter(|c| matches!(c.kind, CallbackType::Service | CallbackType::Client));
    let mut out = format!(
        "# Made by onbeat. Executors and callback groups are assumed: one per node.\n\
         # Left out, since CARET has no words for them: {} service and client callbacks.\n",
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

/// Chains as paths from node to node.
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
        let _ = writeln!(out, "  - path_name: {}\n    node_chain:", quoted(&chain.id));
        // Callbacks of one node that follow one another (into a synchroniser) are one step.
        let mut steps: Vec<(&str, Option<&str>, Option<&str>)> = Vec::new();
        for (i, id) in chain.callbacks.iter().enumerate() {
            let Some(c) = find(id) else { continue };
            let publishes = chain.topics.get(i).map(String::as_str);
            match steps.last_mut() {
                Some(last) if last.0 == c.node => last.2 = publishes,
                _ => {
                    let takes = i.checked_sub(1).and_then(|i| chain.topics.get(i));
                    steps.push((&c.node, takes.map(String::as_str), publishes));
                }
            }
        }
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

/// Opens a list, which in YAML must say so when it is empty.
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

fn write_node(out: &mut String, model: &Model, node: &str, all: &[&Callback]) {
    let callbacks: Vec<&&Callback> = all.iter().filter(|c| is_known(c)).collect();
    let names: Vec<String> = callbacks
        .iter()
        .map(|c| format!("          - {}\n", quoted(&c.id)))
        .collect();
    let _ = writeln!(
        out,
        "  - node_name: {}\n    callback_groups:\n      - callback_group_type: mutually_exclusive\n        \
         callback_group_name: {}",
        quoted(node),
        quoted(&format!("{node}/callback_group_0"))
    );
    if names.is_empty() {
        out.push_str("        callback_names: []\n");
    } else {
        let _ = write!(out, "        callback_names:\n{}", names.concat());
    }

    // CARET tells callbacks apart by type, period or topic, symbol, and then by order.
    let mut seen: BTreeMap<(CallbackType, Option<u64>, &str, &str), usize> = BTreeMap::new();
    let entries: Vec<String> = callbacks
        .iter()
        .map(|c| {
            let symbol = c.symbol.as_deref().unwrap_or(UNDEFINED);
            let timer = c.kind == CallbackType::Timer;
            let period = c.period_ns.filter(|_| timer);
            let order = seen.entry((c.kind, period, &c.input, symbol)).or_insert(0);
            let (kind, what) = if timer {
                ("timer_callback", format!("period_ns: {}", period.unwrap_or(0)))
            } else {
                ("subscription_callback", format!("topic_name: {}", quoted(&c.input)))
            };
            let entry = format!(
                "      - callback_name: {}\n        callback_type: {kind}\n        symbol: {}\n        \
                 {what}\n        construction_order: {order}\n",
                quoted(&c.id),
                quoted(symbol)
            );
            *order += 1;
            entry
        })
        .collect();
    list(out, "callbacks", &entries);

    let id_of = |id: &str| callbacks.iter().find(|c| c.id == id);
    let passings: Vec<String> = model
        .edges
        .iter()
        .filter(|e| e.assumed && id_of(&e.from).is_some() && id_of(&e.to).is_some())
        .map(|e| {
            format!(
                "      - callback_name_write: {}\n        callback_name_read: {}\n",
                quoted(&e.from),
                quoted(&e.to)
            )
        })
        .collect();
    list(out, "variable_passings", &passings);

    // What a synchroniser publishes is published by the callbacks that feed it.
    let mut publishers: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut contexts: BTreeSet<(&str, &str, &str)> = BTreeSet::new();
    for c in all {
        for topic in c.outputs.iter().map(String::as_str) {
            let feeding: Vec<&str> = if c.kind == CallbackType::Sync {
                let inputs = model.junctions.iter().filter(|j| j.callback == c.id);
                inputs
                    .flat_map(|j| j.inputs.iter().map(String::as_str))
                    .collect()
            } else {
                vec![c.id.as_str()]
            };
            for callback in feeding.iter().filter_map(|id| id_of(id)) {
                publishers.entry(topic).or_default().insert(&callback.id);
                if callback.kind == CallbackType::Subscription {
                    let kind = if c.kind == CallbackType::Sync {
                        "use_latest_message"
                    } else {
                        "callback_chain"
                    };
                    // A pair has one context; the synchroniser's is the truer one.
                    let pair = |k| (callback.input.as_str(), topic, k);
                    if kind == "use_latest_message" {
                        contexts.remove(&pair("callback_chain"));
                        contexts.insert(pair(kind));
                    } else if !contexts.contains(&pair("use_latest_message")) {
                        contexts.insert(pair(kind));
                    }
                }
            }
        }
    }
    let entries: Vec<String> = publishers
        .iter()
        .map(|(topic, ids)| {
            let ids: String = ids
                .iter()
                .map(|id| format!("          - {}\n", quoted(id)))
                .collect();
            format!(
                "      - topic_name: {}\n        callback_names:\n{ids}",
                quoted(topic)
            )
        })
        .collect();
    list(out, "publishes", &entries);
    let entries: Vec<String> = callbacks
        .iter()
        .filter(|c| c.kind == CallbackType::Subscription)
        .map(|c| {
            format!(
                "      - topic_name: {}\n        callback_name: {}\n",
                quoted(&c.input),
                quoted(&c.id)
            )
        })
        .collect();
    list(out, "subscribes", &entries);
    let entries: Vec<String> = contexts
        .iter()
        .map(|(takes, publishes, kind)| {
            format!(
                "      - context_type: {kind}\n        subscription_topic_name: {}\n        \
                 publisher_topic_name: {}\n",
                quoted(takes),
                quoted(publishes)
            )
        })
        .collect();
    list(out, "message_contexts", &entries);
}
