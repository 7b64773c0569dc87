use super::*;
use crate::status::{PlanStatus, Promise};

fn status(executions: u64) -> Status {
    Status {
        state: State::Shaping,
        plan: PlanStatus {
            chains: vec!["a".into()],
            cycle_ns: 100_000_000,
            counts: vec![ChainCounts {
                id: "a".into(),
                executions,
                delivered: executions,
                ..ChainCounts::default()
            }],
            ..PlanStatus::default()
        },
        ..Status::default()
    }
}

fn at(second: u64) -> Moment {
    Moment {
        now: Duration::from_secs(second),
        age: Duration::ZERO,
    }
}

fn level_and_reason(reporter: &mut Reporter, status: &Status, at: Moment) -> (Level, String) {
    let (number, statuses) = reporter.report(status, at);
    reporter.published(number);
    let [status] = &statuses[..] else {
        panic!("{statuses:?}")
    };
    assert_eq!(status.name, "onbeat: a");
    assert_eq!(status.hardware_id, "robot");
    (status.level, status.message.clone())
}

fn reporter() -> Reporter {
    Reporter::new("robot".into())
}

#[test]
fn diagnostic_warnings_cover_the_time_since_the_last_message() {
    let mut reporter = reporter();
    assert_eq!(
        level_and_reason(&mut reporter, &status(10), at(0)),
        (Level::Ok, "10 new executions, all in time".into())
    );
    let mut late = status(20);
    late.plan.counts[0].late = 3;
    late.counts.slips = 1;
    // The report is not published, so the next one repeats the warning.
    let (_, unheard) = reporter.report(&late, at(1));
    assert_eq!(unheard[0].level, Level::Warn);
    late.plan.counts[0].executions = 30;
    let warning = "late outputs: 3; slips of inputs: 1";
    assert_eq!(
        level_and_reason(&mut reporter, &late, at(2)),
        (Level::Warn, warning.into())
    );
    late.plan.counts[0].executions = 40;
    assert_eq!(
        level_and_reason(&mut reporter, &late, at(3)),
        (Level::Ok, "10 new executions, all in time".into())
    );
    let value = |status: &DiagnosticStatus, key: &str| {
        let found = status.values.iter().find(|(k, _)| k == key);
        found.map(|(_, value)| value.clone())
    };
    let (_, statuses) = reporter.report(&late, at(4));
    assert_eq!(value(&statuses[0], "late outputs"), Some("3".into()));
    assert_eq!(value(&statuses[0], "executions"), Some("40".into()));
}

type Change = fn(&mut Status);

#[test]
fn diagnostics_name_every_cause_of_a_warning() {
    let causes: [(Change, &str); 6] = [
        (|s| s.plan.counts[0].late = 1, "late outputs: 1"),
        (|s| s.plan.counts[0].discarded = 1, "discarded outputs: 1"),
        (|s| s.counts.skipped_slots = 4, "skipped slots: 4"),
        (|s| s.counts.lost_reports = 1, "lost reports: 1"),
        (
            |s| s.guard.opened = 1,
            "how often the guard opened all gates: 1",
        ),
        (
            |s| s.guard.silent = 2,
            "how often the dispatcher opened all gates: 2",
        ),
    ];
    for (change, reason) in causes {
        let mut changed = status(1);
        change(&mut changed);
        let mut reporter = reporter();
        assert_eq!(
            level_and_reason(&mut reporter, &changed, at(0)),
            (Level::Warn, reason.into())
        );
        assert_eq!(
            level_and_reason(&mut reporter, &changed, at(1)).0,
            Level::Ok
        );
    }
    let mut finding = status(0);
    finding.state = State::Finding;
    finding.missing = vec!["/a".into(), "/b".into()];
    let reason = "not shaped yet: 2 callbacks are not found";
    assert_eq!(
        level_and_reason(&mut reporter(), &finding, at(0)),
        (Level::Warn, reason.into())
    );
    finding.state = State::Stopped;
    let reason = "shaping has ended and all threads are restored";
    assert_eq!(
        level_and_reason(&mut reporter(), &finding, at(0)),
        (Level::Warn, reason.into())
    );
}

#[test]
fn a_diagnostic_error_lasts_as_long_as_its_cause() {
    let mut reporter = reporter();
    let mut lost = status(1);
    lost.guard.lost = true;
    for second in 0..3 {
        let error = (Level::Error, "the guard has ended".into());
        assert_eq!(level_and_reason(&mut reporter, &lost, at(second)), error);
    }
    lost.state = State::Stopped;
    assert_eq!(
        level_and_reason(&mut reporter, &lost, at(4)).0,
        Level::Error
    );
    let mut broken = status(2);
    let promise = |kept| Promise {
        name: "average",
        unit: "ms",
        kept,
        ..Promise::default()
    };
    broken.promises = vec![promise(None), promise(Some(true))];
    assert_eq!(level_and_reason(&mut reporter, &broken, at(5)).0, Level::Ok);
    broken.promises.push(promise(Some(false)));
    broken.counts.slips = 1;
    let reasons = "promise broken: average; slips of inputs: 1";
    assert_eq!(
        level_and_reason(&mut reporter, &broken, at(6)),
        (Level::Error, reasons.into())
    );
}

#[test]
fn a_chain_without_outputs_is_an_error_and_a_silent_session_is_stale() {
    let mut reporter = reporter();
    for (second, level) in [
        (0, Level::Ok),
        (4, Level::Ok),
        (5, Level::Error),
        (9, Level::Error),
    ] {
        assert_eq!(
            level_and_reason(&mut reporter, &status(7), at(second)).0,
            level,
            "second {second}"
        );
    }
    assert_eq!(
        level_and_reason(&mut reporter, &status(8), at(10)).0,
        Level::Ok
    );
    // Ten cycles of this chain are longer than five seconds.
    let mut slow = status(8);
    slow.plan.cycle_ns = 2_000_000_000;
    assert_eq!(level_and_reason(&mut reporter, &slow, at(29)).0, Level::Ok);
    let error = (Level::Error, "no output for 20 s".into());
    assert_eq!(level_and_reason(&mut reporter, &slow, at(30)), error);
    let old = Moment {
        age: Duration::from_millis(3500),
        ..at(31)
    };
    let stale = (
        Level::Stale,
        "the session has reported nothing for 3 s".into(),
    );
    assert_eq!(level_and_reason(&mut reporter, &slow, old), stale);
    // While the session looks for callbacks, a chain may be without outputs.
    let mut finding = status(0);
    finding.state = State::Finding;
    assert_eq!(
        level_and_reason(&mut reporter, &finding, at(40)).0,
        Level::Warn
    );
    assert_eq!(
        level_and_reason(&mut reporter, &status(0), at(44)).0,
        Level::Ok
    );
}

#[test]
fn diagnostics_are_unconfirmed_while_many_messages_are_unpublished() {
    let mut reporter = reporter();
    let last = (0..20).map(|second| {
        let (number, _) = reporter.report(&status(second), at(second));
        (number, reporter.is_confirmed())
    });
    let heard: Vec<(u32, bool)> = last.collect();
    assert!(heard[0].1 && !heard[19].1);
    // An old number, one that was never sent, and the latest one.
    reporter.published(1);
    reporter.published(999);
    assert!(!reporter.is_confirmed());
    reporter.published(heard[19].0);
    assert!(reporter.is_confirmed());
    for second in 20..40 {
        reporter.report(&status(second), at(second));
    }
    reporter.forget_sent();
    assert!(reporter.is_confirmed());
    let will = reporter.will(&["a".into(), "b".into()]);
    assert!(will.len() == 2 && will.iter().all(|s| s.level == Level::Error));
}

#[test]
fn each_chain_has_a_diagnostic_status_with_its_own_counts() {
    let mut two = status(5);
    two.plan.counts.push(ChainCounts {
        id: "b".into(),
        late: 2,
        ..ChainCounts::default()
    });
    let (_, statuses) = reporter().report(&two, at(0));
    let levels: Vec<_> = statuses
        .iter()
        .map(|s| (s.name.as_str(), s.level))
        .collect();
    assert_eq!(
        levels,
        [("onbeat: a", Level::Ok), ("onbeat: b", Level::Warn)]
    );
}
