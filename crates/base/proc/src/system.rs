//! Facts about the kernel and the machine.

use std::fs;

/// The kernel's release, such as `6.8.0-45-generic`; empty if unknown.
pub fn kernel_release() -> String {
    line("/proc/sys/kernel/osrelease")
}

/// The machine's name; empty if unknown.
pub fn hostname() -> String {
    line("/proc/sys/kernel/hostname")
}

/// The id of the running kernel's boot, the same for everything on the machine until it starts anew;
/// empty if unknown. Monotonic clocks of two boots have nothing in common.
pub fn boot_id() -> String {
    line("/proc/sys/kernel/random/boot_id")
}

/// Whether this process has ids of its own, of a pid namespace below the machine's: then no id that
/// the kernel's programs see is one that a system call or `/proc` takes.
pub fn is_in_pid_namespace() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name.as_os_str() != FIRST_PID_NAMESPACE)
}

/// The machine's own: a fixed number, which the kernel gives to no other.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Ticks per second: the unit of times in `stat` files.
pub fn ticks_per_second() -> u64 {
    // SAFETY: asks for a constant.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).unwrap_or(100).max(1)
}

/// Share of a CPU that real-time threads may use (0 to 1); `None` where there is no limit.
pub fn real_time_share() -> Option<f64> {
    let read = |name: &str| -> Option<i64> {
        line(&format!("/proc/sys/kernel/sched_rt_{name}_us"))
            .parse()
            .ok()
    };
    let (runtime, period) = (read("runtime")?, read("period")?);
    (runtime >= 0 && period > 0).then(|| runtime as f64 / period as f64)
}

/// Model of the first CPU; empty if unknown.
pub fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let model = line.and_then(|line| line.split_once(':'));
    model
        .map(|(_, model)| model.trim().to_owned())
        .unwrap_or_default()
}

/// Memory in MiB; 0 if unknown.
pub fn memory_mib() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = crate::Status::parse(&text).number("MemTotal");
    kib.unwrap_or(0) / 1024
}

/// The kernel's clock source, such as `tsc`; empty if unknown.
pub fn clock_source() -> String {
    line("/sys/devices/system/clocksource/clocksource0/current_clocksource")
}

/// Load average over one minute; 0 if unknown.
pub fn load_average() -> f64 {
    let text = line("/proc/loadavg");
    let first = text.split(' ').next();
    first.and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

/// Where CPU time has gone since the machine started, in ticks (see [`ticks_per_second`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTicks {
    /// Programs, kernel and interrupts.
    pub used: u64,
    /// Nothing to do, or waiting for a device.
    pub idle: u64,
    /// Taken by the host of a virtual machine.
    pub stolen: u64,
}

impl CpuTicks {
    /// Of one CPU, or of all together; zeros if unknown.
    pub fn now(cpu: Option<usize>) -> CpuTicks {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        CpuTicks::parse(&text, cpu).unwrap_or_default()
    }

    /// From the text of `/proc/stat`.
    pub fn parse(text: &str, cpu: Option<usize>) -> Option<CpuTicks> {
        let name = cpu.map_or("cpu ".to_owned(), |cpu| format!("cpu{cpu} "));
        let line = text.lines().find_map(|line| line.strip_prefix(&name))?;
        // user nice system idle iowait irq softirq steal; guest times are within user.
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

/// Whether the machine may be a virtual one. Only x86 says so; elsewhere it may be.
pub fn is_virtual_machine() -> bool {
    match fs::read_to_string("/proc/cpuinfo") {
        Ok(text) if cfg!(target_arch = "x86_64") => has_hypervisor(&text),
        _ => true,
    }
}

/// Whether the flags of the first CPU name a hypervisor, or there are none.
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
    fn the_machine_says_what_it_is() {
        assert!(!kernel_release().is_empty() && !hostname().is_empty());
        assert_eq!((boot_id().len(), boot_id()), (36, boot_id()));
        assert!(ticks_per_second() > 0);
        assert!(real_time_share().is_none_or(|share| (0.0..=1.0).contains(&share)));
        is_virtual_machine();
    }

    #[test]
    fn a_hypervisor_is_a_flag() {
        assert!(has_hypervisor("vendor_id: x\nflags : fpu hypervisor vme\n"));
        assert!(!has_hypervisor("flags : fpu nohypervisor\n"));
        assert!(has_hypervisor("vendor_id: x\n"));
    }

    #[test]
    fn cpu_ticks_are_those_of_the_cpu_that_was_asked_for() {
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
