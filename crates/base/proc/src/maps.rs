//! Files that processes have mapped, by the identity that uprobes use.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file that a process has mapped, or one found on disk, with its identity.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MappedFile {
    /// Device and inode, as stat(2) reports them.
    pub id: (u64, u64),
    /// Path in the process's own mount namespace; untrusted.
    pub path: String,
    /// Path by which this process can open the file: through the other's root.
    pub reachable: PathBuf,
}

impl MappedFile {
    /// The file at `reachable`, known to its process as `path`. `None` if it is not there.
    pub fn at(path: String, reachable: PathBuf) -> Option<MappedFile> {
        let meta = fs::metadata(&reachable).ok()?;
        Some(MappedFile {
            id: (meta.dev(), meta.ino()),
            path,
            reachable,
        })
    }
}

/// Paths of the files in the bytes of `/proc/PID/maps`, each once, in order. Deleted files are left
/// out.
pub fn parse_paths(maps: &[u8]) -> Vec<&Path> {
    let mut seen = HashSet::new();
    maps.split(|&b| b == b'\n')
        .filter_map(mapped_path)
        .filter(|path| seen.insert(*path))
        .map(|path| Path::new(OsStr::from_bytes(path)))
        .collect()
}

/// The file of one line.
fn mapped_path(line: &[u8]) -> Option<&[u8]> {
    // address perms offset dev inode path: the path may contain blanks.
    let mut rest = line;
    for _ in 0..5 {
        rest = rest.trim_ascii_start();
        rest = &rest[rest.iter().position(|&b| b == b' ')?..];
    }
    let path = rest.trim_ascii_start();
    (path.starts_with(b"/") && !path.ends_with(b" (deleted)")).then_some(path)
}

/// Paths of the files that a process has mapped, in its own mount namespace. Fails if it is gone,
/// or where the caller may not look into it.
pub fn mapped_paths(pid: u32) -> io::Result<Vec<PathBuf>> {
    let maps = fs::read(format!("/proc/{pid}/maps"))?;
    let paths = parse_paths(&maps).into_iter();
    Ok(paths.map(Path::to_path_buf).collect())
}

/// The mapped files of a process whose path `wanted` accepts; none if it is gone.
pub fn mapped_files(pid: u32, wanted: impl Fn(&str) -> bool) -> Vec<MappedFile> {
    let Ok(paths) = mapped_paths(pid) else {
        return Vec::new();
    };
    paths
        .iter()
        .map(|path| path.to_string_lossy())
        .filter(|path| wanted(path))
        .filter_map(|path| MappedFile::at(path.to_string(), through_root(pid, Path::new(&*path))))
        .collect()
}

/// The program that a process runs; `None` if it is gone.
pub fn executable(pid: u32) -> Option<MappedFile> {
    let link = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    MappedFile::at(link.to_str()?.to_owned(), through_root(pid, &link))
}

/// Path by which a file of a process's mount namespace can be opened here.
pub fn through_root(pid: u32, path: &Path) -> PathBuf {
    let inside = path.strip_prefix("/").unwrap_or(path);
    Path::new(&format!("/proc/{pid}/root")).join(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_named_once_and_nothing_else() {
        let maps = b"\
55d0-55d1 r-xp 00000000 fe:00 123 /usr/bin/python3.11
7f00-7f01 r--p 00000000 fe:00 77  /opt/my robot/lib/librcl.so
7f01-7f02 r-xp 00001000 fe:00 77  /opt/my robot/lib/librcl.so
7f02-7f03 rw-p 00000000 00:00 0   [heap]
7f03-7f04 rw-p 00000000 00:00 0
7f04-7f05 r-xp 00000000 fe:00 78  /opt/lib/librcl.so (deleted)
7f05-7f06 r-xp 00000000 fe:00 79  /opt/\xff.so
garbage";
        let expected: [&[u8]; 3] = [
            b"/usr/bin/python3.11",
            b"/opt/my robot/lib/librcl.so",
            b"/opt/\xff.so",
        ];
        assert_eq!(
            parse_paths(maps),
            expected.map(|p| Path::new(OsStr::from_bytes(p)))
        );
        assert!(parse_paths(b"").is_empty());
    }

    #[test]
    fn the_own_program_is_mapped() {
        let own = std::process::id();
        let program = executable(own).unwrap();
        assert!(program.reachable.exists());
        let mapped = mapped_files(own, |path| path == program.path);
        assert_eq!(mapped, [program]);
        assert!(mapped_files(own, |_| false).is_empty());
        assert!(mapped_paths(u32::MAX - 1).is_err() && executable(u32::MAX - 1).is_none());
    }
}
