//! Facts about the machine that belong to every measurement, and how busy others kept it.

use serde::{Deserialize, Serialize};
use std::fs;

/// The machine at the start of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// CPU model.
    pub cpu: String,
    /// Cores this process may use.
    pub cores: usize,
    /// Kernel release.
    pub kernel: String,
    /// Memory, MB.
    pub memory_mb: u64,
    /// Clock source of the kernel.
    pub clock: String,
    /// True under a hypervisor.
    pub virtual_machine: bool,
}

impl Machine {
    /// Looks at the machine; what cannot be read is empty or 0.
    pub fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let field = |text: &str, key: &str| {
            text.lines()
                .find(|l| l.starts_with(key))
                .and_then(|l| l.split_once(':'))
                .map(|(_, v)| v.trim().to_string())
                .unwrap_or_default()
        };
        Machine {
            cpu: field(&cpuinfo, "model name"),
            cores: std::thread::available_parallelism().map_or(0, |n| n.get()),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_string(),
            memory_mb: field(&read("/proc/meminfo"), "MemTotal")
                .split(' ')
                .next()
                .and_then(|kb| kb.parse::<u64>().ok())
                .unwrap_or(0)
                / 1024,
            clock: read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
                .trim()
                .to_string(),
            virtual_machine: cpuinfo
                .lines()
                .any(|l| l.starts_with("flags") && l.contains(" hypervisor")),
        }
    }
}

/// How the CPUs were used over an interval: a busy machine or a busy host explains bad figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Load average over one minute at the start.
    pub load1_start: f64,
    /// The same at the end.
    pub load1_end: f64,
    /// Share of all CPU time that was used, by whomever.
    pub busy: f64,
    /// Share of CPU time that the host took away (steal).
    pub steal: f64,
}

/// A reading of the counters behind [`Load`].
#[derive(Debug, Clone)]
pub struct LoadMeter {
    load1: f64,
    ticks: Vec<u64>,
}

impl LoadMeter {
    /// Reads them now.
    pub fn start() -> Self {
        let load1 = fs::read_to_string("/proc/loadavg")
            .ok()
            .and_then(|t| t.split(' ').next().and_then(|v| v.parse().ok()))
            .unwrap_or(0.0);
        let ticks = fs::read_to_string("/proc/stat")
            .ok()
            .and_then(|t| {
                t.lines().next().map(|l| {
                    l.split_whitespace()
                        .skip(1)
                        .filter_map(|v| v.parse().ok())
                        .collect()
                })
            })
            .unwrap_or_default();
        LoadMeter { load1, ticks }
    }

    /// What happened since.
    pub fn finish(&self) -> Load {
        let now = LoadMeter::start();
        // user nice system idle iowait irq softirq steal; guest times are within user.
        let d: Vec<u64> = (0..8)
            .map(|i| {
                let at = |m: &LoadMeter| m.ticks.get(i).copied().unwrap_or(0);
                at(&now).saturating_sub(at(self))
            })
            .collect();
        let total = d.iter().sum::<u64>().max(1) as f64;
        Load {
            load1_start: self.load1,
            load1_end: now.load1,
            busy: 1.0 - (d[3] + d[4]) as f64 / total,
            steal: d[7] as f64 / total,
        }
    }
}
