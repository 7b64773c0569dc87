//! Decides which files of processes and of ROS 2 installations are worth probing.

use crate::command::user;
use crate::names::file_name;
use crate::probes::Library;
use onbeat_proc::foreign::Reach;
use onbeat_proc::maps::{executable, mapped_files_in, Mapped, MappedFile};
use std::path::{Path, PathBuf};

pub fn is_known(path: &str) -> bool {
    Library::of_path(path).is_some()
}

/// Returns whether the path names libtracetools, a library that only ROS 2 processes load.
pub fn is_tracing(path: &str) -> bool {
    Library::of_path(path) == Some(Library::Tracetools)
}

pub fn any_of_ros(files: &[MappedFile]) -> bool {
    let mut libraries = files.iter().filter_map(|file| Library::of_path(&file.path));
    libraries.any(|library| !library.is_dds())
}

pub fn is_loader(path: &str) -> bool {
    let name = file_name(path);
    name.starts_with("ld-linux") || name.starts_with("ld-2.")
}

/// Returns whether a path belongs to the system, so that the file contains neither template
/// instances of message_filters nor executors of onbeat-flow.
fn is_system_file(path: &str) -> bool {
    let name = file_name(path);
    // The Debian package installs onbeat's own library among the system's.
    if name.starts_with("libonbeat_c.so") {
        return false;
    }
    path.starts_with("/usr/lib/")
        || path.starts_with("/lib")
        || name.starts_with("python")
        || name.contains("__rosidl_")
}

/// Returns a process's program and libraries that belong neither to the system nor to ROS 2. `maps`
/// is the text of its table of mappings. onbeat's own program is left out: it is linked with
/// onbeat-flow, but runs none of its executors.
pub fn own_files(pid: u32, maps: &[u8]) -> Mapped<MappedFile> {
    let mut mapped = mapped_files_in(pid, maps, |path| {
        file_name(path).contains(".so") && !is_system_file(path) && !is_known(path)
    });
    let ours = executable(std::process::id()).map(|file| file.id);
    let program = executable(pid).filter(|file| Some(file.id) != ours);
    mapped.files.extend(program);
    mapped
}

/// Returns those libraries of the probe table that are in `directory` and that onbeat's user may
/// read, in the order of their names.
pub fn known_files_in(directory: &Path) -> Mapped<MappedFile> {
    onbeat_rights::as_caller(|| Mapped {
        files: known_files(directory),
        left_out: Vec::new(),
    })
}

fn known_files(directory: &Path) -> Vec<MappedFile> {
    let Ok(dir) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = dir.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let known = paths.into_iter().filter_map(|path| {
        let name = path.to_str().filter(|path| is_known(path))?.to_owned();
        let file = MappedFile::at(name, Reach::Here(path)).ok()?;
        // The user must be able to read the file, not only to see it.
        file.open().is_ok().then_some(file)
    });
    known.collect()
}

pub fn installations() -> Vec<PathBuf> {
    let prefixes = user::variable("AMENT_PREFIX_PATH").unwrap_or_default();
    let mut prefixes: Vec<PathBuf> = std::env::split_paths(&prefixes).collect();
    let stock = std::fs::read_dir("/opt/ros").into_iter().flatten();
    prefixes.extend(stock.flatten().map(|entry| entry.path()));
    prefixes.sort();
    prefixes.dedup();
    prefixes.iter().map(|prefix| prefix.join("lib")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installations_libraries_are_found_by_name_and_in_order() {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["librclcpp.so", "librcl.so.9", "librclx.so", "notes.txt"] {
            std::fs::write(dir.path().join(name), b"").expect("a file");
        }
        let files = known_files_in(dir.path());
        let names: Vec<_> = files.files.iter().map(|f| file_name(&f.path)).collect();
        assert_eq!(names, ["librcl.so.9", "librclcpp.so"]);
        assert!(known_files_in(Path::new("/no/such/place")).files.is_empty());
    }

    #[test]
    fn system_libraries_and_onbeats_program_are_not_an_applications_own_files() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep starts");
        let maps = |pid| std::fs::read(format!("/proc/{pid}/maps")).expect("it runs");
        let own = own_files(child.id(), &maps(child.id())).files;
        let _ = child.kill();
        let _ = child.wait();
        let program = executable(std::process::id()).expect("it runs");
        assert!(own.iter().any(|f| f.id != program.id), "{own:?}");
        assert!(own.iter().all(|f| !f.path.contains("libc.so")), "{own:?}");
        let this = std::process::id();
        let ours = own_files(this, &maps(this)).files;
        assert!(ours.iter().all(|f| f.id != program.id), "{ours:?}");
        assert!(is_system_file("/usr/lib/x86_64-linux-gnu/libc.so.6"));
        assert!(!is_system_file(
            "/usr/lib/x86_64-linux-gnu/libonbeat_c.so.0.1.0"
        ));
        assert!(is_loader("/lib64/ld-linux-x86-64.so.2") && !is_loader("/lib/libc.so.6"));
    }
}
