//! The servers run: threads are assigned, the phase is followed.

use super::{pauses, Course, Shaped};
use crate::error::ShapeError;
use crate::judge::{CpuUsage, IsolationMonitor};
use crate::observe::{Application, Moved, Phase};
use crate::report::Notes;
use crate::threads::{Awake, Placement, Thread};
use onbeat_plan::Plan;
use onbeat_reserve::{Move, Pauses, Server, Stats, SwapError};
use onbeat_time::clock::monotonic_ns;
use onbeat_trace::{Event, EventKind};
use std::collections::VecDeque;
use std::sync::Arc;

/// The application is shaped.
pub(crate) struct Shaping<'a> {
    pub(crate) course: Course,
    placement: Placement<'a>,
    /// `None` if idle CPUs may sleep deeply.
    _awake: Option<Awake>,
    /// How many of the gates' changes were taken.
    seen_changes: u64,
    /// How many of the gates' moves were taken.
    seen_moves: u64,
    /// Whether threads of which nothing is known were named.
    has_named_unknown: bool,
    /// CPU time when all had settled.
    settled_usage: Option<CpuUsage>,
    /// Slips are told when there are so many.
    next_told: u64,
    /// What was told of the times at which gates stayed open.
    told: Pauses,
}

impl<'a> Shaping<'a> {
    /// Assigns the threads of the application to the servers. On an error everything is put back. With `notes`, a
    /// thread that cannot be assigned is told and left alone, unless it is the only one.
    pub(crate) fn begin(
        plan: (&Arc<Plan>, u64),
        application: &mut Application,
        mut placement: Placement<'a>,
        awake: Option<Awake>,
        (phase, mut isolation): (Phase, IsolationMonitor),
        mut notes: Option<&mut Notes>,
    ) -> Result<Shaping<'a>, ShapeError> {
        let mut refused = None;
        for (thread, callback, server) in assignable(application) {
            match placement.assign(thread, application.name(callback), server) {
                Ok(true) => watch(&mut isolation, &placement, thread, server),
                Ok(false) => application.roles.forget(thread.tid),
                Err(error) => match &mut notes {
                    Some(notes) if error.is_of_one_thread() => {
                        notes.add(left_alone(&error));
                        refused.get_or_insert(error);
                    }
                    _ => return Err(error),
                },
            }
        }
        if let Some(error) = refused.filter(|_| !placement.has_threads()) {
            return Err(error);
        }
        for (thread, server) in placement.assign_publishers(application)? {
            watch(&mut isolation, &placement, thread, server);
        }
        Ok(Shaping {
            course: Course::new(plan, phase, isolation, monotonic_ns()),
            placement,
            _awake: awake,
            seen_changes: 0,
            seen_moves: 0,
            has_named_unknown: false,
            settled_usage: None,
            next_told: 1,
            told: Pauses::default(),
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

    /// Finds the threads that have come since: lets go what gated threads have started, assigns the
    /// publisher threads of processes that were started anew, places the middleware's. Of processes
    /// that `is_ours` takes for the application's.
    pub(crate) fn find_threads(
        &mut self,
        application: &Application,
        shaper: Option<u32>,
        is_ours: &dyn Fn(u32) -> bool,
        notes: &mut Notes,
    ) {
        self.placement.free_heirs();
        let (new, refused) = self.placement.assign_new_publishers(application, is_ours);
        for (thread, server) in new {
            watch(&mut self.course.isolation, &self.placement, thread, server);
        }
        for error in refused {
            notes.add(left_alone(&error));
        }
        self.placement
            .place_middleware(application, shaper, is_ours);
    }

    /// A gated thread may have started others, which are behind its gate: they are let go before long.
    pub(crate) fn free_heirs(&self, events: &[Event]) {
        let is_heir = |event: &Event| match event.kind {
            EventKind::Fork { parent_tid, .. } => self.placement.is_assigned(parent_tid),
            _ => false,
        };
        if events.iter().any(is_heir) {
            self.placement.free_heirs();
        }
    }

    /// The first callback started: the servers follow it. Returns the new origin, if it has moved:
    /// outputs have it from `from_ns` on.
    pub(crate) fn started(&mut self, start_ns: u64, from_ns: u64) -> Option<u64> {
        let since = (from_ns, monotonic_ns());
        let origin_ns = self.course.phase.started(start_ns, since)?;
        self.placement.set_origin(origin_ns);
        Some(origin_ns)
    }

    /// When throttled inputs came before shaping began.
    pub(crate) fn inputs_came<'t>(&mut self, arrivals: impl Iterator<Item = &'t VecDeque<u64>>) {
        let course = &mut self.course;
        for (input, times) in arrivals.enumerate() {
            for &at_ns in times {
                course.inputs.arrived(input, at_ns, course.phase.phase());
            }
        }
    }

    /// Throttled inputs have arrived: the cycles follow their clock, outputs from `from_ns` on. How they
    /// moved, if they did, and what is to be told of slips.
    pub(crate) fn inputs_arrived(
        &mut self,
        arrivals: &[(usize, u64)],
        from_ns: u64,
    ) -> (Option<Moved>, Option<String>) {
        let course = &mut self.course;
        for &(input, at_ns) in arrivals {
            course.inputs.arrived(input, at_ns, course.phase.phase());
        }
        let slips = course.inputs.slips();
        let note = (slips >= self.next_told).then(|| slips_note(slips));
        if note.is_some() {
            self.next_told = slips.saturating_mul(10);
        }
        let (origin_ns, now_ns) = (course.phase.phase().origin_ns(), monotonic_ns());
        let follow = || course.inputs.follow(origin_ns, now_ns);
        let moved = (!arrivals.is_empty()).then(follow).flatten();
        if let Some(Moved::Slewed(to_ns) | Moved::FoundAgain(to_ns)) = moved {
            course.phase.move_to(to_ns, (from_ns, now_ns));
            self.placement.set_origin(to_ns);
        }
        (moved, note)
    }

    /// The servers have the slots of another plan from an instant on. On an error all is as before.
    pub(crate) fn swap(&mut self, servers: Vec<Server>, from_ns: u64) -> Result<(), SwapError> {
        self.placement.swap(servers)?;
        let isolations = self.placement.isolations();
        self.course.isolation.swap(from_ns, isolations);
        Ok(())
    }

    /// Takes what the gates have changed since the last call.
    pub(crate) fn take_changes(&mut self) {
        let changes = self.placement.changes_since(&mut self.seen_changes);
        self.course.isolation.changed(changes);
    }

    /// The gates' moves since the last call.
    pub(crate) fn moves(&mut self) -> Vec<Move> {
        self.placement.moves_since(&mut self.seen_moves)
    }

    /// The process of the chains' first callback is another one: the phase is found again.
    pub(crate) fn first_anew(&mut self, plan: &Plan) {
        // A throttler's cycles follow its inputs.
        if plan.inputs.is_empty() {
            self.course.phase.anew();
        }
        self.course.unsettle(plan, monotonic_ns());
    }

    /// Names the threads of which soft gates do not know whether they wait, once.
    pub(crate) fn name_unknown(&mut self, notes: &mut Notes) {
        let gates = self.stats().gates;
        let unknown = gates.iter().filter(|g| g.unknown >= ENDS_UNKNOWN);
        for gate in unknown.filter(|_| !self.has_named_unknown) {
            let names = self.placement.unknown(&gate.server);
            notes.add(unknown_note(&gate.server, &names));
        }
        self.has_named_unknown |= gates.iter().any(|g| g.unknown >= ENDS_UNKNOWN);
    }

    /// When threads and executions have first settled, CPU time begins to count.
    pub(crate) fn count_cpu(&mut self, shaper: Option<u32>) {
        if self.settled_usage.is_none() && monotonic_ns() >= self.course.settled_ns {
            self.settled_usage = Some(CpuUsage::now(shaper));
        }
    }

    /// Whether the plan's policy for late outputs applies. Not until all have settled, and not while the
    /// phase is looked for.
    pub(crate) fn has_policy(&mut self, plan: &Plan) -> bool {
        let now_ns = monotonic_ns();
        if self.course.phase.phase().is_sought() {
            self.course.unsettle(plan, now_ns);
        }
        self.course.has_policy(now_ns)
    }

    /// Tells why gates stayed open since the last call. False if they stay open for good.
    pub(crate) fn tell_pauses(&mut self, notes: &mut Notes) -> bool {
        let pauses = self.placement.pauses();
        let new = pauses::sentences(self.told, pauses);
        new.into_iter().for_each(|sentence| notes.add(sentence));
        self.told = pauses;
        !pauses.guard_lost
    }

    /// Ids and names of the threads of a place.
    pub(crate) fn threads_of(&self, place: &str) -> Vec<(u32, String)> {
        self.placement.threads_of(place)
    }

    /// Counters of the dispatcher.
    pub(crate) fn stats(&self) -> Stats {
        self.placement.stats()
    }

    /// Puts every thread back. `usage` is the CPU time until now.
    pub(crate) fn stop(mut self, usage: CpuUsage, notes: &mut Notes) -> Shaped {
        self.take_changes();
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

fn slips_note(slips: u64) -> String {
    format!("Inputs came twice in a cycle, or not in one, although they came at their usual distance ({slips} so far).")
}

/// What is told of a thread that cannot be shaped.
pub(crate) fn left_alone(error: &ShapeError) -> String {
    format!("Left as it is: {error}.")
}

/// Ends of slots at which nothing is known of a thread, after which it is named: one that was just
/// assigned has not come to its executor yet.
const ENDS_UNKNOWN: u64 = 3;
/// Threads that are named in one note.
const NAMED: usize = 4;

fn unknown_note(server: &str, threads: &[String]) -> String {
    let more = threads.len().saturating_sub(NAMED);
    let mut named = threads[..threads.len().min(NAMED)].join(", ");
    if more > 0 {
        named += &format!(" and {more} more");
    }
    format!(
        "It is not known when the threads of server {server} wait for work ({named}): none of them was seen in rcl_wait, as with an events executor. They are not frozen between their slots but run there at a normal priority; --gate hard freezes them wherever they are."
    )
}

/// Threads that belong to a server, each with a callback that it runs and the server's index.
fn assignable(application: &Application) -> Vec<(Thread, usize, usize)> {
    let threads = application.roles.threads().iter();
    threads
        .filter_map(|(&tid, role)| {
            let thread = Thread {
                pid: role.pid,
                tid,
                seen_ns: role.seen_ns,
            };
            Some((thread, role.callbacks[0], role.server?))
        })
        .collect()
}

fn watch(monitor: &mut IsolationMonitor, placement: &Placement, thread: Thread, server: usize) {
    if let Some(isolation) = placement.isolation(server) {
        monitor.watch(thread.tid, server, isolation);
    }
}
