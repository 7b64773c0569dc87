//! The shaper process of a plan, seen from its owner: started with the application's environment and
//! as its user, told the table, asked what it published.

use crate::executions::Release;
use onbeat_plan::schema::{Hold, Plan, Slot};
use onbeat_ros::config::{Config, Kind, Output, Place};
use onbeat_ros::environment::{Environment, EnvironmentError};
use onbeat_ros::page::{OutputTable, PageWriter};
use onbeat_ros::report::{flags, Record, RECORD_BYTES};
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use thiserror::Error;

/// Why there is no shaper, or none any more.
#[derive(Debug, Error)]
pub enum ShaperError {
    /// The application's ROS 2 could not be told.
    #[error(transparent)]
    Application(#[from] EnvironmentError),
    /// It could not be started.
    #[error("cannot start the shaper: {0}")]
    Start(io::Error),
    /// It ended by itself.
    #[error("the shaper ended ({status}): {said}")]
    Ended {
        /// How.
        status: std::process::ExitStatus,
        /// Its last words.
        said: String,
    },
    /// Its endpoints did not come.
    #[error(
        "the shaper had no endpoints within {within_s} s: does the application publish {topics}?"
    )]
    NotReady {
        /// How long was waited.
        within_s: u64,
        /// The topics that it waits for.
        topics: String,
    },
}

/// So long without a sign the owner counts as dead, should the pipe not tell.
const SILENCE_NS: u64 = 5_000_000_000;

// What may stand in a plan fits into a shaper.
const _: () = assert!(onbeat_plan::schema::MAX_HELD <= onbeat_ros::page::MAX_OUTPUTS);

/// How many arrivals of an input are kept.
const ARRIVALS: usize = 32;

/// A shaper that runs.
pub struct Shaper {
    child: Child,
    page: PageWriter,
    reports: File,
    /// The start of a record whose rest is still to come.
    partial: Vec<u8>,
    /// Which outputs have their endpoints.
    ready: Vec<bool>,
    /// By the shaper's output: the plan's (the first of those of one topic), none for throttled inputs.
    outputs: Vec<Option<usize>>,
    /// It has ended by itself, as it does with the process that it stands beside.
    ended: bool,
    /// An output was late, and the policy ends shaping for it.
    stopped: bool,
    settling: bool,
    /// By the shaper's output: when throttled inputs lately came, CLOCK_MONOTONIC.
    arrivals: Vec<VecDeque<u64>>,
}

impl Shaper {
    /// Starts the shaper for a plan's held outputs and throttled inputs, beside the application's
    /// process `pid`. It passes everything on at once until [`Shaper::shape`].
    pub fn start(plan: &Plan, program: &Path, pid: u32) -> Result<Shaper, ShaperError> {
        let Environment {
            mut variables,
            rcl,
            folders,
        } = Environment::of_process(pid)?;
        // It is held back by its table, not by the middleware's publisher thread.
        variables.retain(|(name, _)| name != "RMW_FASTRTPS_PUBLICATION_MODE");
        let owner = std::fs::metadata(format!("/proc/{pid}")).map_err(ShaperError::Start)?;
        let page = PageWriter::new().map_err(ShaperError::Start)?;
        page.set_pass_through(true);
        let (read, write) = pipe().map_err(ShaperError::Start)?;
        let (config, outputs) = configuration(plan, pid, rcl, folders, page.fd(), &write);
        let text = serde_json::to_vec(&config).map_err(|e| ShaperError::Start(e.into()))?;
        let inherited = [page.fd().as_raw_fd(), write.as_raw_fd()];
        let mut command = Command::new(program);
        command
            .args(["shaper", "-"])
            .env_clear()
            .envs(variables)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0);
        let (uid, gid) = (owner.uid(), owner.gid());
        // SAFETY: only async-signal-safe calls, on values that were copied.
        unsafe {
            command.pre_exec(move || {
                for fd in inherited {
                    if libc::fcntl(fd, libc::F_SETFD, 0) < 0 {
                        return Err(io::Error::last_os_error());
                    }
                }
                // It gets its priorities as the application's user, who may not have the right.
                let limit = libc::rlimit {
                    rlim_cur: 99,
                    rlim_max: 99,
                };
                libc::setrlimit(libc::RLIMIT_RTPRIO, &limit);
                if libc::geteuid() == 0 && uid != 0 {
                    // Shared memory of the middleware is its user's.
                    if libc::setgroups(0, std::ptr::null()) != 0
                        || libc::setgid(gid) != 0
                        || libc::setuid(uid) != 0
                    {
                        return Err(io::Error::last_os_error());
                    }
                }
                Ok(())
            });
        }
        let mut child = command.spawn().map_err(ShaperError::Start)?;
        drop(write);
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(&text).map_err(ShaperError::Start)?;
        }
        Ok(Shaper {
            child,
            page,
            reports: File::from(read),
            partial: Vec::new(),
            ready: vec![false; outputs.len()],
            arrivals: vec![VecDeque::new(); outputs.len()],
            outputs,
            ended: false,
            stopped: false,
            settling: false,
        })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// True once all of its endpoints are there.
    pub fn is_ready(&self) -> bool {
        self.ready.iter().all(|r| *r)
    }

    /// Begins to hold back what leaves outside its slots. What is late leaves in a later slot, whatever
    /// the policy, until [`Shaper::settled`]: executions that are on their way began unshaped.
    pub fn shape(&mut self, cycle_ns: u64, origin_ns: u64, plan: &Plan) {
        self.page
            .set_table(cycle_ns, origin_ns as i64, &tables(plan));
        self.beat();
        self.page.set_settling(true);
        self.settling = true;
    }

    /// The plan's policy holds from now on.
    pub fn settled(&mut self) {
        if std::mem::take(&mut self.settling) {
            self.page.set_settling(false);
        }
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether it has ended shaping because an output was late.
    pub fn has_stopped(&self) -> bool {
        self.stopped
    }

    /// Moves the cycles.
    pub fn set_origin(&self, origin_ns: u64) {
        self.page.set_origin(origin_ns as i64);
    }

    /// Says that we are there. To be called every second or so.
    pub fn beat(&self) {
        self.page.beat(crate::run::monotonic_ns());
    }

    /// Everything passes at once from now on.
    pub fn pass_through(&mut self) {
        self.settling = false;
        self.page.set_pass_through(true);
    }

    /// What it has published or discarded since the last call.
    pub fn releases(&mut self, found: &mut Vec<Release>) -> Result<(), ShaperError> {
        let mut buffer = [0; 64 * RECORD_BYTES];
        loop {
            match self.reports.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => self.partial.extend_from_slice(&buffer[..count]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        let whole = self.partial.len() / RECORD_BYTES * RECORD_BYTES;
        for bytes in self.partial[..whole].chunks_exact(RECORD_BYTES) {
            let mut record = [0; RECORD_BYTES];
            record.copy_from_slice(bytes);
            let record = Record::from_bytes(&record);
            let number = usize::from(record.output);
            if record.flags & flags::READY != 0 {
                if let Some(ready) = self.ready.get_mut(number) {
                    *ready = true;
                }
                continue;
            }
            self.stopped |= record.flags & flags::STOPPED != 0;
            match self.outputs.get(number) {
                Some(&Some(output)) => found.push(Release {
                    output,
                    source_ns: record.source_ns,
                    published_ns: record.start_ns.max(0) as u64,
                    done_ns: record.end_ns.max(0) as u64,
                    late: record.flags & (flags::LATE | flags::STOPPED) != 0,
                }),
                Some(None) => {
                    let arrivals = &mut self.arrivals[number];
                    if arrivals.len() == ARRIVALS {
                        arrivals.pop_front();
                    }
                    arrivals.push_back(record.arrival_ns.max(0) as u64);
                }
                None => {}
            }
        }
        self.partial.drain(..whole);
        match self.child.try_wait() {
            Ok(Some(status)) if !status.success() => Err(ShaperError::Ended {
                status,
                said: last_words(&mut self.child),
            }),
            Ok(Some(_)) => {
                self.ended = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// When each throttled input lately came, CLOCK_MONOTONIC.
    pub fn arrivals(&self) -> impl Iterator<Item = &VecDeque<u64>> {
        let inputs = self.outputs.iter().zip(&self.arrivals);
        inputs.filter(|(o, _)| o.is_none()).map(|(_, a)| a)
    }

    /// Leaves it alone: it passes everything on, and ends when its topics have no publisher any more.
    pub fn end(self) {
        // The pipe's end tells it; where the application is gone too there is nothing to wait for.
        self.page.set_pass_through(true);
    }
}

fn last_words(child: &mut Child) -> String {
    let mut said = String::new();
    if let Some(stderr) = child.stderr.take() {
        let _ = stderr.take(4096).read_to_string(&mut said);
    }
    let line = said.lines().last().unwrap_or("it said nothing");
    line.chars().filter(|c| !c.is_control()).collect()
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors, which are nobody else's.
    let (read, write) = unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(io::Error::last_os_error());
        }
        (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    };
    // SAFETY: asks for a flag and for room on descriptors of ours.
    unsafe {
        libc::fcntl(read.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK);
        libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, 1 << 18);
    }
    Ok((read, write))
}

/// Outputs that are republished, each topic once, whoever publishes on it.
fn held(plan: &Plan) -> impl Iterator<Item = (usize, &onbeat_plan::schema::Output)> {
    let mut seen = BTreeSet::new();
    let republished = |o: &(usize, &onbeat_plan::schema::Output)| o.1.hold == Hold::Republish;
    let all = plan.outputs.iter().enumerate().filter(republished);
    all.filter(move |(_, o)| seen.insert(&o.held_topic))
}

/// Inputs that are throttled, each topic once.
fn throttled(plan: &Plan) -> impl Iterator<Item = &onbeat_plan::schema::Throttle> {
    let mut seen = BTreeSet::new();
    plan.inputs
        .iter()
        .filter(move |i| seen.insert(&i.held_topic))
}

fn server<'a>(plan: &'a Plan, name: &str) -> Option<&'a onbeat_plan::schema::Server> {
    plan.servers.iter().find(|s| s.name == name)
}

fn configuration(
    plan: &Plan,
    pid: u32,
    rcl: PathBuf,
    folders: Vec<PathBuf>,
    page: &OwnedFd,
    reports: &OwnedFd,
) -> (Config, Vec<Option<usize>>) {
    let place = |name: &str| {
        server(plan, name).map(|s| Place {
            cpus: vec![usize::from(s.cpu)],
            priority: (s.priority > 0).then_some(s.priority),
        })
    };
    let output = |held_topic: &str, topic: &str, kind, place| Output {
        held_topic: held_topic.into(),
        topic: topic.into(),
        kind,
        place,
        capacity: 32,
        item_bytes: 64 << 10,
        depth: 100,
    };
    let mut outputs = Vec::new();
    let mut numbers = Vec::new();
    for (i, o) in held(plan) {
        let held_topic = o.held_topic.as_deref().unwrap_or_default();
        outputs.push(output(held_topic, &o.topic, Kind::Shape, place(&o.server)));
        numbers.push(Some(i));
    }
    for (n, i) in throttled(plan).enumerate() {
        // One after the other as they stand in the plan, so that each has its time in the cycle.
        let behind = u8::try_from(n).unwrap_or(u8::MAX);
        let place = place(&i.server).map(|p| Place {
            priority: p.priority.map(|p| p.saturating_sub(behind).max(1)),
            ..p
        });
        outputs.push(output(&i.held_topic, &i.topic, Kind::Throttle, place));
        numbers.push(None);
    }
    let config = Config {
        rcl,
        folders,
        outputs,
        middleware: Some(Place {
            cpus: vec![usize::from(plan.middleware.cpu)],
            priority: Some(plan.middleware.priority),
        }),
        overshoot: plan.overshoot,
        page_fd: Some(page.as_raw_fd()),
        table: None,
        report_fd: Some(reports.as_raw_fd()),
        application: Some(pid),
        silence_ns: Some(SILENCE_NS),
    };
    (config, numbers)
}

fn tables(plan: &Plan) -> Vec<OutputTable> {
    let slots = |name: &str| -> Vec<onbeat_time::Slot> {
        let of = |s: &Slot| onbeat_time::Slot {
            start_ns: s.0 .0,
            end_ns: s.1 .0,
        };
        server(plan, name)
            .map(|s| s.slots_ms.iter().map(of).collect())
            .unwrap_or_default()
    };
    // Of several publishers of one topic, the fastest tells from when on something may come.
    let earliest = |topic: &Option<String>| {
        let alike = plan.outputs.iter().filter(move |o| o.held_topic == *topic);
        alike.map(|o| o.earliest_ms.0).min().unwrap_or(0)
    };
    let outputs = held(plan).map(|(_, o)| {
        let earliest_ns = earliest(&o.held_topic);
        let mut slots = slots(&o.server);
        // Of a cycle's execution that brings nothing yet, these are the next cycle's.
        for slot in slots.iter_mut().filter(|s| s.start_ns < earliest_ns) {
            slot.start_ns += plan.cycle_ms.0;
            slot.end_ns += plan.cycle_ms.0;
        }
        OutputTable { earliest_ns, slots }
    });
    let inputs = throttled(plan).map(|i| OutputTable {
        earliest_ns: 0,
        slots: slots(&i.server),
    });
    outputs.chain(inputs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Inputs are let in one after the other, in the order of the plan, which is that of their times.
    #[test]
    fn the_first_input_has_the_highest_priority() {
        let text = include_bytes!("../../plan/tests/golden/plan.yaml");
        let mut plan = onbeat_plan::file::read(text).expect("a plan");
        let mut second = plan.inputs[0].clone();
        second.topic = "/scans".into();
        second.held_topic = "/scans/onbeat_held".into();
        plan.inputs.push(second);
        let page = PageWriter::new().expect("a page");
        let (_, write) = pipe().expect("a pipe");
        let (config, numbers) =
            configuration(&plan, 1, PathBuf::new(), Vec::new(), page.fd(), &write);
        let told: Vec<_> = config
            .outputs
            .iter()
            .map(|o| {
                let priority = o.place.as_ref().and_then(|p| p.priority);
                (o.topic.as_str(), priority)
            })
            .collect();
        assert_eq!(
            told,
            [
                ("/t5", Some(81)),
                ("/points", Some(81)),
                ("/scans", Some(80))
            ]
        );
        assert_eq!(numbers, [Some(0), None, None]);
    }
}
