//! Records without privileges: a preloaded library sees the command's calls, and `perf_event_open`
//! shows its scheduling.

mod clocks;
mod merge;
mod scheduler;
mod unloaded;

use super::log::{Described, Log};
use super::observer::{Control, Observer, Progress, Summary};
use super::options::{RecordOptions, Target};
use super::output::REORDER_NS;
use super::session::Session;
use super::RecordError;
use crate::command::{user, CommandLibrary, CommandStartError, Observed, RecordedCommand};
use crate::decode::{decode, Decoded};
use crate::descriptors;
use crate::libraries::Libraries;
use crate::limits::Border;
use crate::perf::Action;
use crate::preload::{Place, PlaceOptions, Rings};
use crate::privilege;
use crate::records::Head;
use merge::Merge;
use onbeat_time::clock::monotonic_ns;
use onbeat_trace::manifest::{Means, ProbeInfo, Probing};
use onbeat_trace::{Event, EventKind};
use scheduler::Scheduler;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use unloaded::Unloaded;

/// The longest time that records stay in the threads' rings. A full ring does not wake the
/// recorder.
const DRAIN: Duration = Duration::from_millis(20);
const CHECK_EVERY: Duration = Duration::from_secs(1);
const RECORDS_AT_ONCE: usize = 1 << 17;

pub struct Preloaded {
    // The rings are dropped before the directory in which they lie.
    rings: Rings,
    place: Place,
    scheduler: Scheduler,
    merge: Merge,
    log: Log,
    libraries: Libraries,
    border: Border,
    unloaded: Unloaded,
    lost: Lost,
    hits: BTreeMap<u16, u64>,
    command: Option<u32>,
    checked_at: Instant,
}

#[derive(Default)]
struct Lost {
    by_kind: BTreeMap<&'static str, u64>,
    refused: Vec<String>,
    unseen: Option<String>,
}

impl Lost {
    fn update(&mut self, kind: &'static str, total: u64) -> Option<(u64, u64)> {
        let complete = self.by_kind.entry(kind).or_default();
        let new = total.saturating_sub(*complete);
        *complete = total.max(*complete);
        (new > 0).then_some((new, total))
    }

    fn total(&self) -> u64 {
        self.by_kind.values().sum()
    }
}

impl Preloaded {
    pub fn begin(options: &RecordOptions) -> Result<Preloaded, RecordError> {
        let Target::Command { words, .. } = &options.target else {
            return Err(RecordError::PreloadWithoutCommand);
        };
        // Only root has rights to raise. It needs them to start the command as the user behind
        // sudo, who also gets the trace.
        onbeat_rights::raise();
        RecordedCommand::check(words)?;
        descriptors::raise();
        let border = Border::new(&options.limits)?;
        let defaults = PlaceOptions::default();
        let place = Place::create(&PlaceOptions {
            owner: user::invoking().map(|user| (user.uid, user.gid)),
            ..defaults
        })
        .map_err(RecordError::Preload)?;
        let rings = Rings::open(&place).map_err(RecordError::Preload)?;
        let scheduler = Scheduler::open();
        let means = Means {
            probing: Probing::Preload,
            scheduling: scheduler.means(),
        };
        let merge = Merge::new(means.scheduling);
        let ring_bytes = u32::try_from(defaults.ring_bytes).unwrap_or(u32::MAX);
        let mut log = Log::create(options, ring_bytes, means)?;
        log.start();
        Ok(Preloaded {
            unloaded: Unloaded::new(place.library().display().to_string()),
            rings,
            place,
            scheduler,
            merge,
            log,
            libraries: Libraries::new(options.placement),
            border,
            lost: Lost::default(),
            hits: BTreeMap::new(),
            command: None,
            checked_at: Instant::now(),
        })
    }

    /// Takes the records from the rings and the kernel's buffers. Returns true if more records may
    /// wait.
    fn drain(&mut self) -> bool {
        let mut records = Vec::new();
        let hits = &mut self.hits;
        let more = self.rings.poll(RECORDS_AT_ONCE, &mut |record| {
            if let Some(head) = Head::read(record).filter(|head| head.probe != 0) {
                *hits.entry(head.probe).or_default() += 1;
            }
            records.extend(decode(record));
        });
        let mut seen = Vec::new();
        self.scheduler.take(&mut seen);
        let now_ns = monotonic_ns();
        for record in records {
            // The command's processes can write any record. One from the future would be kept
            // without end.
            if record.time_ns().is_some_and(|at| at <= now_ns) {
                self.merge.add_record(record);
            }
        }
        for exec in seen
            .iter()
            .filter(|s| matches!(s.action, Action::Exec { .. }))
        {
            self.unloaded.forget(exec.pid);
        }
        self.merge.add_scheduling(seen);
        more
    }

    fn handle_until(
        &mut self,
        until_ns: u64,
        observer: &mut dyn Observer,
    ) -> Result<(), RecordError> {
        let mut complete = Vec::new();
        self.merge
            .drain_until(until_ns, profile_of, |decoded| complete.push(decoded));
        for decoded in complete {
            self.handle(decoded);
        }
        let control = Control { kernel: None };
        let until_ns = until_ns.saturating_sub(self.scheduler.max_delay_ns());
        self.log.write_until(until_ns, &control, observer)
    }

    fn handle(&mut self, decoded: Decoded) {
        match decoded {
            Decoded::Process { pid, time_ns, late } => self.process(pid, time_ns, late),
            Decoded::Event(event) if !self.border.leaves_out(&event) => self.log.event(event),
            Decoded::Thread { pid, tid, time_ns } if !self.border.is_outside(pid) => {
                self.log.thread(pid, tid, time_ns);
            }
            _ => {}
        }
    }

    fn process(&mut self, pid: u32, time_ns: u64, late: bool) {
        if self.border.admits(pid, || true) {
            let found = self.libraries.identify(pid);
            self.log
                .process((pid, time_ns, late), found, &mut self.libraries);
        }
    }

    fn check_processes(&mut self) {
        if self.checked_at.elapsed() < CHECK_EVERY {
            return;
        }
        self.checked_at = Instant::now();
        self.merge.forget_profiles();
        if let Some(command) = self.command {
            self.unloaded.check_tree(command);
        }
        if matches!(self.scheduler, Scheduler::Perf(_)) {
            return;
        }
        // Without perf events, nothing else reports the end of a process.
        let all: Vec<u32> = self.merge.processes().collect();
        for pid in all.into_iter().filter(|&pid| !onbeat_proc::is_alive(pid)) {
            self.merge.forget(pid);
            self.log.event(Event {
                time_ns: monotonic_ns(),
                cpu: 0,
                pid,
                tid: pid,
                kind: EventKind::Exit,
            });
        }
    }

    fn sentences(&self) -> Vec<String> {
        let mut sentences = vec![
            "Recorded without BPF, by a library in the command's processes. Tasks of onbeat-flow and links of onbeat-link are not recorded. Synchronisers of message_filters are recognised only by their data flow.".to_owned(),
            match &self.scheduler {
                Scheduler::Perf(_) => "Context switches come from perf_event_open. CPU times come from the threads' clocks at the beginning and end of callbacks. Time in which a thread was ready after a wake-up counts as sleep, and time that a host takes from a virtual machine as preemption. The recording does not show which thread had the CPU during a preemption, or which thread caused a wake-up.".to_owned(),
                Scheduler::Refused(why) => format!("Context switches are not recorded (perf_event_open: {why}). CPU times come from the threads' clocks at the beginning and end of callbacks. Time in which a thread was ready counts as sleep."),
            },
        ];
        sentences.extend(self.lost.unseen.clone());
        sentences.extend(self.unloaded.sentence());
        sentences.extend(self.lost.refused.iter().cloned());
        sentences
    }

    fn probes(&self) -> Vec<ProbeInfo> {
        let of = |(&number, &hits): (&u16, &u64)| {
            let name = Rings::function(number)?;
            Some(ProbeInfo {
                name: name.into(),
                library: "preload".into(),
                symbol: name.into(),
                placement: "preload".into(),
                hits,
                attached: true,
                ..ProbeInfo::default()
            })
        };
        self.hits.iter().filter_map(of).collect()
    }
}

fn profile_of(pid: u32, tid: u32) -> Option<merge::Profile> {
    let stat = onbeat_proc::Stat::of_thread(pid, tid)?;
    Some((stat.priority, stat.policy))
}

impl Session for Preloaded {
    fn start_command(
        &mut self,
        words: &[String],
        to_stderr: bool,
        _: Option<&CommandLibrary>,
    ) -> Result<RecordedCommand, CommandStartError> {
        let observed = Observed::Preloaded {
            place: &self.place,
            clocks: matches!(self.scheduler, Scheduler::Refused(_)),
        };
        let command = RecordedCommand::start(words, to_stderr, observed)?;
        self.lost.unseen = self.scheduler.started(command.id());
        self.command = Some(command.id());
        Ok(command)
    }

    fn drop_privileges(&self, needs_start: bool) {
        privilege::drop_without_kernel(needs_start);
    }

    fn turn(
        &mut self,
        timeout: Duration,
        observer: &mut dyn Observer,
    ) -> Result<Option<u64>, RecordError> {
        self.scheduler.wait(timeout.min(DRAIN));
        // Everything that was written before this time is taken now.
        let now_ns = monotonic_ns();
        let more = self.drain();
        self.check_processes();
        // If more records wait, their times are not known yet.
        if !more {
            self.handle_until(now_ns.saturating_sub(REORDER_NS), observer)?;
        }
        Ok(more.then_some(now_ns))
    }

    fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    fn count_losses(&mut self) {
        let losses = self.rings.losses();
        let switches = ("switch", self.scheduler.lost());
        for (kind, total) in losses.by_kind.into_iter().chain([switches]) {
            if let Some(counts) = self.lost.update(kind, total) {
                self.log.lost(kind, 0, counts);
            }
        }
        let sentence = |r: crate::preload::Refused| match r.pid {
            0 => format!("A process: {}.", r.reason),
            pid => format!("Process {pid}: {}.", r.reason),
        };
        self.lost.refused = losses.refused.into_iter().map(sentence).collect();
    }

    fn progress(&self) -> Progress {
        self.log.progress(&self.border, self.lost.total())
    }

    fn described(&mut self) -> Described {
        let mut left_out = self.sentences();
        left_out.extend(self.libraries.unseen());
        left_out.extend(self.border.sentence());
        Described {
            probes: self.probes(),
            left_out,
        }
    }

    fn stop_suspending(&self) {}

    fn finish(
        mut self,
        command_status: Option<i32>,
        observer: &mut dyn Observer,
    ) -> Result<Summary, RecordError> {
        // This takes all records made until now, but does not follow records that keep coming.
        let end_ns = monotonic_ns();
        while self
            .turn(Duration::ZERO, observer)?
            .is_some_and(|since_ns| since_ns < end_ns)
        {}
        self.handle_until(u64::MAX, observer)?;
        self.count_losses();
        self.log.note_clock_offset();
        let control = Control { kernel: None };
        self.log.write_until(u64::MAX, &control, observer)?;
        let (progress, described) = (self.progress(), self.described());
        self.log.finish(command_status, progress, described)
    }
}
