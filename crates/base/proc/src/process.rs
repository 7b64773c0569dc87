//! Processes and threads: ids, names, command lines, environments.

use crate::reader::{Reader, Silent};
use crate::stat::Stat;
use crate::status::Status;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Name and value of an environment variable.
pub type Variable = (OsString, OsString);

/// Ids of all processes, in no certain order.
pub fn processes() -> Vec<u32> {
    numbered(Path::new("/proc"))
}

/// Ids of a process's threads, in the order in which the kernel lists them; empty if it is gone.
pub fn threads(pid: u32) -> Vec<u32> {
    numbered(Path::new(&format!("/proc/{pid}/task")))
}

/// How many threads a process has, without listing them; 0 if it is gone.
pub fn thread_count(pid: u32) -> u64 {
    // A directory has a link for itself, one from above and one from each directory in it.
    fs::metadata(format!("/proc/{pid}/task")).map_or(0, |m| m.nlink().saturating_sub(2))
}

/// Parent of a process; `None` if it is gone.
pub fn parent(pid: u32) -> Option<u32> {
    Some(Stat::of(pid)?.parent)
}

/// Whether a process runs. One that has ended and that its parent has not waited for does not.
pub fn is_alive(pid: u32) -> bool {
    Stat::of(pid).is_some_and(|stat| !stat.has_ended())
}

/// `pid` and all processes below it, each before its children.
pub fn tree(pid: u32) -> Vec<u32> {
    let children: Vec<(u32, u32)> = processes()
        .into_iter()
        .filter_map(|child| Some((parent(child)?, child)))
        .collect();
    descendants(pid, &children)
}

/// The tree below `root` in pairs of parent and child.
fn descendants(root: u32, children: &[(u32, u32)]) -> Vec<u32> {
    let mut tree = vec![root];
    let mut at = 0;
    while let Some(&above) = tree.get(at) {
        for &(parent, child) in children {
            // A reused id must not make a circle.
            if parent == above && !tree.contains(&child) {
                tree.push(child);
            }
        }
        at += 1;
    }
    tree
}

/// Name of a thread (`comm`), without the line end. For a process's own name, give its id twice.
/// `None` if it is gone.
pub fn thread_name(pid: u32, tid: u32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    Some(String::from_utf8_lossy(name).into_owned())
}

/// Bytes of a command line that are read: a process may put it anywhere in its memory, and make it
/// as long as that.
const COMMAND_MAX: usize = 64 << 10;
/// Bytes of an environment that are read: more than the kernel accepts for a new program.
const ENVIRONMENT_MAX: u64 = 8 << 20;

/// The first bytes of a file in /proc.
fn first_bytes(path: &str, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Command line of a process, words joined by blanks, up to 64 KiB; empty for a kernel thread, `None`
/// if it is gone.
pub fn command_line(pid: u32, reader: &mut Reader) -> Result<Option<String>, Silent> {
    let bytes = reader.file(&format!("/proc/{pid}/cmdline"), 0, COMMAND_MAX)?;
    Ok(bytes.ok().map(|bytes| {
        let text = String::from_utf8_lossy(&bytes);
        text.trim_end_matches('\0').replace('\0', " ")
    }))
}

/// Variables that a process was started with, in their order. Fails where the caller may not read
/// them, or where they are longer than 8 MiB.
pub fn environment(pid: u32) -> io::Result<Vec<Variable>> {
    let bytes = first_bytes(&format!("/proc/{pid}/environ"), ENVIRONMENT_MAX)?;
    match bytes.len() as u64 == ENVIRONMENT_MAX {
        true => Err(io::Error::other("its environment is longer than 8 MiB")),
        false => Ok(parse_environment(&bytes)),
    }
}

/// The variables in the bytes of `/proc/PID/environ`. Entries without a name or without `=` are
/// left out.
pub fn parse_environment(bytes: &[u8]) -> Vec<Variable> {
    let variable = |text: &[u8]| {
        let at = text.iter().position(|&b| b == b'=').filter(|&at| at > 0)?;
        let part = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        Some((part(&text[..at]), part(&text[at + 1..])))
    };
    bytes.split(|&b| b == 0).filter_map(variable).collect()
}

/// User and group of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// The one user and group of a process. `None` if it is gone, or where its real, effective, saved
/// and file-system ids differ: it is between two users then, and belongs to neither.
pub fn user(pid: u32) -> Option<User> {
    // Not the owner of /proc/PID, which is the effective one alone.
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

/// Entries of a directory whose names are numbers.
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
    fn the_own_process_is_found() {
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
        // SAFETY: cannot fail.
        let ids = unsafe { (libc::geteuid(), libc::getegid()) };
        assert_eq!(user(own).map(|u| (u.uid, u.gid)), Some(ids));
    }

    #[test]
    fn a_process_that_is_gone_is_nothing() {
        let gone = u32::MAX - 1;
        assert!(!is_alive(gone) && threads(gone).is_empty() && thread_count(gone) == 0);
        assert_eq!(parent(gone), None);
        assert_eq!(thread_name(gone, gone), None);
        assert!(environment(gone).is_err() && user(gone).is_none());
        assert_eq!(tree(gone), [gone]);
    }

    #[test]
    fn a_child_that_nobody_waited_for_is_not_alive() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while is_alive(child.id()) {
            std::thread::yield_now();
        }
        assert!(Stat::of(child.id()).is_some_and(|s| s.has_ended()));
        child.wait().unwrap();
        assert!(!is_alive(child.id()));
    }

    /// A program with root's set-user-id bit has root's rights and its caller's environment.
    #[test]
    fn a_process_between_two_users_is_neithers() {
        // SAFETY: cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            println!("skipped: not root: a process cannot be between two users");
            return;
        }
        const NOBODY: u32 = 65534;
        let child = |uids: [u32; 3]| {
            // SAFETY: the child makes system calls only, until it is killed.
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
            // SAFETY: plain system calls on a child.
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
        // Other tests' threads come and go: for a while both must agree.
        let agree = (0..1000).any(|_| thread_count(own) == threads(own).len() as u64);
        assert!(agree && before > 0);
        drop(stop);
        let _ = thread.join();
    }

    #[test]
    fn a_tree_ends_also_where_ids_were_reused() {
        let children = [(1, 2), (2, 3), (1, 4), (3, 1), (9, 10)];
        assert_eq!(descendants(1, &children), [1, 2, 4, 3]);
    }

    #[test]
    fn variables_may_hold_anything() {
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
