//! Checks bounds of latencies by hand, and against a simulated executor.

use common::{callback, dist, edge, share, MS};
use onbeat_advise::{bounds, NoBound};
use onbeat_document::schema::{
    Callback, CallbackType, Chain, ChainFigures, Executor, Junction, JunctionKind, Model, Run,
    SCHEMA,
};
use onbeat_document::Dist;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[allow(dead_code)]
mod common;

/// A callback of the executor under test, with times in us.
#[derive(Debug, Clone, Copy)]
struct Work {
    is_timer: bool,
    period: u64,
    phase: u64,
    takes: u64,
}

fn us(us: u64) -> u64 {
    us * 1000
}

/// Makes a model with these callbacks on one executor. The node `/source` publishes what the
/// subscriptions take.
fn model(works: &[Work]) -> Model {
    let source = callback("/source", "", "/tick");
    let on = |(i, w): (usize, &Work)| -> Callback {
        let mut c = callback("/node", &format!("/in{i}"), &format!("/out{i}"));
        c.figures.exec_ns = dist(us(w.takes));
        c.figures.interarrival_ns = dist(us(w.period));
        c.period_ns = w.is_timer.then_some(us(w.period));
        if w.is_timer {
            c.kind = CallbackType::Timer;
        }
        c
    };
    let works: Vec<Callback> = works.iter().enumerate().map(on).collect();
    let chain = |c: &Callback| Chain {
        id: c.id.clone(),
        callbacks: vec![source.id.clone(), c.id.clone()],
        topics: vec![c.input.clone(), c.outputs[0].clone()],
        assumed: false,
        ambiguous: false,
        from_input: false,
        cut: false,
        figures: ChainFigures {
            executions: 1,
            latency_ns: dist(MS),
            shares: vec![share("callback", "", MS, MS)],
            ..ChainFigures::default()
        },
        modes: BTreeMap::new(),
        per_run: BTreeMap::new(),
    };
    Model {
        schema: SCHEMA.into(),
        runs: vec![Run {
            id: "r".into(),
            host: String::new(),
            boot: String::new(),
            mode: "default".into(),
            distribution: vec![],
            start: 0,
            duration_ns: MS,
            lost: BTreeMap::new(),
            events: 1,
        }],
        edges: works
            .iter()
            .map(|c| edge(&source.id, &c.id, &c.input))
            .collect(),
        chains: works.iter().map(chain).collect(),
        executors: vec![Executor {
            callbacks: works.iter().map(|c| c.id.clone()).collect(),
            threads: 1,
        }],
        callbacks: works.into_iter().chain([source]).collect(),
        junctions: vec![],
        actions: vec![],
        endpoints: vec![],
        end_to_end: Vec::new(),
        helpers: vec![],
        assumptions: vec![],
        coverage: vec![],
        evidence: serde_json::Value::Null,
    }
}

fn responses(model: &Model) -> Vec<Result<u64, NoBound>> {
    let order: Vec<usize> = (0..model.chains.len()).collect();
    let of = |b: onbeat_advise::ChainBound| b.steps.map(|steps| steps[1].response_ns / 1000);
    bounds(model, &order).into_iter().map(of).collect()
}

fn work(is_timer: bool, period: u64, takes: u64) -> Work {
    Work {
        is_timer,
        period,
        phase: 0,
        takes,
    }
}

#[test]
fn each_of_thousands_of_callbacks_of_an_executor_has_its_busy_period_as_bound() {
    // Searching for each of them alone would take hours.
    let works = vec![work(false, 1_000_000, 100); 5000];
    let all = responses(&model(&works));
    assert_eq!(all, vec![Ok(500_000); 5000]);
}

#[test]
fn the_bound_of_a_response_time_is_the_longest_busy_period_of_the_executor() {
    // The bound is 2 ms, 5 ms, and two times 4 ms of the timer, which is due twice in 15 ms.
    let works = [
        work(false, 100_000, 2000),
        work(false, 50_000, 5000),
        work(true, 10_000, 4000),
    ];
    assert_eq!(
        responses(&model(&works)),
        [Ok(15_000), Ok(15_000), Ok(15_000)]
    );
    // The whole chain adds the source's 5 ms, and 0.1 ms on the way.
    let whole = bounds(&model(&works), &[0]).remove(0);
    assert_eq!(whole.bound_ns(), Some(5 * MS + MS / 10 + us(15_000)));
    assert_eq!(whole.steps.unwrap()[1].others_ns, us(13_000));
}

#[test]
fn other_subscriptions_run_once_per_window_of_the_executor_before_a_waiting_callback() {
    // The executor is busy for 22 ms: 2 ms, and four times 5 ms. But only two windows pass.
    let works = [work(false, 100_000, 2000), work(false, 5500, 5000)];
    assert_eq!(responses(&model(&works))[0], Ok(12_000));
    // A timer may come each time.
    let works = [work(false, 100_000, 2000), work(true, 5500, 5000)];
    assert_eq!(responses(&model(&works))[0], Ok(22_000));
}

#[test]
fn the_bound_counts_timers_that_come_earlier_than_their_period() {
    let works = [work(false, 100_000, 2000), work(true, 10_000, 4000)];
    let mut model = model(&works);
    assert_eq!(responses(&model)[0], Ok(6000));
    let mut between = Dist::new();
    [us(14_500), us(5500)]
        .into_iter()
        .for_each(|ns| between.record(ns));
    model.callbacks[1].figures.interarrival_ns = between;
    assert_eq!(responses(&model)[0], Ok(10_000));
}

#[test]
fn a_chain_without_a_bound_names_the_reason() {
    let too_much = [work(false, 100_000, 2000), work(true, 10_000, 11_000)];
    let id = |i: usize| model(&too_much).chains[i].callbacks[1].clone();
    assert_eq!(
        responses(&model(&too_much))[0],
        Err(NoBound::Overloaded(id(0)))
    );
    let fine = [work(false, 100_000, 2000), work(true, 10_000, 1000)];
    let mut threads = model(&fine);
    threads.executors[0].threads = 2;
    assert_eq!(responses(&threads)[0], Err(NoBound::NoExecutor(id(0))));
    let mut joins = model(&fine);
    joins.junctions.push(Junction {
        callback: id(0),
        kind: JunctionKind::And,
        inputs: vec!["/a".into(), "/b".into()],
        criterion: String::new(),
        confidence: 1.0,
        state: Default::default(),
        matching: Default::default(),
        readings: vec![],
        settle: String::new(),
    });
    assert_eq!(responses(&joins)[0], Err(NoBound::Junction(id(0))));
    let mut unmeasured = model(&fine);
    unmeasured.callbacks[0].figures.exec_ns = Dist::new();
    assert_eq!(responses(&unmeasured)[0], Err(NoBound::Unmeasured(id(0))));
}

#[test]
fn extreme_values_in_a_model_neither_hang_nor_overflow_the_bound() {
    // Each ns of the search brings one more, so it would never end by single steps.
    let mut slow = model(&[work(false, 1, 0), work(false, 1, 0)]);
    let set = |c: &mut Callback, takes: u64, between: u64| {
        c.figures.exec_ns = dist(takes);
        c.figures.interarrival_ns = dist(between);
    };
    set(&mut slow.callbacks[0], 1, 1);
    set(&mut slow.callbacks[1], 1, u64::MAX);
    assert!(matches!(responses(&slow)[0], Err(NoBound::Overloaded(_))));
    for takes in [u64::MAX, u64::MAX / 2] {
        let mut huge = model(&[work(true, 1000, 10), work(false, 1000, 10)]);
        set(&mut huge.callbacks[0], takes, 1);
        set(&mut huge.callbacks[1], takes, u64::MAX);
        huge.callbacks[0].figures.blocked_ns = dist(takes);
        let order: Vec<usize> = (0..huge.chains.len()).collect();
        for bound in bounds(&huge, &order) {
            assert_ne!(bound.bound_ns(), Some(0), "{bound:?}");
        }
    }
}

/// Simulates an executor until `horizon` and returns the longest response time of each callback in
/// `works`, both in us. When all fetched callbacks have run, the executor fetches the callbacks
/// that are ready, and runs timers first. With `again`, the executor looks for due timers before
/// each callback, as ROS 2 distributions before Jazzy do.
fn simulated(works: &[Work], horizon: u64, again: bool) -> Vec<u64> {
    let mut next: Vec<u64> = works.iter().map(|w| w.phase).collect();
    let mut longest = vec![0; works.len()];
    let mut now = 0;
    let mut fetched: Vec<usize> = Vec::new();
    while now < horizon {
        if fetched.is_empty() {
            fetched = (0..works.len()).filter(|&i| next[i] <= now).collect();
            if fetched.is_empty() {
                now = *next.iter().min().expect("there is work");
                continue;
            }
        }
        let due = (0..works.len()).find(|&i| again && works[i].is_timer && next[i] <= now);
        let first = fetched.iter().position(|&i| works[i].is_timer).unwrap_or(0);
        let i = due.unwrap_or(fetched[first]);
        fetched.retain(|&f| f != i);
        now += works[i].takes;
        longest[i] = longest[i].max(now - next[i]);
        next[i] += works[i].period;
    }
    longest
}

fn works() -> impl Strategy<Value = Vec<Work>> {
    let one = (any::<bool>(), 5u64..60, 0u64..60, 1u64..12).prop_map(
        |(is_timer, period, phase, takes)| Work {
            is_timer,
            period: period * 1000,
            phase: phase * 1000,
            takes: takes * 500,
        },
    );
    proptest::collection::vec(one, 2..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn no_simulated_executor_exceeds_the_bound(works in works(), again in any::<bool>()) {
        let seen = simulated(&works, 3_000_000, again);
        let bounds = responses(&model(&works));
        for (i, (seen, bound)) in seen.iter().zip(&bounds).enumerate() {
            if let Ok(bound) = bound {
                prop_assert!(seen <= bound, "work {i}: {seen} us, bound {bound} us");
            }
        }
    }
}
