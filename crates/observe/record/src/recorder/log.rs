//! What is written of a recording, however its events come: the trace, and the manifest beside it.

use super::manifest::RunManifest;
use super::observer::{Control, Observer, Progress, Summary};
use super::options::RecordOptions;
use super::output::Output;
use super::RecordError;
use crate::libraries::{Found, Libraries};
use crate::limits::Border;
use crate::names::{distribution_name, node_name, node_of_command_line};
use crate::records::DDS_NODE;
use onbeat_time::clock::{monotonic_ns, realtime_offset_ns};
use onbeat_trace::manifest::{program, Means, ProbeInfo, ProcessInfo, ThreadInfo};
use onbeat_trace::{Event, EventKind};
use std::time::Duration;

/// How a recording was made, as far as it depends on its probes.
pub struct Described {
    /// Every probe, attached or not.
    pub probes: Vec<ProbeInfo>,
    /// What was not recorded, and why, a sentence each.
    pub left_out: Vec<String>,
}

/// The trace and the manifest of a recording under way.
pub struct Log {
    pub output: Output,
    pub manifest: RunManifest,
}

impl Log {
    /// Makes the trace directory.
    pub fn create(
        options: &RecordOptions,
        buffer_bytes: u32,
        means: Means,
    ) -> Result<Log, RecordError> {
        let mut manifest = RunManifest::new(&options.mode, buffer_bytes);
        manifest.content.observed.means = means;
        Ok(Log {
            output: Output::create(options)?,
            manifest,
        })
    }

    /// The recording begins now: the time, CLOCK_MONOTONIC.
    pub fn start(&mut self) -> u64 {
        self.manifest.start();
        self.manifest.content.span.start_monotonic_ns
    }

    /// An event of the system.
    pub fn event(&mut self, event: Event) {
        self.manifest.count(&event);
        self.output.push(event);
    }

    /// A process of ROS 2 was seen first, and uses what was `found`.
    pub fn process(
        &mut self,
        (pid, time_ns, late): (u32, u64, bool),
        found: Found,
        libraries: &mut Libraries,
    ) {
        let generation = found.distribution.map(|d| d.name());
        let plain_dds = found.plain_dds;
        let command = libraries.ask(pid, |reader| onbeat_proc::command_line(pid, reader));
        let process = ProcessInfo {
            pid,
            command: command.flatten().unwrap_or_default(),
            distribution: distribution_name(found.path.as_deref(), generation),
            rmw: found.rmw.unwrap_or_default(),
            late,
            nodes: Vec::new(),
        };
        let kind = EventKind::Process {
            command: process.command.as_str().into(),
            distribution: process.distribution.as_str().into(),
            rmw: process.rmw.as_str().into(),
            late,
        };
        self.output.push_own(time_ns, pid, pid, kind);
        let node = node_of_command_line(&process.command).filter(|_| late && !plain_dds);
        let program = program(&process.command).trim_end_matches(".py").to_owned();
        self.manifest.process(process);
        if plain_dds {
            // What DDS makes has no name but its topic: the process is its node.
            self.manifest.node(pid, node_name("", &program));
            let kind = EventKind::NodeInit {
                node: DDS_NODE as u64,
                rmw: DDS_NODE as u64,
                name: program.as_str().into(),
                namespace: "/".into(),
            };
            self.output.push_own(time_ns, pid, pid, kind);
        }
        if let Some(name) = node {
            let kind = EventKind::NodeFound {
                node: 0,
                name: name.as_str().into(),
            };
            self.manifest.node(pid, name);
            self.output.push_own(time_ns, pid, pid, kind);
        }
    }

    /// A thread that runs callbacks was seen first.
    pub fn thread(&mut self, pid: u32, tid: u32, time_ns: u64) {
        let Some(stat) = onbeat_proc::Stat::of_thread(pid, tid) else {
            return;
        };
        let status = onbeat_proc::Status::of_thread(pid, tid).ok();
        let cpus = status.and_then(|s| s.allowed_cpus()).unwrap_or(0);
        let kind = EventKind::Thread {
            comm: stat.name.as_str().into(),
            policy: stat.policy,
            priority: stat.priority,
            cpus,
        };
        self.manifest.thread(ThreadInfo {
            pid,
            tid,
            comm: stat.name,
            policy: stat.policy,
            priority: stat.priority,
            cpus,
        });
        self.output.push_own(time_ns, pid, tid, kind);
    }

    /// Records the distance between the wall clock and the clock of the events.
    pub fn note_clock_offset(&mut self) {
        let kind = EventKind::ClockOffset {
            realtime_minus_monotonic_ns: realtime_offset_ns(),
        };
        self.output.push_own(monotonic_ns(), 0, 0, kind);
    }

    /// Records that events of a kind were lost on a CPU: how many since this was said last, and in all.
    pub fn lost(&mut self, name: &str, cpu: u16, (new, total): (u64, u64)) {
        self.manifest.lost(name, cpu, total);
        self.output.push(Event {
            time_ns: monotonic_ns(),
            cpu,
            pid: 0,
            tid: 0,
            kind: EventKind::Lost {
                probe: name.into(),
                count: new,
            },
        });
    }

    /// The recording so far, without a rate. `lost`: events, in all.
    pub fn progress(&self, border: &Border, lost: u64) -> Progress {
        let (events, callbacks, nodes) = self.manifest.counts();
        Progress {
            elapsed: Duration::from_nanos(self.manifest.elapsed_ns()),
            processes: self.manifest.content.observed.processes.len(),
            outside: border.count(),
            nodes,
            callbacks,
            events,
            events_per_s: 0.0,
            bytes: self.output.bytes(),
            lost,
        }
    }

    /// Ends a block, so that everything written so far can be read.
    pub fn flush(&mut self) -> Result<(), RecordError> {
        Ok(self.output.flush()?)
    }

    /// Writes the manifest as it is now.
    pub fn write_manifest(&mut self, described: Described) -> Result<(), RecordError> {
        self.manifest.update(described.probes, described.left_out);
        Ok(self.output.write_manifest(&self.manifest.content)?)
    }

    /// Shows and writes the events up to a time.
    pub fn write_until(
        &mut self,
        until_ns: u64,
        control: &Control<'_>,
        observer: &mut dyn Observer,
    ) -> Result<(), RecordError> {
        Ok(self.output.write_until(until_ns, control, observer)?)
    }

    /// Completes the trace.
    pub fn finish(
        mut self,
        command_status: Option<i32>,
        progress: Progress,
        described: Described,
    ) -> Result<Summary, RecordError> {
        self.manifest.update(described.probes, described.left_out);
        let progress = progress.since(&Progress::default());
        let mut notes = self.manifest.notes(progress.lost);
        notes.extend(self.output.note());
        self.output.finish(self.manifest.content)?;
        Ok(Summary {
            progress,
            command_status,
            notes,
        })
    }
}
