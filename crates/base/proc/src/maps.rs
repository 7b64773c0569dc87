//! The files that processes have mapped, identified by device and inode as uprobes do.

use crate::foreign::{FileId, Opened, Reach};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The largest part of a table of mappings that onbeat reads, in bytes. It is enough for 65,530
/// mappings, the kernel's default limit, with paths of 250 characters.
const MAPS_MAX: u64 = 24 << 20;
/// The largest number of mapped files that onbeat lists for one process. Large ROS 2 processes map
/// a few hundred.
const PATHS_MAX: usize = 8192;

/// A file that a process has mapped, or a file on disk, with its device and inode.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MappedFile {
    /// The device and inode of the file, as stat(2) reports them.
    pub id: FileId,
    /// The path in the mount namespace of the process. The path is untrusted.
    pub path: String,
    reach: Reach,
}

impl MappedFile {
    /// Returns the file at `reach` with its device and inode. `path` is the file's path in the
    /// process that has mapped it. Fails if the file does not exist or is not a regular file.
    pub fn at(path: String, reach: Reach) -> io::Result<MappedFile> {
        let id = reach.id()?;
        Ok(MappedFile { id, path, reach })
    }

    /// Opens the file. Fails if the path now leads to another file.
    pub fn open(&self) -> io::Result<Opened> {
        let opened = self.reach.open()?;
        match opened.id() == self.id {
            true => Ok(opened),
            false => Err(io::Error::other("the path now leads to another file")),
        }
    }
}

/// A list of the files that a process has mapped.
#[derive(Debug)]
pub struct Mapped<T> {
    /// The files in the order of their first mapping. Each file is listed once.
    pub files: Vec<T>,
    /// A sentence for each reason why files are not listed. Paths in the sentences are untrusted.
    pub left_out: Vec<String>,
}

impl<T> Default for Mapped<T> {
    fn default() -> Mapped<T> {
        Mapped {
            files: Vec::new(),
            left_out: Vec::new(),
        }
    }
}

/// Lists the paths of the files in the text of a `/proc/PID/maps`, each once, in the order of their
/// first mapping. Leaves out deleted files.
pub fn parse_paths(maps: impl Read) -> io::Result<Mapped<PathBuf>> {
    let mut maps = BufReader::with_capacity(1 << 16, maps.take(MAPS_MAX));
    let (mut seen, mut files, mut left_out) = (HashSet::new(), Vec::new(), Vec::new());
    let mut line = Vec::new();
    while maps.read_until(b'\n', &mut line)? > 0 {
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        if let Some(path) = mapped_path(text).filter(|path| !seen.contains(*path)) {
            if files.len() == PATHS_MAX {
                left_out.push(format!("the process has mapped more than {PATHS_MAX} files; the files after these are not examined"));
                break;
            }
            seen.insert(path.to_vec());
            files.push(Path::new(OsStr::from_bytes(path)).to_path_buf());
        }
        line.clear();
    }
    if maps.get_ref().limit() == 0 {
        left_out.push(format!(
            "the table of mappings is larger than {} MiB; the rest is not examined",
            MAPS_MAX >> 20
        ));
    }
    Ok(Mapped { files, left_out })
}

fn mapped_path(line: &[u8]) -> Option<&[u8]> {
    // The fields are: address, permissions, offset, device, inode, path. The path may contain
    // blanks.
    let mut rest = line;
    for _ in 0..5 {
        rest = rest.trim_ascii_start();
        rest = &rest[rest.iter().position(|&b| b == b' ')?..];
    }
    let path = rest.trim_ascii_start();
    (path.starts_with(b"/") && !path.ends_with(b" (deleted)")).then_some(path)
}

/// Lists the paths of the files that a process has mapped, in the process's mount namespace. Fails
/// if the process has ended or if the caller may not inspect it.
pub fn mapped_paths(pid: u32) -> io::Result<Mapped<PathBuf>> {
    parse_paths(File::open(format!("/proc/{pid}/maps"))?)
}

/// Lists the mapped files of a process whose paths `wanted` accepts. Lists none if the process has
/// ended.
pub fn mapped_files(pid: u32, wanted: impl Fn(&str) -> bool) -> Mapped<MappedFile> {
    files_of(pid, mapped_paths(pid).unwrap_or_default(), wanted)
}

/// Lists the mapped files whose paths `wanted` accepts, like [`mapped_files`]. `maps` is the text
/// of the process's table of mappings.
pub fn mapped_files_in(pid: u32, maps: &[u8], wanted: impl Fn(&str) -> bool) -> Mapped<MappedFile> {
    files_of(pid, parse_paths(maps).unwrap_or_default(), wanted)
}

fn files_of(
    pid: u32,
    mapped: Mapped<PathBuf>,
    wanted: impl Fn(&str) -> bool,
) -> Mapped<MappedFile> {
    let Mapped {
        files: paths,
        mut left_out,
    } = mapped;
    let mut files = Vec::new();
    for path in &paths {
        let name = path.to_string_lossy();
        if !wanted(&name) {
            continue;
        }
        match MappedFile::at(name.to_string(), Reach::Root(pid, path.clone())) {
            Ok(file) => files.push(file),
            // A missing or unreachable file is skipped silently. Anything else than a regular file
            // is reported.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
                left_out.push(format!("{name}: {e}"))
            }
            Err(_) => {}
        }
    }
    Mapped { files, left_out }
}

/// Returns the program that a process runs, or `None` if the process has ended.
pub fn executable(pid: u32) -> Option<MappedFile> {
    let link = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let path = link.to_str().filter(|path| !path.ends_with(" (deleted)"))?;
    MappedFile::at(path.to_owned(), Reach::Program(pid)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mapped_file_is_listed_once() {
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
        let found = parse_paths(&maps[..]).unwrap();
        assert_eq!(
            found.files,
            expected.map(|p| Path::new(OsStr::from_bytes(p)))
        );
        assert!(found.left_out.is_empty());
        assert!(parse_paths(&b""[..]).unwrap().files.is_empty());
    }

    #[test]
    fn an_endless_table_of_mappings_is_read_up_to_a_limit() {
        let line = |n: u64| format!("{n:x}-{n:x} r--p 0 fe:00 1 /tmp/{n}\n").into_bytes();
        let many: Vec<u8> = (0..20_000).flat_map(line).collect();
        let found = parse_paths(&many[..]).unwrap();
        assert_eq!((found.files.len(), found.left_out.len()), (PATHS_MAX, 1));
        // One path is repeated without end.
        let found = parse_paths(Endless(line(7), 0)).unwrap();
        assert_eq!(found.files.len(), 1);
        assert!(found.left_out[0].contains("MiB"), "{:?}", found.left_out);
        // A single line never ends.
        let found = parse_paths(io::repeat(b'/')).unwrap();
        assert_eq!((found.files.len(), found.left_out.len()), (0, 1));
    }

    struct Endless(Vec<u8>, usize);

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            for byte in buffer.iter_mut() {
                *byte = self.0[self.1];
                self.1 = (self.1 + 1) % self.0.len();
            }
            Ok(buffer.len())
        }
    }

    #[test]
    fn the_own_program_is_among_the_mapped_files() {
        let own = std::process::id();
        let program = executable(own).unwrap();
        assert_eq!(program.open().unwrap().id(), program.id);
        let mapped = mapped_files(own, |path| path == program.path).files;
        assert_eq!(mapped.len(), 1);
        assert_eq!((mapped[0].id, &mapped[0].path), (program.id, &program.path));
        assert!(mapped_files(own, |_| false).files.is_empty());
        assert!(mapped_paths(u32::MAX - 1).is_err() && executable(u32::MAX - 1).is_none());
    }
}
