//! Mounted cgroup hierarchies, and the cgroup that a thread is in.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A cgroup hierarchy that is mounted as a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The directory at which the hierarchy is mounted, as the table of mounts gives it.
    pub point: PathBuf,
    /// The directory within the hierarchy that is mounted at `point`. In a container it is not `/`.
    pub root: PathBuf,
    /// The version 1 controller that identifies the hierarchy in `/proc/PID/cgroup`, for example
    /// `freezer`. Empty for version 2.
    pub controller: &'static str,
}

/// Returns the mounted cgroup hierarchies that have a freezer: the one of version 1, then the one
/// of version 2. `table` is `/proc/self/mountinfo` or a file of the same format.
pub fn freezers(table: &Path) -> io::Result<(Option<Mount>, Option<Mount>)> {
    Ok(parse_freezers(&fs::read_to_string(table)?))
}

/// Finds the mounted cgroup hierarchies with a freezer (version 1, then version 2) in the text of a
/// table of mounts.
pub fn parse_freezers(table: &str) -> (Option<Mount>, Option<Mount>) {
    let (mut v1, mut v2) = (None, None);
    for line in table.lines() {
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
    (v1, v2)
}

/// Finds the version 1 cgroup hierarchy of a controller in the text of a table of mounts. Returns
/// `None` if it is not mounted.
pub fn parse_controller(table: &str, controller: &'static str) -> Option<Mount> {
    table.lines().find_map(|line| {
        let (mount, super_block) = line.split_once(" - ")?;
        let mut fields = super_block.split(' ');
        let (kind, options) = (fields.next()?, fields.nth(1)?);
        let mut places = mount.split(' ').skip(3);
        let (root, point) = (places.next()?, places.next()?);
        let is_it = kind == "cgroup" && options.split(',').any(|o| o == controller);
        is_it.then(|| Mount {
            point: unescape(point),
            root: unescape(root),
            controller,
        })
    })
}

/// Returns the mount points of the cgroup hierarchies whose groups can be paused or killed as a
/// whole: the version 1 freezer, the hierarchy in which systemd names its services, and version 2.
/// `table` is `/proc/self/mountinfo` or a file of the same format.
pub fn grouping(table: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(parse_grouping(&fs::read_to_string(table)?))
}

/// Parses the text of a table of mounts. Returns the mount points of the hierarchies whose groups
/// can be paused or killed as a whole, like [`grouping`].
pub fn parse_grouping(table: &str) -> Vec<PathBuf> {
    let groups = |line: &str| {
        let (mount, super_block) = line.split_once(" - ")?;
        let mut fields = super_block.split(' ');
        let (kind, options) = (fields.next()?, fields.nth(1)?);
        let mut options = options.split(',');
        let is_grouping = match kind {
            "cgroup" => options.any(|o| o == "freezer" || o == "name=systemd"),
            "cgroup2" => true,
            _ => false,
        };
        is_grouping.then_some(unescape(mount.split(' ').nth(4)?))
    };
    table.lines().filter_map(groups).collect()
}

impl Mount {
    /// Returns the directory of the cgroup that a thread is in. Fails if the thread has ended, or
    /// if its cgroup is outside of this hierarchy or not mounted here.
    pub fn of_thread(&self, tid: u32) -> io::Result<PathBuf> {
        self.directory(&fs::read_to_string(format!("/proc/{tid}/cgroup"))?)
    }

    fn directory(&self, text: &str) -> io::Result<PathBuf> {
        let path = text
            .lines()
            .find_map(|line| {
                let (_, rest) = line.split_once(':')?;
                let (controllers, path) = rest.split_once(':')?;
                let found = controllers.split(',').any(|c| c == self.controller);
                found.then_some(path)
            })
            .ok_or_else(|| io::Error::other("the thread has no cgroup in this hierarchy"))?;
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        let outside =
            || io::Error::other(format!("the thread's cgroup {path:?} is not mounted here"));
        let inside = Path::new(path)
            .strip_prefix(&self.root)
            .map_err(|_| outside())?;
        if inside.components().any(|c| c.as_os_str() == "..") {
            return Err(outside());
        }
        Ok(self.point.join(inside))
    }
}

/// A cgroup that the user named by its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    hierarchy: String,
    path: PathBuf,
}

impl Cgroup {
    /// Finds the cgroup of a directory in the text of a table of mounts, or `None` if no cgroup
    /// hierarchy contains the directory. The directory's path must not contain symbolic links.
    pub fn of_directory(directory: &Path, table: &str) -> Option<Cgroup> {
        let mounted = |line: &str| {
            let (mount, super_block) = line.split_once(" - ")?;
            let mut places = mount.split(' ').skip(3);
            let (root, point) = (places.next()?, unescape(places.next()?));
            let inside = directory.strip_prefix(&point).ok()?;
            let mut fields = super_block.split(' ');
            let hierarchy = match (fields.next()?, fields.nth(1)?) {
                ("cgroup2", _) => Some(String::new()),
                // The name stands after the options of the file system.
                ("cgroup", options) => options.split(',').next_back().map(str::to_owned),
                _ => None,
            };
            let path = unescape(root).join(inside);
            Some((point, hierarchy.map(|hierarchy| Cgroup { hierarchy, path })))
        };
        // The innermost mount hides the others. Of several mounts at one place, the last hides the
        // others.
        let mounts = table.lines().filter_map(mounted);
        mounts
            .max_by_key(|(point, _)| point.components().count())?
            .1
    }

    /// Returns whether a process is in this cgroup or below it. `text` is the content of the
    /// process's `/proc/PID/cgroup`.
    pub fn has(&self, text: &str) -> bool {
        text.lines().any(|line| {
            let fields = line
                .split_once(':')
                .and_then(|(_, rest)| rest.split_once(':'));
            fields.is_some_and(|(names, path)| {
                let path = path.strip_suffix(" (deleted)").unwrap_or(path);
                let is_outside = path.split('/').any(|part| part == "..");
                names.split(',').any(|name| name == self.hierarchy)
                    && Path::new(path).starts_with(&self.path)
                    && !is_outside
            })
        })
    }
}

/// Reads the ids from a file with one id per line, for example `cgroup.procs`. Returns an empty
/// list if the file no longer exists.
pub fn ids(file: &Path) -> Vec<u32> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(|l| l.trim().parse().ok()).collect()
}

/// Decodes a path in the table of mounts, where octal numbers stand for blanks and backslashes.
fn unescape(text: &str) -> PathBuf {
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
    OsString::from_vec(out).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_file_system_type_and_options() {
        let text = "22 27 0:21 / /proc rw,relatime - proc proc rw\n\
            31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
            37 31 0:34 /a\\040b /sys/fs/cgroup/free\\040zer rw,relatime shared:4 - cgroup none rw,freezer\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n\
            \n nonsense \\999\n";
        let (v1, v2) = parse_freezers(text);
        let v1 = v1.unwrap();
        assert_eq!(v1.point, Path::new("/sys/fs/cgroup/free zer"));
        assert_eq!(v1.root, Path::new("/a b"));
        assert_eq!(v2.unwrap().point, Path::new("/sys/fs/cgroup/unified"));
        assert_eq!(parse_freezers(""), (None, None));
        assert!(freezers(Path::new("/proc/self/mountinfo")).is_ok());
        let grouping = parse_grouping(text);
        let expected = ["/sys/fs/cgroup/free zer", "/sys/fs/cgroup/unified"];
        assert_eq!(grouping, expected.map(PathBuf::from));
        assert_eq!(parse_grouping(""), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_cgroup_path_is_resolved_below_its_mount() {
        let mount = |controller| Mount {
            point: "/sys/fs/cgroup".into(),
            root: "/box".into(),
            controller,
        };
        let text = "5:cpu,freezer:/box/a:b (deleted)\n0::/box/c\n";
        let of = |controller, text: &str| mount(controller).directory(text).ok();
        assert_eq!(of("freezer", text), Some("/sys/fs/cgroup/a:b".into()));
        assert_eq!(of("", text), Some("/sys/fs/cgroup/c".into()));
        assert_eq!(of("pids", text), None);
        for outside in ["0::/elsewhere\n", "0::/box/../x\n", "", "0:\n"] {
            assert_eq!(of("", outside), None, "{outside:?}");
        }
    }

    #[test]
    fn a_cgroup_contains_processes_of_its_directory_and_below() {
        let table = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
            37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime shared:4 - cgroup none rw,freezer\n\
            38 31 0:35 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
            41 31 0:38 /box /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n\
            42 41 0:39 / /sys/fs/cgroup/unified/over rw - tmpfs tmpfs rw\n nonsense\n";
        let of = |path: &str| Cgroup::of_directory(Path::new(path), table);
        for outside in [
            "/",
            "/tmp",
            "/sys/fs/cgroup",
            "/sys/fs/cgroup/freezers",
            "/sys/fs/cgroup/unified/over/x",
        ] {
            assert_eq!(of(outside), None, "{outside}");
        }
        let v1 = of("/sys/fs/cgroup/freezer/a").unwrap();
        assert!(v1.has("5:cpu,freezer:/a\n0::/b\n") && v1.has("5:freezer:/a/b (deleted)\n"));
        for outside in [
            "5:freezer:/ab\n",
            "5:freezer:/\n",
            "5:pids:/a\n",
            "0::/a\n",
            "",
            "freezer",
            "5:freezer:/a/../b",
        ] {
            assert!(!v1.has(outside), "{outside:?}");
        }
        let v2 = of("/sys/fs/cgroup/unified/c").unwrap();
        assert!(v2.has("5:freezer:/x\n0::/box/c/d\n") && !v2.has("0::/c\n"));
        assert!(of("/sys/fs/cgroup/systemd")
            .unwrap()
            .has("1:name=systemd:/any\n"));
    }

    #[test]
    fn the_ids_in_a_cgroup_file_are_read_line_by_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ids");
        fs::write(&file, "1\n 22 \nx\n\n3").unwrap();
        assert_eq!(ids(&file), [1, 22, 3]);
        fs::remove_file(&file).unwrap();
        assert!(ids(&file).is_empty());
    }
}
