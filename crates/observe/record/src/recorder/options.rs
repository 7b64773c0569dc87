//! What to record, and how.

use crate::libraries::PlacementPolicy;
use crate::limits::Limits;
use onbeat_trace::writer::WriterOptions;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::Duration;

/// The trace's directory and its files.
#[derive(Debug, Clone)]
pub struct FileOptions {
    /// The trace directory to make.
    pub output: PathBuf,
    /// Size at which a new segment file begins.
    pub segment_bytes: u64,
    /// Keep only that many segments (a flight recorder); `None`: all.
    pub max_segments: Option<usize>,
    /// How often a block is ended. A recorder that is killed loses no more than this.
    pub flush_every: Duration,
    /// The trace stays ours, also under sudo: for one that its maker removes.
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

/// What to record, and how.
#[derive(Debug, Clone)]
pub struct RecordOptions {
    /// Where the trace goes.
    pub files: FileOptions,
    /// Mode of operation that this run shows, as the user named it.
    pub mode: String,
    /// Who sees the calls of ROS 2.
    pub way: Way,
    /// Whose events are recorded.
    pub target: Target,
    /// Of these, only processes within the limits.
    pub limits: Limits,
    /// Scheduler events of all threads of the observed processes, and not only of those that run callbacks,
    /// publish, or were started by these. With [`Way::Bpf`] alone.
    pub all_threads: bool,
    /// Stop after this time.
    pub duration: Option<Duration>,
    /// Size of the ring buffer; rounded up to a power of two.
    pub buffer_bytes: u32,
    /// How probes are placed within a function.
    pub placement: PlacementPolicy,
    /// Keep the privileges that recording no longer needs once the probes are attached: for a
    /// caller that changes the machine while it records.
    pub keep_privileges: bool,
    /// Follow, in the kernel, which execution of a chain an item belongs to: see
    /// [`Control::lineage`](super::Control::lineage).
    pub lineage: bool,
    /// SIGHUP sets this and ends nothing. `None`: it ends the recording, as when a terminal is closed.
    pub hangup: Option<Arc<AtomicBool>>,
}

/// Who sees the calls of ROS 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Way {
    /// The kernel's programs.
    #[default]
    Bpf,
    /// A library in the processes of the command: it takes no right.
    Preload,
    /// The kernel's programs; where they are refused, the library if there is a command.
    Either,
}

/// Whose events are recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Every ROS 2 process, whether it runs already or starts later.
    Everything,
    /// These processes, and what they start from now on.
    Processes(Vec<u32>),
    /// A command that is started, and all that it starts.
    Command {
        /// Program and arguments.
        words: Vec<String>,
        /// What the command prints goes to the standard error: the standard output is ours.
        to_stderr: bool,
    },
}

impl Target {
    /// The command if there is one, else the processes, else everything.
    pub fn new(words: Vec<String>, to_stderr: bool, pids: Vec<u32>) -> Target {
        if !words.is_empty() {
            Target::Command { words, to_stderr }
        } else if !pids.is_empty() {
            Target::Processes(pids)
        } else {
            Target::Everything
        }
    }

    /// The processes that the user named.
    pub(super) fn named(&self) -> &[u32] {
        match self {
            Target::Processes(pids) => pids,
            Target::Everything | Target::Command { .. } => &[],
        }
    }
}

/// Default size of the ring buffer: half a minute of a busy system's events for a reader that
/// drains it four times a second.
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
            duration: None,
            buffer_bytes: DEFAULT_BUFFER_BYTES,
            placement: PlacementPolicy::Cheapest,
            keep_privileges: false,
            lineage: false,
            hangup: None,
        }
    }
}
