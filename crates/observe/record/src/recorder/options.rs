//! The options of a recording.

use crate::command::CommandLibrary;
use crate::libraries::PlacementPolicy;
use crate::limits::Limits;
use onbeat_trace::writer::WriterOptions;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::Duration;

/// The place of the trace, and its division into files and blocks.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone)]
pub struct FileOptions {
    /// The trace directory. It must not exist yet.
    pub output: PathBuf,
    /// The size in bytes above which a new segment file begins.
    pub segment_bytes: u64,
    /// The number of latest segments to keep, as in a flight recorder. The recorder removes older
    /// segments. `None` keeps all segments.
    pub max_segments: Option<usize>,
    /// The longest time that a block covers. A killed recorder loses no more than this time.
    pub flush_every: Duration,
    /// Whether, under sudo, the trace belongs to root instead of the user who called sudo. This is
    /// for a caller that deletes the trace itself.
    pub is_private: bool,
}

impl Default for FileOptions {
    fn default() -> Self {
        let writer = WriterOptions::default();
        FileOptions {
            output: PathBuf::from("trace"),
            segment_bytes: writer.segment_bytes,
            max_segments: writer.max_segments,
            flush_every: Duration::from_secs(2),
            is_private: false,
        }
    }
}

/// The options of a recording: what is recorded, how, for how long, and where to.
#[allow(missing_docs)]
#[derive(Debug, Clone)]
pub struct RecordOptions {
    pub files: FileOptions,
    /// The name of the mode that this run shows, such as `highway`. Empty if the user named no
    /// mode.
    pub mode: String,
    /// The mechanism that records calls of ROS 2: BPF programs or the preloaded library.
    pub way: Way,
    pub target: Target,
    pub limits: Limits,
    /// If true, records the scheduler events of all threads of the observed processes. This needs
    /// [`Way::Bpf`].
    ///
    /// If false, onbeat records only threads that run callbacks or publish, and the threads that
    /// these start.
    pub all_threads: bool,
    /// A file with the kernel's type information (BTF), for a kernel that has none in /sys. `None`
    /// uses the kernel's own.
    pub btf: Option<PathBuf>,
    pub duration: Option<Duration>,
    /// The size of the ring buffer in bytes. It is rounded up to a power of two.
    pub buffer_bytes: u32,
    pub placement: PlacementPolicy,
    /// If true, the recorder keeps all its privileges after the probes are attached, although
    /// recording no longer needs some of them. This is for a caller that changes the machine while
    /// it records.
    pub keep_privileges: bool,
    /// Determines, in the kernel, to which execution of a chain each item belongs. See
    /// [`Control::lineage`](super::Control::lineage).
    pub lineage: bool,
    /// The flag that SIGHUP sets without ending the recording. With `None`, SIGHUP ends the
    /// recording, for example when a terminal is closed.
    pub hangup: Option<Arc<AtomicBool>>,
    /// A library of the caller that the processes of [`Target::Command`] load. It needs
    /// [`Way::Bpf`].
    pub library: Option<CommandLibrary>,
}

impl RecordOptions {
    /// Returns whether the recorder may use the preloaded library if BPF programs are refused.
    pub(super) fn is_either(&self) -> bool {
        let is_command = matches!(self.target, Target::Command { .. });
        is_command && self.way == Way::Either && !self.all_threads
    }
}

/// The mechanism by which the recorder observes calls of ROS 2.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Way {
    #[default]
    Bpf,
    /// A library that the command's processes load. It needs no privileges.
    Preload,
    /// BPF programs. If the kernel or the user's rights refuse them and a command is recorded, the
    /// preloaded library is used instead.
    Either,
}

/// The processes whose events are recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Every ROS 2 process, including those that start later.
    Everything,
    /// The processes with these ids, and all processes that they start from now on.
    Processes(Vec<u32>),
    /// A command that the recorder starts, and all its descendants.
    Command {
        /// The program and its arguments.
        words: Vec<String>,
        /// Redirects the command's standard output to standard error, because the caller uses
        /// standard output itself.
        to_stderr: bool,
    },
}

impl Target {
    /// Returns the command if `words` is not empty, else the processes if `pids` is not empty, else
    /// [`Target::Everything`].
    pub fn new(words: Vec<String>, to_stderr: bool, pids: Vec<u32>) -> Target {
        if !words.is_empty() {
            Target::Command { words, to_stderr }
        } else if !pids.is_empty() {
            Target::Processes(pids)
        } else {
            Target::Everything
        }
    }

    pub(super) fn named(&self) -> &[u32] {
        match self {
            Target::Processes(pids) => pids,
            Target::Everything | Target::Command { .. } => &[],
        }
    }
}

/// The default size of the ring buffer in bytes. This is enough for the events of half a minute on
/// a busy system.
pub const DEFAULT_BUFFER_BYTES: u32 = 16 << 20;

impl Default for RecordOptions {
    fn default() -> Self {
        RecordOptions {
            files: FileOptions::default(),
            mode: String::new(),
            way: Way::Bpf,
            target: Target::Everything,
            limits: Limits::default(),
            all_threads: false,
            btf: None,
            duration: None,
            buffer_bytes: DEFAULT_BUFFER_BYTES,
            placement: PlacementPolicy::Cheapest,
            keep_privileges: false,
            lineage: false,
            hangup: None,
            library: None,
        }
    }
}
