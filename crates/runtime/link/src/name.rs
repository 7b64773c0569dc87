//! How a channel is found by name: by looking into the descriptors of the processes of this user.
//!
//! The memory has no file, and so no name that could be left behind. It carries its name where the
//! kernel shows what a descriptor is, and any of its participants, alive, is a way to it.

use crate::LinkError;
use std::fs::{self, File};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// What the names of our memories begin with.
pub(crate) const PREFIX: &str = "onbeat:";

/// A memory that somebody has.
pub(crate) struct Found {
    pub(crate) pid: u32,
    /// Open for reading and writing, with locks of its own.
    pub(crate) file: File,
}

fn check(name: &str) -> Result<(), LinkError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_.-/".contains(c);
    if (1..=80).contains(&name.len()) && name.chars().all(fits) {
        return Ok(());
    }
    Err(LinkError::Name { name: name.into() })
}

/// The right to make a channel of that name, for as long as this value lives; gone with its process.
pub(crate) struct Making {
    name: String,
    _socket: UnixDatagram,
}

impl Making {
    /// Waits for somebody else who is making it.
    pub(crate) fn begin(name: &str) -> Result<Making, LinkError> {
        check(name)?;
        let user = nix::unistd::geteuid();
        // No name in a directory: an address of the network namespace that only one can have.
        let address = SocketAddr::from_abstract_name(format!("onbeat-making:{user}:{name}"));
        let since = Instant::now();
        loop {
            let socket = address.as_ref().ok().map(UnixDatagram::bind_addr);
            match socket {
                Some(Ok(_socket)) => {
                    let name = name.into();
                    return Ok(Making { name, _socket });
                }
                // Names that pass the check fit.
                None => return Err(LinkError::Name { name: name.into() }),
                Some(Err(e)) if e.kind() == std::io::ErrorKind::AddrInUse => {
                    if since.elapsed() > Duration::from_secs(5) {
                        return Err(LinkError::Busy { name: name.into() });
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                Some(Err(e)) => {
                    let errno = e.raw_os_error().unwrap_or(0);
                    return Err(LinkError::System {
                        name: name.into(),
                        what: "get the right to make it",
                        errno: nix::errno::Errno::from_raw(errno),
                    });
                }
            }
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// The memory of that name, if a process that this one may look into has it.
pub(crate) fn find(name: &str) -> Result<Option<Found>, LinkError> {
    check(name)?;
    let wanted = format!("/memfd:{PREFIX}{name} (deleted)");
    let user = nix::unistd::geteuid().as_raw();
    let mut found: Vec<(u64, Found)> = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        // Processes end, and others are not ours to look into.
        for link in fs::read_dir(process.path().join("fd"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let path = link.path();
            let is_it = fs::read_link(&path).is_ok_and(|t| t.as_os_str() == wanted.as_str());
            if !is_it {
                continue;
            }
            let Ok(file) = File::options().read(true).write(true).open(&path) else {
                continue;
            };
            // Root does not use what somebody else has put in its way.
            let Ok(metadata) = file.metadata() else {
                continue;
            };
            if metadata.uid() == user && !found.iter().any(|(i, _)| *i == metadata.ino()) {
                found.push((metadata.ino(), Found { pid, file }));
            }
        }
    }
    if found.len() > 1 {
        return Err(LinkError::Several {
            name: name.into(),
            pids: found.iter().map(|(_, f)| f.pid).collect(),
        });
    }
    Ok(found.pop().map(|(_, found)| found))
}
