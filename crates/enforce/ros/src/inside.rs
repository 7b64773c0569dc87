//! The library that holds outputs back inside the application's processes, and the files by which
//! it and its owner exchange the table of slots, the table of lineage and the reports.
//!
//! The library itself is `inside/library.c`. Each process finds the directory of the files in
//! [`DIRECTORY`].

use crate::config::Kind;
use crate::page::PageWriter;
use onbeat_time::Overshoot;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::fmt::Write;
use std::fs::Permissions;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// The bytes of the library that holds messages back inside the application. Processes load it
/// through `LD_PRELOAD`.
pub const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libonbeat_hold.so"));
/// The environment variable that names the directory with the files of the library [`LIBRARY`].
pub const DIRECTORY: &str = "ONBEAT_HOLD";
/// The name of the named pipe on which processes write a [`crate::report::Record`] per item.
pub const REPORTS: &str = "reports";
/// The name of the thread that the library [`LIBRARY`] starts.
pub const THREAD: &str = "onbeat-hold";

const PAGE: &str = "page";
const OUTPUTS: &str = "outputs";
const LINEAGE: &str = "lineage";
/// The number of processes that can wait for the table of lineage at the same time. Further
/// processes get no table, and infer the cycles of items from their arrivals.
const MAX_WAITING: usize = 64;

/// An output that the library [`LIBRARY`] holds back, or an input that it throttles. It is
/// identified by the full name of its topic and the full name of its node.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The index of the output's slots in the page.
    pub number: usize,
    /// The rule that decides which messages leave, and when.
    pub kind: Kind,
    /// The policy for messages that missed the slots of their own execution.
    pub overshoot: Overshoot,
    pub node: String,
    pub topic: String,
}

/// Writes the shared page and the list of outputs to a directory. Returns the page's writer. The
/// library holds no messages until the writer has written a table of slots and a heartbeat.
pub fn write(directory: &Path, outputs: &[Output]) -> io::Result<PageWriter> {
    let mut list = String::new();
    for Output {
        number,
        kind,
        overshoot,
        node,
        topic,
    } in outputs
    {
        let kind = match kind {
            Kind::Shape => "output",
            Kind::Throttle => "input",
        };
        let policy = match overshoot {
            Overshoot::Carry => "carry",
            Overshoot::Drop => "drop",
            Overshoot::Stop => "stop",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(list, "{number} {kind} {policy} {node} {topic}");
    }
    let path = directory.join(OUTPUTS);
    std::fs::write(&path, list)?;
    // Whatever the umask says: the application may run as another user.
    std::fs::set_permissions(&path, Permissions::from_mode(0o644))?;
    let page = PageWriter::in_file(&directory.join(PAGE))?;
    page.set_pass_through(true);
    Ok(page)
}

/// The server that gives the table of lineage to the processes that request it.
#[derive(Debug)]
pub struct LineageGiver {
    listener: UnixListener,
    waiting: Vec<UnixStream>,
}

impl LineageGiver {
    /// Opens a socket in the directory of the library's files, on which processes request the table
    /// of lineage. `user` is the user of the application (uid, gid), if it differs from the user of
    /// this process.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error.
    pub fn new(directory: &Path, user: Option<(u32, u32)>) -> io::Result<LineageGiver> {
        let path = directory.join(LINEAGE);
        let listener = UnixListener::bind(&path)?;
        listener.set_nonblocking(true)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(&path, Some(uid), Some(gid))?;
        }
        Ok(LineageGiver {
            listener,
            waiting: Vec::new(),
        })
    }

    /// Accepts new requests of processes, and answers all requests once there is a table. Does not
    /// wait.
    pub fn poll(&mut self, table: Option<BorrowedFd<'_>>) {
        // A process that connects all the time keeps nobody here.
        for _ in 0..MAX_WAITING {
            let Ok((stream, _)) = self.listener.accept() else {
                break;
            };
            if self.waiting.len() < MAX_WAITING {
                self.waiting.push(stream);
            }
        }
        if let Some(table) = table {
            for stream in self.waiting.drain(..) {
                // A process that has ended needs no table.
                let _ = give(&stream, table);
            }
        }
    }
}

fn give(stream: &UnixStream, table: BorrowedFd<'_>) -> rustix::io::Result<usize> {
    let fds = [table];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(stream, &[io::IoSlice::new(&[0])], &mut control, flags)
}
