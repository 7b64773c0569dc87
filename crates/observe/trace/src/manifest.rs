//! `manifest.json`: a recording's description of itself.
//!
//! Every field may be missing, so that older and newer versions read each other's files.
use onbeat_files::Directory;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;

/// Value of [`Manifest::schema`].
pub const SCHEMA: &str = "onbeat-trace/1";

/// The file's name inside the trace directory.
pub const FILE: &str = "manifest.json";

/// Whether the recording was ended properly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Still going on, or the recorder was killed.
    #[default]
    Recording,
    /// Ended properly.
    Complete,
}

/// A recording's description of itself.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Manifest {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Unique id of the recording; set by the writer.
    pub id: String,
    /// Mode (urban, highway ...); empty: none was given.
    pub mode: String,
    /// When it was recorded.
    #[serde(flatten)]
    pub span: Span,
    /// Where it was recorded, and by what.
    #[serde(flatten)]
    pub machine: Machine,
    /// Whether the recording was ended properly; set by the writer.
    pub state: State,
    /// What was observed, and how.
    #[serde(flatten)]
    pub observed: Observed,
    /// Events lost because the ring buffer was full: event kind, CPU, count.
    pub lost: BTreeMap<String, BTreeMap<u16, u64>>,
    /// Facts that late attach could not recover, in whole sentences.
    pub not_recovered: Vec<String>,
    /// Size of the ring buffer.
    pub buffer_bytes: u64,
    /// What the trace's files hold; set by the writer.
    #[serde(flatten)]
    pub written: Written,
    /// Parts of the system that the recording covers, and those that it does not, in whole
    /// sentences.
    pub coverage: Vec<String>,
}

/// When a recording was made. Its fields are the manifest's own in the file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Span {
    /// Start, CLOCK_REALTIME ns since 1970.
    pub start_realtime_ns: u64,
    /// Start, CLOCK_MONOTONIC.
    pub start_monotonic_ns: u64,
    /// Length so far.
    pub duration_ns: u64,
}

/// What a recording observed, and by which probes. Its fields are the manifest's own in the file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Observed {
    /// ROS 2 distributions seen.
    pub distributions: Vec<String>,
    /// Processes observed.
    pub processes: Vec<ProcessInfo>,
    /// Threads observed.
    pub threads: Vec<ThreadInfo>,
    /// Every probe, attached or not.
    pub probes: Vec<ProbeInfo>,
    /// By what means.
    #[serde(flatten)]
    pub means: Means,
}

/// By what means a recording was made. Its fields are the manifest's own in the file. Missing: [`Means::BPF`],
/// as older recorders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Means {
    /// Who saw the calls of ROS 2.
    pub probing: Probing,
    /// Who saw when threads had a CPU.
    pub scheduling: Scheduling,
}

impl Means {
    /// All by the kernel's programs.
    pub const BPF: Means = Means {
        probing: Probing::Bpf,
        scheduling: Scheduling::Bpf,
    };
}

/// Who saw the calls of ROS 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Probing {
    /// Programs of the kernel, at probes in user space.
    #[default]
    Bpf,
    /// A library that was loaded into the processes.
    Preload,
}

/// Who saw when threads had a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheduling {
    /// Programs of the kernel, at its tracepoints.
    #[default]
    Bpf,
    /// The kernel's records of context switches (`perf_event_open`).
    Perf,
    /// The threads' own CPU clocks, at the brackets of callbacks.
    Clocks,
}

/// What the files of a recording hold. Its fields are the manifest's own in the file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Written {
    /// Events written.
    pub events: u64,
    /// Bytes written to segments.
    pub bytes: u64,
    /// Events that came to the writer later than a younger one.
    pub out_of_order: u64,
}

/// The machine of a recording, and its recorder. Its fields are the manifest's own in the file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// The machine's name.
    pub hostname: String,
    /// Id of the machine's boot; empty: not known. Recordings of one boot are of one machine, and
    /// have one monotonic clock.
    pub boot_id: String,
    /// The kernel's release.
    pub kernel: String,
    /// Version of the recorder.
    pub recorder_version: String,
}

/// A process that was observed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessInfo {
    /// Process id in the recorder's pid namespace.
    pub pid: u32,
    /// Command line.
    pub command: String,
    /// ROS 2 distribution, if known.
    pub distribution: String,
    /// Middleware, if known.
    pub rmw: String,
    /// Whether it ran before the recording.
    pub late: bool,
    /// Full names of its nodes.
    pub nodes: Vec<String>,
}

/// A thread that was observed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadInfo {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// The thread's name.
    pub comm: String,
    /// SCHED_* number.
    pub policy: u8,
    /// The kernel's priority (0-99 real-time, 100-139 normal).
    pub priority: u8,
    /// Affinity mask of the first 64 CPUs.
    pub cpus: u64,
}

/// A probe: its place, cost and hits.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeInfo {
    /// The probe's name.
    pub name: String,
    /// The library or program it is in.
    pub library: String,
    /// The function.
    pub symbol: String,
    /// Distance from the function's first byte.
    pub offset: u64,
    /// The mechanism, which decides the cost: `emulated`, `stepped`, `nop`, `uretprobe`,
    /// `tracepoint` or `preload`.
    pub placement: String,
    /// How often it hit.
    pub hits: u64,
    /// Whether it could be attached.
    pub attached: bool,
    /// Why it could not be attached.
    pub error: Option<String>,
    /// The part of the model that is missing without it.
    pub consequence: Option<String>,
}

/// The program of a command line, or the script that Python runs: what may be shown to others.
/// The rest may be keys, addresses and names.
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
        // What follows is a program's text.
        None | Some("-c") => first,
        Some(script) => base(script),
    }
}

impl Manifest {
    /// Writes the file under a temporary name, then renames it.
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
    fn what_is_of_the_machine_stands_beside_the_rest_and_may_be_missing() {
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
    fn of_a_command_line_only_the_program_is_shown() {
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
