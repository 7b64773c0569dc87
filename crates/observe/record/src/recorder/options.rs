//! The options of a recording.

use crate::libraries::PlacementPolicy;
use crate::limits::Limits;
use onbeat_trace::writer::WriterOptions;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::Duration;

/// The trace directory and the sizes of its files.
#[derive(Debug, Clone)]
pub struct FileOptions {
    /// The trace directory, which must not exist yet.
    pub output: PathBuf,
    /// The size in bytes at which a new segment file begins.
    pub segment_bytes: u64,
    /// The number of latest segments to keep, as in a flight recorder. `None` keeps all.
    pub max_segments: Option<usize>,
    /// The time after which a block ends. A killed recorder loses no more than this.
    pub flush_every: Duration,
    /// The trace stays root's under sudo. This is for a trace that the caller deletes itself.
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

/// The options of a recording.
#[derive(Debug, Clone)]
pub struct RecordOptions {
    /// The trace directory and its files.
    pub files: FileOptions,
    /// The mode of operation that this run shows, as the user named it.
    pub mode: String,
    /// The means by which calls of ROS 2 are seen.
    pub way: Way,
    /// The processes that are recorded.
    pub target: Target,
    /// The limits that leave out some processes of the target.
    pub limits: Limits,
    /// Records scheduler events of all threads of the observed processes. This needs [`Way::Bpf`].
    ///
    /// Otherwise only threads that run callbacks or publish are recorded, and threads that these
    /// start.
    pub all_threads: bool,
    /// A file with the kernel's type information (BTF), for a kernel that has none in /sys.
    pub btf: Option<PathBuf>,
    /// The time after which the recording ends.
    pub duration: Option<Duration>,
    /// The size of the ring buffer in bytes. It is rounded up to a power of two.
    pub buffer_bytes: u32,
    /// The rule for placing probes within a function.
    pub placement: PlacementPolicy,
    /// Keeps the privileges that recording does not need once the probes are attached. A caller
    /// that changes the machine while it records needs them.
    pub keep_privileges: bool,
    /// Follows, in the kernel, which execution of a chain an item belongs to: see
    /// [`Control::lineage`](super::Control::lineage).
    pub lineage: bool,
    /// The flag that SIGHUP sets without ending the recording. With `None`, SIGHUP ends the
    /// recording, for example when a terminal is closed.
    pub hangup: Option<Arc<AtomicBool>>,
}

impl RecordOptions {
    /// Returns whether the recorder may use the preloaded library where BPF does not suffice.
    pub(super) fn is_either(&self) -> bool {
        let is_command = matches!(self.target, Target::Command { .. });
        is_command && self.way == Way::Either && !self.all_threads
    }
}

/// The means by which the recorder sees calls of ROS 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Way {
    /// BPF programs in the kernel.
    #[default]
    Bpf,
    /// A library that the command's processes load. It needs no privileges.
    Preload,
    /// BPF programs. If the kernel or the user's rights refuse them and a command is recorded, the
    /// preloaded library.
    Either,
}

/// The processes whose events are recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Every ROS 2 process, whether it already runs or starts later.
    Everything,
    /// The processes with these ids, and all that they start from now on.
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
    /// everything.
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

/// The default size of the ring buffer in bytes. It holds the events that a busy system makes in
/// half a minute.
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
        }
    }
}
