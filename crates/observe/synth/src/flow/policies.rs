//! The policies by which a synchroniser of message_filters joins its inputs. Each policy is
//! replayed as in the library's source: the replay gets the inputs in the order in which the
//! synchroniser gets them. It reports which of them go into an output, and when.
//!
//! The recording does not contain the time stamps in the messages. The start of an input's chain
//! stands for its stamp.

use crate::running_median::RunningMedian;
use std::collections::VecDeque;

/// An input of a synchroniser: its stamp in ns, and its number among the inputs of its
/// subscription.
pub(super) type Stamped = (u64, u64);

/// The inputs that a synchroniser joins into one output: one input number for each subscription.
pub(super) type Set = Vec<u64>;

/// The maximum number of inputs per subscription that wait in a simulated synchroniser. Real queues
/// are shorter, but the recording does not show their length.
pub(super) const MAX_WAITING: usize = 32;

#[derive(Debug, Clone)]
pub(super) enum Policy {
    Exact(Exact),
    Approximate(Approximate),
}

impl Policy {
    pub(super) fn new(approximate: bool, inputs: usize) -> Self {
        match approximate {
            true => Policy::Approximate(Approximate::new(inputs)),
            false => Policy::Exact(Exact::new(inputs)),
        }
    }

    pub(super) fn is_approximate(&self) -> bool {
        matches!(self, Policy::Approximate(_))
    }

    pub(super) fn lacked(&self, i: usize) -> u64 {
        match self {
            Policy::Exact(exact) => exact.lacked[i],
            Policy::Approximate(_) => 0,
        }
    }

    pub(super) fn add(&mut self, i: usize, input: Stamped) -> Vec<Set> {
        match self {
            Policy::Exact(exact) => exact.add(i, input),
            Policy::Approximate(approximate) => approximate.add(i, input),
        }
    }
}

/// The policies `ExactTime` and `ApproximateEpsilonTime`, which join inputs with equal stamps. The
/// recording lacks the stamps of messages, so onbeat uses the start of an input's chain as its
/// stamp. Two of these stamps count as equal if their distance is much less than a period.
#[derive(Debug, Clone)]
pub(super) struct Exact {
    sets: VecDeque<(u64, Vec<Option<u64>>)>,
    /// For each subscription: the latest stamp, and the usual distance between two successive
    /// stamps.
    gaps: Vec<(Option<u64>, RunningMedian)>,
    lacked: Vec<u64>,
}

const SAME_WITHOUT_PERIOD_NS: u64 = 1_000_000;

impl Exact {
    fn new(inputs: usize) -> Self {
        Exact {
            sets: VecDeque::new(),
            gaps: vec![(None, RunningMedian::default()); inputs],
            lacked: vec![0; inputs],
        }
    }

    fn drop_set(&mut self, set: &[Option<u64>]) {
        let mut lacking = set.iter().enumerate().filter(|(_, input)| input.is_none());
        if let (Some((only, _)), None) = (lacking.next(), lacking.next()) {
            self.lacked[only] += 1;
        }
    }

    fn tolerance(&self) -> u64 {
        let known = self.gaps.iter().filter(|gap| !gap.1.is_empty());
        known
            .map(|gap| gap.1.median() / 4)
            .min()
            .unwrap_or(SAME_WITHOUT_PERIOD_NS)
    }

    fn add(&mut self, i: usize, (stamp, number): Stamped) -> Vec<Set> {
        let (last, gap) = &mut self.gaps[i];
        if let Some(last) = last.replace(stamp) {
            gap.add(stamp.abs_diff(last));
        }
        let tolerance = self.tolerance();
        let off = |set: &(u64, Vec<Option<u64>>)| set.0.abs_diff(stamp);
        let free = self.sets.iter().enumerate();
        let free = free.filter(|(_, set)| set.1[i].is_none() && off(set) <= tolerance);
        let at = free.min_by_key(|(_, set)| off(set)).map(|(at, _)| at);
        let at = at.unwrap_or_else(|| {
            self.sets.push_back((stamp, vec![None; self.gaps.len()]));
            self.sets.len() - 1
        });
        let set = &mut self.sets[at];
        set.1[i] = Some(number);
        let whole: Option<Set> = set.1.iter().copied().collect();
        if whole.is_some() {
            let stamp = set.0;
            for (at, set) in std::mem::take(&mut self.sets) {
                match at > stamp {
                    true => self.sets.push_back((at, set)),
                    false => self.drop_set(&set),
                }
            }
        } else if self.sets.len() > MAX_WAITING {
            self.sets.pop_front();
        }
        whole.into_iter().collect()
    }
}

/// The policy `ApproximateTime` with its default age penalty and without bounds.
///
/// For each subscription, it takes the oldest waiting input. The latest of these inputs is the
/// *pivot*. The policy searches for the narrowest set that contains the pivot: the set with the
/// smallest distance between its first and its last stamp. The search ends when no later input can
/// give a narrower set.
#[derive(Debug, Clone)]
pub(super) struct Approximate {
    queues: Vec<VecDeque<Stamped>>,
    /// For each subscription: the inputs that the search for a narrower set has put aside. The
    /// first input of each list belongs to the candidate, the narrowest set that the search has
    /// found.
    past: Vec<Vec<Stamped>>,
    /// For each subscription: whether an input was dropped that might have given a narrower set
    /// than the waiting inputs.
    dropped: Vec<bool>,
    candidate: Option<Candidate>,
}

#[derive(Debug, Clone)]
struct Candidate {
    set: Set,
    start: u64,
    end: u64,
    pivot: usize,
    pivot_time: u64,
}

impl Candidate {
    /// Compares two changes of the candidate set: its end moves to `end`, and its start moves to
    /// `start`. Returns true if the first widens the set at least as much as the second narrows it.
    /// The widening counts 10 % more (age penalty).
    fn is_passed(&self, end: u64, start: u64) -> bool {
        let wider = i128::from(end) - i128::from(self.end);
        let narrower = i128::from(start) - i128::from(self.start);
        11 * wider >= 10 * narrower
    }

    fn is_proven(&self, end: u64) -> bool {
        self.is_passed(end, self.pivot_time)
    }
}

struct Ends {
    first: (usize, u64),
    last: (usize, u64),
}

fn ends(stamps: impl Iterator<Item = u64>) -> Option<Ends> {
    let mut ends: Option<Ends> = None;
    for at in stamps.enumerate() {
        let ends = ends.get_or_insert(Ends {
            first: at,
            last: at,
        });
        if at.1 < ends.first.1 {
            ends.first = at;
        }
        if at.1 >= ends.last.1 {
            ends.last = at;
        }
    }
    ends
}

impl Approximate {
    fn new(inputs: usize) -> Self {
        Approximate {
            queues: vec![VecDeque::new(); inputs],
            past: vec![Vec::new(); inputs],
            dropped: vec![false; inputs],
            candidate: None,
        }
    }

    fn add(&mut self, i: usize, input: Stamped) -> Vec<Set> {
        let mut sets = Vec::new();
        self.queues[i].push_back(input);
        if self.queues[i].len() == 1 {
            self.process(&mut sets);
        }
        if self.queues[i].len() + self.past[i].len() > MAX_WAITING {
            for i in 0..self.queues.len() {
                self.recover(i, self.past[i].len());
            }
            self.queues[i].pop_front();
            self.dropped[i] = true;
            if self.candidate.take().is_some() {
                self.process(&mut sets);
            }
        }
        sets
    }

    fn is_full(&self) -> bool {
        self.queues.iter().all(|queue| !queue.is_empty())
    }

    fn put_aside(&mut self, i: usize) {
        if let Some(input) = self.queues[i].pop_front() {
            self.past[i].push(input);
        }
    }

    fn recover(&mut self, i: usize, inputs: usize) {
        for _ in 0..inputs {
            if let Some(input) = self.past[i].pop() {
                self.queues[i].push_front(input);
            }
        }
    }

    fn process(&mut self, sets: &mut Vec<Set>) {
        while self.is_full() {
            let heads = self.queues.iter().filter_map(|queue| queue.front());
            let Some(Ends { first, last }) = ends(heads.map(|head| head.0)) else {
                return;
            };
            for (i, dropped) in self.dropped.iter_mut().enumerate() {
                *dropped &= i == last.0;
            }
            if self.candidate.is_none() && self.dropped[last.0] {
                self.queues[first.0].pop_front();
                continue;
            }
            let pivot = match &self.candidate {
                Some(old) if old.is_passed(last.1, first.1) => None,
                Some(old) => Some((old.pivot, old.pivot_time)),
                None => Some(last),
            };
            if let Some((pivot, pivot_time)) = pivot {
                let heads = self.queues.iter().filter_map(|queue| queue.front());
                self.candidate = Some(Candidate {
                    set: heads.map(|head| head.1).collect(),
                    start: first.1,
                    end: last.1,
                    pivot,
                    pivot_time,
                });
                self.past.iter_mut().for_each(Vec::clear);
            }
            self.put_aside(first.0);
            let Some(candidate) = &self.candidate else {
                return;
            };
            if first.0 == candidate.pivot
                || candidate.is_proven(last.1)
                || !self.is_full() && self.is_proven_ahead()
            {
                self.complete(sets);
            }
        }
    }

    /// Returns true if the candidate set is final, because no later input can give a better set.
    /// For a subscription without a waiting input, the next input is assumed to have the stamp of
    /// the pivot.
    fn is_proven_ahead(&self) -> bool {
        let Some(candidate) = &self.candidate else {
            return false;
        };
        let ahead = |(queue, past): (&VecDeque<Stamped>, &Vec<Stamped>), skipped: usize| {
            let next = queue.get(skipped);
            let late = || queue.back().or(past.last()).map_or(0, |last| last.0);
            next.map_or_else(|| late().max(candidate.pivot_time), |next| next.0)
        };
        let mut skipped = vec![0; self.queues.len()];
        loop {
            let all = self.queues.iter().zip(&self.past).zip(&skipped);
            let stamps = all.map(|(inputs, &skipped)| ahead(inputs, skipped));
            let Some(Ends { first, last }) = ends(stamps) else {
                return false;
            };
            if candidate.is_proven(last.1) {
                return true;
            }
            if !candidate.is_passed(last.1, first.1) || skipped[first.0] > MAX_WAITING {
                return false;
            }
            skipped[first.0] += 1;
        }
    }

    fn complete(&mut self, sets: &mut Vec<Set>) {
        sets.extend(self.candidate.take().map(|candidate| candidate.set));
        for i in 0..self.queues.len() {
            self.recover(i, self.past[i].len());
            self.queues[i].pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(mut policy: Policy, inputs: &[(usize, u64)]) -> Vec<(u64, Vec<Set>)> {
        let mut counts = [0; 3];
        let mut add = |&(i, ms): &(usize, u64)| {
            counts[i] += 1;
            (ms, policy.add(i, (ms * 1_000_000, counts[i] - 1)))
        };
        let sets = inputs.iter().map(&mut add);
        sets.filter(|(_, sets)| !sets.is_empty()).collect()
    }

    #[test]
    fn an_exact_time_policy_joins_inputs_of_equal_stamps_and_drops_older_ones() {
        let exact = Policy::new(false, 3);
        // The second input of the first subscription has no partner.
        let inputs = [
            (0, 0),
            (1, 0),
            (2, 0),
            (0, 100),
            (1, 200),
            (0, 200),
            (2, 200),
        ];
        assert_eq!(
            run(exact, &inputs),
            [(0, vec![vec![0, 0, 0]]), (200, vec![vec![2, 1, 1]])]
        );
    }

    #[test]
    fn an_approximate_time_policy_waits_until_no_later_input_can_be_better() {
        let approximate = Policy::new(true, 2);
        // The input at 50 is between those at 0 and 60. Only the one at 60 shows which is nearer.
        let inputs = [(0, 0), (1, 50), (0, 60), (1, 150), (0, 160)];
        let found = run(approximate, &inputs);
        assert_eq!(found[0], (60, vec![vec![1, 0]]));
    }
}
