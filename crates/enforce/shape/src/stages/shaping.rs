//! The servers run: threads are assigned, the phase is followed.

use super::{Course, Shaped};
use crate::error::ShapeError;
use crate::judge::{CpuUsage, IsolationMonitor};
use crate::observe::{Application, Phase};
use crate::report::Notes;
use crate::threads::{Awake, Placement, Thread};
use onbeat_plan::Plan;
use onbeat_reserve::Stats;
use onbeat_time::clock::monotonic_ns;

/// The application is shaped.
pub(crate) struct Shaping<'a> {
    pub(crate) course: Course,
    placement: Placement<'a>,
    /// `None` if idle CPUs may sleep deeply.
    _awake: Option<Awake>,
    /// CPU time when all had settled.
    settled_usage: Option<CpuUsage>,
}

impl<'a> Shaping<'a> {
    /// Assigns the threads of the application to the servers. On an error everything is put back.
    pub(crate) fn begin(
        plan: &Plan,
        application: &mut Application,
        mut placement: Placement<'a>,
        awake: Option<Awake>,
        (phase, shaper): (Phase, Option<u32>),
    ) -> Result<Shaping<'a>, ShapeError> {
        let mut isolation = IsolationMonitor::default();
        for (thread, callback, server) in assignable(application) {
            if placement.assign(thread, application.name(callback), server)? {
                watch(&mut isolation, &placement, thread, server);
            } else {
                application.roles.forget(thread.tid);
            }
        }
        for (thread, server) in placement.assign_publishers(application)? {
            watch(&mut isolation, &placement, thread, server);
        }
        placement.place_middleware(application, shaper);
        Ok(Shaping {
            course: Course::new(plan, phase, isolation, monotonic_ns()),
            placement,
            _awake: awake,
            settled_usage: None,
        })
    }

    /// Assigns a thread that was found later. False if it has ended.
    pub(crate) fn assign(
        &mut self,
        thread: Thread,
        job: &str,
        server: usize,
    ) -> Result<bool, ShapeError> {
        let is_assigned = self.placement.assign(thread, job, server)?;
        if is_assigned {
            watch(&mut self.course.isolation, &self.placement, thread, server);
        }
        Ok(is_assigned)
    }

    /// Places the middleware's threads that have come since.
    pub(crate) fn place_middleware(&mut self, application: &Application, shaper: Option<u32>) {
        self.placement.place_middleware(application, shaper);
    }

    /// The first callback started: the servers follow it. Returns the new origin, if it has moved.
    pub(crate) fn started(&mut self, start_ns: u64) -> Option<u64> {
        let origin_ns = self.course.phase.started(start_ns, monotonic_ns())?;
        self.placement.set_origin(origin_ns);
        Some(origin_ns)
    }

    /// Whether threads and executions have settled. When they first have, CPU time begins to count.
    pub(crate) fn has_settled(&mut self, shaper: Option<u32>) -> bool {
        let has_settled = monotonic_ns() >= self.course.settled_ns;
        if has_settled && self.settled_usage.is_none() {
            self.settled_usage = Some(CpuUsage::now(shaper));
        }
        has_settled
    }

    /// Counters of the dispatcher.
    pub(crate) fn stats(&self) -> Stats {
        self.placement.stats()
    }

    /// Puts every thread back. `usage` is the CPU time until now.
    pub(crate) fn stop(self, usage: CpuUsage, notes: &mut Notes) -> Shaped {
        let (report, placed) = self.placement.stop();
        report
            .restored
            .failures
            .into_iter()
            .for_each(|f| notes.add(f));
        Shaped {
            course: self.course,
            placed,
            stats: report.stats,
            usage: self.settled_usage.map(|settled| (settled, usage)),
        }
    }
}

/// Threads that belong to a server, each with a callback that it runs and the server's index.
fn assignable(application: &Application) -> Vec<(Thread, usize, usize)> {
    let threads = application.roles.threads().iter();
    threads
        .filter_map(|(&tid, role)| {
            let thread = Thread { pid: role.pid, tid };
            Some((thread, role.callbacks[0], role.server?))
        })
        .collect()
}

fn watch(monitor: &mut IsolationMonitor, placement: &Placement, thread: Thread, server: usize) {
    if let Some(isolation) = placement.isolation(server) {
        monitor.watch(thread.tid, isolation);
    }
}
