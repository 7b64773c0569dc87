//! What /proc tells of threads, cgroups and mounts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A thread, told apart from a later one with its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Its process.
    pub(crate) tgid: u32,
    /// When it was started, in ticks since boot.
    pub(crate) start: u64,
}

/// Who the thread is; none where it is gone (a zombie is, too).
pub(crate) fn identity(tid: u32) -> Option<Identity> {
    let stat = fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    // The name may hold anything, also blanks and brackets.
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    let start = fields.nth(18)?.parse().ok()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let tgid = status.lines().find_map(|l| l.strip_prefix("Tgid:"))?;
    Some(Identity {
        tgid: tgid.trim().parse().ok()?,
        start,
    })
}

/// A mounted cgroup hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Where it is mounted.
    pub(crate) point: PathBuf,
    /// Which of its directories is mounted there.
    root: PathBuf,
    /// How its lines in /proc/PID/cgroup begin, after their number.
    controller: &'static str,
}

/// The hierarchies with a freezer: of version 1 and 2.
pub(crate) fn mounts(table: &Path) -> io::Result<(Option<Mount>, Option<Mount>)> {
    let text = fs::read_to_string(table)?;
    let (mut v1, mut v2) = (None, None);
    for line in text.lines() {
        let mut fields = line.split(' ');
        let (Some(root), Some(point)) = (fields.nth(3), fields.next()) else {
            continue;
        };
        let mut rest = fields.skip_while(|f| *f != "-").skip(1);
        let (Some(kind), Some(_), Some(options)) = (rest.next(), rest.next(), rest.next()) else {
            continue;
        };
        let mount = |controller| {
            Some(Mount {
                point: unescape(point),
                root: unescape(root),
                controller,
            })
        };
        match kind {
            "cgroup" if v1.is_none() && options.split(',').any(|o| o == "freezer") => {
                v1 = mount("freezer");
            }
            "cgroup2" if v2.is_none() => v2 = mount(""),
            _ => {}
        }
    }
    Ok((v1, v2))
}

/// Blanks and backslashes stand as octal numbers in the table of mounts.
fn unescape(text: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let code = bytes
            .get(i + 1..i + 4)
            .filter(|_| bytes[i] == b'\\')
            .and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        out.push(code.unwrap_or(bytes[i]));
        i += if code.is_some() { 4 } else { 1 };
    }
    std::ffi::OsString::from_vec(out).into()
}

impl Mount {
    /// Directory of the thread's cgroup.
    pub(crate) fn of_thread(&self, tid: u32) -> io::Result<PathBuf> {
        let text = fs::read_to_string(format!("/proc/{tid}/cgroup"))?;
        let path = text
            .lines()
            .find_map(|line| {
                let (_, rest) = line.split_once(':')?;
                let (controllers, path) = rest.split_once(':')?;
                let found = controllers.split(',').any(|c| c == self.controller);
                found.then_some(path)
            })
            .ok_or_else(|| io::Error::other("it is in no cgroup of this hierarchy"))?;
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        let outside = || io::Error::other(format!("its cgroup {path:?} is not mounted here"));
        let inside = Path::new(path)
            .strip_prefix(&self.root)
            .map_err(|_| outside())?;
        if inside.components().any(|c| c.as_os_str() == "..") {
            return Err(outside());
        }
        Ok(self.point.join(inside))
    }
}

/// Threads of a process.
pub(crate) fn threads(tgid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{tgid}/task")).into_iter();
    let ids = tasks.flatten().flatten();
    ids.filter_map(|t| t.file_name().to_str()?.parse().ok())
        .collect()
}

/// Ids in a file with one a line.
pub(crate) fn ids(file: &Path) -> Vec<u32> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(|l| l.trim().parse().ok()).collect()
}

/// Share of a CPU that real-time threads may use; none where there is no limit.
pub(crate) fn real_time_share() -> Option<f64> {
    let read = |name: &str| -> Option<i64> {
        let text = fs::read_to_string(format!("/proc/sys/kernel/sched_rt_{name}_us")).ok()?;
        text.trim().parse().ok()
    };
    let (runtime, period) = (read("runtime")?, read("period")?);
    (runtime >= 0 && period > 0).then(|| runtime as f64 / period as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_their_kind_and_options() {
        let dir = std::env::temp_dir().join(format!("onbeat-mounts-{}", std::process::id()));
        let text = "22 27 0:21 / /proc rw,relatime - proc proc rw\n\
            31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
            37 31 0:34 /a\\040b /sys/fs/cgroup/free\\040zer rw,relatime shared:4 - cgroup none rw,freezer\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n\
            \n nonsense \\999\n";
        fs::write(&dir, text).unwrap();
        let (v1, v2) = mounts(&dir).unwrap();
        fs::remove_file(&dir).unwrap();
        let v1 = v1.unwrap();
        assert_eq!(v1.point, Path::new("/sys/fs/cgroup/free zer"));
        assert_eq!(v1.root, Path::new("/a b"));
        assert_eq!(v2.unwrap().point, Path::new("/sys/fs/cgroup/unified"));
    }

    #[test]
    fn a_thread_has_an_identity_while_it_lives() {
        let (send, receive) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            send.send(crate::sys::gettid()).unwrap();
            let _ = wait.recv();
        });
        let tid = receive.recv().unwrap();
        let found = identity(tid).unwrap();
        assert_eq!(found.tgid, std::process::id());
        assert_eq!(identity(tid), Some(found));
        drop(end);
        thread.join().unwrap();
        // The kernel takes its entry away a moment after the join.
        while identity(tid) == Some(found) {
            std::thread::yield_now();
        }
    }
}
