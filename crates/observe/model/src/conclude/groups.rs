//! Which subscriptions of a node wait for one another before something is published: by the calls
//! of a synchroniser, or by the data flow alone (thesis section 3.5).

use crate::evidence::{MemberEvidence, SyncEvidence};
use std::collections::{BTreeMap, BTreeSet};

/// Fewest outputs that the data flow criterion concludes from.
const MIN_OUTPUTS: u64 = 5;

/// Subscriptions that wait for one another.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Group {
    /// Id of the sync vertex.
    pub(super) id: String,
    /// The topic that is published once all have their input.
    pub(super) topic: String,
    pub(super) members: BTreeSet<String>,
    /// Members that publish the topic.
    pub(super) publishers: BTreeSet<String>,
    pub(super) criterion: Criterion,
    /// 0 to 1.
    pub(super) confidence: f64,
}

/// How a group was recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Criterion {
    /// A synchroniser's own calls.
    MessageFilters,
    /// Each output followed one new input of each member.
    DataFlow {
        /// Only one member publishes, so it might just sample the data that the others stored.
        ambiguous: bool,
    },
}

impl Criterion {
    /// Its name in the model.
    pub(super) fn name(self) -> &'static str {
        match self {
            Criterion::MessageFilters => "message_filters",
            Criterion::DataFlow { .. } => "data_flow",
        }
    }
}

/// Groups, by sync vertex and by published topic.
pub(super) struct Groups<'a> {
    by_id: BTreeMap<&'a str, &'a Group>,
    /// By publishing callback, then by topic.
    by_output: BTreeMap<&'a str, BTreeMap<&'a str, &'a Group>>,
}

impl<'a> Groups<'a> {
    pub(super) fn of(groups: &'a [Group]) -> Self {
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
        }
    }

    /// All groups, by id of the sync vertex.
    pub(super) fn iter(&self) -> impl Iterator<Item = &'a Group> + '_ {
        self.by_id.values().copied()
    }

    /// The group with this sync vertex.
    pub(super) fn get(&self, id: &str) -> Option<&'a Group> {
        self.by_id.get(id).copied()
    }

    /// The group through which a callback publishes a topic.
    pub(super) fn through(&self, callback: &str, topic: &str) -> Option<&'a Group> {
        self.by_output.get(callback)?.get(topic).copied()
    }
}

/// The groups that the evidence shows, by id of the sync vertex.
pub(super) fn decide(syncs: &BTreeMap<String, SyncEvidence>) -> Vec<Group> {
    syncs
        .iter()
        .filter_map(|(id, evidence)| Deciding::new(id, evidence).group())
        .collect()
}

/// The decision about one topic of one node.
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

    fn group(self) -> Option<Group> {
        if self.evidence.outputs == 0 {
            return None;
        }
        self.by_synchroniser().or_else(|| self.by_data_flow())
    }

    /// A synchroniser was seen at work.
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
        // The synchroniser may show itself by another address for each input.
        let members = if shared.len() >= 2 { shared } else { fed };
        (members.len() >= 2 && self.publishers.is_subset(&members))
            .then(|| self.of(members, Criterion::MessageFilters))
    }

    /// Each output followed one new input of each member.
    fn by_data_flow(&self) -> Option<Group> {
        let evidence = self.evidence;
        if evidence.foreign > 0 || evidence.outputs < MIN_OUTPUTS {
            return None;
        }
        let fresh = |m: &MemberEvidence| self.share(m.fresh) >= 0.9;
        if !self.publishers.iter().all(|p| fresh(&evidence.members[p])) {
            return None;
        }
        let silent = |m: &MemberEvidence| m.productive * 10 < m.instances.max(1);
        let mut members = self.publishers.clone();
        for (id, m) in &evidence.members {
            if m.published == 0 && self.one_input_per_output(m) && silent(m) && fresh(m) {
                members.insert(id.clone());
            }
        }
        let single = self.publishers.len() == 1;
        let mut publishers = self.publishers.iter().map(|p| &evidence.members[p]);
        if members.len() < 2 || (single && !publishers.all(|m| self.one_input_per_output(m))) {
            return None;
        }
        Some(self.of(members, Criterion::DataFlow { ambiguous: single }))
    }

    /// Always exactly one input between two outputs (an irregular one is allowed for the start),
    /// or as many inputs as outputs, and never an output before its input.
    fn one_input_per_output(&self, m: &MemberEvidence) -> bool {
        let outputs = self.evidence.outputs;
        let few = (outputs / 20).max(1);
        outputs - m.once.min(outputs) <= few
            || (m.fresh >= outputs && m.instances.abs_diff(outputs) <= few)
    }

    /// `n` as a share of the outputs, 0 to 1.
    fn share(&self, n: u64) -> f64 {
        (n as f64 / self.evidence.outputs as f64).min(1.0)
    }

    fn of(&self, members: BTreeSet<String>, criterion: Criterion) -> Group {
        let missing: f64 = members
            .iter()
            .map(|m| 1.0 - self.share(self.evidence.members[m].fresh))
            .sum();
        let discount = match criterion {
            Criterion::DataFlow { ambiguous: true } => 0.5,
            _ => 1.0,
        };
        Group {
            id: self.id.into(),
            topic: self.evidence.topic.clone(),
            publishers: self.publishers.clone(),
            members,
            criterion,
            confidence: (1.0 - missing).max(0.0) * discount,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::synchronised;
    use super::*;

    const A: &str = "/f:subscription(/a)";
    const B: &str = "/f:subscription(/b)";

    fn decided(evidence: SyncEvidence) -> Option<Group> {
        let syncs = BTreeMap::from([("/f:sync(/out)".to_string(), evidence)]);
        decide(&syncs).pop()
    }

    #[test]
    fn one_publisher_with_new_inputs_of_another_is_an_ambiguous_group() {
        let group = decided(synchronised()).unwrap();
        assert_eq!(group.members, BTreeSet::from([A.into(), B.into()]));
        assert_eq!(group.publishers, BTreeSet::from([B.into()]));
        assert_eq!(group.criterion, Criterion::DataFlow { ambiguous: true });
        assert_eq!(group.confidence, 0.5);
    }

    #[test]
    fn two_publishers_in_turn_are_a_group_without_doubt() {
        let mut evidence = synchronised();
        for m in evidence.members.values_mut() {
            (m.published, m.productive) = (10, 10);
        }
        let group = decided(evidence).unwrap();
        assert_eq!(group.criterion, Criterion::DataFlow { ambiguous: false });
        assert_eq!(group.confidence, 1.0);
    }

    #[test]
    fn a_synchronisers_calls_decide_whatever_the_data_flow_shows() {
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
        // Less than half of its inputs went to the synchroniser.
        evidence.members.get_mut(A).unwrap().synchronised = 9;
        assert_eq!(decided(evidence), None);
    }

    #[test]
    fn what_contradicts_the_data_flow_decides_against_a_group() {
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
}
