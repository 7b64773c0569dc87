//! Holds outputs back inside the application's processes: starts no process, but lets the
//! application load a library, and exchanges the table of slots and the reports with it by files.

use super::config::{held, tables, SENDING};
use super::{OutputState, Reports, Shaper};
use onbeat_plan::schema::Hold;
use onbeat_plan::Plan;
use onbeat_record::preload::{may_load_from, Access, Directory};
use onbeat_record::CommandLibrary;
use onbeat_ros::inside::{self, Output};
use onbeat_ros::page::PageWriter;
use onbeat_time::clock::monotonic_ns;
use onbeat_time::Overshoot;
use rustix::fs::{mkfifoat, Mode, OFlags, CWD};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use thiserror::Error;

/// The reason why outputs cannot be held inside the application. The messages explain the fields.
#[allow(missing_docs)]
#[derive(Debug, Error)]
pub enum InsideError {
    /// An application that already runs has not loaded the library.
    #[error("--hold inside: onbeat must start the application. Give its command after --, or use --hold outside")]
    NoCommand,
    #[error(
        "--hold inside: the plan throttles the input {0}, which only a shaper outside of the application can do. Use --hold outside"
    )]
    Throttle(String),
    #[error("--hold inside: a late output always leaves in the next slot (carry), and the plan has another policy. Use --hold outside, or plan with --overshoot carry")]
    Overshoot,
    #[error("--hold inside: cannot create the library's files: {0}. Free space in /dev/shm and in TMPDIR, or use --hold outside")]
    Files(#[from] io::Error),
}

/// Returns the plan with outputs that keep their topics: no topic is remapped.
///
/// # Errors
///
/// Fails if the plan needs what the library does not do.
pub(crate) fn without_moves(mut plan: Plan) -> Result<Plan, InsideError> {
    if let Some(input) = plan.inputs.first() {
        return Err(InsideError::Throttle(input.topic.clone()));
    }
    if plan.overshoot != Overshoot::Carry {
        return Err(InsideError::Overshoot);
    }
    let outputs = plan.outputs.iter_mut();
    for output in outputs.filter(|o| o.hold == Hold::Republish) {
        output.held_topic = Some(output.topic.clone());
    }
    Ok(plan)
}

/// The files that the application's processes use, and the heartbeat. Dropping this value removes
/// the files; processes that run on pass all messages on.
pub(super) struct Inside {
    library: Directory,
    files: Directory,
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
    pub(super) fn library(&self) -> CommandLibrary {
        CommandLibrary {
            path: self.library.path().join(LIBRARY),
            variable: (inside::DIRECTORY, self.files.path().to_path_buf()),
        }
    }
}

impl Shaper {
    /// Makes the library and its files for a plan from [`without_moves`]. Processes that load the
    /// library pass all messages on at once until [`Shaper::shape`].
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
        let reports = pipe(&files.path().join(inside::REPORTS))?;
        page.set_table(plan.cycle_ms.0, monotonic_ns() as i64, &tables(plan));
        let ends = Arc::<AtomicBool>::default();
        let heartbeat = Builder::new().name("onbeat-beat".into()).spawn({
            let (page, ends) = (page.clone(), ends.clone());
            let every = Duration::from_nanos(plan.cycle_ms.0 / 2);
            move || beat(&page, every, &ends)
        })?;
        let state = |&(output, _): &(usize, _)| OutputState {
            output: Some(output),
            is_ready: false,
            arrivals: VecDeque::new(),
        };
        Ok(Shaper {
            carrier: super::Carrier::Inside(Inside {
                library,
                files,
                ends,
                heartbeat: Some(heartbeat),
            }),
            page,
            reports: Reports::new(reports),
            outputs: held.iter().map(state).collect(),
            settling: false,
        })
    }
}

fn outputs(plan: &Plan, held: &[(usize, &onbeat_plan::schema::Output)]) -> Vec<Output> {
    let of = |(number, &(_, first)): (usize, &(usize, &onbeat_plan::schema::Output))| {
        let alike = plan.outputs.iter().filter(|o| o.topic == first.topic);
        let output = |o: &onbeat_plan::schema::Output| Output {
            number,
            node: o.node.clone(),
            topic: o.topic.clone(),
        };
        alike.map(output).collect::<Vec<_>>()
    };
    held.iter().enumerate().flat_map(of).collect()
}

/// Makes the named pipe on which the application's processes report, and opens it for reading.
fn pipe(path: &Path) -> io::Result<OwnedFd> {
    let (read, write) = (Mode::RUSR, Mode::WUSR);
    mkfifoat(CWD, path, read | write)?;
    if let Some(user) = onbeat_record::user_behind_sudo() {
        std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid))?;
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let pipe = rustix::fs::open(path, flags, Mode::empty())?;
    rustix::pipe::fcntl_setpipe_size(&pipe, 1 << 18)?;
    Ok(pipe)
}

/// Shows the processes that this one is alive. A process without a heartbeat for two cycles passes
/// its messages on.
fn beat(page: &PageWriter, every: Duration, ends: &AtomicBool) {
    let parameters = libc::sched_param {
        sched_priority: SENDING.into(),
    };
    // SAFETY: the call reads parameters that live until the call returns. If it fails, the thread is
    // delayed on a busy machine, and messages leave at once.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters) };
    while !ends.load(Ordering::Relaxed) {
        page.beat(monotonic_ns());
        std::thread::park_timeout(every);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let text = include_bytes!("../../../plan/tests/golden/plan.yaml");
        let mut plan = onbeat_plan::file::read(text).expect("a plan");
        plan.inputs.clear();
        plan
    }

    #[test]
    fn files_for_the_library_are_made_and_removed() {
        let plan = without_moves(plan()).expect("it can be held");
        assert_eq!(crate::launch::moves(&plan)[0].held, "/t5");
        let mut shaper = Shaper::inside(&plan).expect("files");
        let library = shaper.library().expect("a library");
        let files = library.variable.1.clone();
        assert!(library.path.exists());
        let list = std::fs::read_to_string(files.join("outputs")).expect("a list");
        assert_eq!(list, "0 /n5 /t5\n");
        assert!(!shaper.is_ready() && shaper.pid().is_none());
        let ready = onbeat_ros::report::Record {
            flags: onbeat_ros::report::flags::READY,
            ..Default::default()
        };
        std::fs::write(files.join(inside::REPORTS), ready.to_bytes()).expect("a reader");
        assert!(!shaper.poll().expect("no error").has_ended);
        assert!(shaper.is_ready());
        drop(shaper);
        assert!(!library.path.exists() && !files.exists());
    }

    #[test]
    fn plans_that_need_a_shaper_outside_are_refused() {
        let mut late = plan();
        late.overshoot = Overshoot::Drop;
        assert!(matches!(without_moves(late), Err(InsideError::Overshoot)));
        let text = include_bytes!("../../../plan/tests/golden/plan.yaml");
        let throttled = onbeat_plan::file::read(text).expect("a plan");
        let refused = without_moves(throttled).expect_err("an input is throttled");
        assert!(refused.to_string().contains("/points"), "{refused}");
    }
}
