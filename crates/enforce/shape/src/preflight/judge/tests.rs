//! Tests the lines about machines that are simulated as directories of files.

use super::*;
use std::fs;
use std::path::Path;

fn plan() -> Plan {
    let text = include_bytes!("../../../../plan/tests/golden/plan.yaml");
    let mut plan = onbeat_plan::file::read(text).expect("a plan");
    plan.servers.iter_mut().for_each(|s| s.cpu = 1);
    plan.middleware.cpu = 0;
    plan.promises.utilisation = [(1, 0.6)].into();
    plan
}

fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Facts) {
    let dir = tempfile::tempdir().expect("a directory");
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }
    let facts = Facts::read(dir.path());
    (dir, facts)
}

const GOOD: &[(&str, &str)] = &[
    (
        "proc/version",
        "Linux version 6.8.0 (x) #1 SMP PREEMPT_DYNAMIC Fri",
    ),
    ("proc/sys/kernel/osrelease", "6.8.0\n"),
    ("proc/cmdline", "quiet preempt=none preempt=full isolcpus=1"),
    ("proc/timer_list", "  .resolution: 1 nsecs\n"),
    (
        "proc/self/mountinfo",
        "1 2 0:3 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    ),
    ("proc/sys/kernel/sched_rt_runtime_us", "950000\n"),
    ("proc/sys/kernel/sched_rt_period_us", "1000000\n"),
    ("proc/irq/9/effective_affinity_list", "0\n"),
    ("proc/irq/9/eth0/x", ""),
    (
        "boot/config-6.8.0",
        "CONFIG_HZ=1000\nCONFIG_PREEMPT_VOLUNTARY=y\n",
    ),
    ("sys/devices/system/cpu/online", "0-1\n"),
    ("sys/devices/system/cpu/isolated", "1\n"),
    (
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
        "performance\n",
    ),
    (
        "sys/devices/system/cpu/cpu1/topology/thread_siblings_list",
        "1\n",
    ),
    ("sys/devices/system/cpu/cpu1/cpuidle/state1/latency", "2\n"),
    ("sys/devices/system/cpu/cpu1/cpuidle/state1/disable", "0\n"),
    (
        "sys/devices/system/clocksource/clocksource0/current_clocksource",
        "tsc\n",
    ),
];

fn with(changed: &[(&'static str, &'static str)]) -> Facts {
    let kept = GOOD
        .iter()
        .filter(|(path, _)| !changed.iter().any(|(p, _)| p == path));
    let files: Vec<_> = kept.chain(changed).copied().collect();
    machine(&files).1
}

fn grades(facts: &Facts) -> Vec<(&'static str, Grade)> {
    let lines = judge(facts, &plan(), 0);
    assert!(lines.iter().all(|l| !l.found.is_empty()));
    let bad = lines.iter().filter(|l| l.grade != Grade::Ok);
    bad.map(|l| (l.about, l.grade)).collect()
}

#[test]
fn the_preflight_of_a_good_machine_advises_no_change() {
    let (_dir, facts) = machine(GOOD);
    let lines = judge(&facts, &plan(), 0);
    let bad: Vec<_> = lines.iter().filter(|l| l.grade != Grade::Ok).collect();
    assert!(bad.is_empty(), "{bad:?}");
    assert_eq!(
        (facts.preemption, facts.hz),
        (Some(Preemption::Full), Some(1000))
    );
}

#[test]
fn each_bad_machine_setting_gives_one_line_with_advice() {
    use Grade::{Note, Risk};
    type Files = &'static [(&'static str, &'static str)];
    let cases: &[(Files, &str, Grade)] = &[
        (
            &[(
                "sys/kernel/debug/sched/preempt",
                "(none) voluntary full lazy\n",
            )],
            "preemption model",
            Risk,
        ),
        (
            &[("sys/kernel/debug/sched/preempt", "none (voluntary) full\n")],
            "preemption model",
            Note,
        ),
        (&[("proc/cmdline", "")], "preemption model", Note),
        (
            &[("proc/timer_list", ".resolution: 4000000 nsecs\n")],
            "timers",
            Risk,
        ),
        (&[("proc/self/mountinfo", "")], "cgroup freezer", Risk),
        (
            &[("proc/sys/kernel/sched_rt_runtime_us", "500000")],
            "real-time throttling",
            Risk,
        ),
        (
            &[
                ("sys/fs/cgroup/cpu/cpu.rt_runtime_us", "950000\n"),
                ("sys/fs/cgroup/cpu/robot/cpu.rt_runtime_us", "0\n"),
            ],
            "cgroup limits for the CPU time of real-time threads",
            Note,
        ),
        (
            &[("sys/devices/system/cpu/isolated", "\n")],
            "isolated CPUs",
            Note,
        ),
        (
            &[("proc/irq/9/effective_affinity_list", "0-1\n")],
            "interrupts",
            Note,
        ),
        (
            &[(
                "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
                "powersave\n",
            )],
            "CPU frequency",
            Note,
        ),
        (
            &[(
                "sys/devices/system/cpu/cpu1/topology/thread_siblings_list",
                "0-1\n",
            )],
            "hardware threads",
            Note,
        ),
        (
            &[(
                "sys/devices/system/clocksource/clocksource0/current_clocksource",
                "hpet\n",
            )],
            "clock source",
            Risk,
        ),
        (
            &[("sys/devices/system/cpu/online", "0\n")],
            "CPUs of the plan",
            Risk,
        ),
    ];
    for (changed, about, grade) in cases {
        let facts = with(changed);
        assert_eq!(grades(&facts), [(*about, *grade)], "{changed:?}");
        let lines = judge(&facts, &plan(), 0);
        let line = lines.iter().find(|l| l.about == *about).expect("a line");
        assert!(line.way_out.is_some(), "{line:?}");
    }
    let shared = judge(&with(&[]), &plan(), 1);
    assert_eq!(shared[0].grade, Note);
}

#[test]
fn each_preemption_model_is_recognised_and_an_unknown_one_is_reported_as_unknown() {
    let of =
        |version: &'static str| with(&[("proc/version", version), ("proc/cmdline", "")]).preemption;
    assert_eq!(
        of("Linux #1 SMP PREEMPT_RT Fri"),
        Some(Preemption::RealTime)
    );
    assert_eq!(of("Linux #1 SMP PREEMPT Fri"), Some(Preemption::Full));
    assert_eq!(of("Linux #1 SMP Fri"), Some(Preemption::Voluntary));
    let (_dir, nothing) = machine(&[]);
    assert_eq!((nothing.preemption, nothing.hz), (None, None));
    assert!(
        Facts::read(Path::new("/")).cpus.contains_key(&0),
        "this machine"
    );
}
