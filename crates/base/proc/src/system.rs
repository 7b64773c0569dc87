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
}
