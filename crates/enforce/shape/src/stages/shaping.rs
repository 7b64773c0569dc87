//! The stage in which the servers run: threads are assigned, and the phase is followed.

use super::{pauses, Course, Shaped};
use crate::error::ShapeError;
use crate::judge::{CpuUsage, IsolationMonitor};
use crate::observe::{Application, Moved, Phase};
use crate::report::Notes;
use crate::shaper::SenderProcesses;
use crate::threads::{Awake, Placement, Thread};
use onbeat_plan::Plan;
use onbeat_reserve::{Move, Pauses, Server, Stats, SwapError};
use onbeat_time::clock::monotonic_ns;
use onbeat_trace::{Event, EventKind};
use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) struct Shaping<'a> {
    pub(crate) course: Course,
    placement: Placement<'a>,
    _awake: Option<Awake>,
    seen_changes: u64,
    seen_moves: u64,
    has_named_unknown: bool,
    settled_usage: Option<CpuUsage>,
    next_slips_note: u64,
    reported: Pauses,
}

impl<'a> Shaping<'a> {
    /// Assigns the application's threads to the servers. If `notes` is given, a thread that cannot
    /// be assigned is noted there and left unchanged. With `notes`, the call fails only if no
    /// thread can be assigned.
    ///
    /// # Errors
    ///
    /// Without `notes`, fails if a thread cannot be assigned. All threads are restored after an
    /// error.
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
            next_slips_note: 1,
            reported: Pauses::default(),
        })
    }

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

    /// Finds threads that have started since the last call, in the processes that `is_ours`
    /// accepts. Frees the threads that gated threads have started and that inherited a gate.
    /// Assigns the publisher threads of restarted processes. Places the middleware's threads on
    /// their CPU.
    pub(crate) fn find_threads(
        &mut self,
        application: &Application,
        senders: &SenderProcesses,
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
            .place_middleware(application, senders, is_ours);
    }

    pub(crate) fn free_heirs(&self, events: &[Event]) {
        let is_heir = |event: &Event| match event.kind {
            EventKind::Fork { parent_tid, .. } => self.placement.is_assigned(parent_tid),
            _ => false,
        };
        if events.iter().any(is_heir) {
            self.placement.free_heirs();
        }
    }

    /// Moves the origin of cycles according to a start of the first callback. Returns the new
    /// origin if it has moved. The new origin applies to outputs from `from_ns` on.
    pub(crate) fn started(&mut self, start_ns: u64, from_ns: u64) -> Option<u64> {
        let since = (from_ns, monotonic_ns());
        let origin_ns = self.course.phase.started(start_ns, since)?;
        self.placement.set_origin(origin_ns);
        Some(origin_ns)
    }

    pub(crate) fn earlier_inputs_arrived<'t>(
        &mut self,
        arrivals: impl Iterator<Item = &'t VecDeque<u64>>,
    ) {
        let course = &mut self.course;
        for (input, times) in arrivals.enumerate() {
            for &at_ns in times {
                course.inputs.arrived(input, at_ns, course.phase.phase());
            }
        }
    }

    /// Moves the origin of cycles according to the arrivals of throttled inputs. A new origin
    /// applies to outputs from `from_ns` on. Returns the movement, if any, and a note about slips
    /// for the user.
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
        let note = (slips >= self.next_slips_note).then(|| slips_note(slips));
        if note.is_some() {
            self.next_slips_note = slips.saturating_mul(10);
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

    pub(crate) fn swap(&mut self, servers: Vec<Server>, from_ns: u64) -> Result<(), SwapError> {
        self.placement.swap(servers)?;
        let isolations = self.placement.isolations();
        self.course.isolation.swap(from_ns, isolations);
        Ok(())
    }

    pub(crate) fn take_changes(&mut self) {
        let changes = self.placement.changes_since(&mut self.seen_changes);
        self.course.isolation.changed(changes);
    }

    pub(crate) fn moves(&mut self) -> Vec<Move> {
        self.placement.moves_since(&mut self.seen_moves)
    }

    pub(crate) fn first_restarted(&mut self, plan: &Plan) {
        // The cycles of a throttler follow its inputs instead.
        if plan.inputs.is_empty() {
            self.course.phase.anew();
        }
        self.course.unsettle(plan, monotonic_ns());
    }

    pub(crate) fn name_unknown(&mut self, notes: &mut Notes) {
        let gates = self.stats().gates;
        let unknown = gates.iter().filter(|g| g.unknown >= ENDS_UNKNOWN);
        for gate in unknown.filter(|_| !self.has_named_unknown) {
            let names = self.placement.unknown(&gate.server);
            notes.add(unknown_note(&gate.server, &names));
        }
        self.has_named_unknown |= gates.iter().any(|g| g.unknown >= ENDS_UNKNOWN);
    }

    pub(crate) fn begin_cpu_usage(&mut self, shaper: Option<u32>) {
        if self.settled_usage.is_none() && monotonic_ns() >= self.course.settled_ns {
            self.settled_usage = Some(CpuUsage::now(shaper));
        }
    }

    /// Returns true if the plan's policy for late outputs applies: executions have settled (all
    /// running ones have begun under shaping), and the phase is known.
    pub(crate) fn has_policy(&mut self, plan: &Plan) -> bool {
        let now_ns = monotonic_ns();
        if self.course.phase.phase().is_sought() {
            self.course.unsettle(plan, now_ns);
        }
        self.course.has_policy(now_ns)
    }

    /// Writes into `notes` why gates stayed open since the last call. Returns false if they will
    /// stay open until the session's end.
    pub(crate) fn report_pauses(&mut self, notes: &mut Notes) -> bool {
        let pauses = self.placement.pauses();
        let new = pauses::sentences(self.reported, pauses);
        new.into_iter().for_each(|sentence| notes.add(sentence));
        self.reported = pauses;
        !pauses.guard_lost
    }

    pub(crate) fn threads_of(&self, place: &str) -> Vec<(u32, String)> {
        self.placement.threads_of(place)
    }

    pub(crate) fn stats(&self) -> Stats {
        self.placement.stats()
    }

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
    format!("An input came twice in a cycle, or not at all in a cycle, although its interval was normal ({slips} times so far).")
}

pub(crate) fn left_alone(error: &ShapeError) -> String {
    // Some errors end with a full stop.
    format!("Not shaped: {}.", error.to_string().trim_end_matches('.'))
}

/// The number of slot ends at which onbeat did not know whether a server's threads wait for work.
/// From this number on, a note names these threads. Fewer such slot ends are normal, because a
/// thread that was just assigned has not reached its executor yet.
const ENDS_UNKNOWN: u64 = 3;
const MAX_NAMED: usize = 4;

fn unknown_note(server: &str, threads: &[String]) -> String {
    let more = threads.len().saturating_sub(MAX_NAMED);
    let mut named = threads[..threads.len().min(MAX_NAMED)].join(", ");
    if more > 0 {
        named += &format!(" and {more} more");
    }
    format!(
        "onbeat cannot see when the threads of server {server} ({named}) wait for work, because none of them calls rcl_wait. This is usual for an events executor. Between their slots these threads are not frozen but run at a normal priority. With --gate hard, onbeat freezes them at any point of their code."
    )
}

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
