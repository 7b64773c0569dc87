//! Facts about the machine that belong to every measurement, and how busy others kept it.

use onbeat_proc::system::{self, CpuTicks};
use serde::{Deserialize, Serialize};

/// CPUs that this process may use.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

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
    /// Facts about this machine; what cannot be read is empty or 0.
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
    ticks: CpuTicks,
}

impl LoadMeter {
    /// Reads them now.
    pub fn start() -> Self {
        LoadMeter {
            load1: system::load_average(),
            ticks: CpuTicks::now(None),
        }
    }

    /// How the CPUs were used since.
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
