//! The services of `onbeat shape` while it runs: the status socket, the reload of the plan, and the
//! file of figures.

use super::reload;
use onbeat_record::User;
use onbeat_shape::status::{Board, Duties, Service, WriteFigures};
use onbeat_terminal::term;
use onbeat_terminal::CliError;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

/// Writes a file with the rights of the user who called sudo, so that this user cannot replace a
/// file that only root may write.
pub fn write_as(
    user: Option<&User>,
    path: &Path,
    write: impl Fn() -> Result<(), CliError>,
) -> Result<(), CliError> {
    let written = user.map_or_else(|| Ok(write()), |user| user.act(&write));
    written.unwrap_or_else(|source| {
        let path = path.to_path_buf();
        Err(CliError::Write { path, source })
    })
}

/// Answers requests on the status socket, reads the plan again on request, and writes figures to a
/// file. If the socket cannot be opened, prints a note and returns `None`, and the session runs
/// without these services.
pub fn serve(
    sockets: &Path,
    board: &Arc<Board>,
    files: Files<'_>,
    user: Option<&User>,
) -> Option<Service> {
    if !onbeat_rights::is_root() || onbeat_rights::is_elevated() {
        // The shaper refuses this plan and gives the reason.
        return None;
    }
    let duties = Duties {
        write: files.metrics.map(|path| write_figures(path, user)),
        load: Some(reload::loader(files.plan, user)),
        hangup: files.hangup,
    };
    match Service::start(sockets, board.clone(), duties) {
        Ok(service) => Some(service),
        Err(e) => {
            let line = format!("note: {e}: --status and --reload will not find this session");
            let _ = writeln!(io::stderr(), "{}", term::one_line(&line));
            None
        }
    }
}

pub struct Files<'a> {
    pub plan: &'a Path,
    pub metrics: Option<&'a PathBuf>,
    /// The flag that the handler of SIGHUP sets. The session then reads the plan again.
    pub hangup: Arc<AtomicBool>,
}

fn write_figures(path: &Path, user: Option<&User>) -> WriteFigures {
    // Like the samples, the file is written with the user's rights.
    let (path, user) = (path.to_path_buf(), user.cloned());
    let mut has_failed = false;
    Box::new(move |status| {
        let text = onbeat_shape::status::prometheus(status);
        let write = || onbeat_files::replace(&path, |file| file.write_all(text.as_bytes()));
        let written = match &user {
            Some(user) => user.act(write).and_then(|written| written),
            None => write(),
        };
        let was_told = std::mem::replace(&mut has_failed, written.is_err());
        if let (Err(e), false) = (written, was_told) {
            let line = format!("note: cannot write {}: {e}", path.display());
            let _ = writeln!(io::stderr(), "{}", term::one_line(&line));
        }
    })
}
