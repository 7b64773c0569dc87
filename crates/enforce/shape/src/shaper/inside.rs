//! Holds outputs back inside the application's processes: starts no process, but lets the
//! application load a library. Exchanges the table of slots and the reports with it by files, and
//! gives it the table of lineage through a socket.

use super::config::{held, tables, throttled, SENDING};
use super::{OutputState, Reports, Shaper};
use onbeat_plan::schema::Hold;
use onbeat_plan::Plan;
use onbeat_record::preload::{may_load_from, Access, Directory};
use onbeat_record::CommandLibrary;
use onbeat_ros::config::Kind;
use onbeat_ros::inside::{self, LineageGiver, Output};
use onbeat_ros::page::PageWriter;
use onbeat_time::clock::monotonic_ns;
use rustix::fs::{mkfifoat, Mode, OFlags, CWD};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use thiserror::Error;

/// The reason why outputs cannot be held inside the application. The messages explain the fields.
#[allow(missing_docs)]
#[derive(Debug, Error)]
pub enum InsideError {
    /// An application that already runs has not loaded the library with which onbeat holds outputs
    /// back.
    #[error("--hold inside: onbeat must start the application. Give its command after --, or use --hold outside")]
    NoCommand,
    /// `ROS_DISTRO` names a distribution in which onbeat's library for holding outputs back cannot
    /// work.
    #[error("--hold inside: onbeat's library needs ROS 2 Jazzy or later, and ROS_DISTRO is {0}. Use --hold outside")]
    Distribution(String),
    #[error("--hold inside: {nodes} nodes publish {topic}, which the plan throttles. Only a shaper outside of the application can let in one message per cycle from all of them together. Use --hold outside")]
    Throttle { topic: String, nodes: usize },
    #[error("--hold inside: cannot create the files of onbeat's library: {0}. Free space in /dev/shm and in TMPDIR, or use --hold outside")]
    Files(#[from] io::Error),
}

impl InsideError {
    /// Returns the reason as a clause, for a session that then holds outputs in the shaper.
    pub(crate) fn reason(&self) -> String {
        match self {
            InsideError::NoCommand => {
                "only an application that onbeat starts can hold back its own outputs".into()
            }
            InsideError::Distribution(name) => {
                format!("ROS_DISTRO is {name}, and onbeat's library needs Jazzy or later")
            }
            InsideError::Throttle { topic, nodes } => {
                format!("{nodes} nodes publish {topic}, which the plan limits to one message per cycle. Only a shaper outside of the application sees the messages of all these nodes")
            }
            InsideError::Files(error) => {
                format!("the files of onbeat's library cannot be created ({error})")
            }
        }
    }
}

/// Returns a plan under which outputs and inputs keep their topics: no topic is remapped.
///
/// # Errors
///
/// Fails if the plan needs a feature that the library for holding outputs back does not have.
pub(crate) fn without_moves(mut plan: Plan) -> Result<Plan, InsideError> {
    for input in &plan.inputs {
        let nodes = plan.inputs.iter().filter(|i| i.topic == input.topic);
        let nodes = nodes.map(|i| &i.node).collect::<BTreeSet<_>>().len();
        if nodes > 1 {
            let topic = input.topic.clone();
            return Err(InsideError::Throttle { topic, nodes });
        }
    }
    let outputs = plan.outputs.iter_mut();
    for output in outputs.filter(|o| o.hold == Hold::Republish) {
        output.held_topic = Some(output.topic.clone());
    }
    for input in &mut plan.inputs {
        input.held_topic = input.topic.clone();
    }
    Ok(plan)
}

/// The files with which the application's processes hold messages back, and the heartbeat for these
/// processes. Dropping this value removes the files. Processes that still run then pass all
/// messages on at once.
pub(super) struct Inside {
    library: Directory,
    files: Directory,
    lineage: LineageGiver,
    wakes: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    heartbeat: Option<JoinHandle<()>>,
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(heartbeat) = self.heartbeat.take() {
            heartbeat.thread().unpark();
            let _ = heartbeat.join();
        }
    }
}

const LIBRARY: &str = "libonbeat_hold.so";
const PREFIX: &str = "onbeat-hold-";

impl Inside {
    /// Sends the recorder's table of lineage to the application's processes that have asked for it.
    pub(super) fn give_lineage(&mut self, table: Option<BorrowedFd<'_>>) {
        self.lineage.poll(table);
    }

    /// Returns a counter of the dispatcher's wake-ups, which the dispatcher increments.
    pub(super) fn wakes(&self) -> Arc<AtomicU64> {
        self.wakes.clone()
    }

    pub(super) fn library(&self) -> CommandLibrary {
        CommandLibrary {
            path: self.library.path().join(LIBRARY),
            variable: (inside::DIRECTORY, self.files.path().to_path_buf()),
        }
    }
}

impl Shaper {
    /// Creates the library that holds messages back inside the application, and its files, for a
    /// plan that [`without_moves`] returned. Processes that load the library pass all messages on
    /// at once until [`Shaper::shape`].
    pub(crate) fn inside(plan: &Plan) -> Result<Shaper, InsideError> {
        let scratch = [std::env::temp_dir(), "/var/tmp".into()];
        // The files contain no secrets, and the application may run as another user.
        let parents = scratch.iter().filter(|d| may_load_from(d));
        let library = Directory::make(PREFIX, parents, Access::All, |directory| {
            std::fs::write(directory.join(LIBRARY), inside::LIBRARY)
        })?;
        let memory = PathBuf::from("/dev/shm");
        let parents = std::iter::once(&memory).chain(&scratch);
        let files = Directory::make(PREFIX, parents, Access::All, |_| Ok(()))?;
        let held: Vec<_> = held(plan).collect();
        let page = Arc::new(inside::write(files.path(), &outputs(plan, &held))?);
        let user = onbeat_record::user_behind_sudo().map(|user| (user.uid, user.gid));
        let reports = pipe(&files.path().join(inside::REPORTS), user)?;
        let lineage = LineageGiver::new(files.path(), user)?;
        page.set_table(plan.cycle_ms.0, monotonic_ns() as i64, &tables(plan));
        let (wakes, ends) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let heartbeat = Builder::new().name("onbeat-beat".into()).spawn({
            let (page, wakes, ends) = (page.clone(), wakes.clone(), ends.clone());
            let every = Duration::from_nanos(plan.cycle_ms.0 / 2);
            move || beat(&page, every, &wakes, &ends)
        })?;
        let state = |output: Option<usize>| OutputState {
            output,
            is_ready: false,
            arrivals: VecDeque::new(),
        };
        let numbers = held.iter().map(|&(output, _)| Some(output));
        let numbers = numbers.chain(throttled(plan).map(|_| None));
        Ok(Shaper {
            carrier: super::Carrier::Inside(Inside {
                library,
                files,
                lineage,
                wakes,
                ends,
                heartbeat: Some(heartbeat),
            }),
            page,
            reports: Reports::new(reports),
            outputs: numbers.map(state).collect(),
            settling: false,
        })
    }
}

fn outputs(plan: &Plan, held: &[(usize, &onbeat_plan::schema::Output)]) -> Vec<Output> {
    let of = |(number, &(_, first)): (usize, &(usize, &onbeat_plan::schema::Output))| {
        let alike = plan.outputs.iter().filter(|o| o.topic == first.topic);
        let output = |o: &onbeat_plan::schema::Output| Output {
            number,
            kind: Kind::Shape,
            overshoot: plan.overshoot,
            node: o.node.clone(),
            topic: o.topic.clone(),
        };
        alike.map(output).collect::<Vec<_>>()
    };
    let inputs = throttled(plan).enumerate().map(|(n, input)| Output {
        number: held.len() + n,
        kind: Kind::Throttle,
        overshoot: plan.overshoot,
        node: input.node.clone(),
        topic: input.topic.clone(),
    });
    let outputs = held.iter().enumerate().flat_map(of);
    outputs.chain(inputs).collect()
}

/// Creates the named pipe through which the application's processes report, and opens it for
/// reading.
fn pipe(path: &Path, user: Option<(u32, u32)>) -> io::Result<OwnedFd> {
    let (read, write) = (Mode::RUSR, Mode::WUSR);
    mkfifoat(CWD, path, read | write)?;
    if let Some((uid, gid)) = user {
        std::os::unix::fs::chown(path, Some(uid), Some(gid))?;
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let pipe = rustix::fs::open(path, flags, Mode::empty())?;
    rustix::pipe::fcntl_setpipe_size(&pipe, 1 << 18)?;
    Ok(pipe)
}

/// The interval at which the thread that writes the heartbeat checks whether the dispatcher still
/// writes it.
const REST: Duration = Duration::from_secs(1);

/// Writes the heartbeat, which shows the application's processes that onbeat is alive. If a process
/// finds no heartbeat for two cycles, it passes its messages on at once. This thread pauses while
/// the dispatcher writes the heartbeat: `wakes` then increases.
fn beat(page: &PageWriter, every: Duration, wakes: &AtomicU64, ends: &AtomicBool) {
    let parameters = libc::sched_param {
        sched_priority: SENDING.into(),
    };
    // SAFETY: the call reads parameters that live until the call returns. If it fails, the thread is
    // delayed on a busy machine, and messages leave at once.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters) };
    let mut seen = wakes.load(Ordering::Relaxed);
    while !ends.load(Ordering::Relaxed) {
        let now = wakes.load(Ordering::Relaxed);
        let rests = now != seen;
        seen = now;
        if !rests {
            page.beat(monotonic_ns());
        }
        std::thread::park_timeout(if rests { REST } else { every });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_ros::report::Record;

    fn plan() -> Plan {
        let text = include_bytes!("../../../plan/tests/golden/plan.yaml");
        onbeat_plan::file::read(text).expect("a plan")
    }

    #[test]
    fn the_files_of_the_library_inside_the_application_are_created_and_removed() {
        let mut plan = plan();
        plan.overshoot = onbeat_plan::schema::Overshoot::Drop;
        let plan = without_moves(plan).expect("it can be held");
        let moves = crate::launch::moves(&plan);
        assert!(moves.iter().all(|m| m.held == m.topic), "{moves:?}");
        let mut shaper = Shaper::inside(&plan).expect("files");
        let library = shaper.library().expect("a library");
        let files = library.variable.1.clone();
        assert!(library.path.exists());
        let list = std::fs::read_to_string(files.join("outputs")).expect("a list");
        let (output, input) = ("0 output drop /n5 /t5", "1 input drop");
        let driver = &plan.inputs[0].node;
        assert_eq!(list, format!("{output}\n{input} {driver} /points\n"));
        assert!(!shaper.is_ready() && shaper.pid().is_none());
        let ready = Record {
            flags: onbeat_ros::report::flags::READY,
            ..Default::default()
        };
        let arrived = Record {
            output: 1,
            arrival_ns: 7,
            flags: onbeat_ros::report::flags::NOT_HELD,
            ..Default::default()
        };
        for record in [ready, Record { output: 1, ..ready }, arrived] {
            std::fs::write(files.join(inside::REPORTS), record.to_bytes()).expect("a reader");
        }
        let polled = shaper.poll().expect("no error");
        assert!(shaper.is_ready() && !polled.has_ended);
        assert_eq!((polled.not_held, polled.arrivals), (1, vec![(0, 7)]));
        drop(shaper);
        assert!(!library.path.exists() && !files.exists());
    }

    #[test]
    fn an_input_that_several_nodes_publish_is_throttled_outside_of_the_application() {
        let mut plan = plan();
        let second = plan.inputs[0].clone();
        plan.inputs.push(second);
        assert!(without_moves(plan.clone()).is_ok());
        plan.inputs[1].node = "/another".into();
        let refused = without_moves(plan).expect_err("two nodes");
        assert!(
            refused.to_string().contains("2 nodes publish /points"),
            "{refused}"
        );
    }
}
