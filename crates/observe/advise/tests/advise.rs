//! Checks the rules on small models: each finds the planted cost, and models without costs get no
//! advice.

use common::{alone, callback, dist, edge, share, thread, COUNT, MS};
use onbeat_advise::{advise, bounds, isolated, json, Advice, Options, Priorities, Rule, HIGHEST};
use onbeat_document::schema::{
    CallbackFigures, CallbackType, Chain, ChainFigures, Helper, HelperFigures, Model, Run, SCHEMA,
};
use std::collections::BTreeMap;

mod common;

const SENSE: &str = "/sense:timer(100ms)";
const DRIVE: &str = "/drive:subscription(/scan)";

/// Makes a model in which node `/sense` publishes `/scan` and node `/drive` takes it. `plant` then
/// changes the model.
fn model(plant: impl FnOnce(&mut Model)) -> Model {
    let latency = 10 * MS + MS / 10;
    let chain = Chain {
        id: "chain-1".into(),
        callbacks: vec![SENSE.into(), DRIVE.into()],
        topics: vec!["/scan".into(), "/cmd".into()],
        assumed: false,
        ambiguous: false,
        from_input: false,
        cut: false,
        figures: ChainFigures {
            executions: COUNT,
            latency_ns: dist(latency),
            shares: vec![
                share("callback", SENSE, 5 * MS, latency),
                share("edge", "/scan", MS / 10, latency),
                share("callback", DRIVE, 5 * MS, latency),
            ],
            ..ChainFigures::default()
        },
        modes: BTreeMap::new(),
        per_run: BTreeMap::new(),
    };
    let mut model = Model {
        schema: SCHEMA.into(),
        runs: vec![Run {
            id: "r".into(),
            host: String::new(),
            boot: String::new(),
            mode: "default".into(),
            distribution: vec![],
            start: 0,
            duration_ns: COUNT * 100 * MS,
            lost: BTreeMap::new(),
            events: 1,
        }],
        callbacks: vec![
            callback("/drive", "/scan", "/cmd"),
            callback("/sense", "", "/scan"),
        ],
        edges: vec![edge(SENSE, DRIVE, "/scan")],
        junctions: vec![],
        chains: vec![chain],
        actions: vec![],
        executors: vec![alone(DRIVE), alone(SENSE)],
        endpoints: Vec::new(),
        end_to_end: Vec::new(),
        helpers: Vec::new(),
        assumptions: vec![],
        coverage: vec![],
        evidence: serde_json::Value::Null,
    };
    plant(&mut model);
    model
}

fn longer(model: &mut Model, part: usize, ns: u64) {
    let figures = &mut model.chains[0].figures;
    let mean = figures.latency_ns.mean() as u64 + ns;
    figures.latency_ns = dist(mean);
    figures.shares[part].mean_ns += ns as f64;
}

fn found(model: &Model) -> Vec<Advice> {
    advise(model, &Options::default()).advices
}

fn only(model: &Model) -> Advice {
    let mut found = found(model);
    assert_eq!(found.len(), 1, "{found:#?}");
    found.remove(0)
}

#[test]
fn a_chain_without_costs_gets_no_advice() {
    assert_eq!(found(&model(|_| ())), vec![]);
}

#[test]
fn waiting_for_other_callbacks_of_the_executor_is_found() {
    let wait = |other_ms: u64| {
        model(|m| {
            let mut other = callback("/drive", "/map", "/grid");
            other.figures.exec_ns = dist(other_ms * MS);
            m.executors[0].callbacks.push(other.id.clone());
            m.callbacks.push(other);
            m.edges[0].figures.waiting_ns = dist(4 * MS);
            longer(m, 1, 4 * MS);
        })
    };
    let advice = only(&wait(30));
    assert_eq!(
        (advice.rule, advice.subject.as_str()),
        (Rule::Executor, DRIVE)
    );
    assert_eq!(advice.cost_ns, Some(4.0 * MS as f64));
    assert!((advice.share - 4.0 / 14.1).abs() < 1e-9, "{advice:?}");
    assert!(advice
        .finding
        .contains("/drive:subscription(/map) (longest 30 ms)"));
    // Others that are never long cannot be the cause.
    assert_eq!(found(&wait(0)), vec![]);
}

#[test]
fn less_important_callbacks_that_go_first_are_named() {
    let inverted = |priority: u8| {
        model(|m| {
            let mut other = callback("/log", "/tick", "/line");
            other.threads = vec![thread(Some(priority), &[0, 1])];
            m.executors.push(alone(&other.id));
            m.callbacks.push(other);
            m.callbacks[0].figures.preempted_ns = dist(3 * MS);
            m.callbacks[0].figures.preemptions = COUNT;
            longer(m, 2, 3 * MS);
        })
    };
    let advice = only(&inverted(30));
    assert_eq!(
        (advice.rule, advice.subject.as_str()),
        (Rule::Priority, DRIVE)
    );
    assert!(advice
        .finding
        .contains("before this callback: /log:subscription(/tick) (priority 30"));
    assert!(advice.remedy.contains("above 30"), "{advice:?}");
    // A callback of lower priority is not the cause.
    let advice = only(&inverted(5));
    assert!(
        advice.finding.contains("not a callback of the model"),
        "{advice:?}"
    );
}

#[test]
fn preemption_by_a_more_important_chain_gets_no_advice() {
    let two = model(|m| {
        let mut other = callback("/brake", "/stop", "/halt");
        other.threads = vec![thread(Some(30), &[1])];
        let mut chain = m.chains[0].clone();
        chain.id = "chain-2".into();
        chain.callbacks = vec![other.id.clone()];
        chain.topics = vec!["/halt".into()];
        chain.figures.shares = vec![share("callback", &other.id, 5 * MS, 5 * MS)];
        chain.figures.latency_ns = dist(5 * MS);
        m.executors.push(alone(&other.id));
        m.callbacks.push(other);
        m.chains.push(chain);
        m.callbacks[0].figures.preempted_ns = dist(3 * MS);
        longer(m, 2, 3 * MS);
    });
    let in_order = |order: Vec<usize>| {
        let options = Options {
            order,
            ..Options::default()
        };
        advise(&two, &options)
    };
    assert_eq!(in_order(vec![1, 0]).advices, vec![]);
    let mut late = two.clone();
    late.callbacks[1].figures.release_jitter_ns = dist(20 * MS);
    let options = Options {
        order: vec![1, 0],
        ..Options::default()
    };
    assert_eq!(advise(&late, &options).advices, vec![]);
    let advices = in_order(vec![0, 1]).advices;
    assert_eq!(advices.len(), 1, "{advices:#?}");
    assert!(advices[0].finding.contains("/brake:subscription(/stop)"));
    // The threads of the more important chain are above the other's, and its end above its
    // beginning.
    let priorities = |order: &[usize]| -> Vec<(String, u8)> {
        let assigned = Priorities::of(&two, order).assigned;
        assigned
            .into_iter()
            .map(|a| (a.callback, a.priority))
            .collect()
    };
    let brake = "/brake:subscription(/stop)".to_owned();
    assert_eq!(
        priorities(&[1, 0]),
        [
            (brake.clone(), HIGHEST),
            (DRIVE.into(), HIGHEST - 1),
            (SENSE.into(), HIGHEST - 2)
        ]
    );
    assert_eq!(priorities(&[0, 1]).last(), Some(&(brake, HIGHEST - 2)));
}

#[test]
fn sleeping_callbacks_full_queues_and_late_timers_are_found() {
    let advice = only(&model(|m| {
        m.callbacks[0].figures.blocked_ns = dist(2 * MS);
        longer(m, 2, 2 * MS);
    }));
    assert_eq!(
        (advice.rule, advice.subject.as_str()),
        (Rule::Blocking, DRIVE)
    );

    let advice = only(&model(|m| {
        m.edges[0].figures.overwritten = 10;
        m.edges[0].figures.taken -= 10;
    }));
    assert_eq!((advice.rule, advice.share), (Rule::Queue, 0.05));
    assert!(advice.remedy.contains("deeper queue"));

    let advice = only(&model(|m| {
        m.callbacks[1].figures.release_jitter_ns = dist(20 * MS);
    }));
    assert_eq!(
        (advice.rule, advice.subject.as_str()),
        (Rule::Release, SENSE)
    );
}

fn helper(name: &str, ready_ns: u64) -> Helper {
    Helper {
        nodes: vec!["/drive".into(), "/log".into()],
        name: name.into(),
        figures: HelperFigures {
            ready_ns: dist(ready_ns),
            exec_ns: COUNT * MS / 100,
            observed_ns: COUNT * 100 * MS,
        },
        threads: vec![thread(None, &[1])],
    }
}

#[test]
fn a_middleware_thread_that_waits_for_its_cpu_is_named() {
    let inhibited = |ready_ns: u64, transport_ns: u64| {
        model(|m| {
            m.helpers = vec![helper("dds.ev", MS / 100), helper("dds.shm", ready_ns)];
            m.edges[0].figures.transport_ns = dist(transport_ns);
            longer(m, 1, transport_ns - MS / 10);
        })
    };
    let advice = only(&inhibited(8 * MS, 6 * MS));
    assert_eq!(
        (advice.rule, advice.subject.as_str()),
        (Rule::Helper, "/drive (dds.shm)")
    );
    // The cost is limited to the time that the items were under way.
    assert_eq!(advice.cost_ns, Some(6.0 * MS as f64));
    assert!(
        advice.finding.contains("time-sharing on CPU 1"),
        "{advice:?}"
    );
    // The first thread gets its CPU at once, and the second one's waits delay no item.
    assert_eq!(found(&inhibited(MS / 100, 6 * MS)), vec![]);
    assert_eq!(found(&inhibited(8 * MS, MS / 10)), vec![]);
}

#[test]
fn an_overloaded_cpu_or_executor_is_reported_once() {
    let advices = found(&model(|m| m.callbacks[0].figures.load = 0.9));
    let subjects: Vec<&str> = advices.iter().map(|a| a.subject.as_str()).collect();
    assert_eq!(
        subjects,
        ["CPU 1", "executor of /drive:subscription(/scan)"]
    );
    assert!(advices
        .iter()
        .all(|a| a.rule == Rule::Load && a.chain.is_none()));
}

#[test]
fn a_wait_at_a_synchroniser_costs_the_chain_of_the_input_that_comes_first() {
    let advice = only(&model(|m| {
        let mut sync = callback("/drive", "", "/cmd");
        sync.id = "/drive:sync(/cmd)".into();
        sync.kind = CallbackType::Sync;
        sync.figures = CallbackFigures::default();
        sync.threads.clear();
        let partner = callback("/drive", "/pose", "");
        m.edges.push(edge(DRIVE, &sync.id, "/scan"));
        m.edges.push(edge(&partner.id, &sync.id, "/pose"));
        let chain = &mut m.chains[0];
        chain.callbacks.push(sync.id.clone());
        chain.topics.insert(1, "/scan".into());
        chain.figures.shares.push(share("edge", "/scan", 0, MS));
        chain
            .figures
            .shares
            .push(share("callback", &sync.id, 0, MS));
        m.callbacks.push(sync);
        m.callbacks.push(partner);
        longer(m, 3, 6 * MS);
    }));
    assert_eq!(
        (advice.rule, advice.cost_ns),
        (Rule::Synchroniser, Some(6.0 * MS as f64))
    );
    assert!(
        advice
            .finding
            .contains("for items of /drive:subscription(/pose)"),
        "{advice:?}"
    );
}

#[test]
fn configurations_use_the_callback_ids_of_the_isolated_executor() {
    let named = model(|m| m.callbacks[0].node = "/dri\"ve".into());
    let priorities = Priorities::of(&named, &[0]);
    let text = isolated(&named, &priorities).unwrap();
    assert!(
        text.contains("  - id: \"/sense@Timer(100000000)\"\n    affinity: [1]\n"),
        "{text}"
    );
    assert!(
        text.contains("  - id: \"/dri\\\"ve@Subscription(/scan)\"\n"),
        "{text}"
    );
    assert!(isolated(&named, &Priorities::default()).is_err());
    let value = json(
        &named,
        &advise(&named, &Options::default()),
        &priorities,
        &bounds(&named, &[0]),
    );
    assert_eq!(value["priorities"][0]["priority"], HIGHEST);
    assert_eq!(value["chains"][0]["id"], "chain-1");
}
