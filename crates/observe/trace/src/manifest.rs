//! `manifest.json`: the description of a recording, stored in its trace directory.
//!
//! Every field may be missing, so that older and newer versions can read each other's files.
use onbeat_files::Directory;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;

/// The value of [`Manifest::schema`] in new traces.
pub const SCHEMA: &str = "onbeat-trace/1";

/// The name of the manifest in a trace directory.
pub const FILE: &str = "manifest.json";

/// The state of a recording: whether it was ended properly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The recording is still running, or the recorder was killed.
    #[default]
    Recording,
    /// The recorder ended the recording properly.
    Complete,
}

/// The description of a recording, stored in its trace directory.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Manifest {
    /// The schema of the file, always [`SCHEMA`].
    pub schema: String,
    /// The unique id of the recording, set by the writer.
    pub id: String,
    /// The mode of the run, for example urban or highway. Empty if the user did not give one.
    pub mode: String,
    /// The start and the duration of the recording.
    #[serde(flatten)]
    pub span: Span,
    /// The machine of the recording, and the recorder.
    #[serde(flatten)]
    pub machine: Machine,
    /// The state of the recording, set by the writer.
    pub state: State,
    /// The processes, threads and probes of the recording.
    #[serde(flatten)]
    pub observed: Observed,
    /// The number of events lost because the ring buffer was full, by event kind and CPU.
    pub lost: BTreeMap<String, BTreeMap<u16, u64>>,
    /// The facts that late attach could not recover, in full sentences.
    pub not_recovered: Vec<String>,
    /// The size of the ring buffer.
    pub buffer_bytes: u64,
    /// The number of events and bytes in the trace's files, set by the writer.
    #[serde(flatten)]
    pub written: Written,
    /// The parts of the system that the recording covers, and those that it does not, in full
    /// sentences.
    pub coverage: Vec<String>,
}

/// The start and the duration of a recording. In the file, its fields are fields of the manifest.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Span {
    /// The start of the recording, CLOCK_REALTIME: ns since 1970.
    pub start_realtime_ns: u64,
    /// The start of the recording, CLOCK_MONOTONIC: ns.
    pub start_monotonic_ns: u64,
    /// The duration of the recording so far.
    pub duration_ns: u64,
}

/// The processes and threads that a recording observed, and its probes. In the file, its fields are
/// fields of the manifest.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Observed {
    /// The ROS 2 distributions of the observed processes.
    pub distributions: Vec<String>,
    /// The processes that were observed.
    pub processes: Vec<ProcessInfo>,
    /// The threads that were observed.
    pub threads: Vec<ThreadInfo>,
    /// Every probe, attached or not.
    pub probes: Vec<ProbeInfo>,
    /// The mechanisms that recorded calls and context switches.
    #[serde(flatten)]
    pub means: Means,
}

/// The mechanisms that recorded calls and context switches. In the file, its fields are fields of
/// the manifest. If they are missing, as from older recorders, they are [`Means::BPF`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Means {
    /// The mechanism that recorded calls of ROS 2.
    pub probing: Probing,
    /// The mechanism that recorded when threads had a CPU.
    pub scheduling: Scheduling,
}

impl Means {
    /// The default: BPF programs record calls and context switches.
    pub const BPF: Means = Means {
        probing: Probing::Bpf,
        scheduling: Scheduling::Bpf,
    };
}

/// The mechanism that recorded calls of ROS 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Probing {
    /// BPF programs at probes in user space.
    #[default]
    Bpf,
    /// A library that was preloaded into the processes.
    Preload,
}

/// The mechanism that recorded when threads had a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheduling {
    /// BPF programs at the kernel's tracepoints.
    #[default]
    Bpf,
    /// The kernel's records of context switches (`perf_event_open`).
    Perf,
    /// The CPU clocks of the threads, read at the starts and ends of callbacks.
    Clocks,
}

/// The number of events and bytes in a recording's files. In the file, its fields are fields of the
/// manifest.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Written {
    /// The number of events written to segments.
    pub events: u64,
    /// The number of bytes written to segments.
    pub bytes: u64,
    /// The number of events that reached the writer after a later one.
    pub out_of_order: u64,
}

/// The machine of a recording, and the recorder. In the file, its fields are fields of the
/// manifest.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// The host name of the machine.
    pub hostname: String,
    /// The id of the machine's boot, or empty if unknown. Recordings of the same boot share one
    /// machine and one monotonic clock.
    pub boot_id: String,
    /// The release of the machine's kernel.
    pub kernel: String,
    /// The version of onbeat that recorded the trace.
    pub recorder_version: String,
}

/// A process that was observed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessInfo {
    /// The process id, in the recorder's pid namespace.
    pub pid: u32,
    /// The command line of the process.
    pub command: String,
    /// The ROS 2 distribution, or empty if unknown.
    pub distribution: String,
    /// The middleware, or empty if unknown.
    pub rmw: String,
    /// The process ran before the recording began.
    pub late: bool,
    /// The full names of the process's nodes.
    pub nodes: Vec<String>,
}

/// A thread that was observed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadInfo {
    /// The process id, in the recorder's pid namespace.
    pub pid: u32,
    /// The thread id, in the recorder's pid namespace.
    pub tid: u32,
    /// The name of the thread.
    pub comm: String,
    /// The number of the scheduling policy (SCHED_*).
    pub policy: u8,
    /// The kernel's priority: 0-99 real-time, 100-139 normal.
    pub priority: u8,
    /// The affinity mask of the first 64 CPUs.
    pub cpus: u64,
}

/// A probe: its place, cost and hits.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeInfo {
    /// The name of the probe.
    pub name: String,
    /// The library or program that contains the probed function.
    pub library: String,
    /// The symbol of the probed function.
    pub symbol: String,
    /// The distance in bytes from the function's beginning.
    pub offset: u64,
    /// The mechanism, which decides the cost: `emulated`, `stepped`, `nop`, `uretprobe`,
    /// `tracepoint` or `preload`.
    pub placement: String,
    /// The number of hits during the recording.
    pub hits: u64,
    /// The recorder could attach the probe.
    pub attached: bool,
    /// The reason why the recorder could not attach the probe.
    pub error: Option<String>,
    /// The part of the model that is missing without the probe.
    pub consequence: Option<String>,
}

/// Returns the program's name from a command line, or the script's name if Python runs one. The
/// rest may contain keys, addresses and names, and must not be shown to others.
pub fn program(command: &str) -> &str {
    fn base(word: &str) -> &str {
        word.rsplit('/').next().unwrap_or(word)
    }
    let mut words = command.split([' ', '\0']).filter(|w| !w.is_empty());
    let first = base(words.next().unwrap_or_default());
    if !first.starts_with("python") {
        return first;
    }
    match words.find(|word| !word.starts_with('-') || *word == "-c") {
        // The next word would be the text of a program.
        None | Some("-c") => first,
        Some(script) => base(script),
    }
}

impl Manifest {
    /// Replaces the file atomically, by renaming a temporary file.
    pub(crate) fn save(&self, directory: &Directory) -> std::io::Result<()> {
        let mut text = serde_json::to_vec_pretty(self).map_err(std::io::Error::from)?;
        text.push(b'\n');
        directory.replace(FILE, |file| file.write_all(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::{program, Manifest};

    #[test]
    fn manifest_fields_of_the_machine_are_optional_and_at_top_level() {
        let old = r#"{"hostname": "arm", "kernel": "6.8", "lost": {"wake": {"3": 7}}, "later": 1}"#;
        let read: Manifest = serde_json::from_str(old).unwrap();
        assert_eq!(read.machine.hostname, "arm");
        assert_eq!(read.machine.boot_id, "");
        assert_eq!(read.lost["wake"][&3], 7);
        let mut written = read.clone();
        written.machine.boot_id = "b".into();
        let text = serde_json::to_value(&written).unwrap();
        assert_eq!(
            (&text["hostname"], &text["boot_id"]),
            (&"arm".into(), &"b".into())
        );
        assert_eq!(serde_json::from_value::<Manifest>(text).unwrap(), written);
    }

    #[test]
    fn only_the_program_of_a_command_line_is_shown() {
        for (command, shown) in [
            ("/opt/ros/lib/demo/talker --key=secret", "talker"),
            (
                "/usr/bin/python3 -u /opt/talker.py --key secret",
                "talker.py",
            ),
            ("python3\0/usr/bin/ros2\0launch\0secret", "ros2"),
            ("python3 -m talker secret", "talker"),
            ("python3 -c import secret", "python3"),
            ("python3", "python3"),
            ("", ""),
        ] {
            assert_eq!(program(command), shown, "{command}");
        }
    }
}
