//! The sockets in the directory of ledgers: their names, and those of sessions that were killed.

use onbeat_files::Directory;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// Begins the name of a socket, before the session's process id.
const PREFIX: &str = "status-";
/// Ends it.
const SUFFIX: &str = ".sock";

/// The name of a session's socket.
pub(super) fn name(session: u32) -> String {
    format!("{PREFIX}{session}{SUFFIX}")
}

/// The path of a name in a directory that is held open: no other directory can be put in its place.
pub(super) fn within(directory: &Directory, name: &str) -> PathBuf {
    let held = directory.as_fd().as_raw_fd();
    format!("/proc/self/fd/{held}/{name}").into()
}

/// The session of a socket, by its name.
pub(super) fn session(name: &str) -> Option<u32> {
    let id = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    id.parse().ok()
}

/// The sockets in a directory, by name, each with its session.
pub(super) fn sockets(directory: &Directory) -> io::Result<Vec<(String, u32)>> {
    let names = directory.names()?.into_iter();
    let names = names.filter_map(|name| name.into_string().ok());
    Ok(names
        .filter_map(|name| session(&name).map(|pid| (name, pid)))
        .collect())
}

/// Whether an attempt to connect says that nobody listens there.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
    )
}

/// Removes sockets on which nobody listens, and whose process is no more: one that begins has bound its socket a moment
/// before it listens.
pub(super) fn clear(directory: &Directory) -> io::Result<()> {
    for (name, pid) in sockets(directory)? {
        let answer = UnixStream::connect(within(directory, &name));
        if answer.is_err_and(|e| is_gone(&e)) && !onbeat_proc::is_alive(pid) {
            match directory.remove(&name) {
                // Another session clears too.
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
    }
    Ok(())
}
