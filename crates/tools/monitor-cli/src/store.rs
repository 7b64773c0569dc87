//! The directory of saved incidents. It is held open, so that a link in its place leads nowhere,
//! and its size is limited.

use onbeat_files::Directory;
use onbeat_terminal::CliError;
use serde::Deserialize;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub const FIGURES: &str = "incident.json";

pub const RECORDING: &str = ".recording";

/// The prefix of the names of the directories of saved incidents. A directory that is not complete
/// yet has the prefix [`PART`] instead.
const SAVED: &str = "incident-";
const PART: &str = ".part-";

/// The size in bytes up to which a file with the figures of an incident is read.
const FIGURES_MAX: u64 = 4 << 20;

pub struct Store {
    directory: Directory,
    max_bytes: u64,
}

#[derive(Deserialize)]
struct Ranked {
    severity: f64,
}

struct Entry {
    name: OsString,
    bytes: u64,
    severity: f64,
}

impl Store {
    /// Opens the directory of incidents, or makes it. Removes incomplete incidents that a killed
    /// monitor has left.
    ///
    /// # Errors
    /// Fails if the directory cannot be used, or if another monitor uses it.
    pub fn open(path: &Path, max_bytes: u64) -> Result<Store, CliError> {
        let fail = |why: String| {
            CliError::Failed(format!(
                "cannot save incidents in {}: {why}. Name another directory with --incidents",
                path.display()
            ))
        };
        let directory = Directory::private(path).map_err(|e| match e.raw_os_error() {
            Some(libc::ENOTDIR | libc::ELOOP) => {
                fail("the path is a symbolic link or a file, not a directory".into())
            }
            _ => fail(e.to_string()),
        })?;
        let fd = directory.as_fd().as_raw_fd();
        // SAFETY: the descriptor is open, and the call takes no pointers.
        if unsafe { libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            return Err(fail("another monitor uses the directory".into()));
        }
        let store = Store {
            directory,
            max_bytes,
        };
        for name in store.directory.names().map_err(|e| fail(e.to_string()))? {
            let is_left = name == RECORDING || begins(&name, PART);
            if is_left {
                let removed = fs::remove_dir_all(store.way(&name));
                removed.map_err(|e| fail(e.to_string()))?;
            }
        }
        Ok(store)
    }

    /// Returns a path to `name` in the open directory of incidents. The path stays valid if the
    /// directory is moved.
    pub fn way(&self, name: impl AsRef<OsStr>) -> PathBuf {
        let fd = self.directory.as_fd().as_raw_fd();
        PathBuf::from(format!("/proc/self/fd/{fd}")).join(name.as_ref())
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns whether the directory's path still leads to the open directory.
    fn is_in_place(&self) -> bool {
        let here = fs::metadata(self.way(""));
        let there = fs::symlink_metadata(self.path());
        match (here, there) {
            (Ok(here), Ok(there)) => (here.dev(), here.ino()) == (there.dev(), there.ino()),
            _ => false,
        }
    }

    /// Saves an incident completely or not at all. `write` fills a new directory, whose final name
    /// then begins with the prefix of incidents and `stamp`. Returns this name and the result of
    /// `write`.
    ///
    /// # Errors
    /// Returns the reason why the incident was not saved, in one line.
    pub fn add<T>(
        &self,
        stamp: &str,
        write: impl FnOnce(&Path) -> Result<T, String>,
    ) -> Result<(OsString, T), String> {
        if !self.is_in_place() {
            return Err(format!(
                "{} now leads to another directory than at the monitor's start. Restart the monitor to use the new directory",
                self.path().display()
            ));
        }
        let part = self.way(format!("{PART}{stamp}"));
        let written = fs::create_dir(&part)
            .map_err(|e| e.to_string())
            .and_then(|()| write(&part))
            .and_then(|value| {
                let name = self.publish(&part, stamp).map_err(|e| e.to_string())?;
                Ok((name, value))
            });
        if written.is_err() {
            let _ = fs::remove_dir_all(&part);
        }
        written
    }

    fn publish(&self, part: &Path, stamp: &str) -> io::Result<OsString> {
        let part = part.file_name().unwrap_or_default();
        for n in 1..1000 {
            let name = match n {
                1 => OsString::from(format!("{SAVED}{stamp}")),
                n => OsString::from(format!("{SAVED}{stamp}-{n}")),
            };
            if fs::symlink_metadata(self.way(&name)).is_err() {
                self.directory.rename(part, &name)?;
                return Ok(name);
            }
        }
        Err(io::Error::other(
            "too many saved incidents have the same start time as this incident",
        ))
    }

    /// Replaces a file of a saved incident. Does nothing if the incident was removed.
    pub fn replace(&self, incident: &OsStr, file: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.way(incident);
        let is_there = fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir());
        if !is_there {
            return Ok(());
        }
        let directory = Directory::open(&path)?;
        directory.replace(file, |out| io::Write::write_all(out, bytes))
    }

    /// Removes incidents, old and less severe ones first, until the remaining incidents fit into
    /// the limit of the directory. Keeps the incident `newest`, but removes its trace if this
    /// incident alone exceeds the limit. Returns the number of removed incidents.
    pub fn make_room(&self, newest: &OsStr) -> io::Result<u64> {
        let mut entries = self.entries()?;
        let mut removed = 0;
        let total = |entries: &[Entry]| entries.iter().map(|e| e.bytes).sum::<u64>();
        while total(&entries) > self.max_bytes {
            let Some(at) = first_to_go(&entries, newest) else {
                let trace = self.way(newest).join("trace");
                if trace.exists() {
                    fs::remove_dir_all(trace)?;
                }
                break;
            };
            let entry = entries.remove(at);
            fs::remove_dir_all(self.way(&entry.name))?;
            removed += 1;
        }
        Ok(removed)
    }

    fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut names = self.directory.names()?;
        names.retain(|name| begins(name, SAVED));
        names.sort();
        let mut entries = Vec::new();
        for name in names {
            let path = self.way(&name);
            if !fs::symlink_metadata(&path)?.is_dir() {
                continue;
            }
            entries.push(Entry {
                bytes: size(&path)?,
                severity: severity(&path),
                name,
            });
        }
        Ok(entries)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // The next start removes the rest.
        let _ = fs::remove_dir_all(self.way(RECORDING));
    }
}

fn begins(name: &OsStr, with: &str) -> bool {
    name.as_encoded_bytes().starts_with(with.as_bytes())
}

/// Returns the index of the entry to remove first. It has the smallest sum of two ranks: by age,
/// with the oldest first, and by severity, with the least severe first. `newest` is never chosen.
fn first_to_go(entries: &[Entry], newest: &OsStr) -> Option<usize> {
    let place = |at: usize| {
        let severity = entries[at].severity;
        let milder = entries.iter().filter(|e| e.severity < severity).count();
        (at + milder, at)
    };
    let all = (0..entries.len()).filter(|&at| entries[at].name != newest);
    all.min_by_key(|&at| place(at))
}

fn severity(path: &Path) -> f64 {
    let read = || -> Option<f64> {
        let file = fs::File::open(path.join(FIGURES)).ok()?;
        let ranked: Ranked = serde_json::from_reader(io::Read::take(file, FIGURES_MAX)).ok()?;
        Some(ranked.severity)
    };
    read().filter(|s| s.is_finite()).unwrap_or(0.0)
}

/// Returns the number of bytes that the files of a directory take on the disk. Does not follow
/// links.
fn size(path: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        bytes += meta.blocks() * 512;
        if meta.is_dir() {
            bytes += size(&entry.path())?;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn save(store: &Store, stamp: &str, severity: f64, bytes: usize) -> String {
        let saved = store.add(stamp, |part| {
            fs::create_dir(part.join("trace")).unwrap();
            fs::write(part.join("trace/segment"), vec![1; bytes]).unwrap();
            let figures = format!("{{\"severity\": {severity}}}");
            fs::write(part.join(FIGURES), figures).map_err(|e| e.to_string())
        });
        saved.unwrap().0.into_string().unwrap()
    }

    fn names(path: &Path) -> Vec<String> {
        let entries = fs::read_dir(path).unwrap().map(|e| e.unwrap());
        let mut names: Vec<String> = entries
            .map(|e| e.file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_oldest_and_least_severe_incidents_are_removed_first() {
        let held = tempfile::tempdir().unwrap();
        let path = held.path().join("incidents");
        let store = Store::open(&path, 330_000).unwrap();
        for (stamp, severity) in [("1", 9.0), ("2", 1.1), ("3", 1.2), ("4", 5.0)] {
            save(&store, stamp, severity, 60_000);
        }
        assert_eq!(store.make_room(OsStr::new("incident-4")).unwrap(), 0);
        let last = save(&store, "5", 1.0, 100_000);
        assert_eq!(store.make_room(OsStr::new(&last)).unwrap(), 1);
        assert_eq!(
            names(&path),
            ["incident-1", "incident-3", "incident-4", "incident-5"]
        );
        // One that does not fit alone loses its trace, and pushes out the others.
        let last = save(&store, "5", 1.0, 400_000);
        assert_eq!(last, "incident-5-2");
        assert_eq!(store.make_room(OsStr::new(&last)).unwrap(), 4);
        assert_eq!(names(&path), ["incident-5-2"]);
        assert_eq!(names(&path.join(last)), [FIGURES]);
    }

    #[test]
    fn a_link_in_place_of_the_directory_is_refused_and_never_followed() {
        let held = tempfile::tempdir().unwrap();
        let (path, other) = (held.path().join("incidents"), held.path().join("other"));
        fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        let error = Store::open(&path, 1).err().unwrap().to_string();
        assert!(
            error.contains("the path is a symbolic link or a file"),
            "{error}"
        );
        fs::remove_file(&path).unwrap();
        let store = Store::open(&path, 1 << 20).unwrap();
        save(&store, "1", 1.0, 10);
        fs::rename(&path, held.path().join("moved")).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        let error = store.add("2", |_| Ok(())).unwrap_err();
        assert!(error.contains("now leads to another directory"), "{error}");
        assert!(names(&other).is_empty());
        // A link among the incidents is neither followed nor counted.
        std::os::unix::fs::symlink(&other, held.path().join("moved/incident-0")).unwrap();
        fs::write(other.join("kept"), vec![0; 4 << 20]).unwrap();
        assert_eq!(store.make_room(OsStr::new("incident-1")).unwrap(), 0);
        assert_eq!(names(&other), ["kept"]);
    }

    #[test]
    fn incomplete_incidents_of_a_killed_or_failed_monitor_are_removed() {
        let held = tempfile::tempdir().unwrap();
        let path = held.path().join("incidents");
        let store = Store::open(&path, 1).unwrap();
        let second = Store::open(&path, 1).err().unwrap().to_string();
        assert!(
            second.contains("another monitor uses the directory"),
            "{second}"
        );
        let failed = store.add("1", |part| {
            fs::write(part.join("half"), "x").unwrap();
            Err::<(), _>("No space left on device".into())
        });
        assert_eq!(failed.unwrap_err(), "No space left on device");
        assert!(names(&path).is_empty());
        drop(store);
        for name in [".part-1", RECORDING, "incident-1"] {
            fs::create_dir(path.join(name)).unwrap();
        }
        Store::open(&path, 1).unwrap();
        assert_eq!(names(&path), ["incident-1"]);
    }
}
