//! Uses the CPU for the time that processing takes.

use onbeat_peers::thread_cpu_ns;

/// Uses `ns` of this thread's CPU time, however often it is preempted. Returns the time that it
/// took.
pub fn burn(ns: u64) -> u64 {
    let from = thread_cpu_ns();
    loop {
        let used = thread_cpu_ns().saturating_sub(from) as u64;
        if used >= ns {
            return used;
        }
    }
}
