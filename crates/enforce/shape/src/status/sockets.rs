//! The sockets in the directory of ledgers: their names, and the removal of sockets that killed
//! sessions left.

use onbeat_files::Directory;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

const PREFIX: &str = "status-";
const SUFFIX: &str = ".sock";

pub(super) fn name(session: u32) -> String {
    format!("{PREFIX}{session}{SUFFIX}")
}

/// Returns a path to the file `name` in an open directory. The path stays valid if another program
/// replaces the directory.
pub(super) fn within(directory: &Directory, name: &str) -> PathBuf {
    let held = directory.as_fd().as_raw_fd();
    format!("/proc/self/fd/{held}/{name}").into()
}

pub(super) fn session(name: &str) -> Option<u32> {
    let id = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    id.parse().ok()
}

pub(super) fn sockets(directory: &Directory) -> io::Result<Vec<(String, u32)>> {
    let names = directory.names()?.into_iter();
    let names = names.filter_map(|name| name.into_string().ok());
    Ok(names
        .filter_map(|name| session(&name).map(|pid| (name, pid)))
        .collect())
}

pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
    )
}

/// Removes the sockets of sessions that have ended. A session that is starting has a socket before
/// it listens. Therefore the call removes a socket only if the session's process has ended as well.
pub(super) fn clear(directory: &Directory) -> io::Result<()> {
    for (name, pid) in sockets(directory)? {
        let answer = UnixStream::connect(within(directory, &name));
        if answer.is_err_and(|e| is_gone(&e)) && !onbeat_proc::is_alive(pid) {
            match directory.remove(&name) {
                // Another session may have removed it at the same time.
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
    }
    Ok(())
}
