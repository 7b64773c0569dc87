//! Lists the application's threads as they are, and where each would go.

use crate::observe::Application;
use crate::threads::{middleware_job, WhoWaits};
use onbeat_proc::cgroup::{self, Mount};
use onbeat_proc::Status;
use onbeat_reserve::{scheduling, Server, Waiting, Waits};
use std::collections::BTreeSet;
use std::fs;

/// The place where a session would put a thread of the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// The thread would belong to the reservation server with this index in the plan.
    Server(usize),
    /// The thread would run on the CPU that the plan gives to the middleware.
    Middleware,
}

/// A thread of the application that a session would change, with how it runs now and where the
/// session would put it.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenThread {
    pub tid: u32,
    pub pid: u32,
    /// The thread's name. It is untrusted.
    pub name: String,
    /// The scheduling policy and priority that the thread has now.
    pub scheduling: String,
    /// The CPUs on which the thread may run now, as the kernel lists them.
    pub cpus: String,
    pub to: Destination,
    /// The plan's callbacks that the thread runs, or the thread's task in the middleware, for
    /// example sending.
    pub jobs: Vec<String>,
}

/// A process that the application has started. If a gated thread starts a process during shaping,
/// the process inherits the thread's CPU. onbeat restores the CPUs of such processes at the end.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    pub pid: u32,
    /// The process's name. It is untrusted.
    pub name: String,
    /// The id of the application's process that started this process.
    pub by: u32,
}

#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) threads: Vec<SeenThread>,
    pub(super) untouched: usize,
    pub(super) started: Vec<Started>,
    pub(super) risks: Vec<String>,
}

pub(super) fn seen(application: &Application, servers: &[Server], waits: &WhoWaits) -> Seen {
    let mut seen = Seen::default();
    let mounts = Hierarchies::read();
    for pid in application.roles.processes() {
        for tid in onbeat_proc::threads(pid) {
            let role = application.roles.threads().get(&tid);
            let role = role.filter(|role| role.pid == pid);
            let name = onbeat_proc::thread_name(pid, tid).unwrap_or_default();
            let (to, jobs) = match (role.and_then(|r| r.server), middleware_job(&name)) {
                (Some(server), _) => {
                    let callbacks = role.iter().flat_map(|r| &r.callbacks);
                    let names = callbacks.map(|&c| application.name(c).to_owned());
                    (Destination::Server(server), names.collect())
                }
                (None, Some(job)) if role.is_none() => {
                    (Destination::Middleware, vec![job.to_owned()])
                }
                _ => {
                    seen.untouched += 1;
                    continue;
                }
            };
            if let Destination::Server(server) = to {
                let server = &servers[server];
                seen.risks.extend(mounts.risks(tid, server));
                if !server.slots.is_empty() && waits.of(tid) == Waits::Unknown {
                    seen.risks.push(format!(
                        "Thread {tid} was not seen in rcl_wait (does it use an events executor?). A soft gate does not \
                         freeze this thread: between its slots, the thread runs at a normal priority."
                    ));
                }
            }
            seen.threads.push(SeenThread {
                tid,
                pid,
                name,
                scheduling: scheduling(tid).unwrap_or_else(|| "has ended".into()),
                cpus: allowed(tid),
                to,
                jobs,
            });
        }
        seen.started.extend(started(pid));
    }
    seen
}

fn allowed(tid: u32) -> String {
    let status = Status::of(tid).ok();
    let list = status.and_then(|s| s.field("Cpus_allowed_list").map(str::to_owned));
    list.unwrap_or_default()
}

fn started(pid: u32) -> Vec<Started> {
    let below = onbeat_proc::tree(pid).into_iter().skip(1);
    let of = |child: u32| {
        Some(Started {
            pid: child,
            name: onbeat_proc::thread_name(child, child)?,
            by: onbeat_proc::parent(child)?,
        })
    };
    below.filter_map(of).collect()
}

struct Hierarchies {
    cpuset: Option<Mount>,
    /// The cgroup hierarchy of version 1's `cpu` controller, which limits the real-time CPU time of
    /// each cgroup.
    cpu: Option<Mount>,
    unified: Option<Mount>,
}

impl Hierarchies {
    fn read() -> Hierarchies {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Hierarchies {
            cpuset: cgroup::parse_controller(&table, "cpuset"),
            cpu: cgroup::parse_controller(&table, "cpu"),
            unified: cgroup::parse_freezers(&table).1,
        }
    }

    fn risks(&self, tid: u32, server: &Server) -> Vec<String> {
        let mut risks = Vec::new();
        let file = |mount: &Option<Mount>, names: &[&str]| {
            let dir = mount.as_ref()?.of_thread(tid).ok()?;
            // A cgroup without the file has the settings of its parent.
            let mut dirs = dir.ancestors();
            dirs.find_map(|d| {
                names
                    .iter()
                    .find_map(|n| fs::read_to_string(d.join(n)).ok())
            })
        };
        let cpus = file(&self.cpuset, &["cpuset.effective_cpus", "cpuset.cpus"])
            .or_else(|| file(&self.unified, &["cpuset.cpus.effective"]));
        let cpus: Option<BTreeSet<u16>> = cpus.map(|text| crate::preflight::cpu_list(text.trim()));
        if cpus.is_some_and(|cpus| !cpus.is_empty() && !cpus.contains(&server.cpu)) {
            risks.push(format!(
                "Thread {tid} cannot be put into {}: CPU {} is not in its cpuset.",
                server.name, server.cpu
            ));
        }
        let real_time = file(&self.cpu, &["cpu.rt_runtime_us"]);
        if server.priority > 0 && real_time.is_some_and(|text| text.trim() == "0") {
            risks.push(format!(
                "Thread {tid} cannot be put into {}: its cgroup may not run at a real-time priority (cpu.rt_runtime_us is 0).",
                server.name
            ));
        }
        risks
    }
}
