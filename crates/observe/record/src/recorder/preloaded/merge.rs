//! Merges the preloaded library's records and the kernel's scheduler records into one order of
//! time.
//!
//! The result has the events that the BPF programs would make: among others, scheduler events of
//! threads that run callbacks or publish.

use super::clocks::{Clocks, Off, Readings};
use crate::decode::Decoded;
use crate::perf::{Action, Seen};
use onbeat_trace::manifest::Scheduling;
use onbeat_trace::table::is_state;
use onbeat_trace::{Event, EventKind, Name, UNTOLD};
use std::collections::{HashMap, HashSet};

/// The priority and the scheduling policy of a thread, as in [`EventKind::SwitchIn`].
pub type Profile = (u8, u8);

const ORDINARY: Profile = (120, 0);

enum Item {
    Called(Decoded),
    Scheduled(Seen),
}

impl Item {
    fn time_ns(&self) -> u64 {
        match self {
            Item::Called(decoded) => decoded.time_ns().unwrap_or(0),
            Item::Scheduled(seen) => seen.time_ns,
        }
    }
}

#[derive(Default)]
struct Thread {
    is_asleep: bool,
    profile: Option<Profile>,
}

enum CpuTimes {
    /// Readings of the threads' CPU clocks correct the CPU times that follow from the kernel's
    /// records of switches.
    Measured(Readings),
    /// Readings of the threads' CPU clocks show when threads were off the CPU, because the kernel
    /// reports no switches.
    Estimated(Clocks),
}

impl CpuTimes {
    fn forget(&mut self, tid: u32) {
        match self {
            CpuTimes::Measured(readings) => readings.forget(tid),
            CpuTimes::Estimated(clocks) => clocks.forget(tid),
        }
    }
}

/// The events and records that wait until all earlier ones have arrived, and the threads whose
/// scheduler events are recorded.
pub struct Merge {
    pending: Vec<Item>,
    processes: HashSet<u32>,
    threads: HashMap<u32, Thread>,
    programs: HashMap<u32, Name>,
    cpu_times: CpuTimes,
}

impl Merge {
    pub fn new(scheduling: Scheduling) -> Merge {
        Merge {
            pending: Vec::new(),
            processes: HashSet::new(),
            threads: HashMap::new(),
            programs: HashMap::new(),
            cpu_times: match scheduling {
                Scheduling::Clocks => CpuTimes::Estimated(Clocks::default()),
                _ => CpuTimes::Measured(Readings::default()),
            },
        }
    }

    pub fn add_record(&mut self, decoded: Decoded) {
        self.pending.push(Item::Called(decoded));
    }

    pub fn add_scheduling(&mut self, seen: impl IntoIterator<Item = Seen>) {
        self.pending.extend(seen.into_iter().map(Item::Scheduled));
    }

    pub fn processes(&self) -> impl Iterator<Item = u32> + '_ {
        self.processes.iter().copied()
    }

    pub fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
        self.cpu_times.forget(pid);
    }

    pub fn forget_profiles(&mut self) {
        self.threads.values_mut().for_each(|t| t.profile = None);
    }

    /// Passes all events up to `until_ns` to `tell`, in order of time. `profile` returns the
    /// priority and the scheduling policy of a thread, given the ids of its process and of the
    /// thread.
    pub fn drain_until(
        &mut self,
        until_ns: u64,
        profile: impl Fn(u32, u32) -> Option<Profile>,
        mut tell: impl FnMut(Decoded),
    ) {
        self.pending.sort_by_key(Item::time_ns);
        let complete = self.pending.partition_point(|i| i.time_ns() <= until_ns);
        let later = self.pending.split_off(complete);
        for item in std::mem::replace(&mut self.pending, later) {
            match item {
                Item::Called(decoded) => self.call(decoded, &mut tell),
                Item::Scheduled(seen) => self.switch(seen, &profile, &mut tell),
            }
        }
    }

    fn call(&mut self, decoded: Decoded, tell: &mut impl FnMut(Decoded)) {
        match &decoded {
            Decoded::Process { pid, .. } => {
                if !self.processes.insert(*pid) {
                    return;
                }
            }
            Decoded::Thread { tid, .. } => {
                self.threads.entry(*tid).or_default();
            }
            Decoded::Event(event) if !is_state(&event.kind) => {
                self.threads.entry(event.tid).or_default();
            }
            Decoded::Event(_) => {}
            &Decoded::CpuClock {
                tid,
                time_ns,
                cpu,
                pid,
                cpu_ns,
            } => {
                match &mut self.cpu_times {
                    CpuTimes::Estimated(clocks) => {
                        for off in clocks.note_reading(tid, time_ns, cpu_ns) {
                            report_off_time((pid, tid, cpu), off, tell);
                        }
                    }
                    CpuTimes::Measured(readings) => {
                        let used_ns = readings.used_ns(tid, cpu_ns);
                        let kind = EventKind::CpuTime {
                            used_ns,
                            since_switch: false,
                        };
                        tell(Decoded::Event(Event {
                            time_ns,
                            cpu,
                            pid,
                            tid,
                            kind,
                        }));
                    }
                }
                return;
            }
            // Only BPF programs make these records.
            Decoded::Library { .. }
            | Decoded::Listener { .. }
            | Decoded::Followed { .. }
            | Decoded::UdpDrop { .. }
            | Decoded::WaitSet(_) => return,
        }
        if let (Decoded::Event(event), CpuTimes::Estimated(clocks)) =
            (&decoded, &mut self.cpu_times)
        {
            clocks.note_call(event.tid, event.time_ns);
        }
        tell(decoded);
    }

    fn switch(
        &mut self,
        seen: Seen,
        profile: &impl Fn(u32, u32) -> Option<Profile>,
        tell: &mut impl FnMut(Decoded),
    ) {
        let (pid, tid) = (seen.pid, seen.tid);
        let mut event = |kind| {
            tell(Decoded::Event(Event {
                time_ns: seen.time_ns,
                cpu: seen.cpu,
                pid,
                tid,
                kind,
            }));
        };
        match seen.action {
            Action::In => {
                let Some(thread) = self.threads.get_mut(&tid) else {
                    return;
                };
                if std::mem::take(&mut thread.is_asleep) {
                    // The time of the wake-up is not seen: the thread counts as is_asleep until now.
                    event(EventKind::Woken { ready_ns: 0 });
                }
                let look = || profile(pid, tid).unwrap_or(ORDINARY);
                let (priority, policy) = *thread.profile.get_or_insert_with(look);
                event(EventKind::SwitchIn {
                    prev_tid: UNTOLD,
                    priority,
                    policy,
                });
            }
            Action::Out { preempted } => {
                let Some(thread) = self.threads.get_mut(&tid) else {
                    return;
                };
                thread.is_asleep = !preempted;
                event(EventKind::SwitchOut {
                    next_tid: UNTOLD,
                    state: u16::from(!preempted),
                });
            }
            Action::Fork {
                parent_pid,
                parent_tid,
            } => {
                self.threads.remove(&tid);
                if pid == parent_pid && self.threads.contains_key(&parent_tid) {
                    // A thread that a thread with callbacks starts works for it.
                    self.threads.insert(tid, Thread::default());
                }
                let comm = self.programs.get(&parent_pid).cloned().unwrap_or_default();
                if pid != parent_pid {
                    self.programs.insert(pid, comm.clone());
                }
                event(EventKind::Fork {
                    parent_pid,
                    parent_tid,
                    comm,
                });
            }
            Action::Exec { comm } => {
                self.processes.remove(&pid);
                self.programs.insert(pid, comm.clone());
                event(EventKind::Exec { comm });
            }
            Action::Exit => {
                self.threads.remove(&tid);
                self.cpu_times.forget(tid);
                if pid == tid {
                    self.processes.remove(&pid);
                    self.programs.remove(&pid);
                }
                event(EventKind::Exit);
            }
        }
    }
}

fn report_off_time(
    (pid, tid, cpu): (u32, u32, u16),
    (begin, end): Off,
    tell: &mut impl FnMut(Decoded),
) {
    let (priority, policy) = ORDINARY;
    let kinds = [
        (
            begin,
            EventKind::SwitchOut {
                next_tid: UNTOLD,
                state: 1,
            },
        ),
        (end, EventKind::Woken { ready_ns: 0 }),
        (
            end,
            EventKind::SwitchIn {
                prev_tid: UNTOLD,
                priority,
                policy,
            },
        ),
    ];
    for (time_ns, kind) in kinds {
        tell(Decoded::Event(Event {
            time_ns,
            cpu,
            pid,
            tid,
            kind,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(time_ns: u64, tid: u32, action: Action) -> Seen {
        Seen {
            time_ns,
            cpu: 1,
            pid: 7,
            tid,
            action,
        }
    }

    fn call(time_ns: u64, tid: u32, kind: EventKind) -> Decoded {
        Decoded::Event(Event {
            time_ns,
            cpu: 0,
            pid: 7,
            tid,
            kind,
        })
    }

    fn merged(merge: &mut Merge, until_ns: u64) -> Vec<(u64, u32, String)> {
        let mut all = Vec::new();
        merge.drain_until(
            until_ns,
            |_, _| Some((98, 1)),
            |decoded| {
                if let Decoded::Event(e) = decoded {
                    let kind = format!("{:?}", e.kind);
                    let name = kind.split([' ', '{']).next().unwrap_or_default();
                    all.push((e.time_ns, e.tid, name.to_owned()));
                }
            },
        );
        all
    }

    #[test]
    fn switches_are_recorded_after_a_threads_first_call_and_for_threads_that_it_starts() {
        let mut merge = Merge::new(Scheduling::Perf);
        let out = Action::Out { preempted: false };
        let fork = Action::Fork {
            parent_pid: 7,
            parent_tid: 8,
        };
        merge.add_scheduling([
            seen(10, 8, out.clone()),
            seen(20, 8, Action::In),
            seen(40, 8, out.clone()),
            seen(41, 9, fork),
            seen(42, 9, Action::In),
            seen(43, 9, Action::Exit),
            seen(44, 9, Action::In),
            seen(50, 8, Action::In),
            seen(60, 8, Action::Out { preempted: true }),
            seen(70, 8, Action::In),
        ]);
        merge.add_record(call(30, 8, EventKind::TimerCall { timer: 1 }));
        let made = EventKind::TimerInit {
            timer: 1,
            period_ns: 5,
        };
        merge.add_record(call(5, 8, made));
        let names = |all: Vec<(u64, u32, String)>| {
            let of = all
                .into_iter()
                .map(|(at, tid, name)| format!("{at} {tid} {name}"));
            of.collect::<Vec<_>>()
        };
        assert_eq!(
            names(merged(&mut merge, 50)),
            [
                "5 8 TimerInit",
                "30 8 TimerCall",
                "40 8 SwitchOut",
                "41 9 Fork",
                "42 9 SwitchIn",
                "43 9 Exit",
                "50 8 Woken",
                "50 8 SwitchIn",
            ]
        );
        assert_eq!(
            names(merged(&mut merge, 70)),
            ["60 8 SwitchOut", "70 8 SwitchIn"]
        );
    }

    #[test]
    fn a_process_is_reported_once_until_it_ends_or_executes_another_program() {
        let mut merge = Merge::new(Scheduling::Perf);
        let process = |time_ns| Decoded::Process {
            pid: 7,
            time_ns,
            late: false,
        };
        for time_ns in [1, 2, 5, 9] {
            merge.add_record(process(time_ns));
        }
        let comm = "talker".into();
        merge.add_scheduling([seen(3, 7, Action::Exec { comm }), seen(7, 7, Action::Exit)]);
        let mut times = Vec::new();
        merge.drain_until(
            u64::MAX,
            |_, _| None,
            |decoded| {
                if let Decoded::Process { time_ns, .. } = decoded {
                    times.push(time_ns);
                }
            },
        );
        assert_eq!(times, [1, 5, 9]);
    }
}
