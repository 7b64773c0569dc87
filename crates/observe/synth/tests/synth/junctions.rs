//! Junctions of a node's subscriptions that wait for one another: decided, left open, and stated.

use super::structure::System;
use super::*;
use onbeat_document::merge;
use onbeat_document::StatedJunction;

fn junctions(model: &Model) -> Vec<String> {
    let junctions = model.junctions.iter();
    junctions
        .map(|j| format!("{} {:?} {:?}", j.callback, j.kind, j.state))
        .collect()
}

fn stated(s: &System, id: &str, junctions: &[&str]) -> Model {
    let mut options = SynthOptions::new(run(id, DEFAULT_MODE));
    let parse = |text: &&str| text.parse::<StatedJunction>().unwrap();
    options.junctions = junctions.iter().map(parse).collect();
    model_of(&s.trace(), options)
}

/// Simulates a fusion node that waits for both inputs. `/late` always comes last. `round` returns
/// the delays of `/early` and `/late` in us, or `None` for a missing input.
fn fuse(rounds: u64, round: impl Fn(u64) -> (Option<u64>, Option<u64>)) -> System {
    let mut s = System::new();
    let a = s.node("a", &[100], &[], &["/early"]);
    let b = s.node("b", &[100], &[], &["/late"]);
    let f = s.node("f", &[], &["/early", "/late"], &["/out"]);
    let g = s.node("g", &[], &["/out"], &[]);
    let mut stored = [false; 2];
    for i in 1..=rounds {
        let t = 100_000 * i;
        s.timer(t, a, 0, &[0], 1_000);
        s.timer(t, b, 0, &[0], 1_000);
        let (early, late) = round(i);
        let mut inputs: Vec<_> = [(early, 0), (late, 1)]
            .into_iter()
            .filter_map(|(at, input)| Some((t + at?, input)))
            .collect();
        inputs.sort();
        for (at, input) in inputs {
            stored[input] = true;
            let both = stored == [true; 2];
            s.take(
                at,
                f,
                input,
                System::stamp(t, 0),
                if both { &[0] } else { &[] },
                1_000,
            );
            if both {
                stored = [false; 2];
                s.take(at + 3_000, g, 0, System::stamp(at, 0), &[], 1_000);
            }
        }
    }
    s
}

fn always_last() -> System {
    fuse(50, |_| (Some(5_000), Some(9_000)))
}

const EARLY: &str = "/a:timer(100ms) > /f:subscription(/early)";
const LATE: &str = "/b:timer(100ms) > /f:subscription(/late)";
const SYNC: &str = "/f:sync(/out)";
const NEXT: &str = "/g:subscription(/out)";

#[test]
fn a_node_that_takes_its_own_topics_makes_a_chain_without_a_junction() {
    let mut s = System::new();
    let a = s.node("a", &[100], &[], &["/x1"]);
    let n = s.node("n", &[], &["/x1", "/x2", "/x3"], &["/x2", "/x3"]);
    for i in 1..=50 {
        let t = 100_000 * i;
        s.timer(t, a, 0, &[0], 1_000);
        s.take(t + 2_000, n, 0, System::stamp(t, 0), &[0], 1_000);
        s.take(t + 4_000, n, 1, System::stamp(t + 2_000, 0), &[1], 1_000);
        s.take(t + 6_000, n, 2, System::stamp(t + 4_000, 0), &[], 1_000);
    }
    let m = s.model();
    assert_eq!(junctions(&m), [] as [&str; 0]);
    let chain =
        "/a:timer(100ms) > /n:subscription(/x1) > /n:subscription(/x2) > /n:subscription(/x3)";
    assert_eq!(chains(&m), [chain]);
    assert_eq!(m.chains[0].figures.executions, 50);
    assert_eq!(m.chains[0].figures.latency_ns.max(), 7_000_000);
    assert_eq!(m.assumptions, [] as [&str; 0]);
}

#[test]
fn a_controller_does_not_wait_for_effects_of_its_own_output() {
    // One reference value for each state. The plant answers each command with a state.
    let mut s = System::new();
    let r = s.node("reference", &[100], &[], &["/reference"]);
    let c = s.node("controller", &[], &["/reference", "/state"], &["/command"]);
    let p = s.node("plant", &[], &["/command"], &["/state"]);
    let d = s.node("start", &[10_000], &[], &["/state"]);
    s.timer(90_000, d, 0, &[0], 1_000);
    let mut state = System::stamp(90_000, 0);
    for i in 1..=50 {
        let t = 100_000 * i;
        s.timer(t, r, 0, &[0], 1_000);
        s.take(t + 2_000, c, 0, System::stamp(t, 0), &[], 1_000);
        s.take(t + 4_000, c, 1, state, &[0], 1_000);
        s.take(t + 6_000, p, 0, System::stamp(t + 4_000, 0), &[0], 1_000);
        state = System::stamp(t + 6_000, 0);
    }
    let m = s.model();
    assert!(
        m.junctions.iter().all(|j| j.kind == JunctionKind::Or),
        "{:#?}",
        m.junctions
    );
    assert!(!ids(&m).iter().any(|i| i.contains("sync")));
    assert!(
        m.chains.iter().all(|c| c.callbacks.len() <= 4),
        "{:#?}",
        chains(&m)
    );
}

#[test]
fn a_junction_with_one_input_that_is_always_later_is_ambiguous_until_stated() {
    let s = always_last();
    let m = s.model();
    assert_eq!(junctions(&m), [format!("{SYNC} And Ambiguous")]);
    let j = &m.junctions[0];
    assert_eq!(j.readings[0].kind, JunctionKind::And);
    assert_eq!(j.readings[0].inputs, j.inputs);
    assert_eq!(j.readings[1].kind, JunctionKind::Or);
    assert_eq!(j.readings[1].inputs, ["/f:subscription(/late)"]);
    assert_eq!(j.settle, "/f -> /out = and");
    // The chain of the late input exists in both readings.
    let (early, late) = (
        format!("{EARLY} > {SYNC} > {NEXT}"),
        format!("{LATE} > {SYNC} > {NEXT}"),
    );
    assert!(chain(&m, &early).ambiguous && !chain(&m, &late).ambiguous);

    let and = stated(&s, "r1", &["/f -> /out = and"]);
    assert_eq!(junctions(&and), [format!("{SYNC} And Stated")]);
    assert!(and.chains.iter().all(|c| !c.ambiguous));
    assert_eq!(chain(&and, &early).figures, chain(&m, &early).figures);

    let or = stated(&s, "r1", &["/f -> /out = or"]);
    assert_eq!(junctions(&or), [] as [&str; 0]);
    assert_eq!(chains(&or), [EARLY.to_string(), format!("{LATE} > {NEXT}")]);
    // The latency is the same, but no chain passes a synchroniser.
    let (direct, through) = (chain(&or, &format!("{LATE} > {NEXT}")), chain(&m, &late));
    assert_eq!(direct.figures.latency_ns, through.figures.latency_ns);
    assert_eq!(direct.figures.executions, 50);
}

#[test]
fn more_runs_decide_an_ambiguous_junction() {
    let open = always_last().model();
    // In the second run, an early item is missing now and then, and the late one waits for the
    // next.
    let other = fuse(50, |i| ((i % 10 > 0).then_some(5_000), Some(9_000)));
    let decided = stated(&other, "r2", &[]);
    assert_eq!(junctions(&decided), [format!("{SYNC} And Decided")]);
    let both = merge(vec![open.clone(), decided]).unwrap();
    check(&both);
    assert_eq!(junctions(&both), [format!("{SYNC} And Decided")]);
    assert!(both.chains.iter().all(|c| !c.ambiguous));
    let early = format!("{EARLY} > {SYNC} > {NEXT}");
    assert_eq!(chain(&both, &early).figures.executions, 50 + 45);

    // In a third run, the late input publishes without the other, so neither waits.
    let mut s = System::new();
    let b = s.node("b", &[100], &[], &["/late"]);
    let a = s.node("a", &[100], &[], &["/early"]);
    let f = s.node("f", &[], &["/early", "/late"], &["/out"]);
    let g = s.node("g", &[], &["/out"], &[]);
    for i in 1..=50 {
        let t = 100_000 * i;
        s.timer(t, a, 0, &[0], 1_000);
        s.timer(t, b, 0, &[0], 1_000);
        s.take(t + 9_000, f, 1, System::stamp(t, 0), &[0], 1_000);
        s.take(t + 12_000, g, 0, System::stamp(t + 9_000, 0), &[], 1_000);
        if i % 2 == 0 {
            s.take(t + 14_000, f, 0, System::stamp(t, 0), &[], 1_000);
        }
    }
    let apart = stated(&s, "r3", &[]);
    let all = merge(vec![open, apart]).unwrap();
    check(&all);
    assert_eq!(junctions(&all), [] as [&str; 0]);
    assert!(!ids(&all).iter().any(|i| i.contains("sync")));
    // All executions of both runs count, including those that were followed through the
    // synchroniser.
    let late = format!("{LATE} > {NEXT}");
    assert_eq!(chain(&all, &late).figures.executions, 100);
}

#[test]
fn a_guessed_node_has_no_junctions() {
    // Late attach: the names of the nodes are unknown, but the topics are known.
    let named = |line: &&str| !(line.contains("node_init") && line.contains("name=f"));
    let trace = always_last().trace();
    let trace: String = trace
        .lines()
        .filter(named)
        .map(|l| format!("{l}\n"))
        .collect();
    let m = model(&trace);
    assert!(
        m.callbacks.iter().any(|c| c.input == "/late"),
        "{:?}",
        ids(&m)
    );
    assert_eq!(junctions(&m), [] as [&str; 0], "{:?}", m.assumptions);
    assert!(!ids(&m).iter().any(|i| i.contains("sync")));
}

#[test]
fn a_third_input_does_not_join_an_and_junction_of_two_that_wait_for_each_other() {
    // /x and /y wait for one another. /z comes three times for two outputs, and is not part of the
    // junction.
    let mut s = System::new();
    let a = s.node("a", &[100], &[], &["/x", "/y", "/z"]);
    let f = s.node("f", &[], &["/x", "/y", "/z"], &["/out"]);
    let g = s.node("g", &[], &["/out"], &[]);
    for i in 1..=60 {
        let t = 100_000 * i;
        s.timer(t, a, 0, &[0, 1, 2], 1_000);
        if i % 4 != 3 {
            s.take(t + 12_000, f, 2, System::stamp(t, 2), &[], 1_000);
        }
        if i % 2 == 0 {
            let (first, second) = if i % 10 == 0 { (1, 0) } else { (0, 1) };
            s.take(t + 10_000, f, first, System::stamp(t, first), &[], 1_000);
            s.take(t + 15_000, f, second, System::stamp(t, second), &[0], 1_000);
            s.take(t + 20_000, g, 0, System::stamp(t + 15_000, 0), &[], 1_000);
        }
    }
    let m = s.model();
    assert_eq!(junctions(&m), [format!("{SYNC} And Decided")]);
    assert_eq!(
        m.junctions[0].inputs,
        ["/f:subscription(/x)", "/f:subscription(/y)"]
    );
    let third = "/a:timer(100ms) > /f:subscription(/z)";
    assert_eq!(chain(&m, third).figures.executions, 45);
    assert_eq!(m.chains.len(), 3, "{:#?}", chains(&m));
}

/// Simulates a camera of 30 Hz and a lidar of 10 Hz, which a node joins by approximate time. The
/// node publishes when the camera's next image comes, with the previous image. If `approximate` is
/// set, the events name the synchroniser's policy.
fn camera_and_lidar(approximate: bool) -> System {
    let mut s = System::new();
    let c = s.node("camera", &[30], &[], &["/image"]);
    let l = s.node("lidar", &[90], &[], &["/cloud"]);
    let f = s.node("fusion", &[], &["/image", "/cloud"], &["/fused"]);
    let g = s.node("listener", &[], &["/fused"], &[]);
    let take = if approximate {
        System::take_approximate
    } else {
        System::take
    };
    for i in 3..=150 {
        let t = 30_000 * i;
        s.timer(t, c, 0, &[0], 1_000);
        // One image after the cloud.
        let out: &[usize] = if i % 3 == 1 && i > 3 { &[0] } else { &[] };
        take(&mut s, t + 1_000, f, 0, System::stamp(t, 0), out, 1_000);
        if i % 3 == 1 && i > 3 {
            s.take(t + 2_000, g, 0, System::stamp(t + 1_000, 0), &[], 1_000);
        }
        if i % 3 == 0 {
            let t = t + 5_000;
            s.timer(t, l, 0, &[0], 1_000);
            take(&mut s, t + 1_000, f, 1, System::stamp(t, 0), &[], 1_000);
        }
    }
    s
}

#[test]
fn a_synchroniser_by_approximate_time_joins_other_items_than_those_that_trigger_it() {
    let image = "/camera:timer(30ms) > /fusion:subscription(/image) > /fusion:sync(/fused) > /listener:subscription(/fused)";
    let cloud = "/lidar:timer(90ms) > /fusion:subscription(/cloud) > /fusion:sync(/fused) > /listener:subscription(/fused)";
    let latency = |m: &Model, id: &str| {
        let f = &chain(m, id).figures;
        (f.executions, f.latency_ns.max() / 1_000, f.lost)
    };
    let shown = camera_and_lidar(true).model();
    let settled = ["/fusion -> /fused = approximate"];
    let stated = stated(&camera_and_lidar(false), "r1", &settled);
    for m in [&shown, &stated] {
        // The previous image is 30 ms old and the cloud 25 ms. The chain ends with the listener.
        assert_eq!(latency(m, image), (49, 33_000, 0), "{:#?}", chains(m));
        assert_eq!(latency(m, cloud), (49, 28_000, 0));
        assert_eq!(m.junctions[0].matching, Matching::Nearest);
        let e = edge(m, "/fusion:subscription(/image)", "/fusion:sync(/fused)");
        assert_eq!((e.taken, e.lost, e.overwritten), (49, 0, 0));
        assert!(e.unselected >= 95, "{}", e.unselected);
        assert!(m
            .assumptions
            .iter()
            .any(|a| a.contains("nearest to one another")));
    }
    // Otherwise the model says that it is unknown which image was used.
    let open = camera_and_lidar(false).model();
    let said = "The data do not show which items /fusion joins into /fused: in 49 of 49 outputs";
    assert!(
        open.assumptions.iter().any(|a| a.starts_with(said)),
        "{:#?}",
        open.assumptions
    );
    assert_eq!(latency(&open, image), (49, 3_000, 0));
}

#[test]
fn a_stated_junction_excludes_the_other_inputs_of_the_node() {
    // The node has more subscriptions than paths are followed into one output.
    let topics: Vec<String> = (0..20).map(|i| format!("/x{i}")).collect();
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    let mut s = System::new();
    let sources: Vec<usize> = (0..20)
        .map(|i| s.node(&format!("s{i}"), &[100], &[], &[topics[i]]))
        .collect();
    let f = s.node("f", &[], &topics, &["/out"]);
    let g = s.node("g", &[], &["/out"], &[]);
    for round in 1..=20 {
        let t = 100_000 * round;
        for &source in &sources {
            s.timer(t, source, 0, &[0], 500);
        }
        for i in 0..20 {
            let outputs: &[usize] = if i == 19 { &[0] } else { &[] };
            let at = t + 1_000 * (i as u64 + 1);
            s.take(at, f, i, System::stamp(t, 0), outputs, 500);
        }
        s.take(t + 25_000, g, 0, System::stamp(t + 20_000, 0), &[], 500);
    }
    let said = "The model does not list all paths";
    let capped = |m: &Model| m.coverage.iter().any(|c| c.starts_with(said));
    assert!(capped(&stated(&s, "r1", &["/f -> /out = and"])));
    let two = stated(&s, "r1", &["/f(/x18, /x19) -> /out = and"]);
    assert!(!capped(&two), "{:?}", two.coverage);
    for i in [18, 19] {
        let path = format!("/s{i}:timer(100ms) > /f:subscription(/x{i}) > {SYNC} > {NEXT}");
        assert_eq!(chain(&two, &path).figures.executions, 20, "{path}");
    }
}

#[test]
fn chains_of_a_node_with_many_inputs_that_do_not_wait_for_each_other_are_complete() {
    // At the first outputs, more subscriptions have an input than lineages are followed. Only every
    // second output has one input of each, so that no output waits for them.
    const INPUTS: usize = 20;
    let mut s = System::new();
    let topics: Vec<String> = (0..INPUTS).map(|i| format!("/i{i}")).collect();
    let sources = topics.iter().enumerate();
    let sources: Vec<usize> = sources
        .map(|(i, topic)| s.node(&format!("s{i}"), &[100], &[], &[topic]))
        .collect();
    let inputs: Vec<&str> = topics.iter().map(String::as_str).collect();
    let hub = s.node("hub", &[], &inputs, &["/out"]);
    let sink = s.node("sink", &[], &["/out"], &[]);
    for round in 1..=40 {
        let t = 100_000 * round;
        // The input that leads to the output comes last.
        for i in (0..INPUTS).rev().filter(|i| *i == 0 || round % 2 == 0) {
            let at = t + 2_000 * (INPUTS - i) as u64;
            s.timer(at, sources[i], 0, &[0], 1_000);
            let outputs: &[usize] = if i == 0 { &[0] } else { &[] };
            s.take(at + 1_500, hub, i, System::stamp(at, 0), outputs, 500);
        }
        let at = t + 2_000 * INPUTS as u64 + 1_500;
        s.take(at + 2_000, sink, 0, System::stamp(at, 0), &[], 1_000);
    }
    let m = s.model();
    let mut wanted: Vec<_> = (1..INPUTS)
        .map(|i| (format!("/s{i}:timer(100ms) > /hub:subscription(/i{i})"), 20))
        .collect();
    let first = "/s0:timer(100ms) > /hub:subscription(/i0) > /sink:subscription(/out)";
    wanted.push((first.into(), 40));
    wanted.sort();
    let counted = |c: &Chain| (c.callbacks.join(" > "), c.figures.executions);
    let mut seen: Vec<_> = m.chains.iter().map(counted).collect();
    seen.sort();
    assert_eq!(seen, wanted);
}
