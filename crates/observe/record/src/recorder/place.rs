//! Makes the trace directory, and decides who owns it.
//!
//! Under sudo the recorder makes the directory with the caller's rights, so the caller owns it from
//! the start. No existing file changes its owner, and the recorder writes nowhere that the caller
//! may not write. Each new file is given to the caller through its descriptor. After its creation
//! the directory is only accessed through its descriptor.

use super::options::RecordOptions;
use super::RecordError;
use crate::command::user::{caller, Caller, User};
use onbeat_files::{Directory, MakeError, Meta, Owner};
use onbeat_trace::writer::TraceCreateError;
use std::path::Path;

pub struct Place {
    /// The trace directory, which is empty at first. New files in it get the directory's owner.
    pub directory: Directory,
    pub shared: Option<SharedDirectory>,
    pub note: Option<String>,
}

impl Place {
    pub fn make(options: &RecordOptions) -> Result<Place, RecordError> {
        let path = &options.files.output;
        let stays = |directory, note: Option<String>| Place {
            directory,
            shared: None,
            note,
        };
        let is_ours = || Directory::make(path).map_err(|e| refused(path, e));
        match caller() {
            _ if options.files.is_private => Ok(stays(private(path)?, None)),
            Caller::Ourselves => Ok(stays(is_ours()?, None)),
            Caller::Doubtful => {
                let note = format!(
                    "{} belongs to root, because sudo did not start onbeat.",
                    path.display()
                );
                Ok(stays(is_ours()?, Some(note)))
            }
            Caller::User(user) => Place::of_user(path, &user),
        }
    }

    /// Makes a directory with the rights of the user behind sudo. If that user may not write there,
    /// root makes the directory and remains its owner, as long as no other user can change the
    /// path.
    fn of_user(path: &Path, user: &User) -> Result<Place, RecordError> {
        let made = user
            .act(|| Directory::make_as(path, user.uid))
            .unwrap_or_else(|source| {
                Err(MakeError::System {
                    path: path.into(),
                    source,
                })
            });
        let denied = match made {
            Ok(directory) => return Ok(Place::shared(directory, user)),
            Err(error) if error.is_denied() => error,
            Err(error) => return Err(refused(path, error)),
        };
        let Ok(directory) = Directory::make_trusted(path) else {
            return Err(refused(path, denied));
        };
        Ok(Place {
            directory,
            shared: None,
            note: Some(format!(
                "{} belongs to root, because {} may not create this directory.",
                path.display(),
                user.name
            )),
        })
    }

    fn shared(directory: Directory, user: &User) -> Place {
        let (uid, gid) = (user.uid, user.gid);
        let shared = directory.try_clone().ok().and_then(SharedDirectory::new);
        Place {
            directory: directory.owned_by(Some(Owner { uid, gid })),
            shared,
            note: None,
        }
    }
}

/// Makes a directory that only its maker can reach, even if `TMPDIR` names a place that others can
/// change. For root, no other user may be able to change the path.
fn private(path: &Path) -> Result<Directory, RecordError> {
    // SAFETY: geteuid cannot fail.
    let made = match unsafe { libc::geteuid() } {
        0 => Directory::make_trusted(path),
        _ => Directory::make(path),
    };
    made.map_err(|e| refused(path, e))
}

fn refused(path: &Path, error: MakeError) -> RecordError {
    RecordError::Create(TraceCreateError::refused(path, error))
}

/// A directory of the user behind sudo. While this value exists, root's group is the group of the
/// directory. The recorder can then write there without the right to write everywhere.
pub struct SharedDirectory {
    directory: Directory,
    before: Meta,
}

impl SharedDirectory {
    fn new(directory: Directory) -> Option<SharedDirectory> {
        let before = directory.meta().ok()?;
        // Root's group comes before the group's right to write. If one of these fails, a later
        // write also fails, with a message.
        let _ = directory.set_owner(Some(0), Some(0));
        // The set-group-id bit goes: with it, files that the user makes there would get root's
        // group.
        let _ = directory.set_mode((before.mode & 0o777) | 0o070);
        let _ = directory.set_owner(Some(before.uid), None);
        Some(SharedDirectory { directory, before })
    }
}

impl Drop for SharedDirectory {
    fn drop(&mut self) {
        // Root becomes the owner first: only the owner may change the mode, and we may have given
        // up the right to change other users' files.
        let _ = self.directory.set_owner(Some(0), None);
        let _ = self.directory.set_mode(self.before.mode);
        let (uid, gid) = (self.before.uid, self.before.gid);
        let _ = self.directory.set_owner(Some(uid), Some(gid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::options::FileOptions;
    use std::os::unix::fs::chown;

    #[test]
    fn a_private_trace_of_root_is_refused_if_other_users_can_change_its_path() {
        // SAFETY: geteuid cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            println!("skipped: this test needs root");
            return;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let place = |path: &Path| {
            Place::make(&RecordOptions {
                files: FileOptions {
                    output: path.join("trace"),
                    is_private: true,
                    ..FileOptions::default()
                },
                ..RecordOptions::default()
            })
        };
        assert!(place(dir.path()).is_ok());
        let theirs = dir.path().join("theirs");
        std::fs::create_dir_all(theirs.join("onbeat-1")).expect("a directory");
        chown(&theirs, Some(65534), None).expect("given");
        let error = place(&theirs.join("onbeat-1")).err().expect("refused");
        assert!(error.to_string().contains("other than root"), "{error}");
        assert!(!theirs.join("onbeat-1/trace").exists());
    }
}
