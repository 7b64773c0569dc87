//! Asks the sessions of this machine.

use super::service::is_trusted;
use super::sockets::{is_gone, sockets, within};
use onbeat_files::Directory;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Bytes of an answer that are read.
const MOST: u64 = 16 << 20;

/// What a session answered.
#[derive(Debug)]
pub struct Answer {
    /// The session's process.
    pub pid: u32,
    /// Its words, or why there are none.
    pub text: io::Result<String>,
}

/// Sends one line to each session that has a socket in `dir`, or to that of process `only`. A session that is gone
/// answers nothing and is left out.
///
/// # Errors
///
/// If the directory cannot be read, or is not this user's alone.
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
        return Err(io::Error::other("it is another user's"));
    }
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    stream.write_all(request)?;
    stream.write_all(b"\n")?;
    let mut bytes = Vec::new();
    stream.take(MOST).read_to_end(&mut bytes)?;
    match bytes.is_empty() {
        true => Err(io::Error::other("it did not answer")),
        false => Ok(String::from_utf8_lossy(&bytes).into_owned()),
    }
}
