//! Reads the ROS 2 environment of a running application from `/proc/PID`: its variables, its librcl
//! and the folders of its libraries. A shaper with these joins the same ROS 2.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

const NAMES: &[&str] = &[
    "LD_LIBRARY_PATH",
    "AMENT_PREFIX_PATH",
    "PYTHONPATH",
    "CYCLONEDDS_URI",
    "HOME",
    "PATH",
];
const PREFIXES: &[&str] = &[
    "ROS_",
    "RMW_",
    "RCUTILS_",
    "FASTRTPS_",
    "FASTDDS_",
    "ZENOH_",
];
/// The folders that the dynamic linker always searches. They are not added to LD_LIBRARY_PATH,
/// because they would then take precedence over other folders.
const SYSTEM: &[&str] = &["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"];

/// The greatest size of an environment and of a table of mappings, in bytes. A process can make its
/// environment and its table of any length.
const ENVIRON_MAX: u64 = 8 << 20;
const MAPS_MAX: u64 = 24 << 20;

/// The reason why an application's ROS 2 environment is unknown. The messages explain the fields.
#[allow(missing_docs)]
#[derive(Debug, Error)]
pub enum EnvironmentError {
    #[error("cannot read {}: {reason}. Check that the process still runs and that you may trace it", path.display())]
    Read { path: PathBuf, reason: io::Error },
    #[error("process {0} has not loaded librcl.so. Choose a process with a ROS 2 node")]
    NoRos(u32),
    #[error("process {pid} uses {}, which no longer exists. Restart the process", path.display())]
    Elsewhere { pid: u32, path: PathBuf },
}

/// The parts of a running application's environment that the shaper uses: the variables of ROS 2,
/// librcl and the folders of libraries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// The complete environment for the shaper. LD_LIBRARY_PATH contains all folders that the
    /// shaper needs.
    pub variables: Vec<(OsString, OsString)>,
    /// The path from which the application has loaded librcl.
    pub rcl: PathBuf,
    /// The folders from which the application has loaded libraries.
    pub folders: Vec<PathBuf>,
}

impl Environment {
    /// Reads the environment of a running process that has the same file systems as this one.
    ///
    /// # Errors
    ///
    /// Returns an [`EnvironmentError`] if the process cannot be read, or has not loaded an existing
    /// librcl.
    pub fn of_process(pid: u32) -> Result<Environment, EnvironmentError> {
        let found = Environment::of_container(pid)?;
        if !found.rcl.exists() {
            return Err(EnvironmentError::Elsewhere {
                pid,
                path: found.rcl,
            });
        }
        Ok(found)
    }

    /// Reads the environment of a running process that has its own file systems. Paths are as that
    /// process sees them.
    ///
    /// # Errors
    ///
    /// Returns an [`EnvironmentError`] if the process cannot be read or has not loaded librcl.
    pub fn of_container(pid: u32) -> Result<Environment, EnvironmentError> {
        let read = |name: &str, most| {
            let path = PathBuf::from(format!("/proc/{pid}/{name}"));
            read_whole(&path, most).map_err(|reason| EnvironmentError::Read { path, reason })
        };
        Environment::of(&read("environ", ENVIRON_MAX)?, &read("maps", MAPS_MAX)?)
            .ok_or(EnvironmentError::NoRos(pid))
    }

    fn of(environ: &[u8], maps: &[u8]) -> Option<Environment> {
        let mut libraries: Vec<&Path> = maps.split(|b| *b == b'\n').filter_map(mapped).collect();
        libraries.dedup();
        let rcl = libraries.iter().find(|p| {
            p.file_name()
                .is_some_and(|n| n == "librcl.so" || n.as_bytes().starts_with(b"librcl.so."))
        })?;
        let mut folders: Vec<PathBuf> = Vec::new();
        for folder in libraries.iter().filter_map(|l| l.parent()) {
            let multiarch = |f: &Path| f.parent().is_some_and(|p| p == Path::new("/usr/lib"));
            let system = SYSTEM.iter().any(|s| folder == Path::new(s)) || multiarch(folder);
            if !system && !folders.iter().any(|f| f == folder) {
                folders.push(folder.into());
            }
        }
        let mut variables = onbeat_proc::parse_environment(environ);
        variables.retain(|(name, _)| {
            let begins = |prefix: &&str| name.as_bytes().starts_with(prefix.as_bytes());
            NAMES.iter().any(|n| name == *n) || PREFIXES.iter().any(begins)
        });
        // The application's own order comes first, then the folders of libraries that it found in
        // other ways.
        let own = variables.iter().position(|(n, _)| n == "LD_LIBRARY_PATH");
        let own = own.map(|i| variables.swap_remove(i).1).unwrap_or_default();
        let mut search: Vec<PathBuf> = std::env::split_paths(&own)
            .filter(|p| !p.as_os_str().is_empty())
            .collect();
        for folder in &folders {
            if !search.contains(folder) {
                search.push(folder.clone());
            }
        }
        if let Ok(joined) = std::env::join_paths(&search) {
            variables.push(("LD_LIBRARY_PATH".into(), joined));
        }
        Some(Environment {
            variables,
            rcl: rcl.to_path_buf(),
            folders,
        })
    }
}

fn read_whole(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = File::open(path)?.take(most + 1);
    file.read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(io::Error::other(format!(
            "the file has more than {most} bytes"
        ))),
        false => Ok(bytes),
    }
}

fn mapped(line: &[u8]) -> Option<&Path> {
    let at = line.iter().position(|b| *b == b'/')?;
    let path = &line[at..];
    let name = path.rsplit(|b| *b == b'/').next()?;
    let library = name.ends_with(b".so") || name.windows(4).any(|w| w == b".so.");
    (library && !path.ends_with(b"(deleted)")).then(|| Path::new(OsStr::from_bytes(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_proc_that_never_ends_is_refused() {
        let error = read_whole(Path::new("/dev/zero"), 1000).unwrap_err();
        assert!(
            error.to_string().contains("more than 1000 bytes"),
            "{error}"
        );
        assert!(read_whole(Path::new("/proc/self/environ"), ENVIRON_MAX).is_ok());
    }

    #[test]
    fn the_environment_is_read_from_the_contents_of_proc_files() {
        let environ =
            b"ROS_DOMAIN_ID=3\0SECRET=x\0LD_LIBRARY_PATH=/ws/lib:/opt/ros/x/lib\0ROSE\0RMW_A=b=c\0";
        let maps = b"7f 00-01 r-xp 0 0:1 9  /usr/lib/x86_64-linux-gnu/libc.so.6\n\
            7f r-xp 0 0:1 9    /opt/ros/x/lib/librcl.so\n7f r-xp 0 0:1 9    /opt/ros/x/lib/librcl.so\n\
            7f r-xp 0 0:1 9    /opt/with space/lib/liba.so.2\n7f r--p 0 0:1 9 /old/libb.so (deleted)\n\
            7f rw-p 0 0:0 0  [heap]\n7f r--p 0 0:1 9  /data/map.bin\n";
        let found = Environment::of(environ, maps).unwrap();
        assert_eq!(found.rcl, Path::new("/opt/ros/x/lib/librcl.so"));
        let folders = ["/opt/ros/x/lib", "/opt/with space/lib"].map(PathBuf::from);
        assert_eq!(found.folders, folders);
        let mut variables = found.variables;
        variables.sort();
        let search = "/ws/lib:/opt/ros/x/lib:/opt/with space/lib";
        let expected = [
            ("LD_LIBRARY_PATH", search),
            ("RMW_A", "b=c"),
            ("ROS_DOMAIN_ID", "3"),
        ];
        assert_eq!(variables, expected.map(|(n, v)| (n.into(), v.into())));
        assert_eq!(
            Environment::of(b"", b"7f r-xp 0 0:1 9 /lib/libc.so.6\n"),
            None
        );
        assert!(matches!(
            Environment::of_process(std::process::id()),
            Err(EnvironmentError::NoRos(_))
        ));
    }
}
