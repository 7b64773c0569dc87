//! What /proc tells of processes and threads.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file that a process has mapped executable or readable, by the identity that uprobes use.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MappedFile {
    /// Device and inode, as `stat` tells them.
    pub id: (u64, u64),
    /// Path in the process's own mount namespace.
    pub path: String,
    /// Path by which we can open it: through the process's root.
    pub reachable: PathBuf,
}

/// Paths of the files in the text of `/proc/PID/maps`, each once, in order.
pub fn mapped_paths(maps: &str) -> Vec<&str> {
    let mut paths: Vec<&str> = Vec::new();
    let mut seen = HashSet::new();
    for line in maps.lines() {
        // address perms offset dev inode path: the path may hold spaces.
        let mut rest = line;
        for _ in 0..5 {
            rest = rest.trim_start();
            rest = rest.find(' ').map_or("", |at| &rest[at..]);
        }
        let path = rest.trim_start();
        if path.starts_with('/') && !path.ends_with(" (deleted)") && seen.insert(path) {
            paths.push(path);
        }
    }
    paths
}

/// Last part of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The mapped files of a process whose path `wanted` accepts.
pub fn mapped_files(pid: u32, wanted: impl Fn(&str) -> bool) -> Vec<MappedFile> {
    // Names come from the process: bytes, not necessarily text.
    let Ok(maps) = fs::read(format!("/proc/{pid}/maps")) else {
        return Vec::new();
    };
    let maps = String::from_utf8_lossy(&maps);
    mapped_paths(&maps)
        .into_iter()
        .filter(|path| wanted(path))
        .filter_map(|path| {
            let reachable = PathBuf::from(format!("/proc/{pid}/root{path}"));
            let meta = fs::metadata(&reachable).ok()?;
            Some(MappedFile {
                id: (meta.dev(), meta.ino()),
                path: path.to_owned(),
                reachable,
            })
        })
        .collect()
}

/// The files of a directory whose path `wanted` accepts, in order.
pub fn files_in(directory: &Path, wanted: impl Fn(&str) -> bool) -> Vec<MappedFile> {
    let Ok(dir) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = dir.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
        .into_iter()
        .filter_map(|reachable| {
            let path = reachable.to_str().filter(|path| wanted(path))?.to_owned();
            let meta = fs::metadata(&reachable).ok()?;
            Some(MappedFile {
                id: (meta.dev(), meta.ino()),
                path,
                reachable,
            })
        })
        .collect()
}

/// Directories of libraries of the ROS 2 installations that this machine and environment name.
pub fn installations() -> Vec<PathBuf> {
    let prefixes = crate::user::variable("AMENT_PREFIX_PATH").unwrap_or_default();
    let mut prefixes: Vec<PathBuf> = std::env::split_paths(&prefixes).collect();
    let stock = fs::read_dir("/opt/ros").into_iter().flatten().flatten();
    prefixes.extend(stock.map(|entry| entry.path()));
    prefixes.sort();
    prefixes.dedup();
    prefixes.iter().map(|prefix| prefix.join("lib")).collect()
}

/// How many threads a process has; 0 if it is gone.
pub fn thread_count(pid: u32) -> u64 {
    // A directory has a link for itself, one from above and one from each directory in it.
    fs::metadata(format!("/proc/{pid}/task")).map_or(0, |m| m.nlink().saturating_sub(2))
}

/// Whether a process runs: one that has ended and was not waited for does not.
pub fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|s| !matches!(s, 'Z' | 'X'))
}

/// Ids of all processes.
pub fn processes() -> Vec<u32> {
    let Ok(dir) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    dir.flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Ids of a process's threads.
pub fn threads(pid: u32) -> Vec<u32> {
    let Ok(dir) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    dir.flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Command line, words joined by spaces.
pub fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    text.trim_end_matches('\0').replace('\0', " ")
}

/// Name, policy, kernel priority and affinity of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ThreadFacts {
    /// `comm`
    pub comm: String,
    /// SCHED_* number.
    pub policy: u8,
    /// Kernel priority: 0-99 real-time, 100-139 normal.
    pub priority: u8,
    /// First 64 CPUs it may run on.
    pub cpus: u64,
}

/// Reads [`ThreadFacts`]; `None` when the thread is gone.
pub fn thread_facts(pid: u32, tid: u32) -> Option<ThreadFacts> {
    let dir = format!("/proc/{pid}/task/{tid}");
    let stat = fs::read(format!("{dir}/stat")).ok()?;
    let status = fs::read(format!("{dir}/status")).unwrap_or_default();
    Some(parse_thread(
        &String::from_utf8_lossy(&stat),
        &String::from_utf8_lossy(&status),
    ))
}

fn parse_thread(stat: &str, status: &str) -> ThreadFacts {
    // The name stands in parentheses and may itself hold parentheses and spaces.
    let (open, close) = (stat.find('(').unwrap_or(0), stat.rfind(')').unwrap_or(0));
    let comm = stat.get(open + 1..close).unwrap_or_default().to_owned();
    let fields: Vec<&str> = stat
        .get(close + 1..)
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    // Numbered as in proc(5): state is field 3, priority 18, policy 41.
    let field = |n: usize| {
        fields
            .get(n - 3)
            .and_then(|f| f.parse::<i64>().ok())
            .unwrap_or(0)
    };
    let cpus = status
        .lines()
        .find_map(|l| l.strip_prefix("Cpus_allowed:"))
        .map_or(0, |mask| {
            u64::from_str_radix(
                &mask
                    .trim()
                    .replace(',', "")
                    .chars()
                    .rev()
                    .take(16)
                    .collect::<Vec<_>>()
                    .into_iter()
                    .rev()
                    .collect::<String>(),
                16,
            )
            .unwrap_or(0)
        });
    // stat shows the kernel's priority minus 100.
    ThreadFacts {
        comm,
        policy: field(41) as u8,
        priority: (field(18) + 100).clamp(0, 255) as u8,
        cpus,
    }
}

/// Parent of a process, from `/proc/PID/stat`.
pub fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    stat.get(stat.rfind(')')? + 1..)?
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

/// `pid` and everything below it.
pub fn tree(pid: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = processes()
        .into_iter()
        .filter_map(|p| Some((p, parent(p)?)))
        .collect();
    let mut tree = vec![pid];
    let mut at = 0;
    while at < tree.len() {
        let above = tree[at];
        tree.extend(
            parents
                .iter()
                .filter(|(_, up)| *up == above)
                .map(|(p, _)| *p),
        );
        at += 1;
    }
    tree
}

/// The kernel's release.
pub fn kernel_release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Does a hypervisor have this machine's CPUs? Where that cannot be told, it may.
pub fn is_virtual_machine() -> bool {
    match fs::read_to_string("/proc/cpuinfo") {
        // Only x86 says so.
        Ok(text) if cfg!(target_arch = "x86_64") => text
            .lines()
            .find(|line| line.starts_with("flags"))
            .is_none_or(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor")),
        _ => true,
    }
}

/// The machine's name.
pub fn hostname() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// The program a process runs, by the path that we can open.
pub fn executable(pid: u32) -> Option<MappedFile> {
    let link = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let path = link.to_str()?.to_owned();
    let reachable = Path::new(&format!("/proc/{pid}/root")).join(path.trim_start_matches('/'));
    let meta = fs::metadata(&reachable).ok()?;
    Some(MappedFile {
        id: (meta.dev(), meta.ino()),
        path,
        reachable,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(thread_count(u32::MAX - 1), 0);
    }

    #[test]
    fn maps_name_each_file_once_and_nothing_else() {
        let maps = "\
55d0-55d1 r-xp 00000000 fe:00 123 /usr/bin/python3.11
7f00-7f01 r--p 00000000 fe:00 77  /opt/my robot/lib/librcl.so
7f01-7f02 r-xp 00001000 fe:00 77  /opt/my robot/lib/librcl.so
7f02-7f03 rw-p 00000000 00:00 0   [heap]
7f03-7f04 rw-p 00000000 00:00 0
7f04-7f05 r-xp 00000000 fe:00 78  /opt/lib/librcl.so (deleted)
garbage";
        assert_eq!(
            mapped_paths(maps),
            ["/usr/bin/python3.11", "/opt/my robot/lib/librcl.so"]
        );
    }

    #[test]
    fn thread_facts_survive_odd_names() {
        let mut stat = String::from("12 (a) b (c) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 -51 0 1");
        for field in 21..41 {
            stat += &format!(" {field}");
        }
        stat += " 1 0";
        let facts = parse_thread(&stat, "Name:\tx\nCpus_allowed:\tffff,00000000,00000003\n");
        assert_eq!(
            facts,
            ThreadFacts {
                comm: "a) b (c".into(),
                policy: 1,
                priority: 49,
                cpus: 3
            }
        );
        assert_eq!(parse_thread("", "").comm, "");
    }

    #[test]
    fn own_process_is_seen() {
        let me = std::process::id();
        assert!(processes().contains(&me));
        assert!(threads(me).contains(&me));
        assert!(thread_facts(me, me).is_some_and(|f| f.cpus != 0 && f.priority >= 100));
        assert!(executable(me).is_some_and(|e| e.reachable.exists()));
    }
}
