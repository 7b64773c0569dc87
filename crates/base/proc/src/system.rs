//! Facts about the kernel and the machine.

use std::fs;

/// Returns the kernel's release, such as `6.8.0-45-generic`, or an empty string if it is unknown.
pub fn kernel_release() -> String {
    line("/proc/sys/kernel/osrelease")
}

/// Returns the machine's host name, or an empty string if it is unknown.
pub fn hostname() -> String {
    line("/proc/sys/kernel/hostname")
}

/// Returns the id of the current boot, or an empty string if the id is unknown. Monotonic clocks of
/// two boots cannot be compared.
pub fn boot_id() -> String {
    line("/proc/sys/kernel/random/boot_id")
}

/// Returns whether this process is in a PID namespace other than the machine's. The ids that BPF
/// programs see are then not the ids that system calls and `/proc` use.
pub fn is_in_pid_namespace() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name.as_os_str() != FIRST_PID_NAMESPACE)
}

/// The name of the PID namespace of the machine itself. The kernel reserves this number for it.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Returns the number of ticks per second. Times in `stat` files are in ticks.
pub fn ticks_per_second() -> u64 {
    // SAFETY: the call only reads a constant.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).unwrap_or(100).max(1)
}

/// Returns the share of a CPU's time that the kernel lets real-time threads use (0 to 1), or `None`
/// if the share is not limited.
pub fn real_time_share() -> Option<f64> {
    let read = |name: &str| -> Option<i64> {
        line(&format!("/proc/sys/kernel/sched_rt_{name}_us"))
            .parse()
            .ok()
    };
    let (runtime, period) = (read("runtime")?, read("period")?);
    (runtime >= 0 && period > 0).then(|| runtime as f64 / period as f64)
}

/// Returns the model of the first CPU, or an empty string if it is unknown.
pub fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let model = line.and_then(|line| line.split_once(':'));
    model
        .map(|(_, model)| model.trim().to_owned())
        .unwrap_or_default()
}

/// Returns the size of the machine's main memory in MiB, or 0 if the size is unknown.
pub fn memory_mib() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = crate::Status::parse(&text).number("MemTotal");
    kib.unwrap_or(0) / 1024
}

/// Returns the kernel's clock source, such as `tsc`, or an empty string if it is unknown.
pub fn clock_source() -> String {
    line("/sys/devices/system/clocksource/clocksource0/current_clocksource")
}

/// Returns the load average of the machine over one minute, or 0 if unknown.
pub fn load_average() -> f64 {
    let text = line("/proc/loadavg");
    let first = text.split(' ').next();
    first.and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

/// The CPU time since the machine started, split by use, in ticks (see [`ticks_per_second`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTicks {
    /// The ticks in which programs, the kernel or interrupts used a CPU.
    pub used: u64,
    /// The ticks in which a CPU had no work, even if a program waited for a device.
    pub idle: u64,
    /// The ticks in which the host of a virtual machine had the CPU, although this machine had
    /// work.
    pub stolen: u64,
}

impl CpuTicks {
    /// Reads the ticks of one CPU, or the sum over all CPUs with `None`. Returns zeros if the ticks
    /// are unknown.
    pub fn now(cpu: Option<usize>) -> CpuTicks {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        CpuTicks::parse(&text, cpu).unwrap_or_default()
    }

    /// Reads the ticks of one CPU, or of all CPUs with `None`, from the text of `/proc/stat`.
    /// Returns `None` if the requested line is missing or wrong.
    pub fn parse(text: &str, cpu: Option<usize>) -> Option<CpuTicks> {
        let name = cpu.map_or("cpu ".to_owned(), |cpu| format!("cpu{cpu} "));
        let line = text.lines().find_map(|line| line.strip_prefix(&name))?;
        // The columns are: user nice system idle iowait irq softirq steal. Guest times are part of
        // user.
        let ticks: Vec<u64> = line
            .split_whitespace()
            .take(8)
            .filter_map(|word| word.parse().ok())
            .collect();
        let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks[..] else {
            return None;
        };
        Some(CpuTicks {
            used: user + nice + system + irq + softirq,
            idle: idle + iowait,
            stolen: steal,
        })
    }
}

/// Returns whether the machine may be virtual. Only x86 processors report this. On other processors
/// the result is always true.
pub fn is_virtual_machine() -> bool {
    match fs::read_to_string("/proc/cpuinfo") {
        Ok(text) if cfg!(target_arch = "x86_64") => has_hypervisor(&text),
        _ => true,
    }
}

/// Returns whether the first CPU has the flag `hypervisor`. Also returns true if the text lists no
/// flags.
fn has_hypervisor(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_none_or(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"))
}

fn line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_this_machine_can_be_read() {
        assert!(!kernel_release().is_empty() && !hostname().is_empty());
        assert_eq!((boot_id().len(), boot_id()), (36, boot_id()));
        assert!(ticks_per_second() > 0);
        assert!(real_time_share().is_none_or(|share| (0.0..=1.0).contains(&share)));
        is_virtual_machine();
    }

    #[test]
    fn a_hypervisor_is_recognised_by_its_cpu_flag() {
        assert!(has_hypervisor("vendor_id: x\nflags : fpu hypervisor vme\n"));
        assert!(!has_hypervisor("flags : fpu nohypervisor\n"));
        assert!(has_hypervisor("vendor_id: x\n"));
    }

    #[test]
    fn cpu_ticks_belong_to_the_requested_cpu() {
        let text = "cpu  10 0 20 1000 5 1 2 3 0 0\ncpu0 1 1 1 500 0 0 0 1 0 0\n\
                    cpu1 4 0 6 500 5 1 2 2 9 9\ncpu10 9 9 9 9 9 9 9 9 9 9\nintr 5\n";
        let ticks = |used, idle, stolen| Some(CpuTicks { used, idle, stolen });
        assert_eq!(CpuTicks::parse(text, None), ticks(33, 1005, 3));
        assert_eq!(CpuTicks::parse(text, Some(0)), ticks(3, 500, 1));
        assert_eq!(CpuTicks::parse(text, Some(1)), ticks(13, 505, 2));
        assert_eq!(CpuTicks::parse(text, Some(2)), None);
        assert_eq!(CpuTicks::parse("cpu 1 2\n", None), None);
    }
}
