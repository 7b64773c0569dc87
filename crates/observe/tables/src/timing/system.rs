//! Collects processes, threads and switches from the events of the kernel and of the recorder.

use onbeat_trace::event::{Event, EventKind};
use onbeat_trace::{UNSCHEDULED, UNTOLD};
use rustc_hash::FxHashMap;

#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) program: String,
    pub(crate) distribution: String,
    pub(crate) middleware: String,
    pub(crate) late: bool,
    pub(crate) start: Option<u64>,
    pub(crate) end: Option<u64>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Thread {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) comm: Option<u32>,
    pub(crate) observed: bool,
    pub(crate) policy: Option<u8>,
    pub(crate) priority: Option<u8>,
    pub(crate) start: Option<u64>,
    pub(crate) end: Option<u64>,
    pub(crate) on_cpu: Option<u64>,
    pub(crate) switches: u64,
    ready: Option<u64>,
    stay: Option<Stay>,
}

/// A time in which a thread had a CPU. An unknown beginning or end is `None`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stay {
    pub(crate) cpu: u16,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) start: Option<u64>,
    pub(crate) end: Option<u64>,
    pub(crate) waited: Option<u64>,
    pub(crate) preempted: Option<bool>,
    pub(crate) prev_tid: Option<u32>,
    pub(crate) next_tid: Option<u32>,
}

#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) stays: Vec<Stay>,
    pub(crate) threads: Vec<Thread>,
}

#[derive(Debug, Default)]
pub(crate) struct System {
    pub(crate) processes: Vec<Process>,
    threads: FxHashMap<u32, Thread>,
    pub(crate) names: Vec<String>,
    numbers: FxHashMap<Box<str>, u32>,
    pub(crate) done: Done,
}

fn told(tid: u32) -> Option<u32> {
    (tid != UNTOLD).then_some(tid)
}

impl System {
    pub(crate) fn push(&mut self, event: &Event) {
        let time = event.time_ns;
        match &event.kind {
            EventKind::SwitchIn {
                prev_tid,
                priority,
                policy,
            } => {
                let thread = self.observed(event);
                (thread.policy, thread.priority) = (Some(*policy), Some(*priority));
                let ready = thread.ready.take();
                let missed = thread.stay.replace(Stay {
                    cpu: event.cpu,
                    pid: event.pid,
                    tid: event.tid,
                    start: Some(time),
                    end: None,
                    waited: ready.map(|ready| time.saturating_sub(ready)),
                    preempted: None,
                    prev_tid: told(*prev_tid),
                    next_tid: None,
                });
                self.done.stays.extend(missed);
            }
            EventKind::SwitchOut { next_tid, state } => {
                let (next, preempted) = (told(*next_tid), *state == 0);
                self.switch_out(event, next, preempted);
            }
            EventKind::Wake { .. } => {
                let thread = self.observed(event);
                if thread.stay.is_none() {
                    thread.ready = Some(time);
                }
            }
            EventKind::Woken { ready_ns } => {
                if let Some(stay) = &mut self.observed(event).stay {
                    stay.waited = Some(*ready_ns);
                }
            }
            EventKind::Process {
                command,
                distribution,
                rmw,
                late,
            } => {
                let start = self.observed(event).start;
                self.processes.push(Process {
                    pid: event.pid,
                    program: onbeat_trace::manifest::program(command).to_string(),
                    distribution: distribution.to_string(),
                    middleware: rmw.to_string(),
                    late: *late,
                    start,
                    end: None,
                });
            }
            EventKind::Thread {
                comm,
                policy,
                priority,
                ..
            } => {
                let comm = self.name(comm);
                let thread = self.observed(event);
                if *priority != UNSCHEDULED {
                    (thread.policy, thread.priority) = (Some(*policy), Some(*priority));
                }
                thread.comm = Some(comm);
            }
            EventKind::Fork { comm, .. } => {
                let comm = self.name(comm);
                self.end_thread(event.tid);
                let thread = self.observed(event);
                (thread.start, thread.comm) = (Some(time), Some(comm));
            }
            EventKind::Exec { comm } => {
                let comm = self.name(comm);
                self.observed(event).comm = Some(comm);
            }
            EventKind::Bystander { comm, .. } => {
                let comm = self.name(comm);
                self.thread(event).comm = Some(comm);
            }
            EventKind::Exit => self.exit(event),
            EventKind::Occupied { .. } => {
                self.thread(event);
            }
            EventKind::ClockOffset { .. } | EventKind::Lost { .. } => {}
            _ => {
                self.observed(event);
            }
        }
    }

    pub(crate) fn finish(&mut self) {
        let mut tids: Vec<u32> = self.threads.keys().copied().collect();
        tids.sort_unstable();
        for tid in tids {
            self.end_thread(tid);
        }
    }

    fn thread(&mut self, event: &Event) -> &mut Thread {
        let other = |t: &Thread| t.pid != event.pid;
        if self.threads.get(&event.tid).is_some_and(other) {
            self.end_thread(event.tid);
        }
        self.threads.entry(event.tid).or_insert_with(|| Thread {
            pid: event.pid,
            tid: event.tid,
            ..Thread::default()
        })
    }

    fn observed(&mut self, event: &Event) -> &mut Thread {
        let thread = self.thread(event);
        thread.observed = true;
        thread
    }

    fn switch_out(&mut self, event: &Event, next_tid: Option<u32>, preempted: bool) {
        let time = event.time_ns;
        let thread = self.observed(event);
        let unknown = Stay {
            cpu: event.cpu,
            pid: event.pid,
            tid: event.tid,
            start: None,
            end: None,
            waited: None,
            preempted: None,
            prev_tid: None,
            next_tid: None,
        };
        let begun = thread.stay.take();
        let stay = Stay {
            end: Some(time),
            preempted: Some(preempted),
            next_tid,
            ..begun.unwrap_or(unknown)
        };
        thread.ready = preempted.then_some(time);
        thread.switches += 1;
        if let Some(start) = stay.start {
            *thread.on_cpu.get_or_insert(0) += time.saturating_sub(start);
        }
        self.done.stays.push(stay);
    }

    fn exit(&mut self, event: &Event) {
        if event.tid == event.pid {
            let of_it = |p: &&mut Process| p.pid == event.pid && p.end.is_none();
            for process in self.processes.iter_mut().filter(of_it) {
                process.end = Some(event.time_ns);
            }
        }
        // The thread still switches away from its CPU after this.
        self.observed(event).end = Some(event.time_ns);
    }

    fn end_thread(&mut self, tid: u32) {
        if let Some(mut thread) = self.threads.remove(&tid) {
            self.done.stays.extend(thread.stay.take());
            self.done.threads.push(thread);
        }
    }

    fn name(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_string());
        self.numbers.insert(name.into(), number);
        number
    }
}
