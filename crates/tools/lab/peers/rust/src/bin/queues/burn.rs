//! Uses the CPU for the time that processing takes.

use onbeat_peers::thread_cpu_ns;

pub fn burn(ns: u64) -> u64 {
    let from = thread_cpu_ns();
    loop {
        let used = thread_cpu_ns().saturating_sub(from) as u64;
        if used >= ns {
            return used;
        }
    }
}
