//! Finds and reads the status pages of all processes of this machine, through their descriptors.

use super::layout::{parse, LinkStatus, PAGE_BYTES};
use super::page::NAME;
use nix::libc;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The most descriptors of one process that onbeat examines. A process may have a million
/// descriptors.
const MOST_DESCRIPTORS: usize = 65_536;

/// The end of a link, and the process that has it.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub pid: u32,
    pub uid: u32,
    /// The process's name (`comm`), which is untrusted.
    pub program: String,
    /// The content of the end's page, which is untrusted.
    pub status: LinkStatus,
}

/// The ends of links that processes of this machine have.
#[derive(Debug, Default)]
pub struct Survey {
    /// The ends, ordered by process.
    pub links: Vec<Found>,
    /// The number of processes that the calling process may not examine. These processes belong to
    /// other users or have more rights.
    pub hidden: usize,
    /// The number of status pages that are damaged or that another version of onbeat has written.
    pub foreign: usize,
}

/// Finds the links of all processes that the calling process may examine. Not real-time safe.
pub fn survey() -> Survey {
    let mut found = Survey::default();
    let mut seen = Vec::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pid = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let mut pids: Vec<u32> = processes.filter_map(pid).collect();
    pids.sort_unstable();
    for pid in pids {
        look_into(pid, &mut found, &mut seen);
    }
    found
}

fn look_into(pid: u32, found: &mut Survey, seen: &mut Vec<(u64, u64)>) {
    let process = Path::new("/proc").join(pid.to_string());
    let links = match fs::read_dir(process.join("fd")) {
        Ok(links) => links,
        Err(e) if e.kind() == ErrorKind::PermissionDenied => {
            found.hidden += 1;
            return;
        }
        // The process has ended.
        Err(_) => return,
    };
    for link in links.flatten().take(MOST_DESCRIPTORS) {
        let Some(file) = open(&link.path()) else {
            continue;
        };
        let Ok(about) = file.metadata() else {
            continue;
        };
        let inode = (about.dev(), about.ino());
        if !about.is_file() || seen.contains(&inode) {
            continue;
        }
        seen.push(inode);
        match content(&file).as_deref().and_then(parse) {
            Some(status) => found.links.push(Found {
                pid,
                uid: about.uid(),
                program: program(&process),
                status,
            }),
            None => found.foreign += 1,
        }
    }
}

/// Opens a descriptor if its target is named like a status page. Another program may use that name,
/// so onbeat reads the content and never maps it.
fn open(path: &Path) -> Option<File> {
    let target = format!("/memfd:{NAME} (deleted)");
    if fs::read_link(path).ok()?.as_os_str() != target.as_str() {
        return None;
    }
    // The descriptor may have changed meanwhile, to a pipe or a terminal.
    let mut options = File::options();
    options
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    options.open(path).ok()
}

fn content(file: &File) -> Option<Vec<u8>> {
    let mut bytes = vec![0; PAGE_BYTES];
    file.read_exact_at(&mut bytes, 0).ok()?;
    Some(bytes)
}

fn program(process: &Path) -> String {
    let mut name = Vec::new();
    let file = File::open(process.join("comm"));
    let read = file.and_then(|file| file.take(64).read_to_end(&mut name));
    let name = String::from_utf8_lossy(if read.is_ok() { &name } else { b"?" });
    name.trim_end().to_string()
}
