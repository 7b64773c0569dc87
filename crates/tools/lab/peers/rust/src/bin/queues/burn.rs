//! Using the CPU for as long as processing takes.

use onbeat_peers::thread_cpu_ns;

/// Uses this thread's CPU time for so long, whatever else runs; what it really took.
pub fn burn(ns: u64) -> u64 {
    let from = thread_cpu_ns();
    loop {
        let used = thread_cpu_ns().saturating_sub(from) as u64;
        if used >= ns {
            return used;
        }
    }
}
