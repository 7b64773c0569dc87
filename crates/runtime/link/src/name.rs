//! Finds a channel by name, through the descriptors of this user's processes.
//!
//! The memory has no file, so no name can be left behind. Its name is in the links in
//! `/proc/PID/fd` of its participants, and any living participant's link opens it.

use crate::error::LinkError;
use nix::fcntl::OFlag;
use std::fs::{self, File};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) const PREFIX: &str = "onbeat:";

pub(crate) struct Found {
    pub(crate) pid: u32,
    /// The memory's file, open for reading and writing. Locks of this descriptor are separate from
    /// the locks of the process `pid`.
    pub(crate) file: File,
}

fn check_name(name: &str) -> Result<(), LinkError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_.-/".contains(c);
    if (1..=80).contains(&name.len()) && name.chars().all(fits) {
        return Ok(());
    }
    Err(LinkError::Name { name: name.into() })
}

/// The right to create a channel of that name. It ends when this value is dropped or its process
/// ends.
pub(crate) struct Creation {
    name: String,
    _socket: UnixDatagram,
}

impl Creation {
    /// Takes the right to create the channel. Waits up to 5 s for another process that is creating
    /// it.
    pub(crate) fn begin(name: &str) -> Result<Creation, LinkError> {
        check_name(name)?;
        let user = nix::unistd::geteuid();
        // Only one socket of a network namespace can have this address. It has no entry in a
        // directory.
        let address = SocketAddr::from_abstract_name(format!("onbeat-making:{user}:{name}"));
        let since = Instant::now();
        loop {
            let socket = address.as_ref().ok().map(UnixDatagram::bind_addr);
            match socket {
                Some(Ok(_socket)) => {
                    let name = name.into();
                    return Ok(Creation { name, _socket });
                }
                // Names that pass the check fit into an address.
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
                        what: "lock the name",
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

pub(crate) fn find(name: &str) -> Result<Option<Found>, LinkError> {
    check_name(name)?;
    let target = format!("/memfd:{PREFIX}{name} (deleted)");
    let user = nix::unistd::geteuid().as_raw();
    let mut found: Vec<(u64, Found)> = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        for file in open_descriptors(&process.path(), &target) {
            let Ok(metadata) = file.metadata() else {
                continue;
            };
            // Root must not use memory that another user has prepared under this name.
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

fn open_descriptors<'a>(process: &Path, target: &'a str) -> impl Iterator<Item = File> + 'a {
    let links = fs::read_dir(process.join("fd")).into_iter().flatten();
    links.flatten().filter_map(move |link| {
        let path = link.path();
        let is_target = fs::read_link(&path).is_ok_and(|t| t.as_os_str() == target);
        // The descriptor may lead to another file by now, for example to a pipe or a terminal. The
        // caller checks its owner once it is open.
        let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let mut options = File::options();
        options.read(true).write(true).custom_flags(flags.bits());
        let open = || options.open(&path).ok();
        is_target.then(open).flatten()
    })
}
