//! Publishes the state of each requirement as ROS 2 diagnostics, in the domain of a watched
//! process.
//!
//! A process without rights publishes, as the user of the watched process. Nobody waits for it.
//!
//! | module | task |
//! |---|---|
//! | here | the session's side |
//! | `status` | converts findings and incidents to statuses of `diagnostic_msgs`; pure |
//! | `latencies` | keeps the latencies of chains for their topics; pure |
//! | `pages` | chooses the statuses of the next message; pure |

mod latencies;
mod pages;
mod status;

pub use status::Evidence;

use crate::incident::Incident;
use crate::journal::Level;
use latencies::Latencies;
use onbeat_check::Finding;
use onbeat_rights::Capability;
use onbeat_ros::diagnostics::{DiagnosticStatus, Diagnostics, Post, Source, Standing};
use onbeat_terminal::CliError;
use onbeat_trace::{Event, EventKind};
use pages::Pages;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time since the last judgement of the requirements after which the published statuses are
/// marked as old.
const STALE_AFTER: Duration = Duration::from_secs(3);

/// If the publisher has left this number of messages unanswered, the monitor counts it as not
/// running.
const UNANSWERED_MAX: u32 = 8;

/// The shortest time between two offers of a process to the publisher, in ns of recorded time.
const OFFER_NS: u64 = 500_000_000;

const CONFIG_MAX: u64 = 1 << 20;

/// The capabilities of the thread that starts the publisher of diagnostics. The thread needs them
/// to read the environment of the watched process, to enter its container, to become its user, and
/// to end the publisher.
const RIGHTS: [Capability; 7] = [
    Capability::CAP_SYS_PTRACE,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_SYS_ADMIN,
    Capability::CAP_SYS_CHROOT,
    Capability::CAP_SETUID,
    Capability::CAP_SETGID,
    Capability::CAP_KILL,
];

#[derive(Debug, Default)]
struct Board {
    pages: Pages,
    latencies: Latencies,
    judged: Option<Instant>,
    has_ended: bool,
}

pub struct Diagnosis {
    board: Arc<Mutex<Board>>,
    post: Arc<Post>,
    /// The thread that publishes diagnostics. When it is dropped, it publishes a last message.
    thread: Option<Diagnostics>,
    machine: String,
    /// The directory and the first cause of each saved incident that has not ended, by incident
    /// number.
    evidence: BTreeMap<u64, Evidence>,
    offered_ns: u64,
    reported: Standing,
    has_latency_topics: bool,
}

impl Diagnosis {
    /// Starts the thread that publishes diagnostics. Must be called while the calling thread still
    /// has the rights of recording.
    ///
    /// # Errors
    /// Returns the system's error if it cannot start a thread.
    pub fn begin(has_latency_topics: bool) -> io::Result<Diagnosis> {
        let board = Arc::new(Mutex::new(Board::default()));
        let (post, machine) = (Arc::new(Post::default()), onbeat_proc::system::hostname());
        let source = OfBoard {
            board: Arc::clone(&board),
            machine: machine.clone(),
            number: 0,
            published: 0,
        };
        let program = std::env::current_exe()?;
        let theirs = Arc::clone(&post);
        let thread = Diagnostics::start(Box::new(source), theirs, program, &[], take_rights)?;
        Ok(Diagnosis {
            board,
            post,
            thread: Some(thread),
            machine,
            evidence: BTreeMap::new(),
            offered_ns: 0,
            reported: Standing::Coming,
            has_latency_topics,
        })
    }

    /// Offers the publisher the latest process in `events` that runs callbacks. The publisher then
    /// publishes in the ROS 2 domain of that process.
    pub fn offer(&mut self, events: &[Event]) {
        // The publisher itself has no callbacks.
        let runs = |event: &&Event| {
            matches!(
                event.kind,
                EventKind::TimerCall { .. }
                    | EventKind::Take { .. }
                    | EventKind::CallbackStart { .. }
            )
        };
        let last = events.last().map_or(0, |event| event.time_ns);
        if last < self.offered_ns.saturating_add(OFFER_NS) {
            return;
        }
        if let Some(event) = events.iter().rev().find(runs) {
            self.offered_ns = last;
            self.post.offer_instead(event.pid, event.time_ns);
        }
    }

    /// Reports whether the publisher publishes latencies as numbers, too (`--latency-topics`).
    pub fn has_latency_topics(&self) -> bool {
        self.has_latency_topics
    }

    /// Adds the largest latency of each chain since the last call, in ns by chain id.
    pub fn add_latencies(&mut self, longest: BTreeMap<String, u64>) {
        lock(&self.board).latencies.add(longest);
    }

    /// Stores the directory and the first cause of a saved incident, so that the statuses of the
    /// violated requirements show them.
    pub fn saved(&mut self, number: u64, evidence: Evidence) {
        self.evidence.insert(number, evidence);
    }

    /// Replaces the statuses of the requirements. If the level of one of them has changed, the
    /// publisher sends a message at once. `summary` says how many requirements hold.
    pub fn update<'a>(
        &mut self,
        findings: &[Finding],
        open: impl Iterator<Item = &'a Incident>,
        summary: &str,
    ) {
        let open: BTreeMap<u64, &Incident> = open.map(|i| (i.number, i)).collect();
        self.evidence.retain(|number, _| open.contains_key(number));
        let statuses = status::all(findings, &open, &self.evidence, (&self.machine, summary));
        let mut board = lock(&self.board);
        board.judged = Some(Instant::now());
        let has_changed = board.pages.set(statuses);
        drop(board);
        if has_changed {
            self.wake();
        }
    }

    /// Returns lines for the journal with news of the publisher: that it has begun to publish, or
    /// why it does not publish.
    pub fn news(&mut self) -> Vec<(Level, String)> {
        let notes = self.post.take_notes();
        let mut lines: Vec<_> = notes.into_iter().map(|n| (Level::Warning, n)).collect();
        let standing = self.post.standing();
        if matches!(standing, Standing::Failed(_)) {
            self.post.ask();
        }
        if standing == self.reported {
            return lines;
        }
        match &standing {
            Standing::NotAsked | Standing::Coming => return lines,
            Standing::Ready => {
                lines.push((
                    Level::Notice,
                    "diagnostics are published on /diagnostics".into(),
                ));
            }
            Standing::NoPackage => {
                let text = "diagnostics are not published: the watched system's ROS 2 has no diagnostic_msgs. \
                    Install the package there (ros-DISTRO-diagnostic-msgs), and start onbeat monitor again";
                lines.push((Level::Error, text.into()));
            }
            Standing::Failed(why) => {
                let text = format!("diagnostics are not published: {why}. onbeat tries again");
                lines.push((Level::Error, text));
            }
        }
        self.reported = standing;
        lines
    }

    /// Publishes that the monitor no longer judges the requirements, and ends the publisher.
    pub fn end(&mut self) {
        lock(&self.board).has_ended = true;
        self.thread = None;
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.wake();
        }
    }
}

fn lock(board: &Mutex<Board>) -> MutexGuard<'_, Board> {
    // No thread panics while it holds the lock, so a poisoned value is whole.
    board.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives up all rights of this thread except those for starting the publisher. If the monitor does
/// not run as root, gives up those as well. The publisher then runs only beside processes of the
/// same user, which needs no right.
fn take_rights() {
    onbeat_rights::raise();
    let is_root = onbeat_rights::is_root();
    onbeat_rights::keep(RIGHTS.into_iter().filter(|_| is_root));
}

struct OfBoard {
    board: Arc<Mutex<Board>>,
    machine: String,
    number: u32,
    published: u32,
}

impl Source for OfBoard {
    fn will(&mut self) -> Vec<DiagnosticStatus> {
        vec![status::will(&self.machine)]
    }

    fn report(&mut self) -> (u32, Vec<DiagnosticStatus>) {
        self.number = self.number.wrapping_add(1);
        let mut board = lock(&self.board);
        let age = board.judged.map_or(Duration::ZERO, |at| at.elapsed());
        let old = match (board.has_ended, age >= STALE_AFTER) {
            (true, _) => Some("onbeat monitor has ended".into()),
            (false, true) => Some(format!(
                "the requirements were not judged for {} s",
                age.as_secs()
            )),
            (false, false) => None,
        };
        let mut page = board.pages.next();
        drop(board);
        if let Some(why) = old {
            page.iter_mut()
                .for_each(|status| status::set_old(status, &why));
        }
        (self.number, page)
    }

    fn published(&mut self, number: u32) {
        self.published = number;
    }

    fn forget_sent(&mut self) {
        self.published = self.number;
    }

    fn is_confirmed(&self) -> bool {
        self.number.wrapping_sub(self.published) < UNANSWERED_MAX
    }

    fn values(&mut self) -> Vec<(String, f64)> {
        lock(&self.board).latencies.take()
    }

    fn interval(&self) -> Duration {
        lock(&self.board).pages.interval()
    }
}

/// Runs the publisher of diagnostics in this process. The publisher reads its configuration from
/// standard input.
pub fn publish() -> Result<(), CliError> {
    let mut text = String::new();
    let read = io::stdin().take(CONFIG_MAX).read_to_string(&mut text);
    let path = || PathBuf::from("-");
    read.map_err(|source| CliError::Read {
        path: path(),
        source,
    })?;
    let config = serde_json::from_str(&text).map_err(CliError::in_file(&path()))?;
    onbeat_ros::diagnostics::run(&config).map_err(CliError::failed)
}
