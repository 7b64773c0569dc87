//! Checks chains with origins of their own. Each has its own plan, and the second plan yields to
//! the first at any phase.
mod common;

use common::{callback, chain, dist, model, ms};
use onbeat_document::schema::{CallbackType, Executor};
use onbeat_document::Model;
use onbeat_plan::request::{CpuRequest, OutputRequest};
use onbeat_plan::schema::{Ms, Server};
use onbeat_plan::{plan, validate, Plan, PlanError, Request, Strategy};
use proptest::prelude::*;

fn pair(
    name: &str,
    period: f64,
    exec: f64,
) -> (Vec<onbeat_document::schema::Callback>, [String; 2]) {
    let ids = [
        format!("/{name}1:timer({period}ms)"),
        format!("/{name}2:subscription(/{name}1)"),
    ];
    let topics = [format!("/{name}1"), format!("/{name}2")];
    let mut timer = callback(&ids[0], CallbackType::Timer, &[exec], &[&topics[0]]);
    timer.period_ns = Some(ms(period));
    timer.figures.interarrival_ns = dist(&[period]);
    let mut takes = callback(&ids[1], CallbackType::Subscription, &[exec], &[&topics[1]]);
    takes.period_ns = Some(ms(period));
    takes.figures.interarrival_ns = dist(&[period]);
    for c in [&mut timer, &mut takes] {
        c.figures.load = exec / period;
        c.threads[0].cpus = vec![1];
    }
    (vec![timer, takes], ids)
}

fn two((period_a, exec_a): (f64, f64), (period_b, exec_b): (f64, f64)) -> Model {
    let (mut callbacks, a) = pair("a", period_a, exec_a);
    let (more, b) = pair("b", period_b, exec_b);
    callbacks.extend(more);
    let ids = |of: &'static str, ids: &[String; 2], exec: f64| {
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let topics = match of {
            "a" => ["/a1", "/a2"],
            _ => ["/b1", "/b2"],
        };
        chain(&format!("chain-{of}"), &ids, &topics, &[2.0 * exec])
    };
    let chains = vec![ids("a", &a, exec_a), ids("b", &b, exec_b)];
    model(callbacks, chains)
}

fn request(chain: &str) -> Request {
    Request {
        chains: vec![chain.into()],
        strategy: Strategy::Bands(1),
        cpus: CpuRequest {
            default: Some(1),
            middleware: Some(0),
            ..CpuRequest::default()
        },
        outputs: OutputRequest {
            epsilon_ns: Some(ms(1.0)),
            slot_ns: Some(ms(1.0)),
            ..OutputRequest::default()
        },
        ..Request::default()
    }
}

fn both(model: &Model) -> Result<(Plan, Plan), PlanError> {
    let first = plan(model, &request("chain-a"))?;
    let second = Request {
        beside: vec![first.clone()],
        priority: 70,
        ..request("chain-b")
    };
    Ok((first, plan(model, &second)?))
}

fn last_slot(plan: &Plan) -> u64 {
    let delta = plan.servers.iter().find(|s| s.name == "delta");
    let last = |s: &Server| s.slots_ms.last().map(|s| s.0 .0);
    delta.and_then(last).expect("outputs have slots")
}

#[test]
fn chains_with_two_origins_need_two_plans() {
    let m = two((50.0, 2.0), (100.0, 3.0));
    let together = Request {
        chains: vec!["chain-a".into(), "chain-b".into()],
        ..request("")
    };
    let refused = plan(&m, &together).unwrap_err();
    assert!(refused.to_string().contains("--beside"), "{refused}");
    let (a, b) = both(&m).unwrap();
    assert_eq!((a.cycle_ms, b.cycle_ms), (Ms(ms(50.0)), Ms(ms(100.0))));
    // The first plan is the same as without the second.
    assert_eq!(last_slot(&a), ms(5.0));
    // The chain takes 6 ms. `a` takes 4 ms before its start and 4 ms within it. The CPU shares add
    // up.
    assert_eq!(last_slot(&b), ms(6.0 + 4.0 + 4.0 + 1.0));
    assert_eq!(b.promises.jitter_ms, Ms(ms((1.0 + 4.0) / 2.0)));
    assert!((b.promises.utilisation[&1] - (0.06 + 0.01 + 0.08 + 0.02)).abs() < 1e-6);
    assert!(b.servers.iter().all(|s| s.priority < 80), "{b:#?}");
    assert!(b
        .assumes
        .iter()
        .any(|s| s.contains("1 plan beside this plan")));
    validate(&b).unwrap();
    // On separate CPUs the chains do not meet.
    let apart = Request {
        beside: vec![a],
        cpus: CpuRequest {
            default: Some(0),
            ..request("chain-b").cpus
        },
        ..request("chain-b")
    };
    assert_eq!(last_slot(&plan(&m, &apart).unwrap()), ms(7.0));
}

#[test]
fn plans_that_would_break_a_plan_enforced_beside_them_are_refused() {
    let m = two((50.0, 2.0), (100.0, 3.0));
    let (a, _) = both(&m).unwrap();
    let beside = |request: Request| Request {
        beside: vec![a.clone()],
        ..request
    };
    let said = |m: &Model, request: Request| plan(m, &beside(request)).unwrap_err().to_string();
    let text = said(&m, request("chain-b"));
    assert!(
        text.contains("--priority 80") && text.contains("78"),
        "{text}"
    );
    let slots = Request {
        priority: 70,
        strategy: Strategy::ServerPerChain,
        ..request("chain-b")
    };
    assert!(said(&m, slots).contains("server-per-chain"));
    let low = || Request {
        priority: 70,
        ..request("chain-b")
    };
    // The model lacks one of `a`'s callbacks, so its load is unknown.
    let mut other = m.clone();
    other.callbacks.remove(1);
    other.chains.remove(0);
    assert!(said(&other, low()).contains("/a2:subscription(/a1)"));
    // The CPU would be used for more than all of its time.
    let full = two((50.0, 20.0), (100.0, 15.0));
    let text = both(&full).unwrap_err().to_string();
    assert!(!text.contains('\n'), "{text}");
    // Both chains have the same callback.
    let mut common = m.clone();
    common.chains[1].callbacks.push(m.callbacks[1].id.clone());
    common.chains[1].topics.push("/a2".into());
    assert!(
        said(&common, low()).contains("belongs to this chain and to the chain of the other plan")
    );
    // Both chains use threads that the first plan freezes between its slots.
    let mut shared = m.clone();
    shared.executors = vec![Executor {
        callbacks: m.callbacks.iter().map(|c| c.id.clone()).collect(),
        threads: 1,
    }];
    let text = said(&shared, low());
    assert!(text.contains("freezes them between its slots"), "{text}");
}

#[test]
fn a_chain_is_planned_up_to_a_callback_of_another_plan() {
    let mut m = two((50.0, 2.0), (100.0, 3.0));
    let mut part = m.chains[1].clone();
    (part.id, part.cut) = ("chain-part".into(), true);
    let common = m.callbacks[1].id.clone();
    m.chains[1].callbacks.push(common.clone());
    m.chains[1].topics.push("/a2".into());
    m.chains.push(part);
    let refused = both(&m).unwrap_err().to_string();
    assert!(refused.contains("--to, --from"), "{refused}");
    let first = plan(&m, &request("chain-a")).unwrap();
    assert!(first.servers.iter().any(|s| s.callbacks.contains(&common)));
    let up_to = Request {
        beside: vec![first],
        priority: 70,
        ..request("chain-part")
    };
    let second = plan(&m, &up_to).unwrap();
    assert!(second
        .servers
        .iter()
        .all(|s| !s.callbacks.contains(&common)));
    assert_eq!(last_slot(&second), ms(6.0 + 4.0 + 4.0 + 1.0));
    validate(&second).unwrap();
}

#[test]
fn threads_shared_by_two_chains_stay_in_the_servers_of_the_first_plan() {
    let mut m = two((50.0, 2.0), (100.0, 3.0));
    m.executors = vec![Executor {
        callbacks: m.callbacks.iter().map(|c| c.id.clone()).collect(),
        threads: 1,
    }];
    let (a, b) = both(&m).unwrap();
    let gamma = a.servers.iter().find(|s| s.name == "gamma").unwrap();
    assert_eq!(gamma.callbacks.len(), 4);
    assert_eq!(gamma.slots_ms[0].1, Ms(ms(50.0)), "open at all times");
    let names: Vec<&str> = b.servers.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["delta"]);
    assert!(b.callbacks.is_empty());
    assert!(
        b.assumes.iter().any(|s| s.contains("must be in force")),
        "{b:#?}"
    );
    // The time of `a` on the thread counts at any phase, not only as measured.
    assert_eq!(last_slot(&b), ms(6.0 + 4.0 + 4.0 + 1.0));
    validate(&b).unwrap();
}

/// Simulates two timers on one CPU for the time `until`. `a` and `b` are pairs of period and
/// execution time. The CPU always runs the work of `a` first, and `phase` shifts the releases of
/// `a`. Returns the longest time from a release of `b` to the end of its work. All times are in
/// tenths of a ms.
fn simulated(a: (u64, u64), b: (u64, u64), phase: u64, until: u64) -> u64 {
    let (mut of_a, mut of_b, mut worst) = (0, 0, 0);
    let mut released = 0;
    for now in 0..until {
        if (now + phase).is_multiple_of(a.0) {
            of_a += a.1;
        }
        if now % b.0 == 0 {
            of_b = b.1;
            released = now;
        }
        match (of_a, of_b) {
            (1.., _) => of_a -= 1,
            (0, 1..) => {
                of_b -= 1;
                if of_b == 0 {
                    worst = worst.max(now + 1 - released);
                }
            }
            _ => {}
        }
    }
    worst
}

proptest! {
    #[test]
    fn a_plan_beside_another_keeps_its_promise_at_any_phase_between_the_cycles(
        a in (200u64..1500, 5u64..60),
        b in (200u64..1500, 5u64..60),
        phase in 0u64..1500,
    ) {
        let tenths = |(period, exec): (u64, u64)| (period as f64 / 10.0, exec as f64 / 10.0);
        let m = two(tenths(a), tenths(b));
        if let Ok((_, second)) = both(&m) {
            let worst = simulated((a.0, 2 * a.1), (b.0, 2 * b.1), phase, 20_000);
            prop_assert!(worst * 100_000 <= last_slot(&second), "{worst} {second:#?}");
        }
    }
}
