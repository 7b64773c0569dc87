//! Synchronisers of message_filters with up to nine inputs. The policies are those of the library's
//! source: they decide which callback publishes and which items go into the output.

use super::structure::System;
use super::*;
use std::collections::{BTreeMap, VecDeque};

/// The stamp of an item that waits in a synchroniser: the start of its sensor's timer, in us.
type Stamp = u64;

trait Policy {
    fn add(&mut self, input: usize, stamp: Stamp) -> Vec<Vec<Stamp>>;
}

struct Exact {
    inputs: usize,
    queue: usize,
    tuples: BTreeMap<Stamp, Vec<bool>>,
    last: Stamp,
}

impl Exact {
    fn new(inputs: usize) -> Self {
        let tuples = BTreeMap::new();
        Exact {
            inputs,
            queue: 10,
            tuples,
            last: 0,
        }
    }
}

impl Policy for Exact {
    fn add(&mut self, input: usize, stamp: Stamp) -> Vec<Vec<Stamp>> {
        let inputs = self.inputs;
        let tuple = self
            .tuples
            .entry(stamp)
            .or_insert_with(|| vec![false; inputs]);
        tuple[input] = true;
        let mut out = Vec::new();
        if tuple.iter().all(|&t| t) {
            out.push(vec![stamp; inputs]);
            self.last = stamp;
            self.tuples.retain(|&t, _| t > stamp);
        }
        while self.tuples.len() > self.queue {
            self.tuples.pop_first();
        }
        out
    }
}

struct Approximate {
    deques: Vec<VecDeque<Stamp>>,
    past: Vec<Vec<Stamp>>,
    dropped: Vec<bool>,
    queue: usize,
    candidate: Vec<Stamp>,
    pivot: Option<usize>,
    pivot_time: Stamp,
    start: Stamp,
    end: Stamp,
}

impl Approximate {
    fn new(inputs: usize) -> Self {
        Approximate {
            deques: vec![VecDeque::new(); inputs],
            past: vec![Vec::new(); inputs],
            dropped: vec![false; inputs],
            queue: 10,
            candidate: Vec::new(),
            pivot: None,
            pivot_time: 0,
            start: 0,
            end: 0,
        }
    }

    fn full(&self) -> bool {
        self.deques.iter().all(|d| !d.is_empty())
    }

    fn put_aside(&mut self, i: usize) {
        let stamp = self.deques[i].pop_front().unwrap();
        self.past[i].push(stamp);
    }

    fn recover(&mut self, i: usize, n: usize) {
        for _ in 0..n {
            let stamp = self.past[i].pop().unwrap();
            self.deques[i].push_front(stamp);
        }
    }

    fn bounds(times: &[Stamp]) -> ((usize, Stamp), (usize, Stamp)) {
        let (mut first, mut last) = ((0, times[0]), (0, times[0]));
        for (i, &t) in times.iter().enumerate().skip(1) {
            if t < first.1 {
                first = (i, t);
            }
            if t >= last.1 {
                last = (i, t);
            }
        }
        (first, last)
    }

    fn make_candidate(&mut self, start: Stamp, end: Stamp) {
        self.candidate = self.deques.iter().map(|d| d[0]).collect();
        self.past.iter_mut().for_each(Vec::clear);
        (self.start, self.end) = (start, end);
    }

    fn publish(&mut self, out: &mut Vec<Vec<Stamp>>) {
        out.push(std::mem::take(&mut self.candidate));
        self.pivot = None;
        for i in 0..self.deques.len() {
            self.recover(i, self.past[i].len());
            self.deques[i].pop_front();
        }
    }

    fn process(&mut self, out: &mut Vec<Vec<Stamp>>) {
        // The weight of later times is 1 plus the age penalty of 0.1.
        let aged = |later: Stamp, earlier: Stamp| (later as f64 - earlier as f64) * 1.1;
        while self.full() {
            let heads: Vec<Stamp> = self.deques.iter().map(|d| d[0]).collect();
            let ((first, start), (last, end)) = Self::bounds(&heads);
            for i in (0..heads.len()).filter(|&i| i != last) {
                self.dropped[i] = false;
            }
            match self.pivot {
                None if self.dropped[last] => {
                    self.deques[first].pop_front();
                    continue;
                }
                None => {
                    self.make_candidate(start, end);
                    (self.pivot, self.pivot_time) = (Some(last), end);
                    self.put_aside(first);
                }
                Some(_) => {
                    if aged(end, self.end) < start as f64 - self.start as f64 {
                        self.make_candidate(start, end);
                    }
                    self.put_aside(first);
                }
            }
            let width = self.pivot_time as f64 - self.start as f64;
            if Some(first) == self.pivot || aged(end, self.end) >= width {
                self.publish(out);
            } else if !self.full() {
                self.prove(out);
            }
        }
    }

    fn prove(&mut self, out: &mut Vec<Vec<Stamp>>) {
        let aged = |later: Stamp, earlier: Stamp| (later as f64 - earlier as f64) * 1.1;
        let mut moves = vec![0; self.deques.len()];
        loop {
            let pivot_time = self.pivot_time;
            let of = |(d, p): (&VecDeque<Stamp>, &Vec<Stamp>)| match d.front() {
                Some(&t) => t,
                None => pivot_time.max(*p.last().unwrap()),
            };
            let times: Vec<Stamp> = self.deques.iter().zip(&self.past).map(of).collect();
            let ((first, start), (_, end)) = Self::bounds(&times);
            if aged(end, self.end) >= pivot_time as f64 - self.start as f64 {
                return self.publish(out);
            }
            if aged(end, self.end) < start as f64 - self.start as f64 {
                for (i, n) in moves.into_iter().enumerate() {
                    self.recover(i, n);
                }
                return;
            }
            self.put_aside(first);
            moves[first] += 1;
        }
    }
}

impl Policy for Approximate {
    fn add(&mut self, input: usize, stamp: Stamp) -> Vec<Vec<Stamp>> {
        let mut out = Vec::new();
        self.deques[input].push_back(stamp);
        if self.deques[input].len() == 1 && self.full() {
            self.process(&mut out);
        }
        if self.deques[input].len() + self.past[input].len() > self.queue {
            for i in 0..self.deques.len() {
                self.recover(i, self.past[i].len());
            }
            self.deques[input].pop_front();
            self.dropped[input] = true;
            if self.pivot.take().is_some() {
                self.candidate.clear();
                self.process(&mut out);
            }
        }
        out
    }
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % n.max(1)
    }
}

struct Sensor {
    period_us: u64,
    phase_us: u64,
    jitter_us: u64,
    transit_us: u64,
    transit_jitter_us: u64,
    /// The sensor loses one of `loses` items. 0 means that it loses none.
    loses: u64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Seen {
    Calls,
    DataFlow,
}

/// Simulates sensors, the node `/fusion` and its listener. Returns the system, and the latencies of
/// each sensor's chain up to the end of the listener.
fn fuse(
    sensors: &[Sensor],
    mut policy: impl Policy,
    (approximate, seen): (bool, Seen),
    chance: &mut Chance,
) -> (System, Vec<Vec<u64>>) {
    let mut s = System::new();
    let topics: Vec<String> = (0..sensors.len()).map(|i| format!("/in{i}")).collect();
    let nodes: Vec<usize> = sensors
        .iter()
        .enumerate()
        .map(|(i, sensor)| {
            let period = [sensor.period_us / 1_000];
            s.node(&format!("sensor{i}"), &period, &[], &[&topics[i]])
        })
        .collect();
    let inputs: Vec<&str> = topics.iter().map(String::as_str).collect();
    let fusion = s.node("fusion", &[], &inputs, &["/fused"]);
    let listener = s.node("listener", &[], &["/fused"], &[]);
    let mut arrivals = Vec::new();
    for (i, sensor) in sensors.iter().enumerate() {
        let mut t = 10_000 + sensor.phase_us;
        let mut earliest = 0;
        while t < 4_000_000 {
            let at = t + chance.below(sensor.jitter_us + 1);
            s.timer(at, nodes[i], 0, &[0], 100);
            t += sensor.period_us;
            let due = at + 100 + sensor.transit_us + chance.below(sensor.transit_jitter_us + 1);
            // The middleware keeps the order.
            earliest = due.max(earliest + 1);
            if sensor.loses == 0 || chance.below(sensor.loses) > 0 {
                arrivals.push((earliest, i, at));
            }
        }
    }
    arrivals.sort_unstable();
    let take = match (seen, approximate) {
        (Seen::DataFlow, _) => System::take,
        (Seen::Calls, true) => System::take_approximate,
        (Seen::Calls, false) => System::take_sync,
    };
    let mut latencies = vec![Vec::new(); sensors.len()];
    let mut free = 0;
    for (at, i, stamp) in arrivals {
        let at = at.max(free);
        let outputs = policy.add(i, stamp);
        free = at + 400;
        let publishes: Vec<usize> = outputs.iter().map(|_| 0).collect();
        take(
            &mut s,
            at,
            fusion,
            i,
            System::stamp(stamp, 0),
            &publishes,
            390,
        );
        for (n, output) in outputs.iter().enumerate() {
            let heard = at + 1_000 + 100 * n as u64;
            s.take(heard, listener, 0, System::stamp(at, n), &[], 50);
            for (of, stamp) in latencies.iter_mut().zip(output) {
                of.push((heard + 50 - stamp) * 1_000);
            }
        }
    }
    (s, latencies)
}

fn wrong(m: &Model, latencies: &[Vec<u64>], share: f64) -> Vec<String> {
    let mut wrong = Vec::new();
    for (i, truth) in latencies.iter().enumerate() {
        let name = format!("/fusion:subscription(/in{i}) > /fusion:sync(/fused) > ");
        let found = m
            .chains
            .iter()
            .find(|c| c.callbacks.join(" > ").contains(&name));
        let Some(chain) = found else {
            wrong.push(format!("{i}: no chain among {:?}", chains(m)));
            continue;
        };
        let shown = &chain.figures.latency_ns;
        let sum = |v: &[u64]| v.iter().sum::<u64>() as f64 / v.len().max(1) as f64 / 1e6;
        let (mean, true_mean) = (
            shown.sum() as f64 / shown.count().max(1) as f64 / 1e6,
            sum(truth),
        );
        let off = shown.count().abs_diff(truth.len() as u64);
        if off > 2 || (mean - true_mean).abs() > share * true_mean {
            wrong.push(format!(
                "{i}: {} of {mean:.3}, truth {} of {true_mean:.3} ms",
                shown.count(),
                truth.len()
            ));
        }
    }
    wrong
}

fn sensor(period_us: u64, phase_us: u64, transit_us: u64) -> Sensor {
    Sensor {
        period_us,
        phase_us,
        jitter_us: 500,
        transit_us,
        transit_jitter_us: 500,
        loses: 0,
    }
}

fn same_stamps(n: usize, longest_us: u64, chance: &mut Chance) -> Vec<Sensor> {
    let sensor = |_| Sensor {
        jitter_us: 0,
        ..sensor(50_000, 0, chance.below(longest_us))
    };
    (0..n).map(sensor).collect()
}

fn unlike(n: usize, periods: &[u64], chance: &mut Chance) -> Vec<Sensor> {
    let mut sensors = Vec::new();
    for _ in 0..n {
        let period = periods[chance.below(periods.len() as u64) as usize];
        let phase = chance.below(period);
        sensors.push(sensor(period, phase, chance.below(30_000)));
    }
    sensors
}

fn losing(mut sensors: Vec<Sensor>) -> Vec<Sensor> {
    sensors.iter_mut().for_each(|sensor| sensor.loses = 10);
    sensors
}

const NUMBERS: [usize; 5] = [2, 3, 4, 6, 9];

fn systems(n: usize) -> [Vec<(Vec<Sensor>, Chance)>; 2] {
    let with = |make: &dyn Fn(&mut Chance) -> Vec<Sensor>, seed: u64| {
        let mut chance = Chance(seed * 77 + n as u64);
        (make(&mut chance), chance)
    };
    let rates: &[u64] = &[30_000, 50_000, 100_000];
    let exact = vec![
        with(&|chance| same_stamps(n, 30_000, chance), 1),
        with(&|chance| same_stamps(n, 150_000, chance), 2),
        with(&|chance| losing(same_stamps(n, 150_000, chance)), 3),
    ];
    let approximate = vec![
        with(&|chance| unlike(n, &[50_000], chance), 4),
        with(&|chance| unlike(n, rates, chance), 5),
        with(&|chance| losing(unlike(n, rates, chance)), 6),
    ];
    [exact, approximate]
}

#[test]
fn a_synchroniser_of_up_to_nine_inputs_joins_the_items_that_its_policy_joins() {
    for n in NUMBERS {
        let [exact, approximate] = systems(n);
        for (i, (sensors, mut chance)) in exact.into_iter().enumerate() {
            for seen in [Seen::Calls, Seen::DataFlow] {
                let how = (false, seen);
                let (s, latencies) = fuse(&sensors, Exact::new(n), how, &mut chance);
                let found = wrong(&s.model(), &latencies, 0.01);
                assert_eq!(found, [] as [&str; 0], "{n} exact, {i}, {seen:?}");
            }
        }
        for (i, (sensors, mut chance)) in approximate.into_iter().enumerate() {
            let how = (true, Seen::Calls);
            let (s, latencies) = fuse(&sensors, Approximate::new(n), how, &mut chance);
            let m = s.model();
            let found = wrong(&m, &latencies, 0.01);
            assert_eq!(found, [] as [&str; 0], "{n} approximate, {i}");
            let and = m.junctions.iter().find(|j| j.kind == JunctionKind::And);
            assert_eq!(and.map(|j| j.matching), Some(Matching::Nearest));
        }
    }
}

#[test]
fn without_recorded_calls_the_model_says_that_the_items_of_an_approximate_synchroniser_are_unknown()
{
    for n in NUMBERS {
        let [_, approximate] = systems(n);
        for (i, (sensors, mut chance)) in approximate.into_iter().enumerate() {
            let how = (true, Seen::DataFlow);
            let (s, _) = fuse(&sensors, Approximate::new(n), how, &mut chance);
            let m = s.model();
            let unknown = |line: &String| {
                line.contains("do not show which items") || line.contains("might also wait")
            };
            assert!(
                m.assumptions.iter().any(unknown),
                "{n}, {i}: {:?}",
                m.assumptions
            );
        }
    }
}
