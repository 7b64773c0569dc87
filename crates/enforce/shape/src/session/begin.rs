//! Changes from finding to shaping: starts the servers and assigns the threads.

use super::Session;
use crate::error::ShapeError;
use crate::judge::IsolationMonitor;
use crate::observe::{Phase, Unplanned};
use crate::stages::{ShaperView, Shaping, Stage};
use crate::threads::{guarded, is_gated, Awake, Placement};
use onbeat_reserve::GateKind;

const WAITS_UNKNOWN: &str = "This kernel does not show which threads wait for work (Linux 5.15 and later do). Between their slots, threads are not frozen but run at a normal priority. With --gate hard, onbeat freezes threads at any point of their code.";

const MAX_NAMED: usize = 8;

impl Session<'_> {
    pub(super) fn find(&mut self) -> Result<(), ShapeError> {
        let Stage::Finding(finding) = &self.stage else {
            return Ok(());
        };
        let arrivals = self.supervisor.shaper().into_iter();
        let shaper = ShaperView {
            is_ready: self.supervisor.is_ready(),
            arrivals: arrivals.flat_map(|s| s.arrivals()).collect(),
        };
        let time = (finding.elapsed(), self.options.application.find_within);
        let missing = self.application.missing();
        match finding.poll(self.plan, missing, &shaper, time)? {
            Some(phase) if self.may_begin(time.0)? => self.begin(phase),
            _ => Ok(()),
        }
    }

    pub(super) fn begin(&mut self, phase: Phase) -> Result<(), ShapeError> {
        let origin_ns = phase.origin_ns();
        let plan = self.plans.given().clone();
        let servers = guarded(&plan);
        let cycle_ns = self.plan.cycle_ms.0;
        let sharing = self
            .application
            .sharing(|s| is_gated(&servers[s], cycle_ns));
        if let Some(note) = sharing_note(&sharing) {
            self.notes.add(note);
        }
        let reservation = (self.start_servers)(&servers, origin_ns)?;
        reservation
            .warnings()
            .into_iter()
            .for_each(|w| self.notes.add(w));
        if self.options.enforcement.gate == GateKind::Soft && !self.waits.has_table() {
            self.notes.add(WAITS_UNKNOWN.into());
        }
        let awake = self.keep_awake();
        // The shaper starts before the threads are assigned. Otherwise messages would pile up while
        // threads have only their slots.
        if let Some(shaper) = self.supervisor.shaper_mut() {
            shaper.shape(origin_ns, &plan);
        }
        let isolation = match self.options.enforcement.gate {
            GateKind::Soft => IsolationMonitor::of_soft_gates(),
            GateKind::Hard => IsolationMonitor::default(),
        };
        let mut shaping = Shaping::begin(
            (&plan, self.plans.number),
            &mut self.application,
            Placement::new(self.plan, servers, reservation, self.waits.clone()),
            awake,
            (phase, isolation),
            (!self.options.enforcement.strict).then_some(&mut self.notes),
        )?;
        if let Some(shaper) = self.supervisor.shaper() {
            shaping.earlier_inputs_arrived(shaper.arrivals());
        }
        let (senders, is_ours) = (self.supervisor.senders(), |pid| self.trust.still_holds(pid));
        shaping.find_threads(&self.application, &senders, &is_ours, &mut self.notes);
        self.stage = Stage::Shaping(Box::new(shaping));
        Ok(())
    }

    pub(super) fn keep_awake(&mut self) -> Option<Awake> {
        if self.options.enforcement.idle {
            return None;
        }
        let awake = Awake::new();
        awake
            .map_err(|error| {
                self.notes.add(format!(
                    "CPUs may sleep between slots and wake up late, because /dev/cpu_dma_latency cannot be used: {error}."
                ));
            })
            .ok()
    }
}

fn sharing_note(sharing: &[Unplanned]) -> Option<String> {
    let name = |u: &Unplanned| format!("{} (thread {}, {} runs)", u.id, u.tid, u.runs);
    let named: Vec<String> = sharing.iter().take(MAX_NAMED).map(name).collect();
    let more = match sharing.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let (count, verb) = match sharing.len() {
        0 => return None,
        1 => ("1 callback outside of the plan".to_owned(), "shares"),
        n => (format!("{n} callbacks outside of the plan"), "share"),
    };
    Some(format!(
        "{count} {verb} the plan's threads and will run only in the slots of these threads: {}{more}.",
        named.join(", ")
    ))
}
