//! Reads the settings of a machine from files. A missing file leaves a setting unknown.

use onbeat_proc::cgroup;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const MAX_FILE_BYTES: usize = 1 << 20;

/// The kernel's preemption model. It decides when a thread of higher priority gets the CPU of a
/// thread that is in a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preemption {
    /// A thread of higher priority gets the CPU only when the running thread's system call ends.
    None,
    /// A thread of higher priority gets the CPU when the running thread's system call ends, and at
    /// chosen points within the call.
    Voluntary,
    /// A real-time thread of higher priority gets the CPU at once, a normal thread at the next
    /// tick.
    Lazy,
    /// A thread of higher priority gets the CPU at once, except while the running thread holds a
    /// spin lock.
    Full,
    /// A thread of higher priority gets the CPU at once, nearly everywhere in the kernel
    /// (PREEMPT_RT).
    RealTime,
}

/// The settings of a machine that matter to shaping.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// The kernel's preemption model. `None` if no file states it.
    pub preemption: Option<Preemption>,
    /// Whether the kernel's parameter `preempt=` can change the preemption model.
    pub preemption_is_dynamic: bool,
    /// The frequency of the kernel's timer interrupt in Hz. `None` if no file states it.
    pub hz: Option<u32>,
    /// The resolution of the kernel's timers, in ns. `None` if it cannot be read.
    pub timer_resolution_ns: Option<u64>,
    /// The first value is true if the freezer of cgroup version 1 is mounted, the second if that of
    /// version 2 is.
    pub freezers: (bool, bool),
    /// The share of each CPU's time that the kernel lets real-time threads use, from 0 to 1
    /// (`sched_rt_runtime_us` / `sched_rt_period_us`). `None` if it is unlimited or unknown.
    pub real_time_share: Option<f64>,
    /// Whether every cgroup directly below the root may run real-time threads. `None` if the kernel
    /// does not divide real-time CPU time among cgroups (RT_GROUP_SCHED), or if this is unknown.
    pub groups_have_real_time: Option<bool>,
    /// The CPUs on which the scheduler places no threads on its own (`isolcpus`). Threads run there
    /// only if their affinity names such a CPU.
    pub isolated: BTreeSet<u16>,
    /// The CPUs that each device's interrupts may use, by the interrupt's name.
    pub interrupts: BTreeMap<String, BTreeSet<u16>>,
    pub cpus: BTreeMap<u16, CpuFacts>,
    /// The kernel's clock source, for example `tsc`. Empty if it is unknown.
    pub clock_source: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuFacts {
    pub governor: Option<String>,
    /// The longest time in us that the CPU needs to wake up from an enabled idle state.
    pub wake_us: Option<u64>,
    pub siblings: BTreeSet<u16>,
}

impl Facts {
    /// Reads the settings of the machine whose /proc and /sys are below `root`.
    pub fn read(root: &Path) -> Facts {
        let at = |path: &str| root.join(path);
        let line = |path: &str| text(&at(path)).trim().to_owned();
        let (preemption, preemption_is_dynamic) = preemption(root);
        let mounts = at("proc/self/mountinfo");
        let (v1, v2) = cgroup::freezers(&mounts).unwrap_or_default();
        let cpus = cpu_list(&line("sys/devices/system/cpu/online"));
        Facts {
            preemption,
            preemption_is_dynamic,
            hz: config(root, "CONFIG_HZ").and_then(|hz| hz.parse().ok()),
            timer_resolution_ns: timer_resolution_ns(&text(&at("proc/timer_list"))),
            freezers: (v1.is_some(), v2.is_some()),
            real_time_share: real_time_share(root),
            groups_have_real_time: groups_have_real_time(root),
            isolated: cpu_list(&line("sys/devices/system/cpu/isolated")),
            interrupts: interrupts(&at("proc/irq")),
            cpus: cpus
                .into_iter()
                .map(|cpu| (cpu, of_cpu(root, cpu)))
                .collect(),
            clock_source: line("sys/devices/system/clocksource/clocksource0/current_clocksource"),
        }
    }
}

fn text(path: &Path) -> String {
    use std::io::Read;
    let mut bytes = Vec::new();
    if let Ok(file) = fs::File::open(path) {
        let _ = file.take(MAX_FILE_BYTES as u64).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(crate) fn cpu_list(text: &str) -> BTreeSet<u16> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        Some(first..=last.min(first.saturating_add(4096)))
    };
    text.split(',').filter_map(range).flatten().collect()
}

fn config(root: &Path, name: &str) -> Option<String> {
    let release = text(&root.join("proc/sys/kernel/osrelease"));
    let release = release.trim();
    let places = [
        format!("boot/config-{release}"),
        format!("lib/modules/{release}/config"),
        format!("usr/lib/modules/{release}/config"),
    ];
    let of = |place: String| {
        let text = text(&root.join(place));
        let mut lines = text.lines();
        lines.find_map(|l| Some(l.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
    };
    places.into_iter().find_map(of)
}

fn preemption(root: &Path) -> (Option<Preemption>, bool) {
    let version = text(&root.join("proc/version"));
    let words: Vec<&str> = version.split_whitespace().collect();
    let has = |word: &str| words.contains(&word);
    let is_dynamic = has("PREEMPT_DYNAMIC");
    if has("PREEMPT_RT") || text(&root.join("sys/kernel/realtime")).trim() == "1" {
        return (Some(Preemption::RealTime), false);
    }
    // The active model is in parentheses.
    let chosen = text(&root.join("sys/kernel/debug/sched/preempt"));
    let chosen = chosen
        .split_once('(')
        .and_then(|(_, rest)| rest.split_once(')'));
    let of = |word: &str| match word {
        "none" => Some(Preemption::None),
        "voluntary" => Some(Preemption::Voluntary),
        "lazy" => Some(Preemption::Lazy),
        "full" => Some(Preemption::Full),
        _ => None,
    };
    if let Some(found) = chosen.and_then(|(word, _)| of(word)) {
        return (Some(found), is_dynamic);
    }
    let line = text(&root.join("proc/cmdline"));
    let mut asked = line
        .split_whitespace()
        .filter_map(|w| w.strip_prefix("preempt="));
    let configured = || {
        let is = |name: &str| config(root, name).is_some_and(|v| v == "y");
        [
            ("CONFIG_PREEMPT_NONE", Preemption::None),
            ("CONFIG_PREEMPT_VOLUNTARY", Preemption::Voluntary),
            ("CONFIG_PREEMPT_LAZY", Preemption::Lazy),
            ("CONFIG_PREEMPT", Preemption::Full),
        ]
        .into_iter()
        .find_map(|(name, model)| is(name).then_some(model))
    };
    let found = match is_dynamic {
        true => asked.next_back().and_then(of).or_else(configured),
        false if has("PREEMPT") => Some(Preemption::Full),
        false => configured(),
    };
    (found, is_dynamic)
}

fn timer_resolution_ns(list: &str) -> Option<u64> {
    let line = list
        .lines()
        .find_map(|l| l.trim().strip_prefix(".resolution:"))?;
    line.trim().strip_suffix(" nsecs")?.trim().parse().ok()
}

fn real_time_share(root: &Path) -> Option<f64> {
    let read = |name: &str| -> Option<i64> {
        let path = format!("proc/sys/kernel/sched_rt_{name}_us");
        text(&root.join(path)).trim().parse().ok()
    };
    let (runtime, period) = (read("runtime")?, read("period")?);
    (runtime >= 0 && period > 0).then(|| runtime as f64 / period as f64)
}

fn groups_have_real_time(root: &Path) -> Option<bool> {
    let places = ["sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"];
    let place = places.map(|p| root.join(p)).into_iter();
    let place = place
        .into_iter()
        .find(|p| p.join("cpu.rt_runtime_us").exists())?;
    let has_none = |dir: PathBuf| text(&dir.join("cpu.rt_runtime_us")).trim() == "0";
    let below = fs::read_dir(place).into_iter().flatten().flatten();
    let mut below = below.map(|entry| entry.path()).filter(|p| p.is_dir());
    Some(!below.any(has_none))
}

fn interrupts(dir: &Path) -> BTreeMap<String, BTreeSet<u16>> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let of = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        name.parse::<u32>().ok()?;
        // An interrupt without a device has no subdirectory, and one without an effective CPU runs
        // nowhere.
        let effective = text(&entry.path().join("effective_affinity_list"));
        let cpus = cpu_list(&effective);
        let has_device = fs::read_dir(entry.path()).ok()?.flatten();
        let has_device = has_device.into_iter().any(|e| e.path().is_dir());
        (has_device && !cpus.is_empty()).then_some((name, cpus))
    };
    entries.filter_map(of).collect()
}

fn of_cpu(root: &Path, cpu: u16) -> CpuFacts {
    let dir = root.join(format!("sys/devices/system/cpu/cpu{cpu}"));
    let governor = text(&dir.join("cpufreq/scaling_governor"))
        .trim()
        .to_owned();
    let states = fs::read_dir(dir.join("cpuidle"))
        .into_iter()
        .flatten()
        .flatten();
    let wake = states.filter_map(|state| {
        let number =
            |name: &str| -> Option<u64> { text(&state.path().join(name)).trim().parse().ok() };
        number("latency").filter(|_| number("disable") == Some(0))
    });
    let mut siblings = cpu_list(&text(&dir.join("topology/thread_siblings_list")));
    siblings.remove(&cpu);
    CpuFacts {
        governor: Some(governor).filter(|g| !g.is_empty()),
        wake_us: wake.max(),
        siblings,
    }
}
