//! The kernel's clocks, in ns.
//!
//! All functions here are real-time safe. The monotonic and the realtime clock are read without a
//! system call where the kernel offers them in the vDSO; the CPU-time clocks and the boot clock may
//! enter the kernel.

const MAX_PID: u32 = 1 << 22;

fn read(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for the call, and a clock that does not exist gives an error.
    match unsafe { libc::clock_gettime(clock, &mut time) } {
        0 => Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64),
        _ => None,
    }
}

/// Reads CLOCK_MONOTONIC in ns. Slots, events and deadlines use this clock.
#[inline]
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC).unwrap_or(0)
}

/// Reads CLOCK_REALTIME in ns since 1970. Source time stamps use this clock. Administrators and NTP
/// may set it.
#[inline]
pub fn realtime_ns() -> u64 {
    read(libc::CLOCK_REALTIME).unwrap_or(0)
}

/// Reads CLOCK_BOOTTIME: the time since the machine started in ns, including suspension.
pub fn boottime_ns() -> u64 {
    read(libc::CLOCK_BOOTTIME).unwrap_or(0)
}

/// Returns the CPU time that the calling thread has used, in ns.
pub fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}

/// Returns the CPU time of all threads of a process in ns, or `None` if the process has ended. It
/// is exact, unlike the ticks in `/proc/PID/stat`.
pub fn process_cpu_ns(pid: u32) -> Option<u64> {
    // The clock's number has no room for ids above the kernel's limit, and 0 means the calling
    // process.
    let pid = (1..=MAX_PID).contains(&pid).then_some(pid as libc::pid_t)?;
    let mut clock = 0;
    // SAFETY: `clock` is valid for the call, and a process that has ended gives an error.
    match unsafe { libc::clock_getcpuclockid(pid, &mut clock) } {
        0 => read(clock),
        _ => None,
    }
}

/// Returns CLOCK_REALTIME minus CLOCK_MONOTONIC in ns. Takes five samples and returns the one with
/// the shortest time between its two monotonic readings.
pub fn realtime_offset_ns() -> i64 {
    (0..5)
        .map(|_| {
            let before = monotonic_ns();
            let wall = realtime_ns();
            let after = monotonic_ns();
            let middle = before + (after - before) / 2;
            (after - before, wall as i64 - middle as i64)
        })
        .min()
        .map_or(0, |(_, offset)| offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_advance_and_agree_with_their_offset() {
        let before = monotonic_ns();
        let offset = realtime_offset_ns();
        let wall = realtime_ns() as i64;
        let after = monotonic_ns();
        assert!(0 < before && before <= after);
        // The tolerance does not cover a step of the wall clock between the readings.
        assert!((before as i64..=after as i64 + 1_000_000).contains(&(wall - offset)));
        assert!(boottime_ns() >= before);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no CPU-time clocks")]
    fn cpu_time_is_counted_while_a_thread_works() {
        let (thread, process) = (thread_cpu_ns(), process_cpu_ns(std::process::id()));
        let mut work = 0u64;
        while thread_cpu_ns() < thread + 1_000_000 {
            work = std::hint::black_box(work + 1);
        }
        assert!(process_cpu_ns(std::process::id()) > process);
        for gone in [0, MAX_PID, i32::MAX as u32, u32::MAX] {
            assert_eq!(process_cpu_ns(gone), None, "{gone}");
        }
    }
}
