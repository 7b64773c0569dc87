//! The shaper of a plan, as its owner sees it: a process, or a library inside the application
//! ([`inside`]).
//!
//! The process is started with the application's environment, as its user and within its container.
//! It gets its table through a page of shared memory and reports its publications through a pipe.
//! [`Supervisor`] starts the shaper when it is needed.

mod config;
mod inside;
mod lineage;
mod quiet;
mod start;
mod supervisor;

pub(crate) use config::sending_priority;
pub(crate) use inside::without_moves;
pub use inside::InsideError;
pub(crate) use supervisor::{SenderProcesses, Supervisor};

use crate::history::Swap;
use crate::observe::{Release, MOST_ARRIVALS};
use inside::Inside;
use onbeat_plan::Plan;
use onbeat_proc::namespace::Namespace;
use onbeat_record::CommandLibrary;
use onbeat_reserve::OnWake;
use onbeat_ros::companion::{Beside, CompanionError, Process};
use onbeat_ros::page::PageWriter;
use onbeat_ros::report::{flags, Record, RECORD_BYTES};
use onbeat_time::clock::monotonic_ns;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// The reason why no shaper runs beside the application. The messages explain the fields.
#[allow(missing_docs)]
#[derive(Debug, Error)]
pub enum ShaperError {
    #[error(transparent)]
    Companion(#[from] CompanionError),
    #[error("the shaper ended ({status}): {said}")]
    Ended {
        status: std::process::ExitStatus,
        /// The last line that the shaper's process wrote to standard error.
        said: String,
    },
    #[error("no process of the application holds back {topics} within {within_s} s. Check that the application's nodes publish on these topics, that its processes keep LD_PRELOAD and ONBEAT_HOLD, and that its ROS 2 is Jazzy or later. Or use --hold outside")]
    NotInside { within_s: u64, topics: String },
    #[error(
        "the shaper created no endpoints within {within_s} s. Check that the application publishes {topics}"
    )]
    NotReady {
        within_s: u64,
        /// The names of the topics that the application must publish, as a list for the message.
        topics: String,
    },
}

const CONTAINER_ENDS: Duration = Duration::from_secs(1);

pub(crate) struct Shaper {
    carrier: Carrier,
    page: Arc<PageWriter>,
    reports: Reports,
    outputs: Vec<OutputState>,
    /// If true, the shaper publishes a late output in a later slot, whatever the plan's policy
    /// says. See [`Shaper::shape`].
    settling: bool,
}

enum Carrier {
    Process { process: Process, beside: Beside },
    Inside(Inside),
}

struct OutputState {
    /// The index of the output in the plan (the first one with the topic). `None` for a throttled
    /// input.
    output: Option<usize>,
    is_ready: bool,
    arrivals: VecDeque<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Polled {
    pub(crate) releases: Vec<Release>,
    pub(crate) arrivals: Vec<(usize, u64)>,
    pub(crate) has_stopped: bool,
    pub(crate) has_ended: bool,
    pub(crate) lost: u64,
    /// The number of messages that the application's processes could not hold back.
    pub(crate) not_held: u64,
}

impl Shaper {
    /// Returns the id of the shaper's process, or `None` if the application's own processes hold
    /// the outputs back.
    pub(crate) fn pid(&self) -> Option<u32> {
        match &self.carrier {
            Carrier::Process { process, .. } => Some(process.id()),
            Carrier::Inside(_) => None,
        }
    }

    pub(crate) fn is_inside(&self) -> bool {
        matches!(self.carrier, Carrier::Inside(_))
    }

    fn give_lineage(&mut self, table: Option<BorrowedFd<'_>>) {
        if let Carrier::Inside(inside) = &mut self.carrier {
            inside.give_lineage(table);
        }
    }

    pub(crate) fn library(&self) -> Option<CommandLibrary> {
        match &self.carrier {
            Carrier::Process { .. } => None,
            Carrier::Inside(inside) => Some(inside.library()),
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.outputs.iter().all(|o| o.is_ready)
    }

    /// Begins to hold messages back until their slots. Until [`Shaper::set_settling`] is called, a
    /// late message leaves in a later slot, whatever the plan's policy says, because the executions
    /// that run now began unshaped.
    pub(crate) fn shape(&mut self, origin_ns: u64, plan: &Plan) {
        self.page
            .set_table(plan.cycle_ms.0, origin_ns as i64, &config::tables(plan));
        self.beat();
        self.page.set_settling(true);
        self.settling = true;
    }

    pub(crate) fn swap(&self, swap: &Swap) {
        let (new, before) = (config::tables(swap.plan), config::tables(swap.before));
        self.page.swap_slots(swap.from_ns as i64, &new, &before);
    }

    pub(crate) fn set_settling(&mut self, settling: bool) {
        if self.settling != settling {
            self.page.set_settling(settling);
            self.settling = settling;
        }
    }

    pub(crate) fn move_origin(&self, origin_ns: u64, from_ns: u64) {
        self.page
            .move_origin(origin_ns as i64, from_ns, monotonic_ns());
    }

    pub(crate) fn quiet_ns(&self, plan: &Plan, origin_ns: u64) -> u64 {
        quiet::next_ns(
            plan.cycle_ms.0,
            &config::tables(plan),
            origin_ns,
            monotonic_ns(),
        )
    }

    /// Returns a function that the dispatcher calls when it wakes up. The function tells the shaper
    /// that its owner is alive at the given time (CLOCK_MONOTONIC, ns). It is real-time safe.
    pub(crate) fn on_wake(&self) -> OnWake {
        let page = self.page.clone();
        let wakes = match &self.carrier {
            Carrier::Inside(inside) => Some(inside.wakes()),
            Carrier::Process { .. } => None,
        };
        Arc::new(move |now_ns| {
            page.beat(now_ns);
            if let Some(wakes) = &wakes {
                wakes.fetch_add(1, Ordering::Relaxed);
            }
        })
    }

    /// Tells the shaper that its owner, the session, is alive. Must be called about once a second.
    pub(crate) fn beat(&self) {
        self.page.beat(monotonic_ns());
    }

    pub(crate) fn pass_through(&mut self) {
        self.settling = false;
        self.page.set_pass_through(true);
    }

    /// Reads the shaper's reports.
    ///
    /// # Errors
    ///
    /// Fails if the shaper has ended with an error.
    pub(crate) fn poll(&mut self) -> Result<Polled, ShaperError> {
        let mut polled = Polled::default();
        for record in self.reports.read() {
            self.take(&record, &mut polled);
        }
        let Carrier::Process { process, beside } = &mut self.carrier else {
            return Ok(polled);
        };
        process.said.drain();
        match process.try_wait() {
            Ok(Some(status)) if !status.success() && !ended_with_its_container(beside, status) => {
                Err(ShaperError::Ended {
                    status,
                    said: process.said.last_line(),
                })
            }
            ended => {
                polled.has_ended = matches!(ended, Ok(Some(_)));
                Ok(polled)
            }
        }
    }

    fn take(&mut self, record: &Record, polled: &mut Polled) {
        polled.lost += u64::from(record.lost);
        if record.flags & flags::READY != 0 {
            if let Some(state) = self.outputs.get_mut(usize::from(record.output)) {
                state.is_ready = true;
            }
            return;
        }
        let is_held = record.flags & flags::NOT_HELD == 0;
        polled.not_held += u64::from(!is_held);
        polled.has_stopped |= record.flags & flags::STOPPED != 0;
        let before = self.outputs.iter().take(usize::from(record.output));
        let input = before.filter(|o| o.output.is_none()).count();
        let Some(state) = self.outputs.get_mut(usize::from(record.output)) else {
            return;
        };
        match state.output {
            Some(_) if !is_held => {}
            Some(output) => polled.releases.push(Release {
                output,
                source_ns: record.source_ns,
                arrival_ns: record.arrival_ns.max(0) as u64,
                published_ns: record.start_ns.max(0) as u64,
                done_ns: record.end_ns.max(0) as u64,
                late: record.flags & (flags::LATE | flags::STOPPED) != 0,
                refused: record.flags & flags::FAILED != 0,
                born_ns: u64::try_from(record.born_ns).ok().filter(|&b| b > 0),
            }),
            None => {
                if state.arrivals.len() == MOST_ARRIVALS {
                    state.arrivals.pop_front();
                }
                let arrival_ns = record.arrival_ns.max(0) as u64;
                state.arrivals.push_back(arrival_ns);
                polled.arrivals.push((input, arrival_ns));
            }
        }
    }

    pub(crate) fn arrivals(&self) -> impl Iterator<Item = &VecDeque<u64>> {
        let inputs = self.outputs.iter().filter(|o| o.output.is_none());
        inputs.map(|o| &o.arrivals)
    }

    /// Stops supervising the shaper. The shaper then passes all messages on at once, and ends when
    /// its topics have no publishers any more.
    pub(crate) fn end(self) {
        // The closed pipe shows the shaper that its owner has ended.
        self.page.set_pass_through(true);
    }
}

/// Returns true if the shaper was killed because its container has ended. When a container ends,
/// the kernel kills all processes of its pid namespace.
fn ended_with_its_container(beside: &Beside, status: ExitStatus) -> bool {
    status.signal() == Some(libc::SIGKILL)
        && beside.container.contains(&Namespace::Pid)
        && beside.has_ended(CONTAINER_ENDS)
}

/// The maximum number of reads per poll of the shaper's pipe. Each read returns up to 64 reports.
const READS_MAX: usize = 256;

struct Reports {
    pipe: File,
    partial: Vec<u8>,
}

impl Reports {
    fn new(pipe: OwnedFd) -> Reports {
        Reports {
            pipe: pipe.into(),
            partial: Vec::new(),
        }
    }

    fn read(&mut self) -> Vec<Record> {
        let mut buffer = [0; 64 * RECORD_BYTES];
        // A process that writes all the time keeps nobody here.
        for _ in 0..READS_MAX {
            match self.pipe.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => self.partial.extend_from_slice(&buffer[..count]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        let whole = self.partial.len() / RECORD_BYTES * RECORD_BYTES;
        let bytes: Vec<u8> = self.partial.drain(..whole).collect();
        let record = |bytes: &[u8]| {
            let bytes = bytes.try_into().expect("a record's length");
            Record::from_bytes(bytes)
        };
        bytes.chunks_exact(RECORD_BYTES).map(record).collect()
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for two descriptors, and nothing else owns them.
    let (read, write) = unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(io::Error::last_os_error());
        }
        (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    };
    // SAFETY: these calls only set a flag and a size on open descriptors.
    unsafe {
        libc::fcntl(read.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK);
        libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, 1 << 18);
    }
    Ok((read, write))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_shaper_report_that_arrives_in_pieces_is_read_whole() {
        let (read, write) = pipe().expect("a pipe");
        let mut write = File::from(write);
        let mut reports = Reports::new(read);
        assert!(reports.read().is_empty());
        let bytes: Vec<u8> = (0..2 * RECORD_BYTES).map(|i| i as u8).collect();
        write.write_all(&bytes[..RECORD_BYTES + 3]).expect("room");
        let first = reports.read();
        assert_eq!((first.len(), reports.partial.len()), (1, 3));
        write.write_all(&bytes[RECORD_BYTES + 3..]).expect("room");
        assert_eq!(reports.read().len(), 1);
        let expected = Record::from_bytes(bytes[..RECORD_BYTES].try_into().expect("a record"));
        assert_eq!(first, [expected]);
        drop(write);
        assert!(reports.read().is_empty());
    }
}
