//! Tests the transitions of a session, with servers that only record the calls to them.

use super::*;
use crate::options::{ApplicationOptions, EnforcementOptions, HoldAt};
use crate::report::Summary;
use onbeat_plan::schema::{ChainRef, Middleware, Ms, Overshoot, Promises, Slot, SCHEMA};
use onbeat_reserve::{
    AssignError, Change, Pauses, Pulse, Report, Restored, Seen, Server, Stats, SwapError,
};
use onbeat_trace::text;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const MS: u64 = 1_000_000;
const TIMER: &str = "/talker:timer(100ms)";
const OTHER: &str = "/other:timer(100ms)";
pub(super) const TALKER: u32 = 4_000_001;
const FRESH: u32 = 4_000_003;
const VANISHED: u32 = 4_000_009;
const REFUSED: u32 = 4_000_011;
pub(super) const NO_GATE: usize = 5;
const TWIN: u32 = 4_000_101;

type Log = Rc<RefCell<Vec<String>>>;

struct FakeServers(Log, Rc<Cell<Pauses>>);

impl Servers for FakeServers {
    fn forget_ended(&self) -> Vec<u32> {
        vec![]
    }

    fn assign(&self, Seen { tid, .. }: Seen, server: &str) -> Result<(), AssignError> {
        if tid == VANISHED {
            return Err(AssignError::Vanished(tid));
        }
        if tid == REFUSED {
            let source = std::io::Error::from_raw_os_error(libc::EINVAL);
            return Err(AssignError::Cpu {
                tid,
                cpu: 1,
                source,
            });
        }
        self.0.borrow_mut().push(format!("assign {tid} {server}"));
        Ok(())
    }

    fn place(&self, _: u32, _: u16, _: u8) -> Result<(), AssignError> {
        unreachable!("the processes do not exist, so they have no middleware")
    }

    fn set_origin(&self, origin_ns: u64) {
        let offset = origin_ns % (100 * MS) / MS;
        self.0.borrow_mut().push(format!("origin at {offset} ms"));
    }

    fn swap_table(&self, servers: &[Server]) -> Result<(), SwapError> {
        let slots: Vec<_> = servers.iter().map(|s| s.slots.len()).collect();
        if slots.contains(&NO_GATE) {
            return Err(SwapError::NoGate("gamma".into()));
        }
        self.0.borrow_mut().push(format!("swap {slots:?}"));
        Ok(())
    }

    fn pulse(&self) -> Pulse {
        Pulse::default()
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }

    fn changes_since(&self, _: &mut u64) -> Vec<Change> {
        vec![]
    }

    fn pauses(&self) -> Pauses {
        self.1.get()
    }

    fn warnings(&self) -> Vec<String> {
        vec!["A warning.".into()]
    }

    fn stop(self: Box<Self>) -> Report {
        self.0.borrow_mut().push("stop".into());
        Report {
            stats: Stats {
                cycles: 42,
                ..Stats::default()
            },
            restored: Restored {
                failures: vec!["cannot put a thread back".into()],
                ..Restored::default()
            },
        }
    }
}

pub(super) fn plan() -> Plan {
    let server = |name: &str, slot: (u64, u64), callback: &str| onbeat_plan::schema::Server {
        name: name.into(),
        cpu: 1,
        priority: 80,
        slots_ms: vec![Slot(Ms(slot.0 * MS), Ms(slot.1 * MS))],
        callbacks: vec![callback.into()],
    };
    Plan {
        schema: SCHEMA.into(),
        strategy: "server-per-chain".into(),
        chains: vec![ChainRef {
            id: "chain-1".into(),
            title: String::new(),
            callbacks: vec![TIMER.into()],
            output: Some("/raw".into()),
        }],
        cycle_ms: Ms(100 * MS),
        origin: TIMER.into(),
        servers: vec![
            server("gamma", (0, 50), TIMER),
            server("rest", (50, 90), OTHER),
        ],
        outputs: vec![],
        inputs: vec![],
        middleware: Middleware {
            cpu: 0,
            priority: 95,
        },
        overshoot: Overshoot::Carry,
        promises: Promises {
            average_ms: Ms(6 * MS),
            worst_ms: Ms(10 * MS),
            jitter_ms: Ms(10 * MS),
            ..Promises::default()
        },
        callbacks: vec![],
        assumes: vec![],
    }
}

pub(super) fn options(command: &[&str]) -> ShapeOptions {
    ShapeOptions {
        application: ApplicationOptions {
            command: command.iter().map(|c| (*c).to_owned()).collect(),
            pids: vec![],
            limits: onbeat_record::Limits::default(),
            users: None,
            find_within: Duration::from_secs(600),
            command_to_stderr: false,
        },
        enforcement: EnforcementOptions {
            dispatcher_cpu: None,
            idle: true,
            enforcer: onbeat_reserve::Choice::Auto,
            gate: GateKind::Hard,
            strict: false,
            hold: HoldAt::default(),
            adapt: None,
        },
        duration: None,
        trace: None,
        program: "/nowhere".into(),
        diagnostics: false,
        hangup: None,
    }
}

fn node(name: &str, handle: &str, at: u64) -> String {
    let head = format!("{at}ms cpu0 {TALKER}/{TALKER}");
    format!(
        "
{head} process command=/opt/{name} distribution=kilted rmw=rmw_fastrtps_cpp
{head} node_init node={handle}1 rmw={handle}1001 name={name} namespace=/
{head} publisher_init publisher={handle}10 node={handle}1 rmw={handle}1010 topic=/raw
{head} timer_init timer={handle}50 period_ns=100ms
{head} timer_callback timer={handle}50 callback={handle}60
{head} timer_node timer={handle}50 node={handle}1
"
    )
}

pub(super) fn nodes(at: u64) -> String {
    node("talker", "0x1", at) + &node("other", "0x2", at)
}

pub(super) fn run(handle: &str, tid: u32, at: u64) -> String {
    let head = |at: u64| format!("{at}ms cpu0 {TALKER}/{tid}");
    let (start, end) = (head(at), head(at + 5));
    format!(
        "{start} timer_call timer={handle}50
{start} callback_start callback={handle}60
{end} publish rmw={handle}1010 message=0x99 source_ns={0}ms
{end} callback_end callback={handle}60
",
        at + 5
    )
}

pub(super) struct Harness<'a> {
    pub(super) session: Session<'a>,
    log: Log,
    pauses: Rc<Cell<Pauses>>,
    pub(super) now_ms: u64,
}

impl<'a> Harness<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        options: &'a ShapeOptions,
        report: &'a mut dyn FnMut(&Live),
    ) -> Harness<'a> {
        Harness::of_user(plan, options, report, |_| None)
    }

    fn of_user(
        plan: &'a Plan,
        options: &'a ShapeOptions,
        report: &'a mut dyn FnMut(&Live),
        user_of: fn(u32) -> Option<u32>,
    ) -> Harness<'a> {
        let log = Log::default();
        let theirs = log.clone();
        let pauses = Rc::<Cell<Pauses>>::default();
        let said = pauses.clone();
        let start: StartServers = Box::new(move |servers, origin_ns| {
            let names: Vec<&str> = servers.iter().map(|s| s.name.as_str()).collect();
            let offset = origin_ns % (100 * MS) / MS;
            theirs
                .borrow_mut()
                .push(format!("start {} at {offset} ms", names.join(" ")));
            Ok(Box::new(FakeServers(theirs.clone(), said.clone())))
        });
        let mut session = Session::new(plan, options, report, (start, Arc::default()));
        session.trust = Trust::new(options.application.users.as_deref(), user_of);
        // In these tests a process runs until an event reports its end.
        session.application = Application::new(plan, |_| true);
        // This is later than any time that the session measures itself.
        let now_ms = (monotonic_ns() / MS / 100 + 36_000) * 100;
        let mut harness = Harness {
            session,
            log,
            pauses,
            now_ms,
        };
        harness.push(&nodes(now_ms - 1));
        harness
    }

    pub(super) fn push(&mut self, text: &str) {
        let events = text::parse(text).expect("events");
        self.session.push(&events, &|_| ());
    }

    pub(super) fn cycles(&mut self, count: u64, late_ms: u64) {
        for _ in 0..count {
            let at = self.now_ms + late_ms;
            let both = run("0x1", TALKER, at) + &run("0x2", TALKER + 1, at + 50);
            self.push(&both);
            self.now_ms += 100;
        }
    }

    pub(super) fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut *self.log.borrow_mut())
    }
}

fn found() -> [String; 3] {
    [
        "start gamma rest at 0 ms".into(),
        format!("assign {TALKER} gamma"),
        format!("assign {} rest", TALKER + 1),
    ]
}

#[test]
fn shaping_begins_once_all_callbacks_are_found_and_restores_threads_at_its_end() {
    let (plan, options) = (plan(), options(&[]));
    let mut report = |_: &Live| ();
    let mut harness = Harness::new(&plan, &options, &mut report);
    assert_eq!(harness.session.live().missing, [TIMER, OTHER]);
    harness.cycles(11, 0);
    assert!(matches!(harness.session.stage, Stage::Finding(_)));
    assert!(harness.session.live().missing.is_empty());
    harness.cycles(1, 0);
    assert!(matches!(harness.session.stage, Stage::Shaping(_)));
    assert_eq!(harness.take_log(), found());
    harness.cycles(10, 0);
    let live = harness.session.live();
    assert_eq!((live.executions, live.judgements.len()), (10, 10));
    assert!(live.shaping.is_some() && live.notes == ["A warning."]);
    assert_eq!(harness.take_log(), Vec::<String>::new());
    let (summary, error) = harness.session.end();
    assert!(error.is_none());
    assert_eq!(*harness.log.borrow(), ["stop"]);
    assert!(summary.verdict.is_kept(), "{:?}", summary.verdict);
    assert_eq!(summary.judgements.len(), 10);
    assert_eq!(summary.stats.map(|s| s.cycles), Some(42));
    assert_eq!(summary.notes, ["A warning.", "cannot put a thread back"]);
    let places: Vec<_> = summary.placed.iter().map(|p| (p.tid, &*p.place)).collect();
    assert_eq!(places, [(TALKER, "gamma"), (TALKER + 1, "rest")]);
}

#[test]
fn cycles_without_an_output_are_counted_and_break_the_promise() {
    let (plan, options) = (plan(), options(&[]));
    let mut report = |_: &Live| ();
    let mut harness = Harness::new(&plan, &options, &mut report);
    harness.cycles(12, 0);
    let since_ns = harness.now_ms * MS;
    let (course, _) = harness.session.stage.course_mut().expect("it is shaped");
    course.deliveries.count_from(since_ns);
    harness.cycles(8, 0);
    // The timer does not run three times, and then it runs without publishing.
    harness.now_ms += 300;
    let silent = run("0x1", TALKER, harness.now_ms);
    let silent: Vec<&str> = silent.lines().filter(|l| !l.contains("publish")).collect();
    harness.push(&(silent.join("\n") + "\n"));
    harness.now_ms += 100;
    harness.cycles(60, 0);
    assert_eq!(harness.session.live().without, 4);
    let (summary, _) = harness.session.end();
    let figure = |name: &str| summary.verdict.figures.iter().find(|f| f.name == name);
    let kept = figure("cycles with an output").and_then(|f| f.kept);
    assert_eq!(kept, Some(false));
    let without = figure("cycles without an output").map(|f| f.measured);
    assert_eq!(without, Some(4.0));
}

#[test]
fn pauses_of_shaping_are_reported_and_shaping_ends_with_its_guard() {
    let (plan, options) = (plan(), options(&[]));
    let mut report = |_: &Live| ();
    let mut harness = Harness::new(&plan, &options, &mut report);
    harness.cycles(12, 0);
    let thawed = Pauses {
        thawed_by_guard: 3,
        ..Pauses::default()
    };
    harness.pauses.set(thawed);
    harness.cycles(2, 0);
    assert!(matches!(harness.session.stage, Stage::Shaping(_)));
    let notes = harness.session.live().notes;
    assert!(
        notes.len() == 2 && notes[1].contains("3 times"),
        "{notes:?}"
    );
    harness.pauses.set(Pauses {
        guard_lost: true,
        ..thawed
    });
    harness.take_log();
    harness.cycles(1, 0);
    assert!(harness.session.stage.is_stopped());
    assert_eq!(harness.take_log(), ["stop"]);
    let notes = harness.session.live().notes;
    assert!(notes[0].contains("The guard (process gate-keeper) has ended"));
    assert!(harness.session.error.is_none());
}

#[test]
fn shaping_that_ends_before_its_duration_breaks_the_promise() {
    let mut plan = plan();
    for (overshoot, lost) in [(Overshoot::Carry, true), (Overshoot::Carry, false)] {
        plan.overshoot = overshoot;
        let mut options = options(&[]);
        options.duration = Some(Duration::from_secs(1_000_000));
        let mut report = |_: &Live| ();
        let mut harness = Harness::new(&plan, &options, &mut report);
        harness.cycles(20, 0);
        harness.pauses.set(Pauses {
            guard_lost: lost,
            ..Pauses::default()
        });
        harness.cycles(1, 0);
        assert_eq!(harness.session.stage.is_stopped(), lost);
        let (summary, _) = harness.session.end();
        let shaped = summary.verdict.figures.iter();
        let shaped = shaped.filter(|f| f.name == "time shaped");
        let kept: Vec<_> = shaped.map(|f| f.kept).collect();
        assert_eq!(kept, vec![Some(false); usize::from(lost)]);
        assert_eq!(summary.verdict.is_kept(), !lost, "{:?}", summary.verdict);
    }
}

#[test]
fn the_policy_for_late_outputs_waits_until_a_new_process_has_settled() {
    let (plan, options) = (plan(), options(&[]));
    let mut report = |_: &Live| ();
    let mut harness = Harness::new(&plan, &options, &mut report);
    harness.cycles(13, 0);
    let has_policy = |harness: &mut Harness| {
        let at_ns = harness.now_ms * MS;
        let Stage::Shaping(shaping) = &mut harness.session.stage else {
            panic!("the application is not shaped");
        };
        (shaping.course.has_policy(at_ns), shaping.has_policy(&plan))
    };
    // The clock of this machine is behind these events, so five cycles have not passed yet.
    assert_eq!(has_policy(&mut harness), (true, false));
    let Stage::Shaping(shaping) = &mut harness.session.stage else {
        panic!("the application is not shaped");
    };
    shaping.first_restarted(&plan);
    assert_eq!(has_policy(&mut harness), (false, false));
    harness.cycles(11, 30);
    assert_eq!(
        has_policy(&mut harness),
        (false, false),
        "the session looks for the policy"
    );
    harness.cycles(1, 30);
    assert!(has_policy(&mut harness).0, "the session finds the policy");
}

#[test]
fn a_session_that_ends_before_shaping_judges_nothing() {
    let (plan, options) = (plan(), options(&[]));
    let mut report = |_: &Live| ();
    let mut harness = Harness::new(&plan, &options, &mut report);
    harness.cycles(5, 0);
    harness.session.ending();
    assert!(harness.session.stage.is_stopped());
    // Events after the end begin nothing.
    harness.cycles(20, 0);
    assert!(harness.session.stage.is_stopped() && !harness.session.is_over());
    let (summary, error) = harness.session.end();
    assert!(error.is_none() && harness.log.borrow().is_empty());
    assert_eq!(summary, Summary::default());
}

#[test]
fn threads_that_start_later_are_assigned_and_the_origin_follows_a_timer_that_was_set_again() {
    let (plan, options) = (plan(), options(&[]));
    let mut report = |_: &Live| ();
    let mut harness = Harness::new(&plan, &options, &mut report);
    harness.cycles(12, 0);
    harness.take_log();
    let at = harness.now_ms;
    harness.push(&run("0x1", FRESH, at));
    assert_eq!(harness.take_log(), [format!("assign {FRESH} gamma")]);
    harness.push(&run("0x1", VANISHED, at + 10));
    harness.push(&run("0x1", VANISHED, at + 20));
    let roles = &harness.session.application.roles;
    assert!(!roles.threads().contains_key(&VANISHED));
    harness.now_ms += 100;
    // The timer was set again.
    harness.cycles(64, 30);
    assert_eq!(harness.take_log(), ["origin at 30 ms"]);
}

#[test]
fn a_process_of_another_user_with_the_plans_nodes_is_not_shaped() {
    let plan = plan();
    let mut options = options(&[]);
    options.application.users = Some(vec![1000]);
    for (user, is_shaped) in [(1000, true), (1001, false)] {
        let user_of = match user {
            1000 => |_| Some(1000),
            _ => |_| Some(1001),
        };
        let mut report = |_: &Live| ();
        let mut harness = Harness::of_user(&plan, &options, &mut report, user_of);
        harness.cycles(13, 0);
        assert_eq!(harness.take_log().is_empty(), !is_shaped);
        assert_eq!(harness.session.live().missing.is_empty(), is_shaped);
    }
}

#[test]
fn a_shaped_command_continues_after_an_error_of_the_session() {
    for (command, runs_on) in [(&["robot"][..], true), (&[], false)] {
        let plan = plan();
        let mut options = options(command);
        options.enforcement.strict = true;
        let mut report = |_: &Live| ();
        let mut harness = Harness::new(&plan, &options, &mut report);
        harness.cycles(13, 0);
        harness.take_log();
        // A thread of one server runs a callback of the other.
        let at = harness.now_ms;
        harness.push(&run("0x2", TALKER, at));
        let error = harness.session.error.as_ref().map(ToString::to_string);
        let error = error.expect("two servers");
        assert!(error.contains("belong to different servers"), "{error}");
        assert_eq!(harness.session.runs_on(), runs_on);
        assert_eq!(harness.session.is_over(), !runs_on);
        assert_eq!(harness.session.stage.is_stopped(), runs_on);
        let stopped = harness.take_log().contains(&"stop".to_owned());
        assert_eq!(stopped, runs_on);
        let notes = harness.session.live().notes;
        let said = notes
            .iter()
            .any(|n| n.ends_with("The application continues to run, unshaped."));
        assert_eq!(said, runs_on, "{notes:?}");
    }
}

#[test]
fn a_session_ends_after_its_duration() {
    let plan = plan();
    let options = ShapeOptions {
        duration: Some(Duration::ZERO),
        ..options(&[])
    };
    let mut report = |_: &Live| ();
    let mut harness = Harness::new(&plan, &options, &mut report);
    harness.cycles(11, 0);
    assert!(!harness.session.is_over());
    harness.cycles(1, 0);
    assert!(harness.session.is_over());
    // Executions after the end do not count.
    harness.cycles(10, 0);
    assert_eq!(harness.session.live().executions, 0);
}

#[test]
fn all_events_are_recorded_only_during_shaping_and_only_on_request() {
    for wanted in [true, false] {
        let (plan, mut options) = (plan(), options(&[]));
        options.trace = wanted.then(|| "/trace".into());
        let mut report = |_: &Live| ();
        let mut harness = Harness::new(&plan, &options, &mut report);
        let at = harness.now_ms + 90_000_000;
        let events = text::parse(&(nodes(at) + &run("0x1", TALKER, at + 1))).expect("events");
        let kept = |s: &Session| events.iter().filter(|e| s.is_kept(e)).count();
        let of_nodes = kept(&harness.session);
        assert!(of_nodes < events.len() && (of_nodes > 0) == wanted);
        harness.cycles(12, 0);
        let expected = if wanted { events.len() } else { 0 };
        assert_eq!(kept(&harness.session), expected);
        // After the end, threads have no priority any more, so their events are not kept.
        harness.session.stop();
        assert_eq!(kept(&harness.session), of_nodes);
    }
}

#[test]
fn servers_that_fail_to_start_end_the_session_and_change_no_thread() {
    let (plan, options) = (plan(), options(&["robot"]));
    let mut report = |_: &Live| ();
    let mut harness = Harness::new(&plan, &options, &mut report);
    harness.session.start_servers = Box::new(|_, _| Err(StartError::NoFreezer("none".into())));
    harness.cycles(12, 0);
    assert!(harness.session.is_over() && !harness.session.runs_on());
    let (summary, error) = harness.session.end();
    assert!(error.is_some_and(|e| e.is_refusal()));
    assert!(summary.placed.is_empty());
}

fn of_twin(text: &str) -> String {
    text.replace(&format!("{TALKER}/"), &format!("{TWIN}/"))
}

fn without_and_with_strict(check: impl Fn(&mut Harness, bool)) {
    for strict in [false, true] {
        let plan = plan();
        let mut options = options(&[]);
        options.enforcement.strict = strict;
        let mut report = |_: &Live| ();
        let mut harness = Harness::new(&plan, &options, &mut report);
        harness.cycles(13, 0);
        harness.take_log();
        new_notes(&mut harness);
        check(&mut harness, strict);
    }
}

fn new_notes(harness: &mut Harness) -> Vec<String> {
    harness.session.live().notes
}

#[test]
fn a_thread_that_cannot_be_assigned_is_reported_and_the_others_are_shaped() {
    without_and_with_strict(|harness, strict| {
        let at = harness.now_ms;
        harness.push(&run("0x1", REFUSED, at));
        harness.push(&run("0x1", REFUSED, at + 10));
        assert_eq!(harness.session.error.is_some(), strict);
        if strict {
            return;
        }
        let notes = new_notes(harness);
        assert!(
            notes.len() == 1 && notes[0].contains(&format!("{REFUSED} cannot run on CPU 1")),
            "{notes:?}"
        );
        // A thread of one server runs a callback of the other and stays in its server.
        harness.push(&run("0x2", TALKER, at + 20));
        harness.push(&run("0x2", TALKER, at + 30));
        let notes = new_notes(harness);
        assert!(
            notes.len() == 1 && notes[0].contains("different servers"),
            "{notes:?}"
        );
        harness.now_ms += 100;
        harness.cycles(10, 0);
        assert!(matches!(harness.session.stage, Stage::Shaping(_)));
        assert_eq!(harness.take_log(), Vec::<String>::new());
        assert!(harness.session.live().executions >= 8);
    });
}

#[test]
fn shaping_fails_only_if_no_thread_can_be_assigned() {
    let (both, options) = (plan(), options(&[]));
    let mut report = |_: &Live| ();
    let mut harness = Harness::new(&both, &options, &mut report);
    for _ in 0..12 {
        let at = harness.now_ms;
        let both = run("0x1", TALKER, at) + &run("0x2", REFUSED, at + 50);
        harness.push(&both);
        harness.now_ms += 100;
    }
    assert!(harness.session.error.is_none());
    assert!(matches!(harness.session.stage, Stage::Shaping(_)));
    assert_eq!(harness.take_log()[1..], [format!("assign {TALKER} gamma")]);
    assert!(new_notes(&mut harness)
        .iter()
        .any(|n| n.contains(&REFUSED.to_string())));
    let mut plan = plan();
    plan.servers.truncate(1);
    let mut report = |_: &Live| ();
    let mut harness = Harness::new(&plan, &options, &mut report);
    for _ in 0..12 {
        let at = harness.now_ms;
        harness.push(&run("0x1", REFUSED, at));
        harness.now_ms += 100;
    }
    let error = harness.session.error.as_ref().map(ToString::to_string);
    assert!(error.is_some_and(|e| e.contains("cannot run on CPU 1")));
}

#[test]
fn a_second_instance_is_ignored_until_the_first_has_ended() {
    without_and_with_strict(|harness, strict| {
        let at = harness.now_ms;
        harness.push(&of_twin(&nodes(at)));
        harness.push(&of_twin(&run("0x1", TWIN, at + 33)));
        assert_eq!(harness.session.error.is_some(), strict);
        if strict {
            let error = harness.session.error.as_ref().map(ToString::to_string);
            assert!(error.is_some_and(|e| e.contains("End one of them")));
            return;
        }
        let before = harness.session.live();
        assert!(
            before.notes.len() == 1 && before.notes[0].contains("the second instance"),
            "{:?}",
            before.notes
        );
        // The executions of the second instance do not count, and its phase is not followed.
        for _ in 0..70 {
            let at = harness.now_ms + 33;
            harness.push(&of_twin(&run("0x1", TWIN, at)));
            harness.cycles(1, 0);
        }
        assert_eq!(harness.take_log(), Vec::<String>::new());
        let live = harness.session.live();
        assert_eq!(
            (live.executions, live.notes.len()),
            (before.executions + 70, 0)
        );
        // The first instance ends, and the second one belongs to the application now.
        let at = harness.now_ms;
        harness.push(&format!("{at}ms cpu0 {TALKER}/{TALKER} exit\n"));
        harness.push(&of_twin(&run("0x1", TWIN, at + 33)));
        assert_eq!(harness.take_log(), [format!("assign {TWIN} gamma")]);
        let notes = new_notes(harness);
        assert!(
            notes.len() == 1 && notes[0].contains(&format!("now runs in process {TWIN}")),
            "{notes:?}"
        );
    });
}

#[test]
fn a_reused_thread_id_is_assigned_again() {
    let (plan, options) = (plan(), options(&[]));
    let mut report = |_: &Live| ();
    let mut harness = Harness::new(&plan, &options, &mut report);
    harness.cycles(13, 0);
    harness.take_log();
    let at = harness.now_ms;
    harness.push(&run("0x1", FRESH, at));
    harness.push(&format!("{}ms cpu0 {TALKER}/{FRESH} exit\n", at + 10));
    harness.push(&run("0x1", FRESH, at + 20));
    let again = format!("assign {FRESH} gamma");
    assert_eq!(harness.take_log(), [again.clone(), again]);
}

#[test]
fn callbacks_that_share_a_gated_thread_are_named_before_shaping_begins() {
    let (mut plan, options) = (plan(), options(&[]));
    // `/other` is in no plan now. It runs on a thread of its own and on a thread of the plan.
    plan.servers.truncate(1);
    let mut report = |_: &Live| ();
    let mut harness = Harness::new(&plan, &options, &mut report);
    for shares in [true, false].into_iter().cycle().take(12) {
        let at = harness.now_ms;
        let tid = if shares { TALKER } else { FRESH };
        let both = run("0x1", TALKER, at) + &run("0x2", tid, at + 50);
        harness.push(&both);
        harness.now_ms += 100;
    }
    assert!(matches!(harness.session.stage, Stage::Shaping(_)));
    let notes = new_notes(&mut harness);
    assert_eq!(
        notes[0],
        format!("1 callback outside of the plan shares the plan's threads and will run only in the slots of these threads: {OTHER} (thread {TALKER}, 6 runs).")
    );
    // If all slots are always open, no callback has to wait.
    let mut open = plan.clone();
    open.servers[0].slots_ms.clear();
    let mut report = |_: &Live| ();
    let mut harness = Harness::new(&open, &options, &mut report);
    for _ in 0..12 {
        let at = harness.now_ms;
        let both = run("0x1", TALKER, at) + &run("0x2", TALKER, at + 50);
        harness.push(&both);
        harness.now_ms += 100;
    }
    assert_eq!(new_notes(&mut harness), ["A warning."]);
}

#[test]
fn an_optional_callback_does_not_delay_shaping_and_is_shaped_as_soon_as_it_runs() {
    let (mut plan, options) = (plan(), options(&[]));
    for required in [true, false] {
        plan.callbacks = vec![onbeat_plan::schema::CallbackRule {
            id: OTHER.into(),
            required,
        }];
        let mut report = |_: &Live| ();
        let mut harness = Harness::new(&plan, &options, &mut report);
        for _ in 0..13 {
            let at = harness.now_ms;
            harness.push(&run("0x1", TALKER, at));
            harness.now_ms += 100;
        }
        let is_shaping = matches!(harness.session.stage, Stage::Shaping(_));
        assert_eq!(is_shaping, !required);
        if is_shaping {
            harness.take_log();
            let at = harness.now_ms;
            harness.push(&run("0x2", FRESH, at + 50));
            assert_eq!(harness.take_log(), [format!("assign {FRESH} rest")]);
        }
    }
}
