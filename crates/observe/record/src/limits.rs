//! The limits of a recording: only processes of a ROS domain, below a cgroup, or in a container.
//!
//! onbeat looks up where a process belongs when it first sees the process, and again when the
//! process executes another program. A process that moves at another time keeps the old result.

use onbeat_proc::cgroup::Cgroup;
use onbeat_proc::namespace::{Namespace, NamespaceId};
use onbeat_proc::Variable;
use onbeat_trace::{Event, EventKind};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The largest ROS domain id. Larger ids would need UDP ports that do not exist.
pub const DOMAIN_MAX: u32 = 232;

const REMEMBERED_MAX: usize = 1 << 16;

const MOUNT_TABLE: &str = "/proc/self/mountinfo";

/// The limits of a recording, as the user states them. Without limits, every process of the target
/// is recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// The ROS domain id of recorded processes. onbeat reads a process's id from the environment
    /// that the process was started with.
    pub domain: Option<u32>,
    /// The directory of a cgroup. Processes in it and below it are recorded.
    pub cgroup: Option<PathBuf>,
    /// The id on this machine of any process in the container. Only processes in the PID namespace
    /// of that process are recorded.
    pub container: Option<u32>,
}

#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Error)]
pub enum LimitError {
    #[error("--domain {0} is not a ROS domain id. Give a number from 0 to {DOMAIN_MAX}.")]
    Domain(u32),
    #[error("--cgroup {}: {source}. Give the directory of a cgroup, for example /sys/fs/cgroup/system.slice/robot.service", path.display())]
    NoDirectory { path: PathBuf, source: io::Error },
    #[error("--cgroup {}: this path contains a symbolic link or '..'. Give the path {}", path.display(), to.display())]
    Link { path: PathBuf, to: PathBuf },
    #[error("--cgroup {} is not in a mounted cgroup hierarchy. Give a directory below a mount of cgroup or cgroup2 (findmnt -t cgroup,cgroup2)", .0.display())]
    NoCgroup(PathBuf),
    #[error("--container {pid}: {source}. Give the id that a process of the container has on this machine (docker inspect -f '{{{{.State.Pid}}}}' NAME)")]
    NoProcess { pid: u32, source: io::Error },
    #[error("--container {0}: this process is not in a container. Give a process whose process namespace is not onbeat's own")]
    NoContainer(u32),
}

impl Limits {
    /// Returns whether the user set any limit.
    pub fn is_any(&self) -> bool {
        *self != Limits::default()
    }

    /// Returns a sentence for the user about the `outside` processes that the limits excluded, or
    /// `None` for 0 processes.
    pub fn sentence(&self, outside: u64) -> Option<String> {
        let cgroup = self.cgroup.as_ref().map(|path| path.display());
        let words = [
            self.domain.map(|id| format!("--domain {id}")),
            cgroup.map(|path| format!("--cgroup {path}")),
            self.container.map(|pid| format!("--container {pid}")),
        ];
        let words: Vec<String> = words.into_iter().flatten().collect();
        let (processes, was) = match outside {
            0 => return None,
            1 => ("1 process".to_owned(), "was"),
            n => (format!("{n} processes"), "were"),
        };
        Some(format!(
            "{processes} outside of {} {was} not recorded.",
            words.join(" ")
        ))
    }
}

#[derive(Debug)]
pub(crate) struct Border {
    limits: Limits,
    cgroup: Option<Cgroup>,
    /// The id of the container's PID namespace, and an open file that prevents the kernel from
    /// reusing the id.
    container: Option<(NamespaceId, File)>,
    outside: HashSet<u32>,
    count: u64,
}

impl Border {
    pub(crate) fn new(limits: &Limits) -> Result<Border, LimitError> {
        if let Some(id) = limits.domain.filter(|&id| id > DOMAIN_MAX) {
            return Err(LimitError::Domain(id));
        }
        let table = fs::read_to_string(MOUNT_TABLE).unwrap_or_default();
        let cgroup = limits.cgroup.as_deref().map(|path| cgroup(path, &table));
        let container = limits.container.map(container);
        Ok(Border {
            limits: limits.clone(),
            cgroup: cgroup.transpose()?,
            container: container.transpose()?,
            outside: HashSet::new(),
            count: 0,
        })
    }

    /// Returns whether a process is within the limits. A process outside of the limits is counted
    /// once if it uses ROS 2, which `counts` reports.
    pub(crate) fn admits(&mut self, pid: u32, counts: impl FnOnce() -> bool) -> bool {
        if !self.limits.is_any() {
            return true;
        }
        if self.is_inside(pid) {
            self.outside.remove(&pid);
            return true;
        }
        if counts() && self.outside.insert(pid) {
            self.count += 1;
        }
        if self.outside.len() > REMEMBERED_MAX {
            self.outside.retain(|&pid| onbeat_proc::is_alive(pid));
        }
        false
    }

    pub(crate) fn is_outside(&self, pid: u32) -> bool {
        !self.outside.is_empty() && self.outside.contains(&pid)
    }

    /// Returns whether an event is left out because of the limits. Scheduler events that show why a
    /// recorded thread waits for a CPU are never left out.
    pub(crate) fn leaves_out(&self, event: &Event) -> bool {
        let names_holder = matches!(
            event.kind,
            EventKind::Bystander { .. } | EventKind::Occupied { .. }
        );
        !names_holder && self.is_outside(event.pid)
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn sentence(&self) -> Option<String> {
        self.limits.sentence(self.count)
    }

    fn is_inside(&self, pid: u32) -> bool {
        let domain = |id| onbeat_proc::environment(pid).is_ok_and(|e| domain_of(&e) == Some(id));
        let cgroup = |cgroup: &Cgroup| {
            fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|text| cgroup.has(&text))
        };
        let container = |id| Namespace::Pid.of(pid).is_ok_and(|found| found == id);
        self.limits.domain.is_none_or(domain)
            && self.cgroup.as_ref().is_none_or(cgroup)
            && self.container.as_ref().is_none_or(|(id, _)| container(*id))
    }
}

fn cgroup(path: &Path, table: &str) -> Result<Cgroup, LimitError> {
    let found = fs::canonicalize(path).and_then(|to| match to.is_dir() {
        true => Ok(to),
        false => Err(io::Error::from_raw_os_error(libc::ENOTDIR)),
    });
    let to = found.map_err(|source| LimitError::NoDirectory {
        path: path.into(),
        source,
    })?;
    // A link is refused: a user who may change it could change what is recorded.
    if path.components().ne(to.components()) {
        return Err(LimitError::Link {
            path: path.into(),
            to,
        });
    }
    Cgroup::of_directory(&to, table).ok_or(LimitError::NoCgroup(to))
}

fn container(pid: u32) -> Result<(NamespaceId, File), LimitError> {
    let failed = |source| LimitError::NoProcess { pid, source };
    let held = File::open(format!("/proc/{pid}/ns/pid")).map_err(failed)?;
    let id = Namespace::Pid.of(pid).map_err(failed)?;
    match Namespace::Pid.of(std::process::id()) {
        Ok(own) if own == id => Err(LimitError::NoContainer(pid)),
        _ => Ok((id, held)),
    }
}

/// Returns the ROS domain of a process with this environment, or `None` if ROS 2 would refuse to
/// start. Parses the variable ROS_DOMAIN_ID as rcl does: strtoul(3) with any base, and 0 if the
/// variable is missing or empty.
fn domain_of(environment: &[Variable]) -> Option<u32> {
    let value = environment.iter().find(|(name, _)| name == "ROS_DOMAIN_ID");
    let value = value.map_or(OsStr::new(""), |(_, value)| value.as_os_str());
    let text = std::str::from_utf8(value.as_bytes()).ok()?.trim_start();
    let text = text.strip_prefix('+').unwrap_or(text);
    let lower = text.to_ascii_lowercase();
    match (lower.strip_prefix("0x"), text.strip_prefix('0')) {
        _ if text.is_empty() => Some(0),
        (Some(digits), _) => u32::from_str_radix(digits, 16).ok(),
        (None, Some("")) => Some(0),
        (None, Some(digits)) => u32::from_str_radix(digits, 8).ok(),
        (None, None) => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    struct Sleeper(Child);

    impl Sleeper {
        /// Starts the command and waits until it executes `sleep`. During its exec a process has no
        /// environment.
        fn new(command: &mut Command) -> Sleeper {
            let sleeper = Sleeper(command.arg("60").spawn().expect("sleep starts"));
            let pid = sleeper.0.id();
            while onbeat_proc::environment(pid).expect("it runs").is_empty() {
                std::thread::yield_now();
            }
            sleeper
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn refused(limits: Limits) -> String {
        Border::new(&limits).expect_err("it is refused").to_string()
    }

    #[test]
    fn the_domain_is_parsed_from_the_environment_as_rcl_does() {
        let of = |value: Option<&str>| {
            let value = value.map(|v| ("ROS_DOMAIN_ID".into(), v.into()));
            domain_of(&value.into_iter().collect::<Vec<_>>())
        };
        let expected = [
            (None, Some(0)),
            (Some(""), Some(0)),
            (Some("0"), Some(0)),
            (Some("42"), Some(42)),
            (Some(" 42"), Some(42)),
            (Some("042"), Some(34)),
            (Some("0x2A"), Some(42)),
            (Some("-1"), None),
            (Some("4 2"), None),
            (Some("x"), None),
            (Some("08"), None),
        ];
        for (value, domain) in expected {
            assert_eq!(of(value), domain, "{value:?}");
        }
    }

    #[test]
    fn processes_of_another_ros_domain_are_not_recorded_and_are_counted_once() {
        let limits = Limits {
            domain: Some(7),
            ..Limits::default()
        };
        let mut border = Border::new(&limits).expect("a domain");
        let inside = Sleeper::new(Command::new("sleep").env("ROS_DOMAIN_ID", "7"));
        let outside = Sleeper::new(Command::new("sleep").env("ROS_DOMAIN_ID", "8"));
        let (inside, outside) = (inside.0.id(), outside.0.id());
        assert!(border.admits(inside, || true));
        assert!(!border.admits(outside, || false), "no node of ROS 2");
        assert_eq!((border.count(), border.sentence()), (0, None));
        for _ in 0..3 {
            assert!(!border.admits(outside, || true));
        }
        assert!(border.is_outside(outside) && !border.is_outside(inside));
        let leaves_out = |pid, kind| {
            border.leaves_out(&Event {
                time_ns: 1,
                cpu: 0,
                pid,
                tid: pid,
                kind,
            })
        };
        let occupied = || EventKind::Occupied {
            prev_tid: 1,
            last: false,
        };
        assert!(leaves_out(outside, EventKind::Wait) && !leaves_out(inside, EventKind::Wait));
        assert!(!leaves_out(outside, occupied()) && !leaves_out(inside, occupied()));
        let said = border.sentence();
        assert_eq!(
            said.as_deref(),
            Some("1 process outside of --domain 7 was not recorded.")
        );
        assert!(!border.admits(u32::MAX - 1, || true), "it has ended");
        let mut all = Border::new(&Limits::default()).expect("no limit");
        assert!(all.admits(outside, || panic!("nobody asks")));
    }

    #[test]
    fn unusable_limits_are_refused_with_the_reason() {
        let of = |cgroup: &Path| Limits {
            cgroup: Some(cgroup.into()),
            ..Limits::default()
        };
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path().canonicalize().expect("it is there");
        let said = refused(of(&dir));
        assert!(
            said.contains("is not in a mounted cgroup hierarchy"),
            "{said}"
        );
        let link = dir.join("link");
        symlink("/sys/fs/cgroup", &link).expect("a link");
        let said = refused(of(&link));
        assert!(
            said.ends_with("contains a symbolic link or '..'. Give the path /sys/fs/cgroup"),
            "{said}"
        );
        assert!(refused(of(Path::new("/sys/fs/cgroup/no such"))).contains("No such file"));
        assert!(
            refused(of(Path::new("/sys/fs/cgroup/../../../tmp"))).contains("Give the path /tmp")
        );
        let domain = Limits {
            domain: Some(233),
            ..Limits::default()
        };
        assert_eq!(
            refused(domain),
            "--domain 233 is not a ROS domain id. Give a number from 0 to 232."
        );
        let in_container = |pid| Limits {
            container: Some(pid),
            ..Limits::default()
        };
        let own = refused(in_container(std::process::id()));
        assert!(own.contains("is not in a container"), "{own}");
        let gone = refused(in_container(u32::MAX - 1));
        assert!(
            gone.contains("docker inspect -f '{{.State.Pid}}'"),
            "{gone}"
        );
    }

    #[test]
    fn a_process_that_moves_into_the_cgroup_is_admitted_when_it_is_seen_again() {
        let table = fs::read_to_string(MOUNT_TABLE).expect("the kernel's");
        let (v1, v2) = onbeat_proc::cgroup::parse_freezers(&table);
        let Some(mount) = v2.or(v1) else {
            println!("skipped: no cgroup hierarchy with a freezer is mounted");
            return;
        };
        let group = mount
            .point
            .join(format!("onbeat-test-{}", std::process::id()));
        if let Err(e) = fs::create_dir(&group) {
            println!("skipped: cannot make a cgroup: {e}");
            return;
        }
        let limits = Limits {
            cgroup: Some(group.clone()),
            ..Limits::default()
        };
        let sleeper = Sleeper::new(&mut Command::new("sleep"));
        let pid = sleeper.0.id();
        let mut border = Border::new(&limits).expect("a cgroup");
        let before = border.admits(pid, || true);
        let moved = fs::write(group.join("cgroup.procs"), pid.to_string());
        let (stays, after) = (border.is_outside(pid), border.admits(pid, || true));
        let is_in = !border.is_outside(pid);
        let home = fs::write(mount.point.join("cgroup.procs"), pid.to_string());
        drop(sleeper);
        fs::remove_dir(&group).expect("it is empty");
        moved.and(home).expect("it is moved there and back");
        assert_eq!([before, stays, after, is_in], [false, true, true, true]);
        assert_eq!(border.count(), 1);
    }

    #[test]
    fn only_processes_of_the_container_are_within_the_limits() {
        let mut command = Command::new("unshare");
        let boxed = command
            .args(["--pid", "--fork", "--kill-child", "sleep"])
            .process_group(0);
        let sleeper = Sleeper::new(boxed);
        let child = || onbeat_proc::tree(sleeper.0.id()).get(1).copied();
        let begin = std::time::Instant::now();
        let inside = loop {
            match child() {
                Some(pid) => break pid,
                None if onbeat_proc::is_alive(sleeper.0.id()) => std::thread::yield_now(),
                None => {
                    println!("skipped: unshare cannot make a pid namespace here");
                    return;
                }
            }
            assert!(begin.elapsed().as_secs() < 60, "unshare starts its child");
        };
        let limits = Limits {
            container: Some(inside),
            ..Limits::default()
        };
        let mut border = Border::new(&limits).expect("a container");
        assert!(border.admits(inside, || true));
        assert!(!border.admits(std::process::id(), || true));
    }
}
