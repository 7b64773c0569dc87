//! A recording without any right: a library in the command's processes sees the calls, the kernel's
//! records of one's own processes see the scheduling.

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
use crate::command::{user, CommandStartError, Observed, RecordedCommand};
use crate::decode::{decode, Decoded};
use crate::descriptors;
use crate::libraries::Libraries;
use crate::limits::Border;
use crate::perf::What;
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

/// How long records stay in the rings of threads: nobody is woken when one is full.
const DRAIN: Duration = Duration::from_millis(20);
/// How often the processes of the command are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Records that are taken at a time.
const RECORDS_AT_ONCE: usize = 1 << 17;

/// A recording under way.
pub struct Preloaded {
    // First: dropped before the place in which they lie.
    rings: Rings,
    place: Place,
    scheduler: Scheduler,
    merge: Merge,
    log: Log,
    libraries: Libraries,
    border: Border,
    unloaded: Unloaded,
    lost: Lost,
    /// Records of each function of the library.
    hits: BTreeMap<u16, u64>,
    command: Option<u32>,
    looked: Instant,
}

/// Losses that were told.
#[derive(Default)]
struct Lost {
    by_kind: BTreeMap<&'static str, u64>,
    /// Sentences of processes whose records are not had.
    refused: Vec<String>,
    /// Why the command's context switches are not seen.
    unseen: Option<String>,
}

impl Lost {
    /// Those of a kind that are new, if any, and all of them.
    fn update(&mut self, kind: &'static str, total: u64) -> Option<(u64, u64)> {
        let told = self.by_kind.entry(kind).or_default();
        let new = total.saturating_sub(*told);
        *told = total.max(*told);
        (new > 0).then_some((new, total))
    }

    fn total(&self) -> u64 {
        self.by_kind.values().sum()
    }
}

impl Preloaded {
    /// Makes the trace directory, the library and the place of its rings.
    pub fn begin(options: &RecordOptions) -> Result<Preloaded, RecordError> {
        let Target::Command { words, .. } = &options.target else {
            return Err(RecordError::PreloadWithoutCommand);
        };
        // Root alone has any: to start the command as the user behind sudo, who gets the trace.
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
        let ring_bytes = u32::try_from(defaults.ring_bytes).unwrap_or(u32::MAX);
        let mut log = Log::create(options, ring_bytes, means)?;
        log.start();
        Ok(Preloaded {
            unloaded: Unloaded::new(place.library().display().to_string()),
            rings,
            place,
            scheduler,
            merge: Merge::default(),
            log,
            libraries: Libraries::new(options.placement),
            border,
            lost: Lost::default(),
            hits: BTreeMap::new(),
            command: None,
            looked: Instant::now(),
        })
    }

    /// Takes what waits in the rings and in the kernel's buffers. True where more may wait.
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
            // The processes may write what they like. What has not happened yet would be kept.
            if record.time_ns().is_some_and(|at| at <= now_ns) {
                self.merge.called(record);
            }
        }
        for exec in seen.iter().filter(|s| matches!(s.what, What::Exec { .. })) {
            self.unloaded.executes(exec.pid);
        }
        self.merge.scheduled(seen);
        more
    }

    /// Handles what happened up to a time, and writes it.
    fn handle_until(
        &mut self,
        until_ns: u64,
        observer: &mut dyn Observer,
    ) -> Result<(), RecordError> {
        let mut told = Vec::new();
        self.merge
            .until(until_ns, profile_of, |decoded| told.push(decoded));
        for decoded in told {
            self.handle(decoded);
        }
        let control = Control { kernel: None };
        let until_ns = until_ns.saturating_sub(self.scheduler.behind_ns());
        self.log.write_until(until_ns, &control, observer)
    }

    fn handle(&mut self, decoded: Decoded) {
        match decoded {
            Decoded::Process { pid, time_ns, late } => self.process(pid, time_ns, late),
            Decoded::Event(event) if !self.border.is_outside(event.pid) => self.log.event(event),
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

    /// Looks at the command's processes from time to time.
    fn look(&mut self) {
        if self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        self.merge.look_again();
        if let Some(command) = self.command {
            self.unloaded.look(command);
        }
        if matches!(self.scheduler, Scheduler::Perf(_)) {
            return;
        }
        // Nobody else tells that they have ended.
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

    /// How the recording is made, and what cannot be seen so, a sentence each.
    fn sentences(&self) -> Vec<String> {
        let mut sentences = vec![
            "Recorded without BPF, by a library in the command's processes: tasks and links of onbeat-flow and onbeat-link are not seen, and synchronisers of message_filters show by the data flow alone.".to_owned(),
            match &self.scheduler {
                Scheduler::Perf(_) => "Context switches are those of perf_event_open: how long a thread was ready after a sleep counts as sleep; who had its CPU meanwhile, which thread woke it, and time that a host takes from a virtual machine are not seen.".to_owned(),
                Scheduler::Refused(why) => format!("Context switches are not seen (perf_event_open: {why}): CPU time is that of the threads' clocks at the beginning and end of callbacks, and time in which a thread was ready counts as sleep."),
            },
        ];
        sentences.extend(self.lost.unseen.clone());
        sentences.extend(self.unloaded.sentence());
        sentences.extend(self.lost.refused.iter().cloned());
        sentences
    }

    /// The functions that the library stands in for and that were called.
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

/// Priority and policy of a thread.
fn profile_of(pid: u32, tid: u32) -> Option<merge::Profile> {
    let stat = onbeat_proc::Stat::of_thread(pid, tid)?;
    Some((stat.priority, stat.policy))
}

impl Session for Preloaded {
    fn start_command(
        &mut self,
        words: &[String],
        to_stderr: bool,
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

    fn give_up(&self, command: bool) {
        privilege::drop_without_kernel(command);
    }

    fn turn(
        &mut self,
        timeout: Duration,
        observer: &mut dyn Observer,
    ) -> Result<Option<u64>, RecordError> {
        self.scheduler.wait(timeout.min(DRAIN));
        // What was written before this is taken now.
        let now_ns = monotonic_ns();
        let more = self.drain();
        self.look();
        // Where more waits, its times are not known.
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
        left_out.extend(self.border.sentence());
        Described {
            probes: self.probes(),
            left_out,
        }
    }

    fn let_run(&self) {}

    fn finish(
        mut self,
        command_status: Option<i32>,
        observer: &mut dyn Observer,
    ) -> Result<Summary, RecordError> {
        // All that was recorded by now, and not what is made meanwhile without end.
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
