//! A thread that answers requests on a Unix socket. A client sends one line and gets one answer.
//! Then the thread closes the connection.
//!
//! The socket lies in the directory of ledgers, which only root can access. The kernel also reports
//! the peer's user. The number of clients, the length of a request and the time of a client are
//! limited, and no client is waited for. The thread does not wait for the session either.

use super::sockets::{self, within};
use super::{Board, Status};
use onbeat_files::Directory;
use onbeat_plan::Plan;
use rustix::event::{poll, PollFd, PollFlags};
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thiserror::Error;

const MAX_CLIENTS: usize = 8;
const MAX_REQUEST_BYTES: usize = 256;
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);
const RELOAD_TIMEOUT: Duration = Duration::from_secs(10);
const OUTCOME_POLL_NS: i64 = 20_000_000;
/// The error of a session that cannot open its status socket.
#[derive(Debug, Error)]
#[error("cannot open a status socket in {}: {source}", dir.display())]
pub struct StatusError {
    /// The directory in which the session tried to open the status socket.
    pub dir: PathBuf,
    /// The error from preparing the directory, opening the socket, or starting the thread that
    /// serves the socket.
    pub source: io::Error,
}

/// A function that writes a session's figures to a file. The status service calls it when there are
/// new figures.
pub type WriteFigures = Box<dyn FnMut(&Status) + Send>;
/// A function that reads the plan's file again. Its error is a sentence for the user.
pub type LoadPlan = Box<dyn FnMut() -> Result<Plan, String> + Send>;

/// The tasks of the status service's thread besides answering requests.
#[derive(Default)]
pub struct Duties {
    /// The function that writes the status to a file every five seconds. `None` if the user wants
    /// no file.
    pub write: Option<WriteFigures>,
    /// The function that reads the plan's file again. `None` if the plan cannot be read again.
    pub load: Option<LoadPlan>,
    /// The flag that SIGHUP sets. The status service's thread sees it within a second and reads the
    /// plan again.
    pub hangup: Arc<AtomicBool>,
}

/// The thread that answers requests about a session. Dropping this value ends the thread and
/// removes the socket.
#[derive(Debug)]
pub struct Service {
    thread: Option<JoinHandle<()>>,
    /// The status service's thread ends when this stream is closed.
    wake: Option<UnixStream>,
    directory: Directory,
    name: String,
}

impl Service {
    /// Starts the thread that answers requests. It listens in `dir`, to which no other user may
    /// have access.
    ///
    /// # Errors
    ///
    /// Returns a [`StatusError`] if the directory or the socket cannot be used.
    pub fn start(dir: &Path, board: Arc<Board>, duties: Duties) -> Result<Service, StatusError> {
        Service::listen(dir, board, duties).map_err(|source| StatusError {
            dir: dir.to_path_buf(),
            source,
        })
    }

    fn listen(dir: &Path, board: Arc<Board>, duties: Duties) -> io::Result<Service> {
        let directory = Directory::private(dir)?;
        let name = sockets::name(std::process::id());
        // An earlier process with this id may have left a socket. A symbolic link is removed, not
        // followed.
        match directory.remove(&name) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        sockets::clear(&directory)?;
        let listener = UnixListener::bind(within(&directory, &name))?;
        listener.set_nonblocking(true)?;
        let (wake, woken) = UnixStream::pair()?;
        let worker = Worker {
            board,
            listener,
            woken,
            clients: Vec::new(),
            duties,
            written: Instant::now(),
        };
        let thread = std::thread::Builder::new().name("onbeat-status".into());
        let thread = thread.spawn(move || worker.run())?;
        Ok(Service {
            thread: Some(thread),
            wake: Some(wake),
            directory,
            name,
        })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = self.directory.remove(&self.name);
    }
}

pub(super) fn is_trusted(stream: &UnixStream) -> bool {
    let peer = rustix::net::sockopt::socket_peercred(stream);
    peer.is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
}

const WRITE_INTERVAL: Duration = Duration::from_secs(5);

impl Duties {
    fn reload(&mut self, board: &Board) -> Option<u64> {
        let load = self.load.as_mut()?;
        board.reloads().bring(load())
    }
}

struct Worker {
    board: Arc<Board>,
    listener: UnixListener,
    woken: UnixStream,
    clients: Vec<Client>,
    duties: Duties,
    written: Instant,
}

impl Worker {
    fn run(mut self) {
        while self.wait() {
            self.accept();
            let (board, duties) = (&self.board, &mut self.duties);
            self.clients
                .retain_mut(|client| client.proceed(board, duties));
            if duties.hangup.swap(false, Relaxed) {
                // The session reports the outcome in its notes.
                let _ = duties.reload(board);
            }
            if self.written.elapsed() >= WRITE_INTERVAL {
                self.written = Instant::now();
                if let Some(write) = &mut self.duties.write {
                    write(&self.board.status());
                }
            }
        }
    }

    fn wait(&self) -> bool {
        let is_full = self.clients.len() >= MAX_CLIENTS;
        let mut fds = vec![PollFd::new(&self.woken, PollFlags::IN)];
        if !is_full {
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        fds.extend(self.clients.iter().map(|client| {
            let flags = match client.step {
                Step::Asking => PollFlags::IN,
                Step::Reloading(_) => PollFlags::empty(),
                Step::Answered { .. } => PollFlags::OUT,
            };
            PollFd::new(&client.stream, flags)
        }));
        let reloading = |c: &Client| matches!(c.step, Step::Reloading(_));
        let is_reloading = self.clients.iter().any(reloading);
        let timeout = rustix::event::Timespec {
            tv_sec: i64::from(!is_reloading),
            tv_nsec: if is_reloading { OUTCOME_POLL_NS } else { 0 },
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => fds[0].revents().is_empty(),
            Err(_) => false,
        }
    }

    fn accept(&mut self) {
        while self.clients.len() < MAX_CLIENTS {
            let Ok((stream, _)) = self.listener.accept() else {
                return;
            };
            if is_trusted(&stream) && stream.set_nonblocking(true).is_ok() {
                self.clients.push(Client {
                    stream,
                    request: Vec::new(),
                    step: Step::Asking,
                    deadline: Instant::now() + CLIENT_TIMEOUT,
                });
            }
        }
    }
}

enum Step {
    Asking,
    Reloading(u64),
    Answered { text: Vec<u8>, written: usize },
}

struct Client {
    stream: UnixStream,
    request: Vec<u8>,
    step: Step,
    deadline: Instant,
}

impl Client {
    fn proceed(&mut self, board: &Board, duties: &mut Duties) -> bool {
        let is_late = Instant::now() >= self.deadline;
        if let Step::Reloading(number) = self.step {
            match board.reloads().outcome(number) {
                Some(reloaded) => self.answer(serde_json::json!(reloaded).to_string()),
                None if is_late => self.refuse(
                    "the session did not answer about the new plan in time. Send the request again",
                ),
                None => {}
            }
        } else if is_late {
            return false;
        }
        if matches!(self.step, Step::Asking) && !self.read(board, duties) {
            return false;
        }
        match &mut self.step {
            Step::Answered { text, written } => write_on(&mut self.stream, text, written),
            Step::Asking | Step::Reloading(_) => true,
        }
    }

    fn read(&mut self, board: &Board, duties: &mut Duties) -> bool {
        let mut bytes = [0; 512];
        loop {
            let read = match self.stream.read(&mut bytes) {
                Ok(0) => return false,
                Ok(read) => read,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return true,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return false,
            };
            self.request.extend_from_slice(&bytes[..read]);
            if let Some(end) = self.request.iter().position(|&b| b == b'\n') {
                let line = self.request[..end].to_vec();
                self.asked(&line, board, duties);
                return true;
            }
            if self.request.len() > MAX_REQUEST_BYTES {
                return false;
            }
        }
    }

    fn asked(&mut self, line: &[u8], board: &Board, duties: &mut Duties) {
        match line {
            b"status" => {
                let text = serde_json::to_string(&*board.status());
                self.answer(text.unwrap_or_default());
            }
            b"metrics" => self.answer(super::prometheus(&board.status())),
            b"reload" => match duties.reload(board) {
                Some(number) => {
                    self.deadline = Instant::now() + RELOAD_TIMEOUT;
                    self.step = Step::Reloading(number);
                }
                None => self.refuse(
                    "this session cannot read its plan again, or too many reloads are waiting. Try again later, or restart onbeat shape",
                ),
            },
            _ => self.refuse("unknown request. Send status, metrics or reload"),
        }
    }

    fn refuse(&mut self, why: &str) {
        self.answer(serde_json::json!({ "error": why }).to_string());
    }

    fn answer(&mut self, text: String) {
        self.deadline = Instant::now() + CLIENT_TIMEOUT;
        let text = (text + "\n").into_bytes();
        self.step = Step::Answered { text, written: 0 };
    }
}

fn write_on(stream: &mut UnixStream, text: &[u8], written: &mut usize) -> bool {
    while *written < text.len() {
        match stream.write(&text[*written..]) {
            Ok(0) => return false,
            Ok(count) => *written += count,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return true,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests;
