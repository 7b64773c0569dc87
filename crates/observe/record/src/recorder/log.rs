//! Writes the trace and its manifest, for both ways of recording.

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

pub struct Described {
    pub probes: Vec<ProbeInfo>,
    pub left_out: Vec<String>,
}

pub struct Log {
    pub output: Output,
    pub manifest: RunManifest,
    clock: ClockWatch,
}

/// Detects that CLOCK_REALTIME was set, or that it runs faster or slower than CLOCK_MONOTONIC.
#[derive(Default)]
struct ClockWatch {
    offset_ns: Option<i64>,
    written_ns: u64,
}

/// The smallest change of CLOCK_REALTIME's offset that is recorded without delay, in ns.
const CLOCK_MOVED_NS: u64 = 50_000;

impl ClockWatch {
    /// Returns the time stamp for an event with the new offset of CLOCK_REALTIME, or `None` if the
    /// offset has not changed. The time stamp lies before those of all events that are not written
    /// yet, because these events may have the new offset.
    fn moved(&mut self, offset_ns: i64) -> Option<u64> {
        let before = self.offset_ns.replace(offset_ns);
        let moved = |before: i64| before.abs_diff(offset_ns) > CLOCK_MOVED_NS;
        before.is_some_and(moved).then_some(self.written_ns)
    }
}

impl Log {
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
            clock: ClockWatch::default(),
        })
    }

    pub fn start(&mut self) -> u64 {
        self.manifest.start();
        self.manifest.content.span.start_monotonic_ns
    }

    pub fn event(&mut self, event: Event) {
        self.manifest.count(&event);
        self.output.push(event);
    }

    /// Adds a process of ROS 2, DDS or onbeat-flow to the manifest and to the trace, when onbeat
    /// sees the process for the first time. `found` lists its libraries.
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
            // DDS objects have no name except their topic. The process stands in as their node.
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

    pub fn note_clock_offset(&mut self) {
        let offset_ns = realtime_offset_ns();
        let time_ns = self.clock.moved(offset_ns);
        self.clock_offset(time_ns.unwrap_or_else(monotonic_ns), offset_ns);
    }

    fn clock_offset(&mut self, time_ns: u64, realtime_minus_monotonic_ns: i64) {
        let kind = EventKind::ClockOffset {
            realtime_minus_monotonic_ns,
        };
        self.output.push_own(time_ns, 0, 0, kind);
    }

    /// Records that a CPU lost events of a kind: `new` since the last call, `total` since the
    /// recording began.
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

    /// Returns the progress of the recording, without the rate of events. `lost` is the total
    /// number of lost events.
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

    pub fn flush(&mut self) -> Result<(), RecordError> {
        Ok(self.output.flush()?)
    }

    pub fn write_manifest(&mut self, described: Described) -> Result<(), RecordError> {
        self.manifest.update(described.probes, described.left_out);
        Ok(self.output.write_manifest(&self.manifest.content)?)
    }

    pub fn write_until(
        &mut self,
        until_ns: u64,
        control: &Control<'_>,
        observer: &mut dyn Observer,
    ) -> Result<(), RecordError> {
        let offset_ns = realtime_offset_ns();
        if let Some(time_ns) = self.clock.moved(offset_ns) {
            self.clock_offset(time_ns, offset_ns);
        }
        self.clock.written_ns = until_ns.min(monotonic_ns());
        Ok(self.output.write_until(until_ns, control, observer)?)
    }

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

#[cfg(test)]
mod tests {
    use super::ClockWatch;

    #[test]
    fn a_new_clock_offset_is_written_before_pending_events() {
        let mut clock = ClockWatch::default();
        assert_eq!(clock.moved(1_000_000_000), None);
        clock.written_ns = 70;
        assert_eq!(clock.moved(1_000_001_000), None, "this is a usual drift");
        assert_eq!(clock.moved(-2_000_000_000), Some(70));
        assert_eq!(clock.moved(-2_000_000_000), None);
    }
}
