//! A thread that answers on a Unix socket: one line of request, one answer, end.
//!
//! The socket lies in the directory of ledgers, which is root's alone, and the peer's user is asked of the kernel as
//! well. Clients cost little whatever they do: so many at a time, so many bytes of a request, so long; none is
//! waited for. The session is never waited for either.

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

/// Clients at a time. Others wait in the kernel until one of these is done.
const CLIENTS: usize = 8;
/// Longest request, bytes: a word.
const REQUEST: usize = 256;
/// A client that has not asked, or not read its answer, after this time is left.
const PATIENCE: Duration = Duration::from_secs(5);
/// A session says within this time what became of a new plan.
const RELOADED_WITHIN: Duration = Duration::from_secs(10);
/// While that is waited for, it is looked for this often, ns.
const LOOK_NS: i64 = 20_000_000;
/// Why a session has no socket.
#[derive(Debug, Error)]
#[error("no status socket in {}: {source}", dir.display())]
pub struct StatusError {
    /// The directory of sockets.
    pub dir: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

/// Writes figures somewhere, each time there are new ones.
pub type WriteFigures = Box<dyn FnMut(&Status) + Send>;
/// Reads the plan's file again, or says in a sentence why it is none.
pub type LoadPlan = Box<dyn FnMut() -> Result<Plan, String> + Send>;

/// What the thread does besides telling the status.
#[derive(Default)]
pub struct Duties {
    /// Gets the status every five seconds.
    pub write: Option<WriteFigures>,
    /// Called when the plan is to be read again. `None`: it cannot be.
    pub load: Option<LoadPlan>,
    /// Set by a signal to have the plan read again; seen within a second.
    pub hangup: Arc<AtomicBool>,
}

/// The running thread. Dropping it ends it and removes the socket.
#[derive(Debug)]
pub struct Service {
    thread: Option<JoinHandle<()>>,
    /// Its end ends the thread.
    wake: Option<UnixStream>,
    directory: Directory,
    name: String,
}

impl Service {
    /// Listens in `dir`, which must be this user's alone.
    ///
    /// # Errors
    ///
    /// [`StatusError`].
    pub fn start(dir: &Path, board: Arc<Board>, duties: Duties) -> Result<Service, StatusError> {
        Service::listen(dir, board, duties).map_err(|source| StatusError {
            dir: dir.to_path_buf(),
            source,
        })
    }

    fn listen(dir: &Path, board: Arc<Board>, duties: Duties) -> io::Result<Service> {
        let directory = Directory::private(dir)?;
        let name = sockets::name(std::process::id());
        // One that an earlier process with this id has left; a link is removed itself.
        match directory.remove(&name) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        sockets::clear(&directory)?;
        let listener = UnixListener::bind(within(&directory, &name))?;
        listener.set_nonblocking(true)?;
        let (wake, woken) = UnixStream::pair()?;
        let desk = Desk {
            board,
            listener,
            woken,
            clients: Vec::new(),
            duties,
            written: Instant::now(),
        };
        let thread = std::thread::Builder::new().name("onbeat-status".into());
        let thread = thread.spawn(move || desk.run())?;
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

/// Whether the process at the other end is root's or this user's.
pub(super) fn is_trusted(stream: &UnixStream) -> bool {
    let peer = rustix::net::sockopt::socket_peercred(stream);
    peer.is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
}

/// How often figures are written.
const WRITE_EVERY: Duration = Duration::from_secs(5);

impl Duties {
    /// Reads the plan's file and brings it to the session. The number of it on its way.
    fn reload(&mut self, board: &Board) -> Option<u64> {
        let load = self.load.as_mut()?;
        board.reloads().bring(load())
    }
}

/// What the thread has.
struct Desk {
    board: Arc<Board>,
    listener: UnixListener,
    woken: UnixStream,
    clients: Vec<Client>,
    duties: Duties,
    written: Instant,
}

impl Desk {
    fn run(mut self) {
        while self.wait() {
            self.accept();
            let (board, duties) = (&self.board, &mut self.duties);
            self.clients
                .retain_mut(|client| client.proceed(board, duties));
            if duties.hangup.swap(false, Relaxed) {
                // The session tells what comes of it.
                let _ = duties.reload(board);
            }
            if self.written.elapsed() >= WRITE_EVERY {
                self.written = Instant::now();
                if let Some(write) = &mut self.duties.write {
                    write(&self.board.status());
                }
            }
        }
    }

    /// Waits until there is something to do. False when it is over.
    fn wait(&self) -> bool {
        let is_full = self.clients.len() >= CLIENTS;
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
            tv_nsec: if is_reloading { LOOK_NS } else { 0 },
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => fds[0].revents().is_empty(),
            Err(_) => false,
        }
    }

    fn accept(&mut self) {
        while self.clients.len() < CLIENTS {
            let Ok((stream, _)) = self.listener.accept() else {
                return;
            };
            if is_trusted(&stream) && stream.set_nonblocking(true).is_ok() {
                self.clients.push(Client {
                    stream,
                    request: Vec::new(),
                    step: Step::Asking,
                    deadline: Instant::now() + PATIENCE,
                });
            }
        }
    }
}

/// Where a client is.
enum Step {
    /// Its request is not whole yet.
    Asking,
    /// The session has not said what becomes of the plan of this number.
    Reloading(u64),
    /// The answer, and how much of it was written.
    Answered { text: Vec<u8>, written: usize },
}

struct Client {
    stream: UnixStream,
    request: Vec<u8>,
    step: Step,
    deadline: Instant,
}

impl Client {
    /// Does what can be done without waiting. False when it is over.
    fn proceed(&mut self, board: &Board, duties: &mut Duties) -> bool {
        let is_late = Instant::now() >= self.deadline;
        if let Step::Reloading(number) = self.step {
            match board.reloads().outcome(number) {
                Some(reloaded) => self.answer(serde_json::json!(reloaded).to_string()),
                None if is_late => self.refuse("the session did not take the plan in time"),
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
            if self.request.len() > REQUEST {
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
                    self.deadline = Instant::now() + RELOADED_WITHIN;
                    self.step = Step::Reloading(number);
                }
                None => self.refuse("this session reads no plan again, or is asked too often"),
            },
            _ => self.refuse("asked for what is none of: status, metrics, reload"),
        }
    }

    fn refuse(&mut self, why: &str) {
        self.answer(serde_json::json!({ "error": why }).to_string());
    }

    fn answer(&mut self, text: String) {
        self.deadline = Instant::now() + PATIENCE;
        let text = (text + "\n").into_bytes();
        self.step = Step::Answered { text, written: 0 };
    }
}

/// Writes what the other side takes. False when all is written, or it takes nothing any more.
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
