//! Asks the running sessions of this machine.

use super::service::is_trusted;
use super::sockets::{is_gone, sockets, within};
use onbeat_files::Directory;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const MAX_ANSWER_BYTES: u64 = 16 << 20;

/// The answer of one session to a client's request.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug)]
pub struct Answer {
    pub pid: u32,
    /// The answer's text, or the reason why no answer came.
    pub text: io::Result<String>,
}

/// Sends `request` to each session that has a socket in `dir`, or only to the session of process
/// `only`. Leaves out sessions that have ended.
///
/// # Errors
///
/// Returns an error if the directory cannot be read, or if other users may access it.
pub fn ask(
    dir: &Path,
    only: Option<u32>,
    request: &[u8],
    patience: Duration,
) -> io::Result<Vec<Answer>> {
    match dir.symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        _ => {}
    }
    let directory = Directory::private(dir)?;
    let mut answers = Vec::new();
    for (name, pid) in sockets(&directory)? {
        if only.is_some_and(|only| only != pid) {
            continue;
        }
        let text = talk(&within(&directory, &name), request, patience);
        if !text.as_ref().is_err_and(is_gone) {
            answers.push(Answer { pid, text });
        }
    }
    answers.sort_by_key(|a| a.pid);
    Ok(answers)
}

fn talk(path: &Path, request: &[u8], patience: Duration) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    if !is_trusted(&stream) {
        return Err(io::Error::other(
            "the session's socket belongs to another user",
        ));
    }
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    stream.write_all(request)?;
    stream.write_all(b"\n")?;
    let mut bytes = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut bytes)?;
    match bytes.is_empty() {
        true => Err(io::Error::other(
            "the session closed the connection without an answer",
        )),
        false => Ok(String::from_utf8_lossy(&bytes).into_owned()),
    }
}
