//! Tests that another plan replaces the running one completely or not at all.

use super::super::tests::{options, plan, Harness, NO_GATE};
use super::*;
use crate::judge::Verdict;
use crate::report::Live;
use crate::status::Board;
use crate::AdaptOptions;
use onbeat_plan::schema::{Ms, Slot};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn bring(harness: &mut Harness<'_>, plan: Result<Plan, String>) -> Reloaded {
    let now_ns = harness.now_ms * MS - 20 * MS;
    harness.session.reload(plan, |_| now_ns)
}

fn count_from_now(harness: &mut Harness<'_>) {
    let since_ns = harness.now_ms * MS;
    let (course, _) = harness.session.stage.course_mut().expect("it is shaped");
    course.deliveries.count_from(since_ns);
}

fn later() -> Plan {
    let mut plan = plan();
    plan.strategy = "later".into();
    plan.servers[0].slots_ms = vec![Slot(Ms(0), Ms(40 * MS))];
    plan.promises.worst_ms = Ms(4 * MS);
    plan.promises.average_ms = Ms(4 * MS);
    plan
}

fn is_kept(verdict: &Verdict, name: &str) -> Option<bool> {
    let found = verdict.figures.iter().find(|f| f.name.starts_with(name));
    found.and_then(|f| f.kept)
}

#[test]
fn a_new_plan_has_its_own_figures_and_keeps_threads_in_servers() {
    let (plan, options) = (plan(), options(&[]));
    let mut report = |_: &Live| ();
    let mut harness = Harness::new(&plan, &options, &mut report);
    harness.cycles(12, 0);
    count_from_now(&mut harness);
    harness.cycles(10, 0);
    harness.take_log();
    let before = harness.session.live().executions;
    let reloaded = bring(&mut harness, Ok(later()));
    assert_eq!(reloaded.outcome, Outcome::Taken, "{}", reloaded.said);
    assert_eq!(reloaded.said, "Plan 2 (later) is in force now.");
    // The server of the first callback has its guard too. No thread is released or assigned again.
    assert_eq!(harness.take_log(), ["swap [2, 1]"]);
    harness.cycles(30, 0);
    let live = harness.session.live();
    let status = harness.session.status(&live);
    assert_eq!((status.plan.number, &*status.plan.strategy), (2, "later"));
    let earlier = &status.plan.earlier[0];
    assert_eq!((earlier.number, earlier.executions), (1, before));
    let promised = status.promises.iter().find(|p| p.name == "worst case");
    assert_eq!(promised.map(|p| p.promised), Some(4.0));
    assert_eq!(bring(&mut harness, Ok(later())).outcome, Outcome::Same);
    let (summary, error) = harness.session.end();
    assert!(error.is_none());
    assert_eq!(summary.earlier.len(), 1);
    assert_eq!(summary.earlier[0].executions, before);
    assert!(
        summary.earlier[0].verdict.is_kept(),
        "{}",
        summary.earlier[0].sentence()
    );
    assert_eq!(summary.judgements.len() as u64, live.executions);
    let own = summary
        .verdict
        .figures
        .iter()
        .find(|f| f.name == "executions");
    assert_eq!(
        own.map(|f| f.measured),
        Some((live.executions - before) as f64)
    );
    assert_eq!(is_kept(&summary.verdict, "average"), Some(false));
    assert!(!summary.is_kept());
}

#[test]
fn a_cycle_without_output_counts_under_the_plan_of_its_time() {
    let (plan, options) = (plan(), options(&[]));
    let mut report = |_: &Live| ();
    let mut harness = Harness::new(&plan, &options, &mut report);
    harness.cycles(12, 0);
    count_from_now(&mut harness);
    harness.cycles(10, 0);
    harness.now_ms += 100;
    assert_eq!(bring(&mut harness, Ok(later())).outcome, Outcome::Taken);
    harness.now_ms += 200;
    harness.cycles(80, 0);
    let live = harness.session.live();
    assert_eq!(live.without, 3);
    let status = harness.session.status(&live);
    assert_eq!(status.plan.earlier[0].without_output, 1);
    let (summary, _) = harness.session.end();
    assert_eq!(summary.earlier[0].without, 1);
    let without = |f: &&crate::judge::Figure| f.name == "cycles without an output";
    let without = summary.verdict.figures.iter().find(without);
    assert_eq!(without.map(|f| f.measured), Some(2.0));
}

#[test]
fn a_rejected_plan_changes_nothing_and_is_reported() {
    let (plan, options) = (plan(), options(&[]));
    let mut report = |_: &Live| ();
    let mut harness = Harness::new(&plan, &options, &mut report);
    let board = Arc::<Board>::default();
    harness.session.listeners.board = Some(board.clone());
    harness.cycles(14, 0);
    harness.take_log();
    let mut other = later();
    other.cycle_ms = Ms(50 * MS);
    let mut many = later();
    many.servers[1].slots_ms = (0..NO_GATE as u64)
        .map(|n| Slot(Ms((50 + 2 * n) * MS), Ms((51 + 2 * n) * MS)))
        .collect();
    for (plan, outcome, part) in [
        (
            Err("plan.yaml: line 3: invalid value".to_owned()),
            Outcome::Broken,
            "plan.yaml: line 3",
        ),
        (
            Ok(other),
            Outcome::Refused,
            "the new plan's cycle is 50 ms, not 100 ms as in the running plan. To run the new plan, restart onbeat shape",
        ),
        (Ok(many), Outcome::Refused, "has no gate"),
    ] {
        let number = board.reloads().bring(plan).expect("room");
        harness.cycles(1, 0);
        let reloaded = board.reloads().outcome(number).expect("it was said");
        assert_eq!(reloaded.outcome, outcome);
        assert!(reloaded.said.contains(part), "{}", reloaded.said);
        assert!(harness.session.live().notes.contains(&reloaded.said));
        assert_eq!(harness.take_log(), Vec::<String>::new());
        assert_eq!(**harness.session.plans.given(), super::super::tests::plan());
    }
    let live = harness.session.live();
    let status = harness.session.status(&live);
    assert_eq!((status.plan.number, status.plan.refused), (1, 3));
    assert!(status.plan.earlier.is_empty());
}

#[test]
fn shaping_begins_with_a_plan_that_replaced_the_first_plan() {
    let (plan, options) = (plan(), options(&[]));
    let mut report = |_: &Live| ();
    let mut harness = Harness::new(&plan, &options, &mut report);
    harness.cycles(3, 0);
    assert_eq!(bring(&mut harness, Ok(later())).outcome, Outcome::Taken);
    harness.cycles(20, 0);
    let live = harness.session.live();
    assert!(live.executions > 0);
    assert_eq!(harness.session.status(&live).plan.number, 2);
    let (summary, _) = harness.session.end();
    assert!(
        summary.earlier.is_empty(),
        "nothing ran under the first plan"
    );
    assert_eq!(is_kept(&summary.verdict, "average"), Some(false));
    // A session that has ended accepts no plan.
    let mut report = |_: &Live| ();
    let mut harness = Harness::new(&plan, &options, &mut report);
    harness.session.stop();
    let refused = bring(&mut harness, Ok(later()));
    assert!(
        refused.said.contains("shaping has ended"),
        "{}",
        refused.said
    );
}

#[test]
fn with_adapt_the_bands_continue_from_those_of_the_new_plan() {
    let text = include_bytes!("../../../../plan/tests/golden/plan.yaml");
    let mut plan = onbeat_plan::file::read(text).expect("a plan");
    let gamma = plan.servers.iter_mut().find(|s| s.name == "gamma");
    gamma.expect("a server").slots_ms[0].1 = Ms(90 * MS);
    let adapt = AdaptOptions::default();
    let mut options = options(&[]);
    options.enforcement.adapt = Some(adapt);
    let mut report = |_: &Live| ();
    let mut harness = Harness::new(&plan, &options, &mut report);
    harness.session.plans.following = Some(Following::new(&plan, adapt).expect("bands"));
    let mut new = plan.clone();
    let delta = new
        .servers
        .iter_mut()
        .find(|s| s.name == "delta")
        .expect("a server");
    for (slot, band) in delta.slots_ms.iter_mut().zip(&mut new.promises.bands) {
        slot.0 .0 += MS;
        slot.1 .0 += MS;
        band.latency_ms = *slot;
    }
    let reloaded = bring(&mut harness, Ok(new.clone()));
    assert_eq!(reloaded.outcome, Outcome::Taken, "{}", reloaded.said);
    assert_eq!(harness.session.plans.newest().servers, new.servers);
    let adapted = harness
        .session
        .plans
        .following
        .take()
        .expect("they follow")
        .into_adapted();
    assert_eq!(adapted.bands.len(), 2);
    let mut none = new.clone();
    none.promises.bands.clear();
    harness.session.plans.following = Some(Following::new(&plan, adapt).expect("bands"));
    let refused = bring(&mut harness, Ok(none));
    assert_eq!(refused.outcome, Outcome::Refused, "{}", refused.said);
    assert_eq!(harness.session.plans.newest().servers, plan.servers);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_running_plan_is_replaced_completely_or_not_at_all(
        begin in 0u64..10, length in 1u64..39, slots in 1usize..7, cycle in prop::sample::select(vec![50u64, 100, 100, 100]),
        cpu in prop::sample::select(vec![1u16, 1, 1, 2]),
    ) {
        let (running, options) = (plan(), options(&[]));
        let mut report = |_: &Live| ();
        let mut harness = Harness::new(&running, &options, &mut report);
        harness.cycles(13, 0);
        harness.take_log();
        let mut new = later();
        new.cycle_ms = Ms(cycle * MS);
        new.servers[0].cpu = cpu;
        new.servers[0].slots_ms = vec![Slot(Ms(begin * MS), Ms((begin + length) * MS))];
        new.servers[1].slots_ms = (0..slots as u64).map(|n| Slot(Ms((50 + 5 * n) * MS), Ms((51 + 5 * n) * MS))).collect();
        let outcome = bring(&mut harness, Ok(new.clone())).outcome;
        let log = harness.take_log();
        let live = harness.session.live();
        let status = harness.session.status(&live);
        harness.cycles(1, 0);
        let given = (**harness.session.plans.given()).clone();
        let books = harness.session.stage.course().map(|c| c.earlier(None).len());
        if outcome == Outcome::Taken {
            prop_assert!(cycle == 100 && cpu == 1 && slots != NO_GATE);
            prop_assert_eq!(log.len(), 1);
            prop_assert_eq!((given, status.plan.number, books), (new, 2, Some(1)));
        } else {
            prop_assert!(cycle == 50 || cpu == 2 || slots == NO_GATE);
            prop_assert_eq!(log.len(), 0);
            prop_assert_eq!((given, status.plan.number, books), (running.clone(), 1, Some(0)));
        }
    }
}
