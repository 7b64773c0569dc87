//! The namespaces of processes, which show whether a process runs in a container.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// A kind of namespace that a container can have. User and time namespaces are left out, because
/// they do not change which object a name or id refers to.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespace {
    Cgroup,
    Ipc,
    Mount,
    Network,
    Pid,
    Uts,
}

/// The device and inode of a namespace. No other namespace of the same kind has the same two
/// numbers.
pub type NamespaceId = (u64, u64);

impl Namespace {
    /// The kinds of namespaces, each once.
    pub const ALL: [Namespace; 6] = [
        Namespace::Cgroup,
        Namespace::Ipc,
        Namespace::Mount,
        Namespace::Network,
        Namespace::Pid,
        Namespace::Uts,
    ];

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

    /// Returns the flag (`CLONE_NEW*`) that stands for this kind in setns(2).
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

    /// Returns the namespace of this kind that a process is in.
    ///
    /// # Errors
    ///
    /// Fails if the process has ended or if the caller may not trace it.
    pub fn of(self, pid: u32) -> io::Result<NamespaceId> {
        let found = fs::metadata(format!("/proc/{pid}/ns/{}", self.file()))?;
        Ok((found.dev(), found.ino()))
    }

    /// Lists the kinds of namespaces that a process does not share with this process.
    ///
    /// # Errors
    ///
    /// Fails if the process has ended or if the caller may not trace it.
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
    fn only_namespaces_that_a_child_does_not_share_are_foreign() {
        assert_eq!(Namespace::foreign(std::process::id()).unwrap(), []);
        assert!(Namespace::Pid.of(u32::MAX - 1).is_err());
        // SAFETY: `geteuid` cannot fail and takes no pointers.
        if unsafe { libc::geteuid() } != 0 {
            println!("skipped: only root can make namespaces");
            return;
        }
        let mut command = Command::new("sleep");
        // SAFETY: the closure only makes the system call `unshare`, which is safe after a fork.
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
