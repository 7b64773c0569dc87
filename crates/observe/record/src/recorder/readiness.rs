//! Decides from when on the run-time events of a process are recorded: only after its probes are in
//! place.

use onbeat_trace::table::is_state;
use onbeat_trace::Event;
use std::collections::HashMap;

/// The time in ns within which a process loads its initial libraries. A plug-in that is loaded
/// later brings more probes, but earlier events stay valid.
const LOADING_NS: u64 = 3_000_000_000;

/// For each process: the time from which the process's events are recorded (CLOCK_MONOTONIC).
#[derive(Debug, Default)]
pub struct Readiness {
    start_ns: u64,
    processes: HashMap<u32, Ready>,
}

#[derive(Debug)]
struct Ready {
    first_ns: u64,
    from_ns: u64,
}

impl Readiness {
    pub fn start(&mut self, now_ns: u64) {
        self.start_ns = now_ns;
    }

    pub fn note_attached(&mut self, pid: u32, now_ns: u64) {
        let ready = self.processes.entry(pid).or_insert(Ready {
            first_ns: now_ns,
            from_ns: now_ns,
        });
        if now_ns.saturating_sub(ready.first_ns) < LOADING_NS {
            ready.from_ns = now_ns;
        }
    }

    /// Returns whether an event is recorded. Events that describe the system are always recorded.
    /// Other events are recorded only if they came after the probes of their process were attached.
    pub fn counts(&self, event: &Event) -> bool {
        let ready = self.processes.get(&event.pid);
        let from_ns = ready.map_or(self.start_ns, |r| r.from_ns);
        event.time_ns >= from_ns || is_state(&event.kind)
    }

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
    fn calls_count_only_after_the_first_libraries_of_their_process_are_probed() {
        let mut readiness = Readiness::default();
        readiness.start(100);
        assert!(!readiness.counts(&call(7, 99)) && readiness.counts(&call(7, 100)));
        readiness.note_attached(7, 1_000);
        readiness.note_attached(7, 2_000);
        assert!(!readiness.counts(&call(7, 1_999)) && readiness.counts(&call(7, 2_000)));
        readiness.note_attached(7, 1_000 + LOADING_NS);
        assert!(readiness.counts(&call(7, 2_000)));
        let created = EventKind::TimerInit {
            timer: 1,
            period_ns: 5,
        };
        assert!(readiness.counts(&event(7, 0, created)));
        readiness.forget(7);
        assert!(readiness.counts(&call(7, 100)));
    }
}
