//! Grades the settings of a machine for a plan. Pure.

use super::{Facts, Grade, Line, Preemption};
use onbeat_plan::Plan;
use std::collections::BTreeSet;

/// The limit of a CPU's time to wake up from idling, in us. CPUs that need longer make slots late.
const SLOW_WAKE_US: u64 = 50;

pub(super) fn judge(facts: &Facts, plan: &Plan, dispatcher_cpu: u16) -> Vec<Line> {
    let servers: BTreeSet<u16> = plan.servers.iter().map(|s| s.cpu).collect();
    let all: BTreeSet<u16> = servers.iter().copied().chain([dispatcher_cpu]).collect();
    vec![
        cpus(facts, &servers, dispatcher_cpu, plan.middleware.cpu),
        preemption(facts),
        ticks(facts),
        timers(facts),
        freezer(facts),
        throttling(facts, plan),
        groups(facts),
        isolation(facts, &servers),
        interrupts(facts, &servers),
        governors(facts, &all),
        idle(facts, &all),
        siblings(facts, &servers),
        clock(facts),
    ]
}

fn line(about: &'static str, grade: Grade, found: String, way_out: Option<&str>) -> Line {
    Line {
        grade,
        about,
        found,
        way_out: way_out.map(Into::into),
    }
}

pub(super) fn list(cpus: &BTreeSet<u16>) -> String {
    let mut parts: Vec<(u16, u16)> = Vec::new();
    for &cpu in cpus {
        match parts.last_mut() {
            Some((_, last)) if u32::from(*last) + 1 == u32::from(cpu) => *last = cpu,
            _ => parts.push((cpu, cpu)),
        }
    }
    let part = |&(first, last): &(u16, u16)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

fn cpus(facts: &Facts, servers: &BTreeSet<u16>, dispatcher: u16, middleware: u16) -> Line {
    let about = "CPUs of the plan";
    let used: BTreeSet<u16> = servers
        .iter()
        .copied()
        .chain([dispatcher, middleware])
        .collect();
    let online: BTreeSet<u16> = facts.cpus.keys().copied().collect();
    let gone: BTreeSet<u16> = used.difference(&online).copied().collect();
    if !gone.is_empty() && !online.is_empty() {
        let found = format!("the plan uses CPU {}, which is not online", list(&gone));
        return line(
            about,
            Grade::Risk,
            found,
            Some("plan for the CPUs of this machine (onbeat plan --cpu)"),
        );
    }
    if servers.contains(&dispatcher) {
        let found = format!(
            "the dispatcher shares CPU {dispatcher} with a server and takes time from its slots"
        );
        return line(
            about,
            Grade::Note,
            found,
            Some("give the dispatcher another CPU (--dispatcher-cpu)"),
        );
    }
    let found = format!(
        "servers on CPU {}, dispatcher on CPU {dispatcher}, middleware on CPU {middleware}",
        list(servers)
    );
    line(about, Grade::Ok, found, None)
}

pub(super) fn preemption(facts: &Facts) -> Line {
    let about = "preemption model";
    let full = match facts.preemption_is_dynamic {
        true => "start the kernel with preempt=full (as root, until the next start: echo full > /sys/kernel/debug/sched/preempt)",
        false => "use a kernel with CONFIG_PREEMPT, PREEMPT_DYNAMIC or PREEMPT_RT",
    };
    let (grade, found, way_out) = match facts.preemption {
        Some(Preemption::RealTime) => (Grade::Ok, "PREEMPT_RT", None),
        Some(Preemption::Full) => (Grade::Ok, "full", None),
        Some(Preemption::Lazy) => (
            Grade::Ok,
            "lazy: real-time threads preempt other threads at once, as with preempt=full",
            None,
        ),
        Some(Preemption::Voluntary) => (
            Grade::Note,
            "voluntary: a system call of another thread can delay slots by about 0.1 ms",
            Some(full),
        ),
        Some(Preemption::None) => (
            Grade::Risk,
            "none: a long system call of another thread delays slots until the call ends",
            Some(full),
        ),
        None => (
            Grade::Note,
            "unknown: neither debugfs nor the kernel's configuration can be read",
            Some("mount debugfs (mount -t debugfs none /sys/kernel/debug) and check again"),
        ),
    };
    line(about, grade, found.into(), way_out)
}

fn ticks(facts: &Facts) -> Line {
    let about = "ticks per second (HZ)";
    match facts.hz {
        Some(hz) => {
            let found = format!("{hz}: slots follow high-resolution timers, not ticks");
            line(about, Grade::Ok, found, None)
        }
        None => {
            let found = "unknown: no uncompressed file with the kernel's configuration was found";
            line(
                about,
                Grade::Ok,
                format!("{found}; slots do not depend on it, because they follow high-resolution timers"),
                None,
            )
        }
    }
}

fn timers(facts: &Facts) -> Line {
    let about = "timers";
    match facts.timer_resolution_ns {
        Some(ns) if ns <= 1000 => line(
            about,
            Grade::Ok,
            format!("the kernel's timers have a resolution of {ns} ns"),
            None,
        ),
        Some(ns) => {
            let found = format!(
                "the kernel's timers have a resolution of {:.1} ms, so slots begin and end on ticks",
                ns as f64 / 1e6
            );
            line(
                about,
                Grade::Risk,
                found,
                Some("start the kernel without the options highres=off and nohz=off"),
            )
        }
        None => line(
            about,
            Grade::Note,
            "the timers' resolution is unknown (only root can read /proc/timer_list)".into(),
            None,
        ),
    }
}

fn freezer(facts: &Facts) -> Line {
    let about = "cgroup freezer";
    match facts.freezers {
        (true, true) => line(
            about,
            Grade::Ok,
            "the freezers of cgroup v1 and v2 are mounted (onbeat uses v1)".into(),
            None,
        ),
        (true, false) => line(
            about,
            Grade::Ok,
            "the freezer of cgroup v1 is mounted (onbeat uses it)".into(),
            None,
        ),
        (false, true) => line(
            about,
            Grade::Ok,
            "the freezer of cgroup v2 is mounted (onbeat uses it)".into(),
            None,
        ),
        (false, false) => line(
            about,
            Grade::Risk,
            "no cgroup freezer is mounted, so threads cannot be stopped outside of their slots".into(),
            Some(
                "mount -t cgroup2 none /sys/fs/cgroup; if onbeat runs in a container, give the container the machine's cgroups",
            ),
        ),
    }
}

fn throttling(facts: &Facts, plan: &Plan) -> Line {
    let about = "real-time throttling";
    let Some(share) = facts.real_time_share else {
        return line(about, Grade::Ok, "off".into(), None);
    };
    let over: Vec<String> = plan
        .promises
        .utilisation
        .iter()
        .filter(|(_, used)| **used > share)
        .map(|(cpu, used)| format!("the plan uses {:.0} % of CPU {cpu}", used * 100.0))
        .collect();
    let percent = share * 100.0;
    match over.is_empty() {
        true => {
            let found = format!(
                "real-time threads may use {percent:.0} % of a CPU, and the plan stays below this limit"
            );
            line(about, Grade::Ok, found, None)
        }
        false => {
            let found = format!("{}, but real-time threads may use only {percent:.0} % of a CPU; the kernel stops them for the rest of each period", over.join(", "));
            line(
                about,
                Grade::Risk,
                found,
                Some("plan with less load, or set sysctl kernel.sched_rt_runtime_us=-1"),
            )
        }
    }
}

fn groups(facts: &Facts) -> Line {
    let about = "cgroup limits for the CPU time of real-time threads";
    match facts.groups_have_real_time {
        None => line(about, Grade::Ok, "no cgroup has a limit for the CPU time of its real-time threads".into(), None),
        Some(true) => line(about, Grade::Ok, "each cgroup has a limit for the CPU time of its real-time threads (RT_GROUP_SCHED), and no limit is 0".into(), None),
        Some(false) => line(
            about,
            Grade::Note,
            "in some cgroups, the limit for the CPU time of real-time threads is 0 (RT_GROUP_SCHED), so threads of these cgroups get no real-time priority".into(),
            Some("start the kernel with rt_group_sched=0, or write a time above 0 in us (for example 500000) to cpu.rt_runtime_us of the application's cgroup"),
        ),
    }
}

fn isolation(facts: &Facts, servers: &BTreeSet<u16>) -> Line {
    let about = "isolated CPUs";
    let open: BTreeSet<u16> = servers.difference(&facts.isolated).copied().collect();
    if open.is_empty() {
        return line(
            about,
            Grade::Ok,
            format!("{} (isolcpus)", list(servers)),
            None,
        );
    }
    let found = format!(
        "other threads may run on CPU {} (the plan's threads have precedence, but caches are shared)",
        list(&open)
    );
    let way_out = format!("start the kernel with isolcpus={}", list(&open));
    line(about, Grade::Note, found, Some(&way_out))
}

fn interrupts(facts: &Facts, servers: &BTreeSet<u16>) -> Line {
    let about = "interrupts";
    let hits = |cpus: &BTreeSet<u16>| !cpus.is_disjoint(servers);
    let on: Vec<&str> = facts
        .interrupts
        .iter()
        .filter(|(_, c)| hits(c))
        .map(|(n, _)| n.as_str())
        .collect();
    if on.is_empty() {
        return line(
            about,
            Grade::Ok,
            "no device interrupts on the servers' CPUs".into(),
            None,
        );
    }
    let named = on.iter().take(6).copied().collect::<Vec<_>>().join(", ");
    let more = if on.len() > 6 { " ..." } else { "" };
    let found = format!(
        "{} device interrupts run on the servers' CPUs ({named}{more}); each takes some us from a slot",
        on.len()
    );
    line(
        about,
        Grade::Note,
        found,
        Some("stop irqbalance, and write another CPU to /proc/irq/N/smp_affinity_list"),
    )
}

fn governors(facts: &Facts, cpus: &BTreeSet<u16>) -> Line {
    let about = "CPU frequency";
    let of = |cpu: &u16| facts.cpus.get(cpu).and_then(|c| c.governor.clone());
    let governors: BTreeSet<String> = cpus.iter().filter_map(of).collect();
    let all = governors.iter().cloned().collect::<Vec<_>>().join(", ");
    if governors.is_empty() {
        return line(
            about,
            Grade::Ok,
            "the CPU frequency cannot be set on this machine".into(),
            None,
        );
    }
    match governors.iter().all(|g| g == "performance") {
        true => line(about, Grade::Ok, "governor performance".into(), None),
        false => line(
            about,
            Grade::Note,
            format!("governor {all}: execution times depend on the previous load"),
            Some("set the governor to performance (cpupower frequency-set -g performance)"),
        ),
    }
}

fn idle(facts: &Facts, cpus: &BTreeSet<u16>) -> Line {
    let about = "idle states";
    let of = |cpu: &u16| facts.cpus.get(cpu).and_then(|c| c.wake_us);
    match cpus.iter().filter_map(of).max() {
        None => line(
            about,
            Grade::Ok,
            "the idle states cannot be set on this machine".into(),
            None,
        ),
        Some(us) if us <= SLOW_WAKE_US => line(
            about,
            Grade::Ok,
            format!("a CPU takes at most {us} us to wake up"),
            None,
        ),
        Some(us) => {
            let found = format!("a CPU takes up to {us} us to wake up; while shaping, onbeat keeps CPUs awake (except with --idle)");
            line(about, Grade::Ok, found, None)
        }
    }
}

fn siblings(facts: &Facts, servers: &BTreeSet<u16>) -> Line {
    let about = "hardware threads";
    let of = |cpu: &u16| facts.cpus.get(cpu).map(|c| c.siblings.clone());
    let shared: BTreeSet<u16> = servers.iter().filter_map(of).flatten().collect();
    if shared.is_empty() {
        return line(
            about,
            Grade::Ok,
            "no CPU shares a core with a server's CPU".into(),
            None,
        );
    }
    let found = format!(
        "CPU {0} shares a core with a server's CPU; threads on CPU {0} slow the server down",
        list(&shared)
    );
    line(
        about,
        Grade::Note,
        found,
        Some("turn SMT off (echo off > /sys/devices/system/cpu/smt/control), or run nothing on CPUs that share a core with a server's CPU"),
    )
}

fn clock(facts: &Facts) -> Line {
    let about = "clock source";
    match facts.clock_source.as_str() {
        "" => line(about, Grade::Note, "unknown".into(), None),
        found @ ("hpet" | "acpi_pm" | "jiffies" | "pit" | "refined-jiffies") => line(
            about,
            Grade::Risk,
            format!("{found}: each reading of the clock is a system call and takes microseconds"),
            Some(
                "find out why the kernel does not trust the CPU's own clock (dmesg | grep -i tsc)",
            ),
        ),
        found => line(about, Grade::Ok, found.into(), None),
    }
}

#[cfg(test)]
mod tests;
