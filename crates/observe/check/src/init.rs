//! Writes a requirements file from a model: today's figures with a margin, for the user to edit.

use crate::limit::{Limit, Rate, Share, Statistic};
use crate::requirements::{CallbackRule, ChainRule, Requirements, Structure, TopicRule};
use onbeat_document::schema::{Callback, CallbackType};
use onbeat_document::titles::titles;
use onbeat_document::Dist;
use onbeat_document::Model;
use onbeat_stats::enough;
use std::collections::{BTreeMap, BTreeSet};

const HEAD: &str = "\
# Requirements for `onbeat check` (docs/requirements-format.md), made from a model: its
# figures with a margin. Delete rules that the system need not satisfy, and set its real limits.
";

/// The figures for which a new requirements file sets limits.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limits {
    All,
    /// Only medians. Medians differ least from run to run, so they suit the comparison of two
    /// builds.
    Medians,
}

/// Returns the text of a requirements file that this model satisfies. `margin` is the share by
/// which figures may exceed the measured ones, such as 0.2 for a fifth. Only quantiles for which
/// the model has enough executions get limits.
///
/// # Errors
///
/// Returns the message of the YAML writer, on one line.
pub fn write(model: &Model, margin: f64, which: Limits) -> Result<String, String> {
    let names = titles(model);
    let bar = Requirements::default();
    let times = |dist: &Dist| {
        let mut limits = BTreeMap::new();
        let mut add = |of: Statistic, value: u64| {
            // The first nanosecond would exceed a limit of 0, so the smallest limit is 1.
            let most = (value.max(1) as f64) * (1.0 + margin);
            limits.insert(of, Limit::at_most(rounded(most, 1)));
        };
        let quantiles: &[f64] = match which {
            Limits::All => &[0.5, 0.95, 0.99, 0.999],
            Limits::Medians => &[0.5],
        };
        for &q in quantiles {
            if dist.count() >= enough(1.0 - q, bar.confidence()) {
                add(Statistic::Quantile(q), dist.quantile(q));
            }
        }
        let many = dist.count() >= enough(bar.miss(), bar.confidence());
        if many && which == Limits::All {
            add(Statistic::Max, dist.max());
        }
        limits
    };
    let loss = |lost: u64, all: u64| {
        let limit = match lost {
            0 if all >= enough(bar.miss(), bar.confidence()) => Limit::<Share>::at_most(0.0),
            0 => return None,
            _ => {
                let most = onbeat_stats::share_at_most(lost, all, bar.confidence());
                Limit::at_most(rounded(most * (1.0 + margin), 1).min(1.0))
            }
        };
        Some(limit)
    };
    let mut wanted = Requirements::default();
    for chain in &model.chains {
        let f = &chain.figures;
        let rule = ChainRule {
            chain: Some(chain.id.clone()),
            latency: times(&f.latency_ns),
            loss: loss(f.lost, f.lost + f.executions),
            ..ChainRule::default()
        };
        // A rule without any limit would be refused as a mistake.
        if !rule.latency.is_empty() || rule.loss.is_some() {
            wanted.chains.push(rule);
        }
        wanted.structure.paths.push(chain.callbacks.clone());
    }
    for callback in &model.callbacks {
        let rule = CallbackRule {
            callback: Some(callback.id.clone()),
            execution: times(&callback.figures.exec_ns),
            ..CallbackRule::default()
        };
        if !rule.execution.is_empty() {
            wanted.callbacks.push(rule);
        }
    }
    for (topic, rate) in rates(model) {
        let (least, most) = (
            rounded(rate / (1.0 + margin), -1),
            rounded(rate * (1.0 + margin), 1),
        );
        wanted.topics.push(TopicRule {
            topic: topic.into(),
            rate: Some(Limit::<Rate>::between(Some(least), Some(most))),
            ..TopicRule::default()
        });
    }
    endpoints(model, &mut wanted.structure);
    let yaml = onbeat_yaml::write(&wanted)?;
    Ok(format!("{HEAD}{}", with_titles(&yaml, model, &names)))
}

/// Requires that no node takes or publishes a topic unless it does so in the model. Only topics
/// whose publisher was recorded get this rule.
fn endpoints(model: &Model, structure: &mut Structure) {
    let is_topic = |c: &&Callback| c.kind == CallbackType::Subscription && !c.input.is_empty();
    let takers = model.callbacks.iter().filter(is_topic);
    let mut readers: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for c in takers {
        readers.entry(&c.input).or_default().insert(&c.node);
    }
    for (topic, nodes) in readers {
        let publishes = |c: &&Callback| c.outputs.iter().any(|o| o == topic);
        let writers = model.callbacks.iter().filter(publishes);
        let writers: BTreeSet<&str> = writers.map(|c| c.node.as_str()).collect();
        if writers.is_empty() {
            continue;
        }
        let names = |nodes: BTreeSet<&str>| nodes.into_iter().map(String::from).collect();
        structure.readers.insert(topic.into(), names(nodes));
        structure.writers.insert(topic.into(), names(writers));
    }
}

fn rates(model: &Model) -> BTreeMap<&str, f64> {
    let mut by_topic: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for callback in model
        .callbacks
        .iter()
        .filter(|c| c.kind == CallbackType::Subscription)
    {
        let between = &callback.figures.interarrival_ns;
        let is_read = model
            .edges
            .iter()
            .any(|e| e.to == callback.id && e.topic == callback.input);
        if is_read && between.count() >= 30 && between.sum() > 0 {
            let rates = by_topic.entry(&callback.input).or_default();
            rates.push(1e9 / between.mean());
        }
    }
    let alike = |rates: &[f64]| rates.iter().all(|r| (r / rates[0] - 1.0).abs() < 0.05);
    let same = by_topic.into_iter().filter(|(_, rates)| alike(rates));
    same.map(|(topic, rates)| (topic, rates[0])).collect()
}

/// Rounds a value to three significant digits: up if `towards` is 1, down if it is -1.
fn rounded(value: f64, towards: i32) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return value;
    }
    let digit = 10f64.powi(value.log10().floor() as i32 - 2);
    match towards > 0 {
        true => (value / digit - 1e-9).ceil() * digit,
        false => (value / digit + 1e-9).floor() * digit,
    }
}

fn with_titles(yaml: &str, model: &Model, names: &[String]) -> String {
    let mut out = String::with_capacity(yaml.len());
    for line in yaml.lines() {
        out += line;
        let named = model.chains.iter().zip(names).find(|(c, _)| {
            line.trim_start().starts_with("- chain:") && line.trim_end().ends_with(c.id.as_str())
        });
        if let Some((_, name)) = named {
            out += &format!("  # {}", onbeat_document::text::visible(name));
        }
        out.push('\n');
    }
    out
}
