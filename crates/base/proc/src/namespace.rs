//! Namespaces of processes: whether a process lives in a container of its own.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// A kind of namespace that a container has of its own. Not user namespaces, which change rights and
/// not what names mean, and not time namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespace {
    /// Cgroups, as their paths begin.
    Cgroup,
    /// System V and POSIX queues.
    Ipc,
    /// Mounted file systems.
    Mount,
    /// Network interfaces and ports.
    Network,
    /// Process ids.
    Pid,
    /// Host name.
    Uts,
}

/// Distinguishes a namespace from all others of its kind that exist.
pub type NamespaceId = (u64, u64);

impl Namespace {
    /// All kinds.
    pub const ALL: [Namespace; 6] = [
        Namespace::Cgroup,
        Namespace::Ipc,
        Namespace::Mount,
        Namespace::Network,
        Namespace::Pid,
        Namespace::Uts,
    ];

    /// File in `/proc/PID/ns`.
    fn file(self) -> &'static str {
        match self {
            Namespace::Cgroup => "cgroup",
            Namespace::Ipc => "ipc",
            Namespace::Mount => "mnt",
            Namespace::Network => "net",
            Namespace::Pid => "pid",
            Namespace::Uts => "uts",
        }
    }

    /// The kernel's flag for it, as setns(2) takes it.
    pub fn flag(self) -> i32 {
        match self {
            Namespace::Cgroup => libc::CLONE_NEWCGROUP,
            Namespace::Ipc => libc::CLONE_NEWIPC,
            Namespace::Mount => libc::CLONE_NEWNS,
            Namespace::Network => libc::CLONE_NEWNET,
            Namespace::Pid => libc::CLONE_NEWPID,
            Namespace::Uts => libc::CLONE_NEWUTS,
        }
    }

    /// That of a process.
    ///
    /// # Errors
    ///
    /// The kernel's, where the process is gone, or the caller may not trace it.
    pub fn of(self, pid: u32) -> io::Result<NamespaceId> {
        let found = fs::metadata(format!("/proc/{pid}/ns/{}", self.file()))?;
        Ok((found.dev(), found.ino()))
    }

    /// The kinds in which a process does not share this process's.
    ///
    /// # Errors
    ///
    /// As [`Namespace::of`].
    pub fn foreign(pid: u32) -> io::Result<Vec<Namespace>> {
        let own = std::process::id();
        let mut foreign = Vec::new();
        for kind in Namespace::ALL {
            if kind.of(pid)? != kind.of(own)? {
                foreign.push(kind);
            }
        }
        Ok(foreign)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn a_child_shares_all_but_what_it_has_of_its_own() {
        assert_eq!(Namespace::foreign(std::process::id()).unwrap(), []);
        assert!(Namespace::Pid.of(u32::MAX - 1).is_err());
        // SAFETY: cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            println!("skipped: not root: it cannot make namespaces");
            return;
        }
        let mut command = Command::new("sleep");
        // SAFETY: a plain system call.
        unsafe {
            command.pre_exec(
                || match libc::unshare(libc::CLONE_NEWUTS | libc::CLONE_NEWIPC) {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                },
            );
        }
        let mut child = command.arg("60").spawn().expect("sleep starts");
        let foreign = Namespace::foreign(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(foreign.unwrap(), [Namespace::Ipc, Namespace::Uts]);
    }
}
