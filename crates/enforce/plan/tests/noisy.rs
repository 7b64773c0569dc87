//! Checks plans from profiles with a few slow executions.
mod common;

use common::{dist, ms, synthetic};
use onbeat_document::Model;
use onbeat_plan::request::OutputRequest;
use onbeat_plan::{plan, Plan, Request, Strategy};

fn request() -> Request {
    Request {
        outputs: OutputRequest {
            may_leave_out: true,
            ..OutputRequest::default()
        },
        ..Request::default()
    }
}

fn profile(usual: usize, slow_ms: &[f64]) -> Model {
    let mut model = synthetic();
    let mut all: Vec<f64> = (0..usual)
        .map(|i| 30.0 + 20.0 * i as f64 / usual as f64)
        .collect();
    all.extend(slow_ms);
    let chain = &mut model.chains[0];
    chain.figures.latency_ns = dist(&all);
    chain.figures.executions = all.len() as u64;
    let latency = chain.figures.latency_ns.clone();
    chain.per_run.insert("run".into(), latency);
    model
}

fn left_out(plan: &Plan) -> (u64, f64, String) {
    let left_out = plan.promises.left_out.clone().unwrap();
    (left_out.executions, left_out.share, left_out.cause)
}

fn worst_ms(plan: &Plan) -> f64 {
    plan.promises.worst_ms.0 as f64 / 1e6
}

#[test]
fn one_execution_in_600_that_does_not_fit_is_left_out_and_the_miss_rate_counts_it() {
    let model = profile(599, &[392.0]);
    let made = plan(&model, &request()).unwrap();
    assert_eq!(left_out(&made).0, 1);
    assert!((50.0..52.5).contains(&worst_ms(&made)), "{made:?}");
    let miss = made.promises.miss.unwrap();
    // One in 600 happened. With 95 % confidence, at most 0.788 % do.
    assert_eq!((miss.rate, miss.executions, miss.starts), (0.0079, 600, 1));
    // The slow execution has its time until the cycle's end.
    let gamma = made.servers.iter().find(|s| s.name == "gamma").unwrap();
    assert_eq!(gamma.slots_ms[0].1 .0, ms(100.0));
    let share: f64 = made.promises.bands.iter().map(|b| b.share).sum();
    assert!((share - 599.0 / 600.0).abs() < 1e-5, "{share}");
    let text = onbeat_plan::file::write(&made).unwrap();
    assert_eq!(onbeat_plan::file::read(text.as_bytes()).unwrap(), made);
    // Whoever asks for all executions is refused as before.
    assert!(plan(&model, &Request::default()).is_err());
}

#[test]
fn five_percent_of_executions_that_do_not_fit_are_left_out_and_the_promised_miss_rate_is_higher() {
    let slow: Vec<f64> = (0..30).map(|i| 110.0 + f64::from(i)).collect();
    let made = plan(&profile(570, &slow), &request()).unwrap();
    assert_eq!((left_out(&made).0, left_out(&made).1), (30, 0.05));
    let rate = made.promises.miss.unwrap().rate;
    assert!((0.067..0.068).contains(&rate), "{rate}");
    assert!(worst_ms(&made) < 52.5);
}

#[test]
fn a_chain_whose_executions_are_all_too_slow_is_refused_with_the_period_that_would_fit() {
    let slow: Vec<f64> = (0..600).map(|i| 120.0 + f64::from(i) / 10.0).collect();
    let text = plan(&profile(0, &slow), &request())
        .unwrap_err()
        .to_string();
    for part in [
        "None of the 600 executions fits into the cycle.",
        "Without the slowest 1 % of the executions, the chain fits into a period of 190 ms.",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("--miss"), "{text}");
}

#[test]
fn too_many_slow_executions_are_refused_with_their_number() {
    // Of a single execution, no three bands can be made. The number is the same nevertheless.
    for strategy in [Strategy::Bands(1), Strategy::Bands(3)] {
        let request = Request {
            strategy,
            ..request()
        };
        let text = plan(&profile(540, &[120.0; 60]), &request)
            .unwrap_err()
            .to_string();
        assert!(
            text.contains(
                "without the 60 slowest of 600 executions (10 %), but onbeat may leave out at most 47 executions"
            ) && text.contains("fits into a period of 130 ms"),
            "{text}"
        );
    }
}

#[test]
fn a_sample_too_small_to_leave_out_one_execution_is_refused() {
    let text = plan(&profile(20, &[392.0]), &request())
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("may leave out at most 0") && text.contains("Record longer"),
        "{text}"
    );
}

#[test]
fn executions_far_above_the_rest_are_left_out_only_if_the_plan_has_one_band() {
    let mut model = profile(597, &[]);
    model = {
        let mut values: Vec<f64> = (0..597).map(|i| 20.0 + f64::from(i) / 60.0).collect();
        values.extend([85.0, 88.0, 90.0]);
        let latency = dist(&values);
        model.chains[0]
            .per_run
            .insert("run".into(), latency.clone());
        model.chains[0].figures.latency_ns = latency;
        model
    };
    let made = plan(&model, &request()).unwrap();
    assert_eq!(left_out(&made).0, 3);
    assert!(worst_ms(&made) < 32.0, "{}", worst_ms(&made));
    let mut two = request();
    two.strategy = Strategy::Bands(2);
    let two = plan(&model, &two).unwrap();
    assert_eq!(two.promises.left_out, None);
    assert!(worst_ms(&two) > 90.0);
}

#[test]
fn a_wide_profile_without_outliers_keeps_all_its_executions() {
    let made = plan(&profile(600, &[52.0, 60.0, 70.0, 80.0]), &request()).unwrap();
    assert_eq!(made.promises.left_out, None);
    assert_eq!(made.promises.miss, None);
    assert!(worst_ms(&made) > 80.0);
}

#[test]
fn different_latencies_in_two_starts_of_an_application_weaken_the_promise() {
    let mut model = profile(594, &[110.0, 120.0, 130.0, 140.0, 150.0, 160.0]);
    let alone = plan(&model, &request()).unwrap().promises.miss.unwrap();
    // All slow executions, and all of the largest tenth, are of one of two starts.
    let run = model.runs[0].clone();
    model.runs.push(onbeat_document::schema::Run {
        id: "other".into(),
        ..run
    });
    let (mut fast, mut slow) = (vec![], vec![]);
    (0..594).for_each(|i| match i < 297 {
        true => fast.push(30.0 + 20.0 * f64::from(i) / 594.0),
        false => slow.push(30.0 + 20.0 * f64::from(i) / 594.0),
    });
    slow.extend([110.0, 120.0, 130.0, 140.0, 150.0, 160.0]);
    let chain = &mut model.chains[0];
    chain.per_run.insert("run".into(), dist(&fast));
    chain.per_run.insert("other".into(), dist(&slow));
    assert_eq!(alone.independent, 600);
    match plan(&model, &request()) {
        Ok(both) => {
            let both = both.promises.miss.unwrap();
            assert!(both.independent < 100 && both.rate > 2.0 * alone.rate);
        }
        Err(e) => assert!(e.to_string().contains("Record longer"), "{e}"),
    }
}

#[test]
fn the_cause_of_a_slow_execution_is_the_callback_whose_longest_time_explains_it() {
    use onbeat_document::schema::{Cause, Component, ComponentKind};
    let mut model = profile(599, &[392.0]);
    let quiet = plan(&model, &request()).unwrap();
    assert!(left_out(&quiet).2.starts_with("no single callback"));

    let usual = vec![0.1; 599];
    let with = |slow: f64| dist(&[&usual[..], &[slow]].concat());
    let mut thief = Component::of(ComponentKind::Thread);
    (thief.process, thief.thread) = ("stress".into(), "busy".into());
    let cause = |by: Component| Cause {
        by,
        preempted_ns: ms(345.0),
        preempted: 3,
        delayed_ns: 0,
        delayed: 0,
        blocked_ns: 0,
        blocked: 0,
    };
    model.callbacks[2].figures.preempted_ns = with(345.0);
    model.callbacks[2].figures.causes = vec![cause(thief)];
    let why = left_out(&plan(&model, &request()).unwrap()).2;
    assert!(
        why.contains("/n3:subscription(/t2) was preempted, mostly by stress (busy)")
            && why.contains(": up to 344.9 ms more than in 95 % of the executions"),
        "{why}"
    );
    model.callbacks[2].figures.causes = vec![cause(Component::of(ComponentKind::Host))];
    let why = left_out(&plan(&model, &request()).unwrap()).2;
    assert!(why.contains("the host took the CPU from /n3"), "{why}");
    model.callbacks[2].figures.preempted_ns = with(0.1);
    model.callbacks[1].figures.exec_ns = with(350.0);
    let why = left_out(&plan(&model, &request()).unwrap()).2;
    assert!(
        why.contains("/n2:subscription(/t1) itself ran longer"),
        "{why}"
    );
}

#[test]
fn the_promised_miss_rate_holds_as_often_as_its_confidence_says() {
    // A heavy tail: one in 50 takes 60 to 400 ms, so some executions never fit.
    let mut state = 7u64;
    let mut share = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let (mut kept, mut made) = (0, 0);
    for _ in 0..200 {
        let values: Vec<f64> = (0..400)
            .map(|_| match share() < 0.02 {
                true => 60.0 + 340.0 * share(),
                false => 30.0 + 20.0 * share(),
            })
            .collect();
        let mut model = profile(1, &[]);
        let latency = dist(&values);
        model.chains[0]
            .per_run
            .insert("run".into(), latency.clone());
        model.chains[0].figures.latency_ns = latency;
        let plan = plan(&model, &request()).unwrap();
        let Some(miss) = plan.promises.miss else {
            continue;
        };
        let limit = miss.limit_ms.0 as f64 / 1e6;
        let exceeded = 0.02 * (1.0 - ((limit - 60.0) / 340.0).clamp(0.0, 1.0));
        made += 1;
        kept += u32::from(exceeded <= miss.rate);
    }
    assert!(made > 150, "{made}");
    let held = f64::from(kept) / f64::from(made);
    assert!(held >= 0.93, "{held}");
}
