//! The turns of the arms of a comparison: their order, and the repetition of disturbed rounds.
//!
//! A round holds one turn of each arm. If the machine disturbed one turn, the whole round is set
//! aside, with the turns of all arms, and another round takes its place. The number of repetitions
//! and their time are limited ([`Limits`]), so a busy machine cannot prolong an experiment for
//! ever.

use super::disturbance::{Disturbance, Observer, RULE};
use super::rng::Rng;
use super::Kept;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The limits for repeated rounds: their number as a multiple of the number of planned rounds, and
/// their time as a multiple of the time of the planned rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    pub rounds: f64,
    pub time: f64,
}

impl Limits {
    pub const FULL: Limits = Limits {
        rounds: 1.0,
        time: 1.0,
    };
    pub const QUICK: Limits = Limits {
        rounds: 0.5,
        time: 0.5,
    };
}

const DISTURBED_IN_A_ROW_MAX: usize = 3;

/// Returns the order of measurements as `(round, arm)`. In each round, each arm has one turn. Every
/// second round reverses the order of the previous round (A B, B A), so that a linear drift
/// cancels. The order of each such pair of rounds is random, so that nothing periodic favours an
/// arm.
pub fn schedule(arms: usize, rounds: usize, rng: &mut Rng) -> Vec<(usize, usize)> {
    let mut order: Vec<usize> = (0..arms).collect();
    let mut out = Vec::with_capacity(arms * rounds);
    for round in 0..rounds {
        if round % 2 == 0 {
            rng.shuffle(&mut order);
        } else {
            order.reverse();
        }
        out.extend(order.iter().map(|&arm| (round, arm)));
    }
    out
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoundsTaken {
    pub what: String,
    pub planned: usize,
    pub measured: usize,
    pub set_aside: Vec<SetAside>,
    /// The worst value of each kind of disturbance in the rounds that count.
    pub counted: Disturbance,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SetAside {
    pub round: usize,
    pub why: String,
    pub disturbance: Disturbance,
}

pub type RoundsLog = Rc<RefCell<Vec<RoundsTaken>>>;

/// The plan of a comparison. It does not read a clock and does not observe the machine: callers
/// pass times and disturbances to it.
struct Plan {
    left: VecDeque<Vec<(usize, usize)>>,
    round: Vec<(usize, usize)>,
    at: usize,
    planned: usize,
    measured: usize,
    repeats: usize,
    limits: Limits,
    in_vain: usize,
    planned_time: Option<Duration>,
    /// For each measured round, the planned round that it repeats. For a planned round, its own
    /// number.
    origins: Vec<usize>,
    waiting: VecDeque<Vec<(usize, usize)>>,
    why: Option<(String, Disturbance)>,
    counted: Disturbance,
    aside: Vec<SetAside>,
}

impl Plan {
    fn new(turns: Vec<(usize, usize)>, limits: Limits) -> Plan {
        let mut left: VecDeque<Vec<(usize, usize)>> = VecDeque::new();
        for turn in turns {
            match left.back_mut() {
                Some(round) if round[0].0 == turn.0 => round.push(turn),
                _ => left.push_back(vec![turn]),
            }
        }
        Plan {
            planned: left.len(),
            round: vec![],
            at: 0,
            measured: 0,
            repeats: 0,
            limits,
            in_vain: 0,
            planned_time: None,
            origins: (0..left.len()).collect(),
            waiting: VecDeque::new(),
            left,
            why: None,
            counted: Disturbance::default(),
            aside: vec![],
        }
    }

    fn note(&mut self, turn: Disturbance, worst: &mut Disturbance) {
        *worst = worst.worst(turn);
        if self.why.is_none() {
            self.why = turn.why(&RULE).map(|why| (why, turn));
        }
    }

    fn next(&mut self, elapsed: Duration, worst: &mut Disturbance) -> Option<(usize, usize)> {
        if self.ends_round() {
            self.end_round(elapsed, std::mem::take(worst));
            self.round = self.left.pop_front()?;
        }
        self.at += 1;
        Some(self.round[self.at - 1])
    }

    fn ends_round(&self) -> bool {
        self.at == self.round.len()
    }

    fn end_round(&mut self, elapsed: Duration, worst: Disturbance) {
        let round = std::mem::take(&mut self.round);
        self.at = 0;
        let Some(&(number, _)) = round.first() else {
            return;
        };
        self.measured += 1;
        let is_repeat = self.measured > self.planned;
        match self.why.take() {
            None => {
                self.counted = self.counted.worst(worst);
                self.in_vain = 0;
            }
            Some((why, disturbance)) => {
                self.in_vain += usize::from(is_repeat);
                self.waiting.push_back(round);
                self.aside.push(SetAside {
                    round: number,
                    why,
                    disturbance,
                });
            }
        }
        if self.measured == self.planned {
            self.planned_time = Some(elapsed);
        }
        if self.left.is_empty() && self.may_repeat(elapsed) {
            self.repeats += 1;
            // The repetition has the order of the round that it replaces.
            if let Some(replaced) = self.waiting.pop_front() {
                self.origins.push(self.origins[replaced[0].0]);
                let again = replaced.iter().map(|(_, arm)| (self.measured, *arm));
                self.left.push_back(again.collect());
            }
        }
    }

    fn may_repeat(&self, elapsed: Duration) -> bool {
        let most = (self.planned as f64 * self.limits.rounds).ceil() as usize;
        let planned = self.planned_time.unwrap_or(elapsed);
        !self.waiting.is_empty()
            && self.repeats < most
            && self.in_vain < DISTURBED_IN_A_ROW_MAX
            && elapsed < planned + planned.mul_f64(self.limits.time)
    }
}

/// Iterates over the turns of a comparison, and observes the machine during them. A turn lasts
/// until the caller asks for the next turn.
pub struct Turns {
    what: String,
    plan: Plan,
    observer: Option<Observer>,
    begun: Instant,
    /// Whether the machine is being observed, during a turn or during several short turns of a
    /// round together.
    is_in_stretch: bool,
    worst: Disturbance,
    log: RoundsLog,
}

impl Turns {
    pub(super) fn new(
        what: String,
        turns: Vec<(usize, usize)>,
        limits: Limits,
        log: RoundsLog,
    ) -> Turns {
        Turns {
            what,
            plan: Plan::new(turns, limits),
            observer: Some(Observer::start()),
            begun: Instant::now(),
            is_in_stretch: false,
            worst: Disturbance::default(),
            log,
        }
    }

    /// Creates turns that do not observe the machine, so that no round counts as disturbed.
    #[cfg(test)]
    pub fn quiet(arms: usize, rounds: usize, rng: &mut Rng) -> Turns {
        let turns = schedule(arms, rounds, rng);
        let turns = Turns::new(String::new(), turns, Limits::QUICK, RoundsLog::default());
        Turns {
            observer: None,
            ..turns
        }
    }

    /// Returns the number of planned rounds. The numbers of repetitions follow the numbers of the
    /// planned rounds.
    pub fn planned(&self) -> usize {
        self.plan.planned
    }

    /// Returns the planned round that `round` repeats. For a planned round, returns `round` itself.
    pub fn origin(&self, round: usize) -> usize {
        self.plan.origins[round]
    }

    /// Ends the comparison. Returns the rounds that count, and writes the rounds that were set
    /// aside into the log.
    pub fn finish(self) -> Kept {
        let aside = &self.plan.aside;
        let kept = Kept::without(self.plan.measured, |round| {
            aside.iter().any(|a| a.round == round)
        });
        self.log.borrow_mut().push(RoundsTaken {
            what: self.what,
            planned: self.plan.planned,
            measured: self.plan.measured,
            counted: self.plan.counted,
            set_aside: self.plan.aside,
        });
        kept
    }
}

impl Iterator for Turns {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        let ends_round = self.plan.ends_round();
        if let (true, Some(observer)) = (self.is_in_stretch, &self.observer) {
            if ends_round || observer.is_due() {
                self.plan.note(observer.end(), &mut self.worst);
                self.is_in_stretch = false;
            }
        }
        let turn = self.plan.next(self.begun.elapsed(), &mut self.worst);
        if let (Some(_), false, Some(observer)) = (turn, self.is_in_stretch, &mut self.observer) {
            observer.begin();
            self.is_in_stretch = true;
        }
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn run(
        plan: &mut Plan,
        is_disturbed: impl Fn(usize, (usize, usize)) -> bool,
    ) -> Vec<(usize, usize)> {
        let (mut worst, mut taken) = (Disturbance::default(), vec![]);
        while let Some(turn) = plan.next(SECOND * taken.len() as u32, &mut worst) {
            let foreign = if is_disturbed(taken.len(), turn) {
                0.5
            } else {
                0.0
            };
            let disturbance = Disturbance {
                foreign,
                ..Disturbance::default()
            };
            taken.push(turn);
            plan.note(disturbance, &mut worst);
        }
        taken
    }

    fn plan(rounds: usize, limits: Limits) -> Plan {
        Plan::new(schedule(2, rounds, &mut Rng::new(1)), limits)
    }

    #[test]
    fn a_disturbed_turn_sets_aside_both_arms_of_its_round() {
        let mut plan = plan(4, Limits::FULL);
        let taken = run(&mut plan, |_, turn| turn == (1, 0));
        assert_eq!(taken.len(), 2 * 5, "one round is repeated");
        assert_eq!(plan.aside.len(), 1);
        assert_eq!(plan.aside[0].round, 1);
        assert!(plan.aside[0].why.contains("50.0 %"), "{:?}", plan.aside);
        let mut arms: Vec<usize> = taken[8..].iter().map(|t| t.1).collect();
        arms.sort_unstable();
        assert_eq!((taken[8].0, taken[9].0, &arms[..]), (4, 4, &[0, 1][..]));
        assert_eq!(
            taken[8].1, taken[2].1,
            "in the order of the round that it replaces"
        );
        assert_eq!(plan.origins, [0, 1, 2, 3, 1]);
        assert_eq!(plan.counted.foreign, 0.0, "the round counts for nothing");
    }

    #[test]
    fn disturbed_rounds_are_repeated_only_up_to_the_limits() {
        // All rounds are disturbed, so repetition ends after three disturbed repetitions.
        let mut all = plan(20, Limits::FULL);
        assert_eq!(
            run(&mut all, |_, _| true).len(),
            2 * (20 + DISTURBED_IN_A_ROW_MAX)
        );
        assert_eq!(all.aside.len(), 20 + DISTURBED_IN_A_ROW_MAX);
        // Half of a quick run's planned rounds may be repeated.
        let mut first = plan(6, Limits::QUICK);
        assert_eq!(run(&mut first, |n, _| n < 12).len(), 2 * (6 + 3));
        // The limit of time also ends repetition.
        let short = Limits {
            rounds: 10.0,
            time: 0.2,
        };
        let mut late = plan(10, short);
        assert_eq!(run(&mut late, |n, _| n < 20).len(), 2 * (10 + 2));
    }

    #[test]
    fn rounds_alternate_so_that_linear_drift_cancels() {
        for seed in 0..20 {
            let order = schedule(2, 10, &mut Rng::new(seed));
            let places = |arm| {
                let places = order.iter().enumerate().filter(|(_, turn)| turn.1 == arm);
                places.map(|(at, _)| at).sum::<usize>()
            };
            assert_eq!(order.len(), 20);
            assert_eq!(places(0), places(1), "seed {seed}");
        }
        let starts: std::collections::BTreeSet<_> = (0..20)
            .map(|seed| schedule(2, 2, &mut Rng::new(seed))[0].1)
            .collect();
        assert_eq!(starts.len(), 2, "the first arm is not always the same");
    }

    #[test]
    fn only_rounds_that_were_not_set_aside_count() {
        let mut turns = Turns::quiet(2, 3, &mut Rng::new(1));
        let log = Rc::clone(&turns.log);
        turns.by_ref().for_each(drop);
        turns.plan.aside.push(SetAside {
            round: 1,
            why: "x".into(),
            disturbance: Disturbance::default(),
        });
        let kept = turns.finish();
        assert_eq!((kept.counted(), kept.all()), (&[0, 2][..], 3));
        assert_eq!(log.borrow()[0].measured, 3);
        let both = kept.then(&Kept::from(2));
        assert_eq!((both.counted(), both.all()), (&[0, 2, 3, 4][..], 5));
    }
}
