//! Replays of the synchronisers of a node: which inputs go into which output, and whether the
//! node's outputs are those of a synchroniser at all.
//!
//! A synchroniser whose calls are recorded has one replay, of its policy and of the subscriptions
//! that feed it. While no calls are recorded, all subscriptions of the node are replayed with either
//! policy.

use super::policies::{Policy, Set, Stamped, MAX_WAITING};
use onbeat_document::evidence::few;
use std::collections::VecDeque;

#[derive(Debug, Clone)]
pub(super) struct Replay {
    /// The address of the synchroniser whose calls show its inputs. `None` if the recording has no
    /// such calls. All inputs of the node's subscriptions are then replayed.
    filter: Option<u64>,
    members: Vec<usize>,
    policy: Policy,
    /// The latest inputs, oldest first. Each comes with the index of its subscription in `members`.
    inputs: VecDeque<(usize, Stamped)>,
    steps: VecDeque<Step>,
}

#[derive(Debug, Clone)]
struct Step {
    member: usize,
    number: u64,
    sets: Vec<Set>,
}

/// How well the replay of a synchroniser predicts an output's publications. A replay is a
/// simulation that gets the recorded inputs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Score {
    pub(crate) predicted: u64,
    pub(crate) unpredicted: u64,
    /// Counts executions that did not publish although the replay predicted a publication.
    pub(crate) missing: u64,
    /// Counts executions that did not publish, as the replay predicted. Counts only executions of
    /// subscriptions whose callbacks have published at another time.
    pub(crate) held: u64,
    pub(crate) inputs: usize,
}

const MIN_PREDICTED_FOR_EXCEPTIONS: u64 = 10;

impl Score {
    pub(crate) fn fits(&self) -> bool {
        let wrong = self.unpredicted + self.missing;
        let allowed = match self.predicted {
            predicted @ ..MIN_PREDICTED_FOR_EXCEPTIONS => predicted / 3,
            predicted => few(predicted),
        };
        self.predicted > 0 && wrong <= allowed
    }
}

const MAX_REPLAYS: usize = 8;

/// The maximum number of subscriptions that a replay joins. A synchroniser in C++ has at most nine
/// inputs, one in Python has any number.
const MAX_MEMBERS: usize = 64;

#[derive(Debug, Clone, Default)]
pub(super) struct Replays(Vec<Replay>);

impl Replay {
    fn new(filter: Option<u64>, approximate: bool) -> Self {
        Replay {
            filter,
            members: Vec::new(),
            policy: Policy::new(approximate, 0),
            inputs: VecDeque::new(),
            steps: VecDeque::new(),
        }
    }

    fn add(&mut self, member: usize, number: u64, stamp: u64) {
        if self.has_too_many() {
            return;
        }
        let place = self.members.iter().position(|&m| m == member);
        let place = place.unwrap_or_else(|| {
            self.members.push(member);
            if self.has_too_many() {
                self.inputs.clear();
                self.steps.clear();
            }
            self.begin_again();
            self.members.len() - 1
        });
        if self.has_too_many() {
            return;
        }
        let kept = MAX_WAITING * self.members.len();
        self.inputs.push_back((place, (stamp, number)));
        if self.inputs.len() > kept {
            self.inputs.pop_front();
        }
        let sets = self.policy.add(place, (stamp, number));
        self.steps.push_back(Step {
            member,
            number,
            sets,
        });
        if self.steps.len() > kept {
            self.steps.pop_front();
        }
    }

    fn joins(&self) -> bool {
        self.members.len() > 1 && !self.has_too_many()
    }

    /// Reports whether the replay has ended because it would join too many subscriptions.
    fn has_too_many(&self) -> bool {
        self.members.len() > MAX_MEMBERS
    }

    fn begin_again(&mut self) {
        self.policy = Policy::new(self.policy.is_approximate(), self.members.len());
        for &(place, input) in &self.inputs {
            self.policy.add(place, input);
        }
    }

    fn step(&self, member: usize, number: u64) -> Option<&Step> {
        let mut steps = self.steps.iter().rev();
        steps.find(|step| step.member == member && step.number == number)
    }
}

impl Replays {
    /// Adds an input of the subscription with the index `member` to a replay. `filter` is the
    /// synchroniser to which the callback passed the input, or `None` if no call shows a
    /// synchroniser.
    pub(super) fn add(
        &mut self,
        (filter, approximate): (Option<u64>, bool),
        member: usize,
        number: u64,
        stamp: u64,
    ) {
        let same = |r: &Replay| r.filter == filter && r.policy.is_approximate() == approximate;
        let at = self.0.iter().position(same);
        let at = at.or_else(|| {
            (self.0.len() < MAX_REPLAYS).then(|| {
                self.0.push(Replay::new(filter, approximate));
                self.0.len() - 1
            })
        });
        if let Some(at) = at {
            self.0[at].add(member, number, stamp);
        }
    }

    /// Gives the members of all replays their new indices. `moved` has the new index of each old
    /// one, or `None` for a removed member. A replay with a removed member is removed as well, and
    /// a new replay begins with the next input. Returns for each replay whether it stays.
    pub(super) fn renumber(&mut self, moved: &[Option<usize>]) -> Vec<bool> {
        let new = |member: usize| moved.get(member).copied().flatten();
        let all_stay = |r: &Replay| r.members.iter().all(|&m| new(m).is_some());
        let stay: Vec<bool> = self.0.iter().map(all_stay).collect();
        self.0.retain(all_stay);
        for replay in &mut self.0 {
            let of_steps = replay.steps.iter_mut().map(|step| &mut step.member);
            for member in replay.members.iter_mut().chain(of_steps) {
                *member = new(*member).unwrap_or(*member);
            }
        }
        stay
    }

    pub(super) fn has_calls(&self) -> bool {
        let joins = |r: &Replay| r.filter.is_some() && r.members.len() > 1;
        self.0.iter().any(joins)
    }

    /// Returns the number of the replay of the synchroniser `filter`, if its calls show inputs of
    /// several subscriptions.
    pub(super) fn of_filter(&self, filter: u64) -> Option<usize> {
        let of_filter = |r: &Replay| r.filter == Some(filter) && r.joins();
        self.0.iter().position(of_filter)
    }

    /// Returns the number of the replay that joins the inputs of all subscriptions by the
    /// approximate policy, or by the exact policy if `approximate` is not set.
    pub(super) fn of_all(&self, approximate: bool) -> Option<usize> {
        let same = |r: &Replay| r.filter.is_none() && r.policy.is_approximate() == approximate;
        let at = self.0.iter().position(same)?;
        self.0[at].joins().then_some(at)
    }

    pub(super) fn members(&self, replay: usize) -> &[usize] {
        &self.0[replay].members
    }

    pub(super) fn lacked(&self, replay: usize, member: usize) -> u64 {
        let replay = &self.0[replay];
        let place = replay.members.iter().position(|&m| m == member);
        place.map_or(0, |place| replay.policy.lacked(place))
    }

    pub(super) fn is_approximate(&self, replay: usize) -> bool {
        self.0[replay].policy.is_approximate()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the sets of inputs that the replay completed with this input. Returns `None` if the
    /// replay does not contain the input.
    pub(super) fn sets(&self, replay: usize, member: usize, number: u64) -> Option<&[Set]> {
        let step = self.0.get(replay)?.step(member, number)?;
        Some(&step.sets)
    }

    /// Returns the inputs of a set, as pairs: the index of the subscription, and the number of the
    /// input.
    pub(super) fn inputs(&self, replay: usize, set: &Set) -> Vec<(usize, u64)> {
        let members = self.0[replay].members.iter().copied();
        members.zip(set.iter().copied()).collect()
    }
}
