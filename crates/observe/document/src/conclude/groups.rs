//! Finds subscriptions of a node that wait for one another before something is published. The
//! evidence is a synchroniser's calls, or the data flow alone (thesis section 3.5).

use crate::evidence::{few, Evidence, MemberEvidence, PathKey, SyncEvidence};
use crate::schema::{JunctionKind, JunctionState, Matching, Reading};
use crate::stated::StatedJunction;
use std::collections::{BTreeMap, BTreeSet};

const MIN_OUTPUTS: u64 = 5;

/// The number of observations from which on onbeat treats an effect as real and not as chance.
const SEVERAL: u64 = 2;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Group {
    pub(super) id: String,
    pub(super) node: String,
    pub(super) topic: String,
    pub(super) members: BTreeSet<String>,
    pub(super) publishers: BTreeSet<String>,
    /// The reading of the junction without the members that are not certain to belong to the group.
    /// If the kind of this reading is `Or`, the inputs of this reading are the members that publish
    /// on their own inputs.
    pub(super) without_open: Reading,
    pub(super) criterion: Criterion,
    pub(super) state: JunctionState,
    pub(super) matching: Matching,
    /// The number of outputs for which the data do not show which items the junction joined to
    /// produce the output.
    pub(super) chosen: u64,
    pub(super) outputs: u64,
    pub(super) confidence: f64,
}

impl Group {
    pub(super) fn of<'a>(&self, callbacks: &[&'a str]) -> Vec<&'a str> {
        let members = callbacks.iter().filter(|&&c| self.members.contains(c));
        members.copied().collect()
    }

    pub(super) fn joins(&self, callbacks: &[&str]) -> bool {
        self.of(callbacks).len() > 1
    }

    #[cfg(test)]
    pub(super) fn doubt(node: &str, topic: &str, members: &[&str], publishers: &[&str]) -> Group {
        let set = |ids: &[&str]| ids.iter().map(|id| id.to_string()).collect();
        Group {
            id: format!("{node}:sync({topic})"),
            node: node.into(),
            topic: topic.into(),
            members: set(members),
            publishers: set(publishers),
            without_open: Reading {
                kind: JunctionKind::Or,
                inputs: publishers.iter().map(|id| id.to_string()).collect(),
            },
            criterion: Criterion::DataFlow,
            state: JunctionState::Ambiguous,
            matching: Matching::InTurn,
            chosen: 0,
            outputs: 0,
            confidence: 0.5,
        }
    }

    pub(super) fn statement(&self, kind: JunctionKind) -> StatedJunction {
        StatedJunction {
            node: self.node.clone(),
            inputs: Vec::new(),
            topic: self.topic.clone(),
            kind,
            matching: self.matching,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Criterion {
    MessageFilters,
    /// The data show the junction: each output followed a new input of each subscription of the
    /// group.
    DataFlow,
    Stated,
}

impl Criterion {
    pub(super) fn name(self) -> &'static str {
        match self {
            Criterion::MessageFilters => "message_filters",
            Criterion::DataFlow => "data_flow",
            Criterion::Stated => "stated",
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Decisions {
    groups: Vec<Group>,
    doubts: Vec<Group>,
}

pub(super) struct Groups<'a> {
    by_id: BTreeMap<&'a str, &'a Group>,
    by_output: BTreeMap<&'a str, BTreeMap<&'a str, &'a Group>>,
    pub(super) doubts: &'a [Group],
}

impl<'a> Groups<'a> {
    pub(super) fn of(decisions: &'a Decisions) -> Self {
        let groups = &decisions.groups;
        let mut by_output: BTreeMap<&str, BTreeMap<&str, &Group>> = BTreeMap::new();
        for group in groups {
            for publisher in &group.publishers {
                let topics = by_output.entry(publisher).or_default();
                topics.insert(&group.topic, group);
            }
        }
        Groups {
            by_id: groups.iter().map(|g| (g.id.as_str(), g)).collect(),
            by_output,
            doubts: &decisions.doubts,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &'a Group> + '_ {
        self.by_id.values().copied()
    }

    pub(super) fn get(&self, id: &str) -> Option<&'a Group> {
        self.by_id.get(id).copied()
    }

    pub(super) fn through(&self, callback: &str, topic: &str) -> Option<&'a Group> {
        self.by_output.get(callback)?.get(topic).copied()
    }

    /// Reports whether a path exists in only one reading of an ambiguous junction. Such a path
    /// enters a sync vertex from a callback that is not an input of the junction in the other
    /// reading.
    pub(super) fn is_doubtful(&self, path: &PathKey) -> bool {
        path.callbacks.windows(2).any(|pair| {
            let group = self.get(&pair[1]);
            let ambiguous = group.filter(|g| g.state == JunctionState::Ambiguous);
            ambiguous.is_some_and(|g| !g.without_open.inputs.contains(&pair[0]))
        })
    }
}

/// Decides for each sync vertex whether its subscriptions wait for one another before they publish.
pub(super) fn decide(evidence: &Evidence) -> Decisions {
    let stated = evidence.stated_junctions();
    let mut decisions = Decisions::default();
    for (id, sync) in &evidence.syncs {
        match Deciding::new(id, sync).verdict(&stated) {
            Verdict::Joined(group) => decisions.groups.push(group),
            Verdict::Doubt(group) => decisions.doubts.push(group),
            Verdict::Apart => {}
        }
    }
    decisions
}

enum Verdict {
    Joined(Group),
    /// The members of the group possibly wait for one another. It is more likely that they do not,
    /// and that the publishing member reads data that the other members stored.
    Doubt(Group),
    Apart,
}

struct Deciding<'a> {
    id: &'a str,
    evidence: &'a SyncEvidence,
    publishers: BTreeSet<String>,
}

impl<'a> Deciding<'a> {
    fn new(id: &'a str, evidence: &'a SyncEvidence) -> Self {
        let publishers = evidence.members.iter().filter(|(_, m)| m.published > 0);
        Deciding {
            id,
            evidence,
            publishers: publishers.map(|(id, _)| id.clone()).collect(),
        }
    }

    fn verdict(self, stated: &[StatedJunction]) -> Verdict {
        if self.evidence.outputs == 0 {
            return Verdict::Apart;
        }
        let here =
            |s: &&StatedJunction| s.node == self.evidence.node && s.topic == self.evidence.topic;
        let mut stated = stated.iter().filter(here);
        // Contradictory statements decide nothing.
        let group = match (stated.next(), stated.next()) {
            (Some(s), None) if s.kind == JunctionKind::Or => return Verdict::Apart,
            (Some(s), None) => self.by_statement(s),
            _ => None,
        };
        let group = group.or_else(|| self.by_synchroniser());
        group.map_or_else(|| self.by_data_flow(), Verdict::Joined)
    }

    fn by_statement(&self, stated: &StatedJunction) -> Option<Group> {
        let members: BTreeSet<String> = if stated.inputs.is_empty() {
            let stored = self.stored().map(|(id, _)| id.clone());
            stored.chain(self.publishers.iter().cloned()).collect()
        } else {
            let named = |topic: &String| {
                let id = format!("{}:subscription({topic})", stated.node);
                let is_it = |other: &&String| {
                    let rest = other.strip_prefix(&id);
                    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('#'))
                };
                self.evidence.members.keys().find(is_it).cloned()
            };
            stated.inputs.iter().map(named).collect::<Option<_>>()?
        };
        (members.len() >= 2 && self.publishers.is_subset(&members))
            .then(|| self.of(members, Criterion::Stated, JunctionState::Stated))
    }

    fn by_synchroniser(&self) -> Option<Group> {
        let evidence = self.evidence;
        let feeds = |m: &MemberEvidence| m.synchronised > 0 && 2 * m.synchronised >= m.instances;
        let fed: BTreeSet<String> = evidence
            .members
            .iter()
            .filter(|(_, m)| feeds(m))
            .map(|(id, _)| id.clone())
            .collect();
        if self.publishers.is_disjoint(&fed) {
            return None;
        }
        let shared: BTreeSet<String> = fed
            .iter()
            .filter(|m| 2 * evidence.members[*m].shared >= evidence.outputs)
            .cloned()
            .collect();
        // A synchroniser may appear at a different address for each input.
        let members = if shared.len() >= 2 { shared } else { fed };
        (members.len() >= 2 && self.publishers.is_subset(&members))
            .then(|| self.of(members, Criterion::MessageFilters, JunctionState::Decided))
    }

    /// Reports whether a synchroniser of all subscriptions would publish at nearly all of the
    /// observed outputs, and only then.
    fn is_predicted(&self) -> bool {
        let unpredicted = self
            .evidence
            .outputs
            .saturating_sub(self.evidence.predicted);
        unpredicted <= self.few() && self.evidence.missing <= self.few()
    }

    /// Reports whether only a synchroniser explains the outputs. A synchroniser must predict the
    /// outputs, and there must be one of two signs:
    ///
    /// - Several subscriptions publish.
    /// - At least twice, a publishing subscription did not publish when a synchroniser would not
    ///   have published either. This sign does not count for a synchroniser by approximate time,
    ///   because a fast subscription that looks for new inputs of others behaves in the same way.
    fn is_explained(&self) -> bool {
        let holds = self.evidence.held >= SEVERAL && !self.evidence.approximate;
        self.is_predicted() && (self.publishers.len() > 1 || holds)
    }

    fn by_data_flow(&self) -> Verdict {
        let evidence = self.evidence;
        let of = |id: &String| &evidence.members[id];
        if evidence.foreign > 0 || evidence.outputs < MIN_OUTPUTS {
            return Verdict::Apart;
        }
        let explained = self.is_explained();
        let joined = |id: &String| {
            let m = of(id);
            let fresh = self.is_fresh(m) && m.alone <= self.few();
            (fresh || explained) && m.after.is_disjoint(&self.publishers)
        };
        if !self.publishers.iter().all(joined) {
            return Verdict::Apart;
        }
        let stored: BTreeMap<&String, &MemberEvidence> = self.stored().collect();
        let takes_turns = |id: &&String| of(id).published >= SEVERAL + 10 * of(id).alone;
        let in_turn = explained || self.publishers.iter().filter(takes_turns).count() >= 2;
        // If a single publisher held back for another reason than a missing input, the inputs
        // explain nothing.
        let held: u64 = self.publishers.iter().map(|id| of(id).held).sum();
        let held_back = self.publishers.len() == 1 && held > self.few() && !explained;
        if held_back && !self.is_predicted() {
            return Verdict::Apart;
        }
        let with = |joins: &dyn Fn(&MemberEvidence) -> bool| -> BTreeSet<String> {
            let stored = stored.iter().filter(|(_, m)| joins(m)).map(|(id, _)| id);
            let publishers = self.publishers.iter();
            stored.copied().chain(publishers).cloned().collect()
        };
        // By approximate time, no input is missed by itself: each changes when the others publish.
        let all = explained && evidence.nearest;
        let waits = |m: &MemberEvidence| m.awaited >= SEVERAL || all;
        let certain = with(&waits);
        let members = with(&|m| waits(m) || self.one_input_per_output(m));
        let decided = in_turn || certain.len() > self.publishers.len();
        let data_flow = |members: BTreeSet<String>| Group {
            without_open: Reading {
                kind: match decided {
                    true => JunctionKind::And,
                    false => JunctionKind::Or,
                },
                inputs: certain.iter().cloned().collect(),
            },
            ..self.of(members, Criterion::DataFlow, JunctionState::Ambiguous)
        };
        if decided && members == certain && !held_back {
            return Verdict::Joined(self.of(members, Criterion::DataFlow, JunctionState::Decided));
        }
        if members.len() >= 2 && !held_back {
            return Verdict::Joined(data_flow(members));
        }
        match with(&|_| true) {
            all if all.len() >= 2 => Verdict::Doubt(data_flow(all)),
            _ => Verdict::Apart,
        }
    }

    fn stored(&self) -> impl Iterator<Item = (&'a String, &'a MemberEvidence)> + '_ {
        self.evidence.members.iter().filter(|(_, m)| {
            let silent = m.published == 0 && m.productive * 10 < m.instances.max(1);
            silent && self.is_fresh(m) && m.after.is_disjoint(&self.publishers)
        })
    }

    fn few(&self) -> u64 {
        few(self.evidence.outputs)
    }

    fn is_fresh(&self, m: &MemberEvidence) -> bool {
        self.evidence.outputs.saturating_sub(m.fresh) <= self.few()
    }

    /// Reports whether a member had exactly one input between each output and the next, or as many
    /// inputs as outputs, each before its output. Exceptions are allowed for one output in twenty,
    /// and for at least one output.
    fn one_input_per_output(&self, m: &MemberEvidence) -> bool {
        let outputs = self.evidence.outputs;
        outputs - m.once.min(outputs) <= self.few()
            || (m.fresh >= outputs && m.instances.abs_diff(outputs) <= self.few())
    }

    fn share(&self, n: u64) -> f64 {
        (n as f64 / self.evidence.outputs as f64).min(1.0)
    }

    fn of(&self, members: BTreeSet<String>, criterion: Criterion, state: JunctionState) -> Group {
        let missing: f64 = members
            .iter()
            .map(|m| 1.0 - self.share(self.evidence.members[m].fresh))
            .sum();
        let discount = match state {
            JunctionState::Ambiguous => 0.5,
            JunctionState::Decided | JunctionState::Stated => 1.0,
        };
        Group {
            id: self.id.into(),
            node: self.evidence.node.clone(),
            topic: self.evidence.topic.clone(),
            publishers: self.publishers.clone(),
            without_open: Reading {
                kind: JunctionKind::And,
                inputs: members.iter().cloned().collect(),
            },
            members,
            criterion,
            state,
            matching: match self.evidence.nearest {
                true => Matching::Nearest,
                false => Matching::InTurn,
            },
            chosen: self.evidence.chosen,
            outputs: self.evidence.outputs,
            confidence: match criterion {
                Criterion::Stated => 1.0,
                _ => (1.0 - missing).max(0.0) * discount,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{run, synchronised};
    use super::*;
    use crate::evidence::Note;

    const A: &str = "/f:subscription(/a)";
    const B: &str = "/f:subscription(/b)";

    fn decided(evidence: SyncEvidence) -> Option<Group> {
        decisions(evidence, &[]).groups.pop()
    }

    fn decisions(evidence: SyncEvidence, stated: &[&str]) -> Decisions {
        let mut all = run("r").with_sync(evidence);
        for stated in stated {
            all.note(Note::Junction(stated.to_string()), 1);
        }
        decide(&all)
    }

    #[test]
    fn if_only_one_of_two_joined_inputs_ever_publishes_the_and_junction_is_ambiguous() {
        let group = decided(synchronised()).unwrap();
        assert_eq!(group.members, BTreeSet::from([A.into(), B.into()]));
        assert_eq!(group.publishers, BTreeSet::from([B.into()]));
        assert_eq!(group.criterion, Criterion::DataFlow);
        assert_eq!(group.state, JunctionState::Ambiguous);
        assert_eq!(group.confidence, 0.5);
    }

    #[test]
    fn if_each_of_two_joined_inputs_publishes_in_turn_the_and_junction_is_decided() {
        let mut evidence = synchronised();
        for m in evidence.members.values_mut() {
            (m.published, m.productive) = (10, 10);
        }
        let group = decided(evidence).unwrap();
        assert_eq!(group.criterion, Criterion::DataFlow);
        assert_eq!(group.state, JunctionState::Decided);
        assert_eq!(group.confidence, 1.0);
    }

    #[test]
    fn a_synchronisers_calls_take_precedence_over_the_data_flow() {
        let mut evidence = synchronised();
        evidence.foreign = 3;
        for m in evidence.members.values_mut() {
            (m.synchronised, m.fresh) = (20, 19);
        }
        let group = decided(evidence.clone()).unwrap();
        assert_eq!(group.criterion, Criterion::MessageFilters);
        assert!(
            (group.confidence - 0.9).abs() < 1e-9,
            "{}",
            group.confidence
        );
        // Fewer than half of the inputs went to the synchroniser.
        evidence.members.get_mut(A).unwrap().synchronised = 9;
        assert_eq!(decided(evidence), None);
    }

    #[test]
    fn inputs_that_contradict_the_data_flow_are_not_an_and_junction() {
        let change = |change: &dyn Fn(&mut SyncEvidence)| {
            let mut evidence = synchronised();
            change(&mut evidence);
            decided(evidence)
        };
        assert_eq!(change(&|e| e.outputs = 0), None);
        assert_eq!(change(&|e| e.outputs = MIN_OUTPUTS - 1), None);
        assert_eq!(change(&|e| e.foreign = 1), None);
        let member = |id: &'static str, set: fn(&mut MemberEvidence)| {
            change(&move |e| set(e.members.get_mut(id).unwrap()))
        };
        assert_eq!(
            member(A, |m| (m.once, m.instances) = (18, 40)),
            None,
            "several inputs per output"
        );
        assert_eq!(member(A, |m| m.productive = 2), None, "publishes by itself");
        assert_eq!(
            member(A, |m| m.fresh = 17),
            None,
            "outputs without its input"
        );
        assert_eq!(member(B, |m| m.fresh = 17), None, "the publisher too");
        assert!(
            member(A, |m| (m.once, m.instances) = (19, 40)).is_some(),
            "an irregular start is allowed"
        );
    }

    #[test]
    fn an_and_junction_is_decided_by_waits_of_its_publisher_for_an_input() {
        // B had an input but did not publish five times, each time because A had none.
        let mut evidence = synchronised();
        evidence.members.get_mut(A).unwrap().awaited = 5;
        let group = decided(evidence.clone()).unwrap();
        assert_eq!(
            (group.state, group.confidence),
            (JunctionState::Decided, 1.0)
        );
        // The result is the same if A is faster than the outputs.
        let a = evidence.members.get_mut(A).unwrap();
        (a.once, a.instances) = (0, 60);
        assert_eq!(
            decided(evidence.clone()).unwrap().state,
            JunctionState::Decided
        );
        // B held back for another reason, because A had an input.
        evidence.members.get_mut(B).unwrap().held = 3;
        assert_eq!(decided(evidence), None);
    }

    #[test]
    fn an_and_junction_with_an_input_that_was_never_the_only_missing_one_is_ambiguous() {
        let c = "/f:subscription(/c)";
        let mut evidence = synchronised();
        for m in evidence.members.values_mut() {
            (m.published, m.productive, m.awaited) = (10, 10, 10);
        }
        let silent = synchronised().members.remove(A).unwrap();
        evidence.members.insert(c.into(), silent.clone());
        let group = decided(evidence.clone()).unwrap();
        assert_eq!(group.members.len(), 3);
        assert_eq!(group.state, JunctionState::Ambiguous);
        let without = (JunctionKind::And, vec![A.to_string(), B.into()]);
        assert_eq!(
            (group.without_open.kind, group.without_open.inputs),
            without
        );
        // A callback with a different number of inputs is not a member, unless the others wait for
        // it.
        let with = |set: &dyn Fn(&mut MemberEvidence)| {
            let mut evidence = evidence.clone();
            set(evidence.members.get_mut(c).unwrap());
            let group = decided(evidence).unwrap();
            (group.members.len(), group.state)
        };
        let none = with(&|m| (m.once, m.instances) = (0, 40));
        assert_eq!(none, (2, JunctionState::Decided));
        let waited = with(&|m| (m.once, m.instances, m.awaited) = (0, 40, 2));
        assert_eq!(waited, (3, JunctionState::Decided));
    }

    #[test]
    fn a_fast_input_beside_an_input_that_always_publishes_is_ambiguous() {
        let mut evidence = synchronised();
        let a = evidence.members.get_mut(A).unwrap();
        (a.once, a.instances) = (0, 40);
        let open = decisions(evidence.clone(), &[]);
        assert_eq!((open.groups.len(), open.doubts.len()), (0, 1));
        assert_eq!(open.doubts[0].members, BTreeSet::from([A.into(), B.into()]));
        // A statement of the user decides.
        let and = decisions(evidence.clone(), &["/f -> /out = and"]);
        assert_eq!(and.groups[0].members, BTreeSet::from([A.into(), B.into()]));
        assert_eq!(and.groups[0].state, JunctionState::Stated);
        let named = decisions(evidence.clone(), &["/f(/a, /b) -> /out = and"]);
        assert_eq!(named.groups, and.groups);
        let or = decisions(evidence.clone(), &["/f -> /out = or"]);
        assert_eq!((or.groups.len(), or.doubts.len()), (0, 0));
        for of_no_use in [
            &["/f(/a, /x) -> /out = and"][..],
            &["/g -> /out = and"],
            &["/f -> /out = and", "/f -> /out = or"],
        ] {
            let open = decisions(evidence.clone(), of_no_use);
            assert_eq!(
                (open.groups.len(), open.doubts.len()),
                (0, 1),
                "{of_no_use:?}"
            );
        }
    }

    #[test]
    fn an_input_computed_from_another_input_of_its_node_makes_no_and_junction() {
        let descends = |id: &str| {
            let mut evidence = synchronised();
            evidence.members.get_mut(id).unwrap().after = BTreeSet::from([B.into()]);
            decisions(evidence, &[])
        };
        for id in [A, B] {
            let none = descends(id);
            assert_eq!((none.groups.len(), none.doubts.len()), (0, 0), "{id}");
        }
    }

    #[test]
    fn inputs_of_which_one_publishes_without_the_other_are_not_an_and_junction() {
        let mut evidence = synchronised();
        for m in evidence.members.values_mut() {
            (m.published, m.productive) = (10, 10);
        }
        evidence.members.get_mut(A).unwrap().alone = 3;
        assert_eq!(decided(evidence), None);
    }
}
