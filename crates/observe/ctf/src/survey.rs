//! Collects the processes, threads and kinds of events of a session, in the first pass over it.

use crate::kinds::{Call, Kind, Needs, Scheduler};
use crate::session::Trace;
use crate::stream::Seen;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet, HashMap};

const MAX_ROS_THREADS: usize = 100_000;
/// The largest number of endpoints. With more endpoints, onbeat does not recognise the middleware's
/// own endpoints, and imports their events too.
const MAX_ENDPOINTS: usize = 1_000_000;

#[derive(Debug, Default)]
pub(crate) struct Process {
    pub(crate) name: String,
    /// The version of tracetools in the process. It is known only if the process was recorded from
    /// its beginning.
    pub(crate) version: Option<String>,
    pub(crate) is_of_rclcpp: bool,
    pub(crate) has_nodes: bool,
    pub(crate) nodes: BTreeSet<String>,
    /// The number of events of messages, requests and responses. onbeat leaves these events out
    /// unless `is_of_rclcpp`.
    pub(crate) items: u64,
    /// The calls for which tracetools itself made events, a bit for each. CARET can repeat these
    /// events.
    calls: u64,
}

impl Process {
    /// Returns whether CARET made this event as a repetition, because tracetools made the same
    /// event itself.
    pub(crate) fn is_repeated(&self, call: Call, caret: bool) -> bool {
        caret && self.calls & call.bit() != 0
    }
}

#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub(crate) processes: BTreeMap<u32, Process>,
    pub(crate) threads: FxHashMap<u32, u32>,
    /// The endpoints of the middleware, by process and rmw handle. The value is true if an endpoint
    /// of rcl uses the middleware's endpoint.
    endpoints: HashMap<(u32, u64), bool>,
    /// The times of the first and the last event that is a context switch or an event of ROS 2.
    pub(crate) span: Option<(u64, u64)>,
    pub(crate) scheduler: SchedulerSeen,
    pub(crate) has_requests: bool,
    pub(crate) has_services: bool,
    /// The number of events of ROS 2 that lack their process or thread.
    pub(crate) nameless: u64,
    pub(crate) is_too_large: bool,
}

#[derive(Debug, Default)]
pub(crate) struct SchedulerSeen {
    pub(crate) switches: Option<(u64, u64)>,
    pub(crate) has_waking: bool,
    pub(crate) has_wakeup: bool,
    /// Threads that got a CPU. A thread of ROS 2 that is not among them has no execution times.
    pub(crate) threads: FxHashSet<u32>,
}

/// Returns the process and the thread of an event of ROS 2, or `None` if the trace does not have
/// them.
pub(crate) fn who(trace: &Trace, seen: &Seen) -> Option<(u32, u32)> {
    let fields = seen.fields.of_contexts();
    let of_process = || trace.metadata.environment.get("vpid")?.parse().ok();
    let pid = fields.tid("vpid").or_else(of_process)?;
    Some((pid, fields.tid("vtid")?))
}

fn widen(span: &mut Option<(u64, u64)>, time: u64) {
    let (first, last) = span.get_or_insert((time, time));
    (*first, *last) = ((*first).min(time), (*last).max(time));
}

impl Survey {
    /// Returns the parts that [`Survey::see`] reads of events of this kind.
    pub(crate) fn needs(kind: Kind) -> Needs {
        use Call::{NodeInit, RclInit};
        use Call::{PublisherGid, PublisherInit, SubscriptionGid, SubscriptionInit};
        match kind {
            Kind::Other => Needs::Nothing,
            Kind::Scheduler(_) => Needs::ContextsAndFields,
            Kind::Ros { call, .. } => match call {
                RclInit | NodeInit | PublisherGid | PublisherInit | SubscriptionGid
                | SubscriptionInit => Needs::ContextsAndFields,
                _ => Needs::Contexts,
            },
        }
    }

    pub(crate) fn see(&mut self, trace: &Trace, time: u64, seen: &Seen) {
        match seen.kind {
            Kind::Other => {}
            Kind::Scheduler(event) => self.see_kernel(event, time, seen),
            Kind::Ros { call, caret } => {
                widen(&mut self.span, time);
                let Some((pid, tid)) = who(trace, seen) else {
                    self.nameless += 1;
                    return;
                };
                if self.threads.len() >= MAX_ROS_THREADS && !self.threads.contains_key(&tid) {
                    self.is_too_large = true;
                    return;
                }
                self.threads.insert(tid, pid);
                self.see_endpoint(pid, call, seen);
                self.has_requests |= call.is_of_request();
                self.has_services |= matches!(call, Call::ServiceInit | Call::ClientInit);
                let process = self.processes.entry(pid).or_insert_with(|| Process {
                    name: name_of(trace, seen),
                    ..Process::default()
                });
                process.see(call, caret, seen);
            }
        }
    }

    fn see_endpoint(&mut self, pid: u32, call: Call, seen: &Seen) {
        let (field, named) = match call {
            Call::PublisherGid => ("rmw_publisher_handle", false),
            Call::PublisherInit => ("rmw_publisher_handle", true),
            Call::SubscriptionGid => ("rmw_subscription_handle", false),
            Call::SubscriptionInit => ("rmw_subscription_handle", true),
            _ => return,
        };
        if let Some(handle) = seen.fields.unsigned(field) {
            if self.endpoints.len() < MAX_ENDPOINTS {
                *self.endpoints.entry((pid, handle)).or_default() |= named;
            }
        }
    }

    /// Returns whether the endpoint of the event is the middleware's own, for example for
    /// `ros_discovery_info`.
    pub(crate) fn is_internal(&self, pid: u32, call: Call, seen: &Seen) -> bool {
        let field = match call {
            Call::RmwPublish => "rmw_publisher_handle",
            Call::RmwTake => "rmw_subscription_handle",
            _ => return false,
        };
        let handle = seen.fields.unsigned(field);
        handle.is_some_and(|handle| self.endpoints.get(&(pid, handle)) == Some(&false))
    }

    fn see_kernel(&mut self, event: Scheduler, time: u64, seen: &Seen) {
        let scheduler = &mut self.scheduler;
        match event {
            Scheduler::Switch => {
                widen(&mut self.span, time);
                widen(&mut scheduler.switches, time);
                if let Some(tid) = seen.fields.tid("next_tid") {
                    if scheduler.threads.len() < MAX_ROS_THREADS {
                        scheduler.threads.insert(tid);
                    }
                }
            }
            Scheduler::Waking => scheduler.has_waking = true,
            Scheduler::Wakeup => scheduler.has_wakeup = true,
            Scheduler::Fork | Scheduler::Exit => {}
        }
    }

    /// Returns the number of threads of ROS 2 that never get a CPU in the recorded context
    /// switches. Returns 0 if more threads were switched than the survey stores, because the number
    /// is then unknown.
    pub(crate) fn unscheduled(&self) -> usize {
        let known = &self.scheduler.threads;
        if known.len() >= MAX_ROS_THREADS {
            return 0;
        }
        self.threads.keys().filter(|t| !known.contains(t)).count()
    }
}

impl Process {
    fn see(&mut self, call: Call, caret: bool, seen: &Seen) {
        if !caret {
            self.calls |= call.bit();
        }
        self.is_of_rclcpp |= call.is_of_rclcpp();
        self.items += u64::from(call.moves_an_item());
        match call {
            Call::RclInit => self.version = seen.fields.text("version"),
            Call::NodeInit => {
                self.has_nodes = true;
                let fields = seen.fields.of_contexts();
                if let Some(name) = fields.text("node_name").zip(fields.text("namespace")) {
                    self.nodes
                        .insert(format!("{}/{}", name.1.trim_end_matches('/'), name.0));
                }
            }
            _ => {}
        }
    }

    /// Returns the distribution of ROS 2 that has this version of tracetools, or an empty text if
    /// it is unknown.
    pub(crate) fn distribution(&self) -> &'static str {
        let version = self.version.as_deref().unwrap_or_default();
        let mut numbers = version.split('.');
        match (numbers.next(), numbers.next()) {
            (Some("4"), Some("1")) => "humble",
            (Some("8"), Some("2")) => "jazzy",
            (Some("8"), Some("6")) => "kilted",
            _ => "",
        }
    }
}

fn name_of(trace: &Trace, seen: &Seen) -> String {
    let of_process = || trace.metadata.environment.get("procname").cloned();
    let name = seen.fields.of_contexts().text("procname");
    name.unwrap_or_else(|| of_process().map_or(String::new(), String::from))
}
