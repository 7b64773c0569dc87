//! Tests of the dry run. The application is this test's own thread, which must stay as it is.

use super::*;
use crate::options::{ApplicationOptions, EnforcementOptions, HoldAt};
use onbeat_trace::text;
use std::fs;

fn events(pid: u32, tid: u32) -> String {
    let head = |ms: u64| format!("{ms}ms cpu0 {pid}/{tid}");
    let mut text = format!(
        "{0} process command=/opt/talker distribution=kilted rmw=rmw_fastrtps_cpp
{0} node_init node=0x1 rmw=0x1001 name=talker namespace=/
{0} publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/raw\n",
        head(1)
    );
    for (timer, period) in [("0x50", 100), ("0x51", 70)] {
        text += &format!(
            "{0} timer_init timer={timer} period_ns={period}ms
{0} timer_callback timer={timer} callback={timer}1
{0} timer_node timer={timer} node=0x1\n",
            head(1)
        );
    }
    for cycle in 1..6 {
        let at = cycle * 100;
        for (timer, from) in [("0x50", at), ("0x51", at + 20)] {
            text += &format!(
                "{} timer_call timer={timer}\n{} callback_start callback={timer}1\n{} callback_end callback={timer}1\n",
                head(from),
                head(from),
                head(from + 5)
            );
        }
    }
    text
}

fn plan() -> Plan {
    let text = "schema: onbeat-plan/1
strategy: server-per-chain
chains:
- id: c
  callbacks: ['/talker:timer(100ms)']
  output: /raw
cycle_ms: 100
origin: /talker:timer(100ms)
servers:
- name: gamma
  cpu: 0
  priority: 80
  slots_ms: [[0, 50]]
  callbacks: ['/talker:timer(100ms)']
middleware: {cpu: 0, priority: 95}
promises: {average_ms: 5, worst_ms: 10, jitter_ms: 5, utilisation: {0: 0.5}}
";
    onbeat_plan::file::read(text.as_bytes()).expect("a plan")
}

fn options() -> ShapeOptions {
    ShapeOptions {
        application: ApplicationOptions {
            command: vec![],
            pids: vec![],
            limits: onbeat_record::Limits::default(),
            users: None,
            find_within: Duration::from_secs(1),
            command_to_stderr: false,
        },
        enforcement: EnforcementOptions {
            dispatcher_cpu: None,
            idle: true,
            enforcer: onbeat_reserve::Choice::Auto,
            gate: onbeat_reserve::GateKind::Soft,
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

fn scheduling_and_cgroups(tid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).expect("it lives");
    let cpus = status.lines().find(|l| l.starts_with("Cpus_allowed:"));
    let cgroups = fs::read_to_string(format!("/proc/{tid}/cgroup")).expect("it lives");
    format!("{:?} {cpus:?} {cgroups}", onbeat_reserve::scheduling(tid))
}

#[test]
fn a_dry_run_lists_each_thread_with_its_server_and_changes_none() {
    // SAFETY: gettid takes no arguments and cannot fail.
    let (pid, tid) = (std::process::id(), unsafe { libc::gettid() } as u32);
    let mut child = std::process::Command::new("sleep")
        .arg("600")
        .spawn()
        .expect("sleep");
    let (plan, options, waits) = (plan(), options(), WhoWaits::default());
    let before = scheduling_and_cgroups(tid);
    let mut look = Look::new(&plan, &options, &waits);
    let all = events(pid, tid);
    look.push(&text::parse(&all).expect("events"));
    let mut found = DryRun {
        servers: guarded(&plan),
        ..DryRun::default()
    };
    let (application, risks_seen) = look.end();
    assert!(risks_seen.is_empty(), "{risks_seen:?}");
    describe(&mut found, application, (&waits, plan.cycle_ms.0));
    let is_child = |s: &Started| s.pid == child.id() && s.by == pid;
    assert!(found.started.iter().any(is_child), "{:?}", found.started);
    child
        .kill()
        .and_then(|()| child.wait())
        .expect("it is ours");
    assert_eq!(found.missing, Vec::<String>::new());
    let [thread] = &found.threads[..] else {
        panic!("{:?}", found.threads);
    };
    assert_eq!(
        (thread.tid, thread.pid, &thread.to),
        (tid, pid, &Destination::Server(0))
    );
    assert_eq!(thread.jobs, ["/talker:timer(100ms)"]);
    assert!(
        found.untouched > 0,
        "the harness's own thread counts as untouched"
    );
    let shares: Vec<_> = found
        .sharing
        .iter()
        .map(|u| (u.id.as_str(), u.tid))
        .collect();
    assert_eq!(shares, [("/talker:timer(70ms)", tid)]);
    // The recording shows no thread that waits in rcl_wait.
    assert!(
        found.risks.iter().any(|r| r.contains("rcl_wait")),
        "{:?}",
        found.risks
    );
    assert_eq!(scheduling_and_cgroups(tid), before);
}

#[test]
fn a_dry_run_reports_missing_callbacks_and_bypassing_outputs() {
    let mut plan = plan();
    plan.outputs = serde_json::from_value(serde_json::json!([{
        "topic": "/raw", "callback": "/talker:timer(100ms)", "node": "/talker", "hold": "republish",
        "held_topic": "/raw/onbeat_held", "server": "gamma"}]))
    .expect("outputs");
    plan.servers[0].callbacks.push("/other:timer(1s)".into());
    let (options, waits) = (options(), WhoWaits::default());
    let mut look = Look::new(&plan, &options, &waits);
    let publish = "600ms cpu0 7/7 timer_call timer=0x50
600ms cpu0 7/7 callback_start callback=0x501
604ms cpu0 7/7 publish rmw=0x1010 message=0x99 source_ns=604ms
605ms cpu0 7/7 callback_end callback=0x501
";
    look.push(&text::parse(&(events(7, 7) + publish)).expect("events"));
    let (application, risks_seen) = look.end();
    assert!(
        risks_seen.len() == 1 && risks_seen[0].contains("--remap"),
        "{risks_seen:?}"
    );
    assert_eq!(application.missing(), ["/other:timer(1s)"]);
}
