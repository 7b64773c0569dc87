//! Processes and threads: their ids, names, command lines, environments and users.

use crate::reader::{Reader, Silent};
use crate::stat::Stat;
use crate::status::Status;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The name and the value of an environment variable, which may contain any bytes.
pub type Variable = (OsString, OsString);

/// Lists the ids of all processes in `/proc`, in no particular order.
pub fn processes() -> Vec<u32> {
    numbered(Path::new("/proc"))
}

/// Lists the ids of a process's threads in the kernel's order. Returns an empty list if the process
/// has ended.
pub fn threads(pid: u32) -> Vec<u32> {
    numbered(Path::new(&format!("/proc/{pid}/task")))
}

/// Counts the threads of a process without listing them. Returns 0 if the process has ended.
pub fn thread_count(pid: u32) -> u64 {
    // The link count of the directory is two plus the number of directories in it.
    fs::metadata(format!("/proc/{pid}/task")).map_or(0, |m| m.nlink().saturating_sub(2))
}

/// Returns the id of a process's parent, or `None` if the process has ended.
pub fn parent(pid: u32) -> Option<u32> {
    Some(Stat::of(pid)?.parent)
}

/// Returns whether a process is running. Returns false for a zombie: a process that has ended,
/// while its parent has not read its exit status yet.
pub fn is_alive(pid: u32) -> bool {
    Stat::of(pid).is_some_and(|stat| !stat.has_ended())
}

/// Lists `pid` and all its descendants, each process before its children.
pub fn tree(pid: u32) -> Vec<u32> {
    let children: Vec<(u32, u32)> = processes()
        .into_iter()
        .filter_map(|child| Some((parent(child)?, child)))
        .collect();
    descendants(pid, &children)
}

fn descendants(root: u32, children: &[(u32, u32)]) -> Vec<u32> {
    let mut tree = vec![root];
    let mut at = 0;
    while let Some(&above) = tree.get(at) {
        for &(parent, child) in children {
            // The check prevents an endless loop after an id was reused.
            if parent == above && !tree.contains(&child) {
                tree.push(child);
            }
        }
        at += 1;
    }
    tree
}

/// Returns the name of a thread (`comm`), or `None` if the thread has ended. For the name of a
/// process, give the process's id twice.
pub fn thread_name(pid: u32, tid: u32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    Some(String::from_utf8_lossy(name).into_owned())
}

/// The largest part of a command line that onbeat reads, in bytes. A process may give its command
/// line any length.
const COMMAND_MAX: usize = 64 << 10;
/// The largest environment that onbeat reads, in bytes. When a program starts, the kernel accepts
/// only a smaller environment.
const ENVIRONMENT_MAX: u64 = 8 << 20;

fn first_bytes(path: &str, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the command line of a process, joined by blanks and cut off after 64 KiB. Returns an
/// empty text for a kernel thread, and `None` if the process has ended.
pub fn command_line(pid: u32, reader: &mut Reader) -> Result<Option<String>, Silent> {
    let bytes = reader.file(&format!("/proc/{pid}/cmdline"), 0, COMMAND_MAX)?;
    Ok(bytes.ok().map(|bytes| {
        let text = String::from_utf8_lossy(&bytes);
        text.trim_end_matches('\0').replace('\0', " ")
    }))
}

/// Reads the environment variables that a process was started with, in order. Fails if the caller
/// may not read them or if they are longer than 8 MiB.
pub fn environment(pid: u32) -> io::Result<Vec<Variable>> {
    let bytes = first_bytes(&format!("/proc/{pid}/environ"), ENVIRONMENT_MAX)?;
    match bytes.len() as u64 == ENVIRONMENT_MAX {
        true => Err(io::Error::other(
            "the environment of the process is longer than 8 MiB",
        )),
        false => Ok(parse_environment(&bytes)),
    }
}

/// Parses the bytes of `/proc/PID/environ`. Leaves out entries without a name or without `=`.
pub fn parse_environment(bytes: &[u8]) -> Vec<Variable> {
    let variable = |text: &[u8]| {
        let at = text.iter().position(|&b| b == b'=').filter(|&at| at > 0)?;
        let part = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        Some((part(&text[..at]), part(&text[at + 1..])))
    };
    bytes.split(|&b| b == 0).filter_map(variable).collect()
}

/// The user id and group id that a process runs as. The real, effective, saved and file-system ids
/// of the process are the same.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

/// Returns the user and group of a process, or `None` if the process has ended. Also returns `None`
/// if the real, effective, saved and file-system ids differ, because the process then does not
/// belong to one user.
pub fn user(pid: u32) -> Option<User> {
    // The owner of /proc/PID shows only the effective user.
    let status = Status::of(pid).ok()?;
    let one = |name: &str| {
        let mut ids = status.field(name)?.split_ascii_whitespace();
        let first: u32 = ids.next()?.parse().ok()?;
        ids.all(|id| id.parse() == Ok(first)).then_some(first)
    };
    Some(User {
        uid: one("Uid")?,
        gid: one("Gid")?,
    })
}

fn numbered(directory: &Path) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_process_and_its_facts_are_found() {
        let own = std::process::id();
        assert!(processes().contains(&own));
        assert!(threads(own).contains(&own));
        assert!(is_alive(own));
        assert!(tree(parent(own).unwrap()).contains(&own));
        assert!(!thread_name(own, own).unwrap().is_empty());
        let mut reader = Reader::new(std::time::Duration::from_secs(60));
        let mut command_line = |pid| command_line(pid, &mut reader).unwrap();
        assert!(command_line(own).unwrap().contains("proc"));
        assert_eq!(command_line(u32::MAX - 1), None);
        assert!(environment(own).unwrap().iter().any(|(n, _)| n == "PATH"));
        // SAFETY: both calls cannot fail and take no pointers.
        let ids = unsafe { (libc::geteuid(), libc::getegid()) };
        assert_eq!(user(own).map(|u| (u.uid, u.gid)), Some(ids));
    }

    #[test]
    fn an_ended_process_gives_empty_results() {
        let gone = u32::MAX - 1;
        assert!(!is_alive(gone) && threads(gone).is_empty() && thread_count(gone) == 0);
        assert_eq!(parent(gone), None);
        assert_eq!(thread_name(gone, gone), None);
        assert!(environment(gone).is_err() && user(gone).is_none());
        assert_eq!(tree(gone), [gone]);
    }

    #[test]
    fn a_zombie_is_not_alive() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while is_alive(child.id()) {
            std::thread::yield_now();
        }
        assert!(Stat::of(child.id()).is_some_and(|s| s.has_ended()));
        child.wait().unwrap();
        assert!(!is_alive(child.id()));
    }

    #[test]
    fn a_process_whose_user_ids_differ_has_no_user() {
        // SAFETY: `geteuid` cannot fail and takes no pointers.
        if unsafe { libc::geteuid() } != 0 {
            println!("skipped: only root can make a process with different user ids");
            return;
        }
        const NOBODY: u32 = 65534;
        let child = |uids: [u32; 3]| {
            // SAFETY: the child only makes system calls until it is killed.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    libc::setresuid(uids[0], uids[1], uids[2]);
                    loop {
                        libc::pause();
                    }
                }
                child as u32
            }
        };
        for (uids, expected) in [
            ([NOBODY; 3], Some(NOBODY)),
            ([NOBODY, 0, 0], None),
            ([NOBODY, 0, NOBODY], None),
            ([0, 0, NOBODY], None),
        ] {
            let child = child(uids);
            let text = format!("Uid:\t{}\t{}\t{}", uids[0], uids[1], uids[2]);
            let path = format!("/proc/{child}/status");
            while !fs::read_to_string(&path).unwrap().contains(&text) {
                std::thread::yield_now();
            }
            let found = user(child).map(|u| u.uid);
            // SAFETY: the system calls affect only the child of this test.
            unsafe {
                libc::kill(child as i32, libc::SIGKILL);
                libc::waitpid(child as i32, std::ptr::null_mut(), 0);
            }
            assert_eq!(found, expected, "{uids:?}");
        }
    }

    #[test]
    fn threads_are_counted_without_listing_them() {
        let own = std::process::id();
        let (stop, wait) = std::sync::mpsc::channel::<()>();
        let before = thread_count(own);
        let thread = std::thread::spawn(move || wait.recv());
        // Threads of other tests start and end, so that the two counts may differ for a while.
        let agree = (0..1000).any(|_| thread_count(own) == threads(own).len() as u64);
        assert!(agree && before > 0);
        drop(stop);
        let _ = thread.join();
    }

    #[test]
    fn the_search_in_a_process_tree_with_reused_ids_ends() {
        let children = [(1, 2), (2, 3), (1, 4), (3, 1), (9, 10)];
        assert_eq!(descendants(1, &children), [1, 2, 4, 3]);
    }

    #[test]
    fn environment_variables_may_contain_any_bytes() {
        let found = parse_environment(b"A=1\0B=x=y z\0\0=C:=x\0nothing\0E=\0\xff=\xfe");
        let found: Vec<(Vec<u8>, Vec<u8>)> = found
            .into_iter()
            .map(|(n, v)| (n.into_vec(), v.into_vec()))
            .collect();
        let expected: [(&[u8], &[u8]); 4] = [
            (b"A", b"1"),
            (b"B", b"x=y z"),
            (b"E", b""),
            (b"\xff", b"\xfe"),
        ];
        assert_eq!(
            found,
            expected.map(|(n, v)| (n.to_vec(), v.to_vec())).to_vec()
        );
    }
}
