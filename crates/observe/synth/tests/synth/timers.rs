//! Timers: when they are due, and which of them are the same callback.

use super::*;

const NODE: &str = "
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=py
1ms cpu0 10/10 clock_kind clock=0x7 time=1
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/out
";

fn py(t: u64, what: &str) -> String {
    format!("{t}us cpu0 10/10 {what}\n")
}

fn make(t: u64, timer: u64, period: u64) -> String {
    [
        py(t, &format!("timer_clock timer={timer:#x} clock=0x7")),
        py(
            t,
            &format!("timer_init timer={timer:#x} period_ns={period}ms"),
        ),
        py(
            t,
            &format!("timer_period timer={timer:#x} period_ns={period}ms"),
        ),
    ]
    .concat()
}

fn call(from: u64, t: u64, timer: u64, within: &str) -> String {
    [
        py(from, "wait_set_init"),
        py(from, "wait"),
        format!("{from}us cpu0 10/10 switch_out next_tid=0 state=1\n"),
        format!("{}us cpu0 10/10 wake waker_tid=0\n", t - 30),
        format!(
            "{}us cpu0 10/10 switch_in prev_tid=0 priority=120 policy=0\n",
            t - 20
        ),
        py(t, &format!("timer_call timer={timer:#x}")),
        py(t + 10, "guard_trigger guard=0x9"),
        within.to_string(),
        py(t + 110, "guard_trigger guard=0x9"),
        py(t + 120, "wait_set_init"),
        py(t + 121, "wait"),
    ]
    .concat()
}

fn worst(model: &Model, id: &str) -> (u64, u64) {
    let f = &callback(model, id).figures;
    (f.release_jitter_ns.max() / 1000, f.response_ns.max() / 1000)
}

#[test]
fn a_timer_used_as_a_watchdog_is_due_one_period_after_its_last_reset() {
    let mut parts = vec![NODE.to_string(), make(1_000, 0x50, 500)];
    // Messages come every 100 ms, with a pause of 800 ms after every fourth. The watchdog fires in
    // the pause.
    let mut t = 1_000;
    for _ in 0..5 {
        for _ in 0..4 {
            t += 100_000;
            parts.push(py(t, "timer_reset timer=0x50"));
        }
        // The executor did not sleep all the time, because other callbacks ran in between.
        parts.push(call(t + 450_000, t + 500_050, 0x50, ""));
        t += 800_000;
    }
    let m = model(&parts.concat());
    let watchdog = callback(&m, "/py:timer(500ms)");
    assert_eq!(watchdog.figures.exec_ns.count(), 5);
    let (jitter, response) = worst(&m, "/py:timer(500ms)");
    assert!(jitter <= 70, "{jitter} us");
    assert!(response <= 200, "{response} us");
}

#[test]
fn one_shot_timers_made_again_are_one_callback() {
    // rclpy: each timer is cancelled and destroyed in its own callback, and another callback makes
    // the next one.
    let mut parts = vec![NODE.to_string()];
    for i in 0..50u64 {
        let (t, timer) = (100_000 * (i + 1), 0x500 + 0x10 * (i % 3));
        parts.push(make(t, timer, 20));
        let cancel = [
            py(t + 20_060, &format!("timer_cancel timer={timer:#x}")),
            py(t + 20_070, &format!("handle_fini handle={timer:#x}")),
        ];
        parts.push(call(t + 10, t + 20_050, timer, &cancel.concat()));
    }
    let m = model(&parts.concat());
    assert_eq!(ids(&m), ["/py:timer(20ms)"]);
    assert_eq!(callback(&m, "/py:timer(20ms)").figures.exec_ns.count(), 50);
    assert!(worst(&m, "/py:timer(20ms)").0 <= 70);
}

#[test]
fn a_one_shot_timer_replaced_before_it_is_destroyed_is_one_callback() {
    // `timer_ = create_timer(...)`: the previous timer ends after the next one was made.
    let mut parts = vec![NODE.to_string()];
    for i in 0..50u64 {
        let (t, timer) = (100_000 * (i + 1), 0x500 + 0x10 * i);
        parts.push(make(t, timer, 20));
        if i > 0 {
            parts.push(py(
                t + 5,
                &format!("handle_fini handle={:#x}", timer - 0x10),
            ));
        }
        let cancel = py(t + 20_060, &format!("timer_cancel timer={timer:#x}"));
        parts.push(call(t + 10, t + 20_050, timer, &cancel));
    }
    let m = model(&parts.concat());
    assert_eq!(ids(&m), ["/py:timer(20ms)"]);
    assert_eq!(callback(&m, "/py:timer(20ms)").figures.exec_ns.count(), 50);
}

#[test]
fn equal_timers_are_numbered_by_their_creation() {
    // The timer made last runs first. The timer made first does not run in the second recording.
    let made = [
        NODE.to_string(),
        make(1_000, 0x50, 20),
        make(1_010, 0x51, 20),
    ]
    .concat();
    let late = (0..5u64).map(|i| {
        let t = 21_050 + 20_000 * i;
        call(
            t - 5_000,
            t,
            0x51,
            &py(t + 20, "publish rmw=0x1010 source_ns=1ms"),
        )
    });
    let late: String = late.collect();
    let both = format!("{made}{late}{}", call(130_000, 141_050, 0x50, ""));
    for trace in [both, [made, late].concat()] {
        let m = model(&trace);
        let publisher = callback(&m, "/py:timer(20ms)#2");
        assert_eq!(publisher.outputs, ["/out"]);
        assert_eq!(publisher.figures.exec_ns.count(), 5);
    }
}

#[test]
fn a_stopped_timer_that_starts_again_gets_another_number_if_a_new_timer_has_its_number() {
    let stop = |t: u64, timer: u64| py(t + 20, &format!("timer_cancel timer={timer:#x}"));
    let trace = [
        NODE.to_string(),
        make(1_000, 0x50, 20),
        call(2_000, 21_050, 0x50, &stop(21_050, 0x50)),
        make(30_000, 0x51, 20),
        call(31_000, 50_050, 0x51, ""),
        py(60_000, "timer_reset timer=0x50"),
        call(61_000, 80_050, 0x50, ""),
        call(81_000, 90_050, 0x51, ""),
    ];
    let m = model(&trace.concat());
    assert_eq!(ids(&m), ["/py:timer(20ms)", "/py:timer(20ms)#2"]);
    let count = |id| callback(&m, id).figures.exec_ns.count();
    assert_eq!(
        (count("/py:timer(20ms)"), count("/py:timer(20ms)#2")),
        (3, 1)
    );
}

#[test]
fn a_stopped_timer_that_starts_again_is_the_same_callback() {
    let stop = |t: u64, timer: u64| py(t + 20, &format!("timer_cancel timer={timer:#x}"));
    let mut parts = vec![
        NODE.to_string(),
        make(1_000, 0x50, 20),
        make(1_000, 0x51, 20),
    ];
    for i in 0..4 {
        let t = 100_000 * i + 21_000;
        parts.push(call(t - 10_000, t + 50, 0x50, &stop(t + 50, 0x50)));
        parts.push(call(t + 1_000, t + 2_000, 0x51, ""));
        parts.push(py(t + 80_000, "timer_reset timer=0x50"));
    }
    let m = model(&parts.concat());
    assert_eq!(ids(&m), ["/py:timer(20ms)", "/py:timer(20ms)#2"]);
    assert!(worst(&m, "/py:timer(20ms)").0 <= 70);
}

#[test]
fn a_cancelled_timer_does_not_run() {
    // The timer was ready together with another one, whose callback cancels it. rcl refuses to call
    // it.
    let trace = [
        NODE.to_string(),
        make(1_000, 0x50, 20),
        make(1_000, 0x51, 10),
        call(2_000, 11_050, 0x51, ""),
        call(12_000, 21_050, 0x51, &py(21_070, "timer_cancel timer=0x50")),
        py(21_200, "timer_call timer=0x50"),
        py(21_300, "wait_set_init"),
    ];
    let m = model(&trace.concat());
    assert_eq!(ids(&m), ["/py:timer(10ms)"]);
}

#[test]
fn releases_are_unknown_on_simulated_time() {
    let mut parts = vec![
        NODE.to_string(),
        py(1_000, "clock_override clock=0x7 active=yes"),
        make(1_010, 0x50, 100),
    ];
    // Simulated time passes at half the rate.
    for i in 1..=5 {
        parts.push(call(200_000 * i - 50_000, 200_000 * i, 0x50, ""));
    }
    let m = model(&parts.concat());
    let f = &callback(&m, "/py:timer(100ms)").figures;
    assert_eq!(f.exec_ns.count(), 5);
    assert_eq!((f.release_jitter_ns.count(), f.response_ns.count()), (0, 0));
    let said = "/py:timer(100ms) ran 5 times on simulated time";
    assert!(
        m.coverage.iter().any(|s| s.starts_with(said)),
        "{:?}",
        m.coverage
    );
}

#[test]
fn a_changed_period_moves_the_releases_and_is_in_the_coverage() {
    let mut parts = vec![NODE.to_string(), make(1_000, 0x50, 20)];
    parts.push(call(10_000, 21_050, 0x50, ""));
    parts.push(py(22_000, "timer_period timer=0x50 period_ns=50ms"));
    parts.push(call(30_000, 41_050, 0x50, ""));
    for i in 1..5 {
        let t = 41_050 + 50_000 * i;
        parts.push(call(t - 10_000, t, 0x50, ""));
    }
    let m = model(&parts.concat());
    assert_eq!(ids(&m), ["/py:timer(20ms)"]);
    assert!(worst(&m, "/py:timer(20ms)").0 <= 70);
    let said = "The period of /py:timer(20ms) was changed once";
    assert!(
        m.coverage.iter().any(|s| s.starts_with(said)),
        "{:?}",
        m.coverage
    );
}

#[test]
fn a_node_made_and_destroyed_repeatedly_is_one_node() {
    let mut parts = Vec::new();
    for i in 0..100u64 {
        let (t, node) = (100_000 * (i + 1), 0x1 + i % 7);
        let timer = 0x500 + 0x10 * (i % 5);
        parts.push(py(
            t,
            &format!("node_init node={node:#x} rmw=0x1001 name=py"),
        ));
        parts.push(py(t, "clock_kind clock=0x7 time=1"));
        let sub = 0x200 + 0x10 * (i % 3);
        parts.push(py(
            t,
            &format!(
                "subscription_init subscription={sub:#x} node={node:#x} rmw={:#x} topic=/in",
                sub + 0x1000
            ),
        ));
        parts.push(make(t, timer, 20));
        parts.push(call(t + 10, t + 20_050, timer, ""));
        for handle in [sub, timer, node] {
            parts.push(py(t + 30_000, &format!("handle_fini handle={handle:#x}")));
        }
    }
    let m = model(&parts.concat());
    assert_eq!(ids(&m), ["/py:timer(20ms)"]);
    assert_eq!(callback(&m, "/py:timer(20ms)").figures.exec_ns.count(), 100);
}

#[test]
fn one_shot_timers_of_an_unknown_node_are_one_callback() {
    // Late attach: no node of the process has a known handle or clock.
    let mut parts = vec![
        py(1_000, "node_found node=0 name=/a"),
        py(1_000, "node_found node=0 name=/b"),
    ];
    for i in 0..10u64 {
        let (t, timer) = (100_000 * (i + 1), 0x500 + 0x10 * i);
        parts.push(make(t, timer, 20));
        if i > 0 {
            parts.push(py(
                t + 5,
                &format!("handle_fini handle={:#x}", timer - 0x10),
            ));
        }
        let cancel = py(t + 20_060, &format!("timer_cancel timer={timer:#x}"));
        parts.push(call(t + 10, t + 20_050, timer, &cancel));
    }
    let m = model(&parts.concat());
    assert_eq!(ids(&m), ["/unknown:timer(20ms)"]);
    assert_eq!(m.callbacks[0].figures.exec_ns.count(), 10);
}

#[test]
fn one_shot_timers_are_one_callback_although_the_first_call_was_not_recorded() {
    // Late attach: probes are attached one after the other. Events of use count only when all are
    // there.
    let mut parts = vec![py(
        500,
        "process command=/opt/py distribution=kilted rmw=x late=yes",
    )];
    parts.push(NODE.to_string());
    for i in 0..10u64 {
        let (t, timer) = (100_000 * (i + 1), 0x500 + 0x10 * i);
        parts.push(make(t, timer, 20));
        let cancel = py(t + 20_060, &format!("timer_cancel timer={timer:#x}"));
        if i == 0 {
            parts.push(cancel);
            continue;
        }
        let before = timer - 0x10;
        parts.push(py(t + 5, &format!("handle_fini handle={before:#x}")));
        parts.push(call(t + 10, t + 20_050, timer, &cancel));
    }
    let m = model(&parts.concat());
    assert_eq!(ids(&m), ["/py:timer(20ms)"]);
    assert_eq!(m.callbacks[0].figures.exec_ns.count(), 9);
}

#[test]
fn late_attach_finds_the_period_and_clock_of_a_timer() {
    // Late attach: the first timer is on steady time, the second on simulated time.
    let mut parts = vec![
        py(
            500,
            "process command=/opt/py distribution=kilted rmw=x late=yes",
        ),
        py(500, "node_found node=0 name=/py"),
        py(600, "clock_kind clock=0x7 time=3"),
        py(600, "timer_found timer=0x50"),
        py(600, "timer_clock timer=0x50 clock=0x7"),
        py(600, "timer_period timer=0x50 period_ns=30ms"),
        py(600, "clock_kind clock=0x8 time=1"),
        py(600, "clock_override clock=0x8 active=yes"),
        py(600, "timer_found timer=0x51"),
        py(600, "timer_clock timer=0x51 clock=0x8"),
        py(600, "timer_period timer=0x51 period_ns=100ms"),
    ];
    for i in 0..10u64 {
        // On a busy machine, the median of the intervals is not the period.
        let t = 30_000 * (i + 1) - 900 * (i % 3);
        parts.push(call(t, t + 10, 0x50, ""));
        parts.push(call(t + 5_000, t + 5_010, 0x51, ""));
    }
    let m = model(&parts.concat());
    assert_eq!(ids(&m), ["/py:timer(100ms)", "/py:timer(30ms)"]);
    let steady = callback(&m, "/py:timer(30ms)");
    assert_eq!(steady.period_ns, Some(30_000_000));
    assert_eq!(steady.figures.exec_ns.count(), 10);
    assert_eq!(
        steady.figures.release_jitter_ns.count(),
        0,
        "its releases are unknown"
    );
    let simulated = &callback(&m, "/py:timer(100ms)").figures;
    let none = (
        simulated.response_ns.count(),
        simulated.release_jitter_ns.count(),
    );
    assert_eq!((simulated.exec_ns.count(), none), (10, (0, 0)));
    let said = "/py:timer(100ms) ran 10 times on simulated time";
    assert!(m.coverage.iter().any(|s| s.starts_with(said)));
    assert!(!m.assumptions.iter().any(|s| s.contains("measured")));
}
