//! `manifest.json`: the description of a recording, stored in its trace directory.
//!
//! Every field may be missing, so that older and newer versions can read each other's files.
use onbeat_files::Directory;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;

/// The value of [`Manifest::schema`] in new traces.
pub const SCHEMA: &str = "onbeat-trace/1";

/// The file name of the manifest in a trace directory.
pub const FILE: &str = "manifest.json";

#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The recording is still running, or the recorder was killed.
    #[default]
    Recording,
    Complete,
}

/// The description of a recording, stored as JSON in its trace directory.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Manifest {
    /// The schema of the file. It is always [`SCHEMA`] in new traces.
    pub schema: String,
    /// The unique id of the recording: 32 hexadecimal digits, set by the writer.
    pub id: String,
    /// The mode of the run, for example urban or highway. Empty if the user did not give one.
    pub mode: String,
    #[serde(flatten)]
    pub span: Span,
    #[serde(flatten)]
    pub machine: Machine,
    pub state: State,
    #[serde(flatten)]
    pub observed: Observed,
    /// The number of events lost because the ring buffer was full, by event kind and CPU.
    pub lost: BTreeMap<String, BTreeMap<u16, u64>>,
    /// The facts that onbeat could not find out about processes that ran before the recording, in
    /// full sentences.
    pub not_recovered: Vec<String>,
    /// The size of the ring buffer between kernel and recorder, in bytes.
    pub buffer_bytes: u64,
    /// The number of events and bytes in the trace's files, set by the writer.
    #[serde(flatten)]
    pub written: Written,
    /// The parts of the system that the recording covers, and the parts that it does not cover, in
    /// full sentences.
    pub coverage: Vec<String>,
}

/// The start and the duration of a recording. In the file, these fields are fields of the manifest.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Span {
    /// The start of the recording in ns since 1970, by CLOCK_REALTIME.
    pub start_realtime_ns: u64,
    /// The start of the recording in ns, by CLOCK_MONOTONIC.
    pub start_monotonic_ns: u64,
    /// The duration of the recording, in ns. While a recording runs, its duration so far.
    pub duration_ns: u64,
}

/// The processes, threads and probes of a recording. In the file, these fields are fields of the
/// manifest.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Observed {
    pub distributions: Vec<String>,
    pub processes: Vec<ProcessInfo>,
    pub threads: Vec<ThreadInfo>,
    pub probes: Vec<ProbeInfo>,
    #[serde(flatten)]
    pub means: Means,
}

/// The mechanisms that recorded calls and context switches. In the file, these fields are fields of
/// the manifest. Manifests of older recorders lack the fields; [`Means::BPF`] is then assumed.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Means {
    pub probing: Probing,
    pub scheduling: Scheduling,
}

impl Means {
    /// The means of a recording by BPF: BPF programs record calls and context switches. This is the
    /// default.
    pub const BPF: Means = Means {
        probing: Probing::Bpf,
        scheduling: Scheduling::Bpf,
    };
}

/// The mechanism that recorded calls of ROS 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Probing {
    /// BPF programs at uprobes recorded the calls.
    #[default]
    Bpf,
    /// A library that the command's processes load with LD_PRELOAD recorded the calls.
    Preload,
    /// Tracepoints of LTTng recorded the calls. The trace was imported.
    Lttng,
}

/// The mechanism that recorded when threads had a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheduling {
    /// BPF programs at the kernel's tracepoints recorded every switch.
    #[default]
    Bpf,
    /// The kernel's records of context switches (`perf_event_open`) were used.
    Perf,
    /// The threads' CPU clocks were read at the starts and ends of callbacks, without context
    /// switches.
    Clocks,
    /// LTTng recorded the kernel's context switches. The trace was imported.
    Lttng,
    /// The imported trace has no context switches.
    None,
}

/// The number of events and bytes in a recording's files. In the file, these fields are fields of
/// the manifest.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Written {
    pub events: u64,
    pub bytes: u64,
    /// The number of events that the writer received after an event with a later time.
    pub out_of_order: u64,
}

/// The machine of a recording, and the recorder. In the file, these fields are fields of the
/// manifest.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    pub hostname: String,
    /// The id of the machine's boot, or empty if unknown. Recordings with the same id share one
    /// machine and one monotonic clock.
    pub boot_id: String,
    pub kernel: String,
    pub recorder_version: String,
}

#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessInfo {
    /// The process id, in the recorder's pid namespace.
    pub pid: u32,
    pub command: String,
    /// The ROS 2 distribution of the process, for example `jazzy`. Empty if unknown.
    pub distribution: String,
    /// The middleware of the process, for example `rmw_fastrtps_cpp`. Empty if unknown.
    pub rmw: String,
    /// The process ran before the recording began.
    pub late: bool,
    /// The full names of the process's nodes, for example `/sensors/lidar`.
    pub nodes: Vec<String>,
}

#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadInfo {
    pub pid: u32,
    pub tid: u32,
    /// The name of the thread, of at most 15 bytes (`comm` in the kernel).
    pub comm: String,
    /// The number of the scheduling policy (SCHED_*), for example 1 for SCHED_FIFO.
    pub policy: u8,
    /// The kernel's priority: 0-99 real-time, 100-139 normal.
    pub priority: u8,
    /// The affinity mask of the first 64 CPUs.
    pub cpus: u64,
}

/// A probe of the recording: where it was placed, how, and how often it was hit.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeInfo {
    pub name: String,
    /// The library or program that contains the probed function.
    pub library: String,
    pub symbol: String,
    /// The distance in bytes of the probe from the function's beginning.
    pub offset: u64,
    /// The mechanism of the probe: `emulated`, `stepped`, `nop`, `uretprobe`, `tracepoint` or
    /// `preload`. It determines the cost of a hit.
    pub placement: String,
    pub hits: u64,
    /// Whether the recorder could attach the probe. If not, `error` has the reason.
    pub attached: bool,
    pub error: Option<String>,
    /// The part of the model that is missing without the probe. `None` if it is attached.
    pub consequence: Option<String>,
}

/// Returns the program's name from a command line, or the script's name if Python runs a script.
/// The rest of a command line may contain keys, addresses and names, and must not be shown to
/// others.
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
    /// Replaces the manifest file atomically, by renaming a temporary file.
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
