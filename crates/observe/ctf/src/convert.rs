//! Turns events of LTTng into events of onbeat.

use crate::kinds::{Call, Kind, Scheduler};
use crate::session::Trace;
use crate::stream::{Fields, Seen};
use crate::survey::{who, Survey};
use onbeat_trace::{Event, EventKind, Name, UNSCHEDULED};
use rustc_hash::{FxHashMap, FxHashSet};

/// The longest text that an event of onbeat contains, in bytes. onbeat cuts longer texts. Names of
/// nodes and topics are shorter.
const MAX_NAME: usize = 4096;
/// The policy that the importer writes for a thread if LTTng does not show the thread's policy.
const UNKNOWN_POLICY: u8 = 255;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LeftOut {
    pub(crate) malformed: u64,
    /// The number of events of ROS 2 that were left out because they came after the last context
    /// switch.
    pub(crate) unscheduled: u64,
}

pub(crate) struct Converter<'a> {
    survey: &'a Survey,
    watched: FxHashSet<u32>,
    /// The priority that each thread of ROS 2 had when it last got a CPU.
    priorities: FxHashMap<u32, u8>,
    running: FxHashMap<u16, u32>,
    begun: FxHashSet<u32>,
    pub(crate) left_out: LeftOut,
}

impl<'a> Converter<'a> {
    pub(crate) fn new(survey: &'a Survey) -> Self {
        Converter {
            survey,
            watched: FxHashSet::default(),
            priorities: FxHashMap::default(),
            running: FxHashMap::default(),
            begun: FxHashSet::default(),
            left_out: LeftOut::default(),
        }
    }

    pub(crate) fn convert(&mut self, trace: &Trace, time: u64, seen: &Seen, out: &mut Vec<Event>) {
        match seen.kind {
            Kind::Other => {}
            Kind::Scheduler(event) => self.scheduler(event, time, seen, out),
            Kind::Ros { call, caret } => {
                let Some((pid, tid)) = who(trace, seen) else {
                    return;
                };
                self.ros((call, caret), (pid, tid), time, seen, out);
            }
        }
    }

    fn ros(
        &mut self,
        (call, caret): (Call, bool),
        (pid, tid): (u32, u32),
        time: u64,
        seen: &Seen,
        out: &mut Vec<Event>,
    ) {
        let Some(process) = self.survey.processes.get(&pid) else {
            return;
        };
        let is_silent = !process.is_of_rclcpp && call.moves_an_item();
        let is_internal = self.survey.is_internal(pid, call, seen);
        if is_silent || is_internal || process.is_repeated(call, caret) {
            return;
        }
        let switches = self.survey.scheduler.switches;
        if switches.is_some_and(|(_, last)| time > last) {
            // After the last switch, nothing shows whether a thread has a CPU.
            self.left_out.unscheduled += 1;
            return;
        }
        let event = |kind| Event {
            time_ns: time,
            cpu: seen.cpu,
            pid,
            tid,
            kind,
        };
        if self.begun.insert(pid) {
            out.push(event(EventKind::Process {
                command: name(&process.name),
                distribution: process.distribution().into(),
                rmw: "".into(),
                late: !process.has_nodes,
            }));
        }
        if process.is_of_rclcpp && self.watched.insert(tid) {
            let comm = seen.fields.of_contexts().text("procname");
            // Before the first switch to the thread, nothing shows its priority, or when it had a CPU.
            let priority = self.priorities.get(&tid).copied().unwrap_or(UNSCHEDULED);
            out.push(event(EventKind::Thread {
                comm: name(comm.as_deref().unwrap_or(&process.name)),
                policy: policy(priority),
                priority,
                cpus: 0,
            }));
        }
        match call_event(call, seen.fields) {
            Converted::Event(kind) => out.push(event(kind)),
            Converted::Nothing => {}
            Converted::Malformed => self.left_out.malformed += 1,
        }
    }

    fn scheduler(&mut self, event: Scheduler, time: u64, seen: &Seen, out: &mut Vec<Event>) {
        let made = match event {
            Scheduler::Switch => self.switch(time, seen, out),
            Scheduler::Waking => self.wake(time, seen, out),
            Scheduler::Wakeup if !self.survey.scheduler.has_waking => self.wake(time, seen, out),
            Scheduler::Wakeup => Some(()),
            Scheduler::Fork => self.fork(time, seen, out),
            Scheduler::Exit => self.exit(time, seen, out),
        };
        if made.is_none() {
            self.left_out.malformed += 1;
        }
    }

    /// Returns the process of a thread, or `None` if the converter does not write the thread's
    /// scheduler events.
    fn process_of(&self, tid: u32) -> Option<u32> {
        let pid = self.survey.threads.get(&tid)?;
        self.watched.contains(&tid).then_some(*pid)
    }

    fn switch(&mut self, time: u64, seen: &Seen, out: &mut Vec<Event>) -> Option<()> {
        let fields = seen.fields;
        let (prev, next) = (fields.tid("prev_tid")?, fields.tid("next_tid")?);
        let state = fields.unsigned("prev_state")?;
        self.running.insert(seen.cpu, next);
        let event = |pid, tid, kind| Event {
            time_ns: time,
            cpu: seen.cpu,
            pid,
            tid,
            kind,
        };
        if let Some(pid) = self.process_of(prev) {
            // The kernel marks a preempted thread by a bit above the lowest eight. Without it, the state is
            // 0.
            let state = (state & 0xff) as u16;
            let next_tid = next;
            out.push(event(pid, prev, EventKind::SwitchOut { next_tid, state }));
        }
        let priority = priority(fields.signed("next_prio")?);
        if self.survey.threads.contains_key(&next) {
            self.priorities.insert(next, priority);
        }
        if let Some(pid) = self.process_of(next) {
            let kind = EventKind::SwitchIn {
                prev_tid: prev,
                priority,
                policy: policy(priority),
            };
            out.push(event(pid, next, kind));
        }
        Some(())
    }

    fn wake(&mut self, time: u64, seen: &Seen, out: &mut Vec<Event>) -> Option<()> {
        let tid = seen.fields.tid("tid")?;
        if let Some(pid) = self.process_of(tid) {
            let waker = self.running.get(&seen.cpu).copied();
            let of_process = |w: &u32| self.survey.threads.get(w) == Some(&pid);
            out.push(Event {
                time_ns: time,
                cpu: seen.cpu,
                pid,
                tid,
                kind: EventKind::Wake {
                    waker_tid: waker.filter(of_process).unwrap_or(0),
                },
            });
        }
        Some(())
    }

    fn fork(&mut self, time: u64, seen: &Seen, out: &mut Vec<Event>) -> Option<()> {
        let fields = seen.fields;
        let (pid, tid) = (fields.tid("child_pid")?, fields.tid("child_tid")?);
        if self.survey.threads.get(&tid) == Some(&pid) {
            self.watched.insert(tid);
            out.push(Event {
                time_ns: time,
                cpu: seen.cpu,
                pid,
                tid,
                kind: EventKind::Fork {
                    parent_pid: fields.tid("parent_pid")?,
                    parent_tid: fields.tid("parent_tid")?,
                    comm: name(&fields.text("child_comm")?),
                },
            });
        }
        Some(())
    }

    fn exit(&mut self, time: u64, seen: &Seen, out: &mut Vec<Event>) -> Option<()> {
        let tid = seen.fields.tid("tid")?;
        if let Some(pid) = self.process_of(tid) {
            self.watched.remove(&tid);
            self.priorities.remove(&tid);
            out.push(Event {
                time_ns: time,
                cpu: seen.cpu,
                pid,
                tid,
                kind: EventKind::Exit,
            });
        }
        Some(())
    }
}

/// Returns SCHED_OTHER for the priority of a normal thread. Returns [`UNKNOWN_POLICY`] for any
/// other priority.
fn policy(priority: u8) -> u8 {
    match priority {
        100..=139 => 0,
        _ => UNKNOWN_POLICY,
    }
}

/// Converts a priority as LTTng records it (the kernel's priority minus 100) to the kernel's
/// priority, 0 to 139.
fn priority(prio: i64) -> u8 {
    prio.saturating_add(100).clamp(0, 139) as u8
}

fn name(text: &str) -> Name {
    let mut end = text.len().min(MAX_NAME);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].into()
}

enum Converted {
    Event(EventKind),
    Nothing,
    Malformed,
}

fn call_event(call: Call, fields: &Fields) -> Converted {
    if call == Call::RclInit {
        return Converted::Nothing;
    }
    let kind = init_event(call, fields).or_else(|| runtime_event(call, fields));
    kind.map_or(Converted::Malformed, Converted::Event)
}

fn init_event(call: Call, f: &Fields) -> Option<EventKind> {
    let text = |field| f.text(field).map(|text| name(&text));
    Some(match call {
        Call::NodeInit => EventKind::NodeInit {
            node: f.unsigned("node_handle")?,
            rmw: f.unsigned("rmw_handle")?,
            name: text("node_name")?,
            namespace: text("namespace")?,
        },
        Call::PublisherInit => EventKind::PublisherInit {
            publisher: f.unsigned("publisher_handle")?,
            node: f.unsigned("node_handle")?,
            rmw: f.unsigned("rmw_publisher_handle")?,
            topic: text("topic_name")?,
            depth: f.unsigned("queue_depth")?,
        },
        Call::PublisherGid => EventKind::PublisherGid {
            rmw: f.unsigned("rmw_publisher_handle")?,
            gid: f.gid("gid")?,
        },
        Call::SubscriptionInit => EventKind::SubscriptionInit {
            subscription: f.unsigned("subscription_handle")?,
            node: f.unsigned("node_handle")?,
            rmw: f.unsigned("rmw_subscription_handle")?,
            topic: text("topic_name")?,
            depth: f.unsigned("queue_depth")?,
        },
        Call::SubscriptionGid => EventKind::SubscriptionGid {
            rmw: f.unsigned("rmw_subscription_handle")?,
            gid: f.gid("gid")?,
        },
        Call::SubscriptionObject => EventKind::SubscriptionObject {
            subscription: f.unsigned("subscription_handle")?,
            object: f.unsigned("subscription")?,
        },
        Call::SubscriptionCallback => EventKind::SubscriptionCallback {
            object: f.unsigned("subscription")?,
            callback: f.unsigned("callback")?,
        },
        Call::ServiceInit => EventKind::ServiceInit {
            service: f.unsigned("service_handle")?,
            node: f.unsigned("node_handle")?,
            rmw: f.unsigned("rmw_service_handle")?,
            name: text("service_name")?,
        },
        Call::ServiceCallback => EventKind::ServiceCallback {
            service: f.unsigned("service_handle")?,
            callback: f.unsigned("callback")?,
        },
        Call::ClientInit => EventKind::ClientInit {
            client: f.unsigned("client_handle")?,
            node: f.unsigned("node_handle")?,
            rmw: f.unsigned("rmw_client_handle")?,
            name: text("service_name")?,
        },
        Call::ClientGid => EventKind::ClientGid {
            rmw: f.unsigned("rmw_client_handle")?,
            gid: f.gid("gid")?,
        },
        Call::TimerInit => EventKind::TimerInit {
            timer: f.unsigned("timer_handle")?,
            period_ns: f.signed("period")?,
        },
        Call::TimerCallback => EventKind::TimerCallback {
            timer: f.unsigned("timer_handle")?,
            callback: f.unsigned("callback")?,
        },
        Call::TimerNode => EventKind::TimerNode {
            timer: f.unsigned("timer_handle")?,
            node: f.unsigned("node_handle")?,
        },
        Call::CallbackRegister => EventKind::CallbackSymbol {
            callback: f.unsigned("callback")?,
            symbol: text("symbol")?,
        },
        Call::LifecycleInit => EventKind::LifecycleInit {
            node: f.unsigned("node_handle")?,
            machine: f.unsigned("state_machine")?,
        },
        Call::LifecycleTransition => EventKind::LifecycleTransition {
            machine: f.unsigned("state_machine")?,
            from: text("start_label")?,
            to: text("goal_label")?,
        },
        Call::IpbToSubscription => EventKind::IntraBufferSubscription {
            ipb: f.unsigned("ipb")?,
            object: f.unsigned("subscription")?,
        },
        Call::BufferToIpb => EventKind::RingBufferIntraBuffer {
            buffer: f.unsigned("buffer")?,
            ipb: f.unsigned("ipb")?,
        },
        Call::RingBufferInit => EventKind::RingBufferInit {
            buffer: f.unsigned("buffer")?,
            capacity: f.unsigned("capacity")?,
        },
        _ => return None,
    })
}

fn runtime_event(call: Call, f: &Fields) -> Option<EventKind> {
    Some(match call {
        Call::CallbackStart => EventKind::CallbackStart {
            callback: f.unsigned("callback")?,
            intra_process: f.unsigned("is_intra_process")? != 0,
        },
        Call::CallbackEnd => EventKind::CallbackEnd {
            callback: f.unsigned("callback")?,
        },
        Call::IntraPublish => EventKind::IntraPublish {
            publisher: f.unsigned("publisher_handle")?,
            message: f.unsigned("message")?,
        },
        Call::RclPublish => EventKind::RclPublish {
            publisher: f.unsigned("publisher_handle")?,
            message: f.unsigned("message")?,
        },
        Call::RmwPublish => EventKind::Publish {
            // In Humble, `rmw_publish` has only the message. Its publisher is that of `rcl_publish`.
            rmw: f.unsigned("rmw_publisher_handle").unwrap_or(0),
            message: f.unsigned("message")?,
            source_ns: f.signed("timestamp"),
        },
        Call::RmwTake => EventKind::Take {
            rmw: f.unsigned("rmw_subscription_handle")?,
            message: f.unsigned("message")?,
            source_ns: f.signed("source_timestamp")?,
            taken: f.unsigned("taken")? != 0,
        },
        Call::SendRequest => EventKind::RequestSend {
            rmw: f.unsigned("rmw_client_handle")?,
            sequence: f.signed("sequence_number")?,
        },
        Call::TakeRequest => EventKind::RequestTake {
            rmw: f.unsigned("rmw_service_handle")?,
            gid: f.gid("client_gid")?,
            sequence: f.signed("sequence_number")?,
            taken: f.unsigned("taken")? != 0,
        },
        Call::SendResponse => EventKind::ResponseSend {
            rmw: f.unsigned("rmw_service_handle")?,
            gid: f.gid("client_gid")?,
            sequence: f.signed("sequence_number")?,
            source_ns: f.signed("timestamp"),
        },
        Call::TakeResponse => EventKind::ResponseTake {
            rmw: f.unsigned("rmw_client_handle")?,
            sequence: f.signed("sequence_number")?,
            source_ns: f.signed("source_timestamp")?,
            taken: f.unsigned("taken")? != 0,
        },
        Call::NextReady => EventKind::ExecutorNextReady,
        Call::WaitForWork => EventKind::ExecutorWaitForWork {
            timeout_ns: f.signed("timeout")?,
        },
        Call::Execute => EventKind::ExecutorExecute {
            handle: f.unsigned("handle")?,
        },
        Call::RingBufferEnqueue => EventKind::RingBufferEnqueue {
            buffer: f.unsigned("buffer")?,
            index: f.unsigned("index")?,
            overwritten: f.unsigned("overwritten")? != 0,
        },
        Call::RingBufferDequeue => EventKind::RingBufferDequeue {
            buffer: f.unsigned("buffer")?,
            index: f.unsigned("index")?,
        },
        Call::RingBufferClear => EventKind::RingBufferClear {
            buffer: f.unsigned("buffer")?,
        },
        _ => return None,
    })
}
