//! Facts about the machine that belong to every measurement, and its load.

use onbeat_proc::system::{self, CpuTicks};
use serde::{Deserialize, Serialize};

pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub kernel: String,
    pub memory_mb: u64,
    pub clock: String,
    pub virtual_machine: bool,
}

impl Machine {
    pub fn here() -> Self {
        Machine {
            cpu: system::cpu_model(),
            cores: std::thread::available_parallelism().map_or(0, |n| n.get()),
            kernel: system::kernel_release(),
            memory_mb: system::memory_mib(),
            clock: system::clock_source(),
            virtual_machine: system::is_virtual_machine(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Load {
    pub load1_start: f64,
    pub load1_end: f64,
    /// The share of all CPUs' time that processes used, from 0 to 1.
    pub busy: f64,
    pub steal: f64,
}

#[derive(Debug, Clone)]
pub struct LoadMeter {
    load1: f64,
    ticks: CpuTicks,
}

impl LoadMeter {
    pub fn start() -> Self {
        LoadMeter {
            load1: system::load_average(),
            ticks: CpuTicks::now(None),
        }
    }

    pub fn finish(&self) -> Load {
        let now = LoadMeter::start();
        let since = |of: fn(&CpuTicks) -> u64| of(&now.ticks).saturating_sub(of(&self.ticks));
        let (used, idle, stolen) = (since(|t| t.used), since(|t| t.idle), since(|t| t.stolen));
        let total = (used + idle + stolen).max(1) as f64;
        Load {
            load1_start: self.load1,
            load1_end: now.load1,
            busy: 1.0 - idle as f64 / total,
            steal: stolen as f64 / total,
        }
    }
}
