//! What `onbeat shape` offers while it runs: the status socket and the file of figures.

use crate::error::CliError;
use crate::term;
use onbeat_record::User;
use onbeat_shape::status::{Board, Service, WriteFigures};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Writes a file as the user behind sudo: not over what only root may write to.
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

/// Answers on the status socket, and writes figures to a file. A session runs without it too.
pub fn serve(
    sockets: &Path,
    board: &Arc<Board>,
    metrics: Option<&PathBuf>,
    user: Option<&User>,
) -> Option<Service> {
    if !onbeat_rights::is_root() || onbeat_rights::is_elevated() {
        // It will be refused with the reason.
        return None;
    }
    // As the samples: not over what only root may write to.
    let (metrics, user) = (metrics.cloned(), user.cloned());
    let write = metrics.map(|path| -> WriteFigures {
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
    });
    match Service::start(sockets, board.clone(), write) {
        Ok(service) => Some(service),
        Err(e) => {
            let line = format!("note: {e}: --status will not find this session");
            let _ = writeln!(io::stderr(), "{}", term::one_line(&line));
            None
        }
    }
}
