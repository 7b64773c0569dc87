//! Applies each rule of a requirements file to each part of the model that it names.

use crate::figures::{callbacks, is_named, Chosen, FoundChains, Measured, Selection};
use crate::judge::{plain, Bar, Finding, Outcome, Verdict};
use crate::limit::{Limit, Rate, Time, Unit};
use crate::requirements::{CallbackRule, ChainRule, CpuRule, Requirements, Structure, ThreadRule};
use crate::requirements::{Times, TopicRule};
use onbeat_document::cuts;
use onbeat_document::schema::{Callback, CallbackFigures, CallbackType, ChainFigures, EdgeFigures};
use onbeat_document::schema::{EndToEnd, EndToEndFigures};
use onbeat_document::text::{percent, shorten, visible};
use onbeat_document::Dist;
use onbeat_document::Model;
use std::collections::{BTreeMap, BTreeSet};

const MIN_RECORDING_FOR_LOAD_NS: u64 = 10_000_000_000;
const MIN_INTERVALS_FOR_RATE: u64 = 30;

/// Checks a model against requirements. Each requirement gives one finding per chain, callback,
/// topic or CPU that it names. If the model has none of these, the requirement gives one finding,
/// *not known*.
pub fn check(model: &Model, requirements: &Requirements) -> Vec<Finding> {
    check_selected(model, requirements, &Selection::of(model, requirements))
}

/// Does the same as [`check`], with the chains in `selected`. The caller must have found these
/// chains with the same requirements, in `model` or in a model with the same chains and other
/// figures.
pub fn check_selected(
    model: &Model,
    requirements: &Requirements,
    selected: &Selection,
) -> Vec<Finding> {
    let bar = Bar {
        confidence: requirements.confidence(),
        miss: requirements.miss(),
    };
    let mut checker = Checker {
        model,
        bar,
        mode: requirements.mode.as_deref(),
        findings: Vec::new(),
    };
    for (i, rule) in requirements.chains.iter().enumerate() {
        checker.chain_rule(&format!("chains[{i}]"), rule, selected.chains(model, i));
    }
    for (i, rule) in requirements.callbacks.iter().enumerate() {
        checker.callback_rule(&format!("callbacks[{i}]"), rule);
    }
    for (i, rule) in requirements.topics.iter().enumerate() {
        checker.topic_rule(&format!("topics[{i}]"), rule);
    }
    for (i, rule) in requirements.cpus.iter().enumerate() {
        checker.cpu_rule(&format!("cpus[{i}]"), rule);
    }
    checker.structure(&requirements.structure);
    checker.findings
}

struct Checker<'m> {
    model: &'m Model,
    bar: Bar,
    mode: Option<&'m str>,
    findings: Vec<Finding>,
}

impl<'m> Checker<'m> {
    fn add(&mut self, place: String, about: &Chosen, limit: String, outcome: Outcome) {
        self.findings.push(Finding {
            requirement: place,
            subject: about.title.clone(),
            id: about.id.clone(),
            limit,
            measured: outcome.measured,
            verdict: outcome.verdict,
            why: outcome.why,
            late_above_ns: None,
            late: None,
            losses_at: Vec::new(),
            lost: None,
        });
    }

    fn absent(&mut self, place: &str, name: &str, why: String) {
        let about = Chosen {
            title: name.into(),
            id: String::new(),
        };
        self.add(place.into(), &about, String::new(), Outcome::not_known(why));
    }

    fn times(&mut self, place: &str, about: &Chosen, figure: &str, dist: &Dist, limits: &Times) {
        for (of, limit) in limits {
            let said = match of {
                crate::limit::Statistic::Min => limit.of_smallest(),
                _ => *limit,
            };
            let outcome = self.bar.times(dist, *of, limit);
            self.add(
                format!("{place}.{figure}.{of}"),
                about,
                said.to_string(),
                outcome,
            );
        }
    }

    fn chain_rule(&mut self, place: &str, rule: &ChainRule, found: FoundChains<'_>) {
        let found = match found {
            Ok(found) => found,
            Err(why) => return self.absent(place, &why.0, why.1),
        };
        for (about, chain) in found {
            let chain = match chain {
                Measured::Chain(chain) => chain,
                Measured::AllPaths(pair) => {
                    self.all_paths(place, &about, pair, rule);
                    continue;
                }
                Measured::Nothing => {
                    let why = "the latency of this part of a chain was not measured. Make the model with the same ends (`onbeat model --from --to`)";
                    self.add(place.into(), &about, String::new(), Outcome::not_known(why));
                    continue;
                }
            };
            let figures = self
                .model
                .figures_of(self.mode, &chain.figures, &chain.modes);
            let none = ChainFigures::default();
            let f = figures.unwrap_or(&none);
            self.latency(place, &about, &f.latency_ns, &rule.latency);
            self.times(place, &about, "age", f.data_age_ns(), &rule.age);
            self.times(place, &about, "reaction", &f.reaction_ns, &rule.reaction);
            if let Some(limit) = &rule.jitter {
                let outcome = self.bar.spread(f.jitter_ns, f.latency_ns.count(), limit);
                self.add(
                    format!("{place}.jitter"),
                    &about,
                    limit.to_string(),
                    outcome,
                );
            }
            if let Some(limit) = &rule.loss {
                let outcome = self.bar.share(f.lost, f.lost + f.executions, limit);
                self.add(format!("{place}.loss"), &about, limit.to_string(), outcome);
                let takers = chain.callbacks.iter().skip(1).cloned();
                self.note_losses(chain.topics.iter().cloned().zip(takers).collect());
            }
            if let Some(limit) = &rule.logical {
                let first = self.callback(&chain.callbacks[0]);
                let outcome = self.logical(first.and_then(|c| c.period_ns), &f.latency_ns, limit);
                let said = format!("latency {limit} from the nearest multiple of the period");
                self.add(format!("{place}.let"), &about, said, outcome);
            }
        }
    }

    fn note_losses(&mut self, at: Vec<(String, String)>) {
        if let Some(finding) = self.findings.last_mut() {
            finding.losses_at = at;
        }
    }

    fn latency(&mut self, place: &str, about: &Chosen, dist: &Dist, limits: &Times) {
        let from = self.findings.len();
        self.times(place, about, "latency", dist, limits);
        for (finding, (_, limit)) in self.findings[from..].iter_mut().zip(limits) {
            // A limit in ns fits, and a fraction of one does not matter.
            finding.late_above_ns = limit.most.map(|most| most as u64);
        }
    }

    fn all_paths(&mut self, place: &str, about: &Chosen, pair: &EndToEnd, rule: &ChainRule) {
        let figures = self.model.figures_of(self.mode, &pair.figures, &pair.modes);
        let none = EndToEndFigures::default();
        let f = figures.unwrap_or(&none);
        self.times(place, about, "latency", &f.latency_ns, &rule.latency);
        self.times(place, about, "age", f.data_age_ns(), &rule.age);
        self.times(place, about, "reaction", &f.reaction_ns, &rule.reaction);
        let others = [
            ("jitter", rule.jitter.as_ref().map(Limit::to_string)),
            ("loss", rule.loss.as_ref().map(Limit::to_string)),
            ("let", rule.logical.as_ref().map(Limit::to_string)),
        ];
        for (name, said) in others {
            if let Some(said) = said {
                let why = "the model has this figure for single paths only, not for all paths between two ends. Name a chain by its id";
                let place = format!("{place}.{name}");
                self.add(place, about, said, Outcome::not_known(why));
            }
        }
    }

    fn callback(&self, id: &str) -> Option<&'m Callback> {
        self.model.callbacks.iter().find(|c| c.id == id)
    }

    fn logical(&self, period_ns: Option<u64>, latency: &Dist, limit: &Limit<Time>) -> Outcome {
        match period_ns {
            Some(period_ns) if period_ns > 0 && latency.count() > 0 => {
                self.bar.logical(latency, period_ns, limit)
            }
            Some(_) => Outcome::not_known("no execution of the chain was recorded"),
            None => Outcome::not_known("the first callback of the chain has no steady period"),
        }
    }

    fn callback_rule(&mut self, place: &str, rule: &CallbackRule) {
        let found = callbacks(self.model, rule);
        if found.is_empty() {
            let name = rule.callback.as_ref().or(rule.node.as_ref());
            let name = name.cloned().unwrap_or_default();
            let why = if rule.callback.is_some() {
                "the model has no callback with this id"
            } else {
                "the model has no callback of this node"
            };
            return self.absent(place, &name, why.into());
        }
        for callback in found {
            let about = Chosen::of(callback);
            let figures = self
                .model
                .figures_of(self.mode, &callback.figures, &callback.modes);
            let none = CallbackFigures::default();
            let f = figures.unwrap_or(&none);
            for (name, dist, limits) in [
                ("execution", &f.exec_ns, &rule.execution),
                ("response", &f.response_ns, &rule.response),
                ("period", &f.interarrival_ns, &rule.period),
                ("preempted", &f.preempted_ns, &rule.preempted),
                ("blocked", &f.blocked_ns, &rule.blocked),
            ] {
                self.times(place, &about, name, dist, limits);
            }
            if let Some(limit) = &rule.load {
                let outcome = match f.is_untimed() {
                    true => untimed(),
                    false => load((f.load, f.load), f.observed_ns, limit),
                };
                self.add(format!("{place}.load"), &about, limit.to_string(), outcome);
            }
            if let Some(threads) = &rule.threads {
                self.threads(&format!("{place}.threads"), &about, callback, threads);
            }
        }
    }

    fn threads(&mut self, place: &str, about: &Chosen, callback: &Callback, rule: &ThreadRule) {
        let threads = &callback.threads;
        let mut add = |name: &str, limit: String, said: BTreeSet<String>, is_kept: bool| {
            let outcome = match (threads.is_empty(), is_kept) {
                (true, _) => Outcome::not_known("the model has no thread that ran the callback"),
                (false, kept) => Outcome {
                    verdict: if kept {
                        Verdict::Passed
                    } else {
                        Verdict::Violated
                    },
                    measured: said.into_iter().collect::<Vec<_>>().join(", "),
                    why: String::new(),
                },
            };
            self.add(format!("{place}.{name}"), about, limit, outcome);
        };
        if let Some(policy) = &rule.policy {
            let said = threads.iter().map(|t| t.policy.clone()).collect();
            let is_kept = threads.iter().all(|t| t.policy == *policy);
            add("policy", policy.clone(), said, is_kept);
        }
        if let Some(limit) = &rule.priority {
            // The kernel counts real-time priorities downwards from 99; normal priorities begin at
            // 100.
            let priority = |p: u8| 99u8.saturating_sub(p);
            let said = threads
                .iter()
                .map(|t| priority(t.priority).to_string())
                .collect();
            let is_kept = threads
                .iter()
                .all(|t| limit.holds(f64::from(priority(t.priority))));
            add("priority", limit.to_string(), said, is_kept);
        }
        if let Some(cpus) = &rule.cpus {
            let seen: BTreeSet<u16> = threads.iter().flat_map(|t| t.cpus.clone()).collect();
            let is_kept = seen.iter().all(|cpu| cpus.contains(cpu));
            let text = |cpus: Vec<String>| format!("CPU {}", cpus.join(", "));
            let limit = text(cpus.iter().map(u16::to_string).collect());
            let said = BTreeSet::from([text(seen.iter().map(u16::to_string).collect())]);
            add("cpus", limit, said, is_kept);
        }
    }

    fn topic_rule(&mut self, place: &str, rule: &TopicRule) {
        let is_to = |id: &str| match &rule.to {
            None => true,
            Some(node) => self.callback(id).is_some_and(|c| is_named(&c.node, node)),
        };
        let edges = self.model.edges.iter().filter(|e| e.topic == rule.topic);
        // The synchroniser's inputs come from callbacks of its own node, where their messages were
        // already counted.
        let is_taken = |id: &str| {
            self.callback(id)
                .is_none_or(|c| c.kind != CallbackType::Sync)
        };
        let edges: Vec<_> = edges.filter(|e| is_to(&e.to) && is_taken(&e.to)).collect();
        if edges.is_empty() {
            let why = "the model has no callback that takes messages of this topic from a publisher in the recording";
            return self.absent(place, &rule.topic, why.into());
        }
        let mut losses_at: Vec<(String, String)> = Vec::new();
        let mut all = EdgeFigures::default();
        let mut readers: BTreeSet<&str> = BTreeSet::new();
        for edge in edges {
            let Some(f) = self.model.figures_of(self.mode, &edge.figures, &edge.modes) else {
                continue;
            };
            all.latency_ns.merge(&f.latency_ns);
            all.waiting_ns.merge(&f.waiting_ns);
            all.taken += f.taken;
            all.lost += f.lost;
            all.overwritten += f.overwritten;
            all.published += f.published;
            readers.insert(&edge.to);
            losses_at.push((edge.topic.clone(), edge.to.clone()));
        }
        losses_at.sort();
        losses_at.dedup();
        let about = Chosen {
            title: match &rule.to {
                Some(node) => format!("{} to {node}", rule.topic),
                None => rule.topic.clone(),
            },
            id: rule.topic.clone(),
        };
        let readers: Vec<_> = readers.iter().filter_map(|id| self.callback(id)).collect();
        for reader in readers {
            let Some(limit) = &rule.rate else { break };
            let outcome = self.rate(reader, limit);
            let about = Chosen {
                title: format!("{} at {}", rule.topic, reader.id),
                id: reader.id.clone(),
            };
            self.add(format!("{place}.rate"), &about, limit.to_string(), outcome);
        }
        self.times(place, &about, "latency", &all.latency_ns, &rule.latency);
        self.times(place, &about, "waiting", &all.waiting_ns, &rule.waiting);
        for (name, hits, limit) in [
            ("loss", all.lost, &rule.loss),
            ("overwritten", all.overwritten, &rule.overwritten),
        ] {
            if let Some(limit) = limit {
                let outcome = self.bar.share(hits, all.published, limit);
                self.add(
                    format!("{place}.{name}"),
                    &about,
                    limit.to_string(),
                    outcome,
                );
                self.note_losses(losses_at.clone());
            }
        }
    }

    fn rate(&self, reader: &Callback, limit: &Limit<Rate>) -> Outcome {
        let figures = self
            .model
            .figures_of(self.mode, &reader.figures, &reader.modes);
        let between = figures.map(|f| &f.interarrival_ns);
        let count = between.map_or(0, Dist::count);
        match between.filter(|d| d.count() >= MIN_INTERVALS_FOR_RATE && d.sum() > 0) {
            Some(between) => plain(1e9 / between.mean(), limit),
            None => Outcome::not_known(format!(
                "only {count} intervals between messages were recorded, but a rate needs {MIN_INTERVALS_FOR_RATE}. Record longer"
            )),
        }
    }

    fn cpu_rule(&mut self, place: &str, rule: &CpuRule) {
        let (mut least, mut most, mut observed) = (0.0, 0.0, 0);
        let mut is_known = true;
        for callback in &self.model.callbacks {
            let f = self
                .model
                .figures_of(self.mode, &callback.figures, &callback.modes);
            let Some(f) = f else { continue };
            let cpus: BTreeSet<u16> = callback
                .threads
                .iter()
                .flat_map(|t| t.cpus.clone())
                .collect();
            if !cpus.contains(&rule.cpu) {
                continue;
            }
            is_known &= !f.is_untimed();
            observed = observed.max(f.observed_ns);
            most += f.load;
            if cpus.len() == 1 {
                least += f.load;
            }
        }
        let about = Chosen {
            title: format!("CPU {}", rule.cpu),
            id: String::new(),
        };
        let outcome = match is_known {
            true => load((least, most), observed, &rule.load),
            false => untimed(),
        };
        self.add(
            format!("{place}.load"),
            &about,
            rule.load.to_string(),
            outcome,
        );
    }

    fn structure(&mut self, structure: &Structure) {
        for (kind, paths, is_wanted) in [
            ("paths", &structure.paths, true),
            ("no_paths", &structure.no_paths, false),
        ] {
            for (i, path) in paths.iter().enumerate() {
                let about = Chosen {
                    title: path.join(" -> "),
                    id: String::new(),
                };
                let limit = if is_wanted {
                    "at least one chain contains this path"
                } else {
                    "no chain contains this path"
                };
                let outcome = self.path(path, is_wanted);
                self.add(
                    format!("structure.{kind}[{i}]"),
                    &about,
                    limit.into(),
                    outcome,
                );
            }
        }
        let takes = |c: &Callback, topic: &str| c.input == topic;
        let publishes = |c: &Callback, topic: &str| c.outputs.iter().any(|o| o == topic);
        self.nodes("readers", &structure.readers, takes);
        self.nodes("writers", &structure.writers, publishes);
    }

    fn path(&self, path: &[String], is_wanted: bool) -> Outcome {
        let of = |verdict, measured: String, why| Outcome {
            verdict,
            measured,
            why,
        };
        match cuts::passing(self.model, path) {
            Ok(found) => {
                let measured = match found.len() {
                    0 => "no chain".into(),
                    1 => "1 chain".into(),
                    n => format!("{n} chains"),
                };
                let verdict = match found.is_empty() != is_wanted {
                    true => Verdict::Passed,
                    false => Verdict::Violated,
                };
                of(verdict, measured, self.losses(verdict))
            }
            // A name that is on no chain at all cannot be on a chain of this kind.
            Err(cuts::CutError::Unknown { asked, .. }) => {
                let verdict = if is_wanted {
                    Verdict::Violated
                } else {
                    Verdict::Passed
                };
                of(
                    verdict,
                    format!("no chain passes '{}'", shorten(&visible(&asked), 60)),
                    self.losses(verdict),
                )
            }
            Err(error) => Outcome::not_known(error.to_string()),
        }
    }

    /// Returns a note if events were lost and the verdict is *violated*: a part of the model may be
    /// missing because of the lost events.
    fn losses(&self, verdict: Verdict) -> String {
        let lost: u64 = self.model.runs.iter().flat_map(|r| r.lost.values()).sum();
        match lost > 0 && verdict == Verdict::Violated {
            true => format!(
                "{lost} events of the recordings were lost, so a part of the model may be missing"
            ),
            false => String::new(),
        }
    }

    fn nodes(
        &mut self,
        kind: &str,
        rules: &BTreeMap<String, Vec<String>>,
        uses: impl Fn(&Callback, &str) -> bool,
    ) {
        for (topic, allowed) in rules {
            let callbacks = self.model.callbacks.iter();
            let nodes: BTreeSet<&str> = callbacks
                .filter(|c| uses(c, topic))
                .map(|c| c.node.as_str())
                .collect();
            let is_allowed = |node: &&&str| allowed.iter().any(|a| is_named(node, a));
            let others: Vec<&str> = nodes.iter().filter(|n| !is_allowed(n)).copied().collect();
            let about = Chosen {
                title: topic.clone(),
                id: topic.clone(),
            };
            let measured = nodes.iter().copied().collect::<Vec<_>>().join(", ");
            let outcome = match (nodes.is_empty() && !allowed.is_empty(), others.is_empty()) {
                (true, _) => Outcome::not_known("the model has no node that uses the topic"),
                (false, true) => Outcome {
                    verdict: Verdict::Passed,
                    measured,
                    why: String::new(),
                },
                (false, false) => Outcome {
                    verdict: Verdict::Violated,
                    measured,
                    why: format!("also {}", others.join(", ")),
                },
            };
            let limit = format!("only {}", allowed.join(", "));
            self.add(format!("structure.{kind}.{topic}"), &about, limit, outcome);
        }
    }
}

fn untimed() -> Outcome {
    Outcome::not_known(
        "the load is unknown, because executions have no execution time; onbeat show says why. Record their context switches",
    )
}

fn load<U: Unit>((least, most): (f64, f64), observed_ns: u64, limit: &Limit<U>) -> Outcome {
    let measured = match most - least > 1e-9 {
        true => format!("{} to {}", percent(least), percent(most)),
        false => percent(most),
    };
    let (verdict, why) = match (limit.holds(least), limit.holds(most)) {
        _ if observed_ns < MIN_RECORDING_FOR_LOAD_NS => {
            let seconds = observed_ns as f64 / 1e9;
            (
                Verdict::NotKnown,
                format!("only {seconds:.1} s were recorded, but a load needs at least 10 s. Record longer"),
            )
        }
        (true, true) => (Verdict::Passed, String::new()),
        (false, false) => (Verdict::Violated, String::new()),
        _ => (
            Verdict::NotKnown,
            "some callbacks ran on other CPUs too, so the load of this CPU is known only as a range".into(),
        ),
    };
    Outcome {
        verdict,
        measured,
        why,
    }
}
