//! Time: sleeping until a message is due, and using the CPU for as long as processing takes.

pub use onbeat_flow::clock::now_ns;

fn thread_cpu_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is valid for the call, and the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sleeps until `ns` (CLOCK_MONOTONIC); returns at once if it is later already.
pub fn sleep_until(ns: u64) {
    let until = libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    };
    while now_ns() < ns {
        // SAFETY: `until` is valid for the call; what is left is not asked for.
        unsafe {
            libc::clock_nanosleep(
                libc::CLOCK_MONOTONIC,
                libc::TIMER_ABSTIME,
                &until,
                std::ptr::null_mut(),
            )
        };
    }
}

/// Uses the CPU for so long, whatever else runs; what it really took.
pub fn burn(ns: u64) -> u64 {
    let from = thread_cpu_ns();
    loop {
        let used = thread_cpu_ns().saturating_sub(from);
        if used >= ns {
            return used;
        }
    }
}
