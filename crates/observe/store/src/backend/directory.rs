//! A store in a directory of a file system.

use super::{Backend, Entry};
use rustix::fs::{flock, FlockOperation, Mode, OFlags};
use std::any::Any;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The name of the lock file. Writers share the lock, and tidying takes it exclusively.
const LOCK: &str = "lock";

pub(crate) struct Local {
    root: PathBuf,
    place: String,
}

impl Local {
    pub(crate) fn new(root: &Path) -> Local {
        Local {
            root: root.into(),
            place: onbeat_document::text::visible(&root.display().to_string()),
        }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.root.join(key)
    }

    fn walk(
        &self,
        below: &Path,
        depth: usize,
        visit: &mut dyn FnMut(&Path, fs::Metadata),
    ) -> io::Result<()> {
        let entries = match fs::read_dir(below) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            match fs::symlink_metadata(&path) {
                Ok(m) if m.is_dir() && depth > 0 => self.walk(&path, depth - 1, visit)?,
                Ok(m) if m.is_file() => visit(&path, m),
                // Skip other kinds of files, and files that were just removed.
                _ => {}
            }
        }
        Ok(())
    }
}

fn age(meta: &fs::Metadata) -> Duration {
    let since = |at| SystemTime::now().duration_since(at).unwrap_or_default();
    meta.modified().map_or(Duration::ZERO, since)
}

fn is_temporary(path: &Path) -> bool {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
    name.starts_with('.') && name.ends_with(".tmp")
}

fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

impl Backend for Local {
    fn place(&self) -> &str {
        &self.place
    }

    fn copy(&self, key: &str, out: &mut dyn Write) -> io::Result<Option<u64>> {
        // Do not follow links and do not block: anybody with write access here may have placed a
        // link or a pipe.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::open(self.path(key), flags, Mode::empty());
        let Some(file) = found(opened.map_err(io::Error::from))? else {
            return Ok(None);
        };
        let mut file = File::from(file);
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("the file is not a regular file"));
        }
        io::copy(&mut file, out).map(Some)
    }

    fn write(&self, key: &str, from: &mut dyn Read, bytes: u64) -> io::Result<()> {
        let path = self.path(key);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        onbeat_files::replace(&path, |file| {
            let written = io::copy(&mut from.take(bytes), file)?;
            if written != bytes {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            // The bytes must reach the disk before the name does, even if the machine fails.
            file.sync_data()
        })
    }

    fn list(&self, place: &str) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        self.walk(&self.path(place), 2, &mut |path, meta| {
            let key = path.strip_prefix(&self.root).ok().and_then(Path::to_str);
            if let (Some(key), false) = (key, is_temporary(path)) {
                entries.push(Entry {
                    key: key.into(),
                    bytes: meta.len(),
                    age: age(&meta),
                });
            }
        })?;
        Ok(entries)
    }

    fn age(&self, key: &str) -> io::Result<Option<Duration>> {
        found(fs::symlink_metadata(self.path(key))).map(|m| m.as_ref().map(age))
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        found(fs::remove_file(self.path(key))).map(|_| ())
    }

    fn make(&self) -> io::Result<()> {
        fs::create_dir_all(&self.root)
    }

    fn remove_leftovers(&self, older: Duration) -> io::Result<u64> {
        let mut left = Vec::new();
        self.walk(&self.root, 3, &mut |path, meta| {
            if is_temporary(path) && age(&meta) >= older {
                left.push(path.to_path_buf());
            }
        })?;
        for path in &left {
            found(fs::remove_file(path))?;
        }
        Ok(left.len() as u64)
    }

    fn max_write_time(&self) -> Option<Duration> {
        None
    }

    fn lock(&self, exclusive: bool) -> io::Result<Box<dyn Any>> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.path(LOCK))?;
        let how = match exclusive {
            true => FlockOperation::LockExclusive,
            false => FlockOperation::LockShared,
        };
        flock(&file, how)?;
        Ok(Box::new(file))
    }
}
