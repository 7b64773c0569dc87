//! From when on the run-time events of each process count: before, only some of its probes were
//! in place.

use onbeat_trace::table::is_state;
use onbeat_trace::Event;
use std::collections::HashMap;

/// A process loads its libraries one after the other, for no longer than this. A plug-in that it
/// loads later brings more probes, but no reason to drop what was seen before.
const LOADING_NS: u64 = 3_000_000_000;

/// When each process was ready. Times are CLOCK_MONOTONIC.
#[derive(Debug, Default)]
pub struct Readiness {
    start_ns: u64,
    processes: HashMap<u32, Ready>,
}

#[derive(Debug)]
struct Ready {
    /// Its first probes were attached.
    first_ns: u64,
    /// Its run-time events count.
    from_ns: u64,
}

impl Readiness {
    /// The recording starts: processes without probes of their own count from now on.
    pub fn start(&mut self, now_ns: u64) {
        self.start_ns = now_ns;
    }

    /// New probes were attached for a process.
    pub fn attached(&mut self, pid: u32, now_ns: u64) {
        let ready = self.processes.entry(pid).or_insert(Ready {
            first_ns: now_ns,
            from_ns: now_ns,
        });
        if now_ns.saturating_sub(ready.first_ns) < LOADING_NS {
            ready.from_ns = now_ns;
        }
    }

    /// Whether an event is recorded. One that describes the system always is.
    pub fn counts(&self, event: &Event) -> bool {
        let ready = self.processes.get(&event.pid);
        let from_ns = ready.map_or(self.start_ns, |r| r.from_ns);
        event.time_ns >= from_ns || is_state(&event.kind)
    }

    /// A process has ended: its id may be used again.
    pub fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_trace::EventKind;

    fn event(pid: u32, time_ns: u64, kind: EventKind) -> Event {
        Event {
            time_ns,
            cpu: 0,
            pid,
            tid: pid,
            kind,
        }
    }

    fn call(pid: u32, time_ns: u64) -> Event {
        event(pid, time_ns, EventKind::TimerCall { timer: 1 })
    }

    #[test]
    fn run_time_events_count_once_the_libraries_that_come_together_are_probed() {
        let mut readiness = Readiness::default();
        readiness.start(100);
        assert!(!readiness.counts(&call(7, 99)) && readiness.counts(&call(7, 100)));
        readiness.attached(7, 1_000);
        readiness.attached(7, 2_000);
        assert!(!readiness.counts(&call(7, 1_999)) && readiness.counts(&call(7, 2_000)));
        // A plug-in much later changes nothing.
        readiness.attached(7, 1_000 + LOADING_NS);
        assert!(readiness.counts(&call(7, 2_000)));
        // Descriptions always count.
        let created = EventKind::TimerInit {
            timer: 1,
            period_ns: 5,
        };
        assert!(readiness.counts(&event(7, 0, created)));
        // A new process with the same id begins anew.
        readiness.forget(7);
        assert!(readiness.counts(&call(7, 100)));
    }
}
