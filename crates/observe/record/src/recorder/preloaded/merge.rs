//! Puts what the library wrote and what the kernel saw into one order of time, and makes the same
//! events of both as the BPF programs do: scheduler events of threads that run callbacks or publish.

use super::clocks::{Clocks, Off};
use crate::decode::Decoded;
use crate::perf::{Seen, What};
use onbeat_trace::table::is_state;
use onbeat_trace::{Event, EventKind, Name, UNTOLD};
use std::collections::{HashMap, HashSet};

/// Priority and policy of a thread, as [`EventKind::SwitchIn`] has them.
pub type Profile = (u8, u8);

/// Of a thread that nobody can be asked about any more: an ordinary one.
const ORDINARY: Profile = (120, 0);

/// Something that happened at a time.
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

/// A thread whose scheduler events are recorded.
#[derive(Default)]
struct Thread {
    /// It left its CPU to sleep.
    asleep: bool,
    profile: Option<Profile>,
}

/// What is not yet complete, and which threads are recorded.
#[derive(Default)]
pub struct Merge {
    pending: Vec<Item>,
    processes: HashSet<u32>,
    threads: HashMap<u32, Thread>,
    /// Names of the programs of processes.
    programs: HashMap<u32, Name>,
    clocks: Clocks,
}

impl Merge {
    /// A record of the library.
    pub fn called(&mut self, decoded: Decoded) {
        self.pending.push(Item::Called(decoded));
    }

    /// Records of the kernel.
    pub fn scheduled(&mut self, seen: impl IntoIterator<Item = Seen>) {
        self.pending.extend(seen.into_iter().map(Item::Scheduled));
    }

    /// The processes of ROS 2 that have not ended.
    pub fn processes(&self) -> impl Iterator<Item = u32> + '_ {
        self.processes.iter().copied()
    }

    /// A process has ended, or executes another program.
    pub fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
        self.clocks.forget(pid);
    }

    /// What threads are told to be is asked for again.
    pub fn look_again(&mut self) {
        self.threads.values_mut().for_each(|t| t.profile = None);
    }

    /// Tells what happened up to a time, in order. `profile` looks at a thread, of which it gets the
    /// process and the thread.
    pub fn until(
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
                for off in self.clocks.read(tid, time_ns, cpu_ns) {
                    leave((pid, tid, cpu), off, tell);
                }
                return;
            }
            // Of the programs that attach probes while it records.
            Decoded::Library { .. }
            | Decoded::Listener { .. }
            | Decoded::Followed { .. }
            | Decoded::WaitSet(_) => return,
        }
        if let Decoded::Event(event) = &decoded {
            self.clocks.called(event.tid, event.time_ns);
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
        match seen.what {
            What::In => {
                let Some(thread) = self.threads.get_mut(&tid) else {
                    return;
                };
                if std::mem::take(&mut thread.asleep) {
                    // When it was woken is not seen: it counts as asleep until now.
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
            What::Out { preempted } => {
                let Some(thread) = self.threads.get_mut(&tid) else {
                    return;
                };
                thread.asleep = !preempted;
                event(EventKind::SwitchOut {
                    next_tid: UNTOLD,
                    state: u16::from(!preempted),
                });
            }
            What::Fork {
                parent_pid,
                parent_tid,
            } => {
                self.threads.remove(&tid);
                if pid == parent_pid && self.threads.contains_key(&parent_tid) {
                    // What a thread with callbacks makes works for it.
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
            What::Exec { comm } => {
                self.processes.remove(&pid);
                self.programs.insert(pid, comm.clone());
                event(EventKind::Exec { comm });
            }
            What::Exit => {
                self.threads.remove(&tid);
                if pid == tid {
                    self.processes.remove(&pid);
                    self.programs.remove(&pid);
                }
                event(EventKind::Exit);
            }
        }
    }
}

/// A thread is off its CPU for a time: as switches show it.
fn leave((pid, tid, cpu): (u32, u32, u16), (begin, end): Off, tell: &mut impl FnMut(Decoded)) {
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

    fn seen(time_ns: u64, tid: u32, what: What) -> Seen {
        Seen {
            time_ns,
            cpu: 1,
            pid: 7,
            tid,
            what,
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

    fn told(merge: &mut Merge, until_ns: u64) -> Vec<(u64, u32, String)> {
        let mut all = Vec::new();
        merge.until(
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
    fn switches_count_from_a_threads_first_call_on_and_of_threads_that_it_makes() {
        let mut merge = Merge::default();
        let out = What::Out { preempted: false };
        let fork = What::Fork {
            parent_pid: 7,
            parent_tid: 8,
        };
        merge.scheduled([
            seen(10, 8, out.clone()),
            seen(20, 8, What::In),
            seen(40, 8, out.clone()),
            seen(41, 9, fork),
            seen(42, 9, What::In),
            seen(43, 9, What::Exit),
            seen(44, 9, What::In),
            seen(50, 8, What::In),
            seen(60, 8, What::Out { preempted: true }),
            seen(70, 8, What::In),
        ]);
        merge.called(call(30, 8, EventKind::TimerCall { timer: 1 }));
        let made = EventKind::TimerInit {
            timer: 1,
            period_ns: 5,
        };
        merge.called(call(5, 8, made));
        let names = |all: Vec<(u64, u32, String)>| {
            let of = all
                .into_iter()
                .map(|(at, tid, name)| format!("{at} {tid} {name}"));
            of.collect::<Vec<_>>()
        };
        assert_eq!(
            names(told(&mut merge, 50)),
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
            names(told(&mut merge, 70)),
            ["60 8 SwitchOut", "70 8 SwitchIn"]
        );
    }

    #[test]
    fn a_process_is_told_once_until_it_ends_or_executes_another_program() {
        let mut merge = Merge::default();
        let process = |time_ns| Decoded::Process {
            pid: 7,
            time_ns,
            late: false,
        };
        for time_ns in [1, 2, 5, 9] {
            merge.called(process(time_ns));
        }
        let comm = "talker".into();
        merge.scheduled([seen(3, 7, What::Exec { comm }), seen(7, 7, What::Exit)]);
        let mut times = Vec::new();
        merge.until(
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
