//! Publishes a session's status as ROS 2 diagnostics: once a second, in the application's domain.
//!
//! A thread of normal priority makes messages of the latest status. It sends them to a process
//! beside the application's, which publishes them. Neither the session nor the thread waits for
//! that process. If it ends, the session reports it and goes on.
//!
//! | module | task |
//! |---|---|
//! | here | the thread |
//! | `message` | converts a status to statuses of `diagnostic_msgs`; pure |
//! | `publisher` | the publishing process, seen from its owner |

mod message;
mod publisher;

use super::post::Standing;
use super::Board;
use message::{Moment, Reporter};
use publisher::{Event, Publisher};
use std::path::PathBuf;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const MESSAGE_INTERVAL: Duration = Duration::from_secs(1);
const SEARCH_INTERVAL: Duration = Duration::from_millis(50);
/// The shortest and longest pause before a publisher that has ended is started again. The pause
/// doubles each time.
const RESTART_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The thread that publishes diagnostics. Dropping this value sends a last message, and ends the
/// thread and its process.
#[derive(Debug)]
pub(crate) struct Diagnostics {
    thread: Option<JoinHandle<()>>,
    /// Dropping this sender ends the thread.
    wake: Option<Sender<()>>,
}

impl Diagnostics {
    /// Starts the thread, which stays off `cpus`. `program` is the path of this program; the thread
    /// starts it again as the publisher.
    ///
    /// # Errors
    ///
    /// Returns the system's error if it cannot start a thread.
    pub(crate) fn start(
        board: Arc<Board>,
        program: PathBuf,
        cpus: &[u16],
    ) -> std::io::Result<Diagnostics> {
        let (wake, woken) = channel();
        let cpus = cpus.to_vec();
        board.post().ask();
        let thread = std::thread::Builder::new().name("onbeat-diagnose".into());
        let thread = thread.spawn(move || {
            keep_off(&cpus);
            Worker::new(board, program).run(&woken);
        })?;
        Ok(Diagnostics {
            thread: Some(thread),
            wake: Some(wake),
        })
    }
}

impl Drop for Diagnostics {
    fn drop(&mut self) {
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Keeps this thread and its children off `cpus` if the machine has other CPUs. Under sched_ext,
/// normal threads would run before those of servers.
fn keep_off(cpus: &[u16]) {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else {
        return;
    };
    let mut others = allowed;
    for cpu in cpus {
        others.unset((*cpu).into());
    }
    if others.count() > 0 {
        // If the system refuses it, the servers' priorities keep this thread off.
        let _ = rustix::thread::sched_setaffinity(None, &others);
    }
}

struct Worker {
    board: Arc<Board>,
    program: PathBuf,
    reporter: Reporter,
    began: Instant,
    publisher: Option<Publisher>,
    restart: (Instant, Duration),
    sent: Option<Instant>,
    is_unanswered: bool,
}

impl Worker {
    fn new(board: Arc<Board>, program: PathBuf) -> Worker {
        let now = Instant::now();
        Worker {
            board,
            program,
            reporter: Reporter::new(onbeat_proc::system::hostname()),
            began: now,
            publisher: None,
            restart: (now, RESTART_PAUSES.0),
            sent: None,
            is_unanswered: false,
        }
    }

    fn run(mut self, woken: &Receiver<()>) {
        loop {
            self.handle_replies();
            self.start();
            if self
                .sent
                .is_none_or(|sent| sent.elapsed() >= MESSAGE_INTERVAL)
            {
                self.send();
            }
            let is_ready = self.publisher.as_ref().is_some_and(|p| p.link.is_ready());
            let wait = match (is_ready, self.sent) {
                (true, Some(sent)) => MESSAGE_INTERVAL.saturating_sub(sent.elapsed()),
                _ => SEARCH_INTERVAL,
            };
            match woken.recv_timeout(wait) {
                Err(RecvTimeoutError::Timeout) => {}
                _ => break,
            }
        }
        self.send();
        if let Some(publisher) = self.publisher.take() {
            publisher.end();
        }
    }

    fn handle_replies(&mut self) {
        let Some(publisher) = &mut self.publisher else {
            return;
        };
        let post = self.board.post();
        for event in publisher.link.read_replies() {
            match event {
                Event::Ready => {
                    let statuses = self.reporter.will(&self.board.status().plan.chains);
                    publisher.link.will(&statuses);
                    post.set(Standing::Ready);
                }
                Event::NoPackage => post.set(Standing::NoPackage),
                Event::Published(number) => self.reporter.published(number),
            }
        }
        let Some(said) = publisher.ended() else {
            return;
        };
        self.publisher = None;
        self.reporter.forget_sent();
        let pause = self.restart.1;
        self.restart = (Instant::now() + pause, (pause * 2).min(RESTART_PAUSES.1));
        // Until the first publisher answers, the standing reports the end to the session.
        if !post.set_failed(&said) {
            post.add_note(format!(
                "The process that publishes diagnostics has ended ({said}). onbeat starts it again in {} s.",
                pause.as_secs()
            ));
        }
    }

    fn start(&mut self) {
        let post = self.board.post();
        if self.publisher.is_some() || Instant::now() < self.restart.0 || post.has_failed() {
            return;
        }
        let Some(beside) = post.take_process() else {
            return;
        };
        match Publisher::start(&self.program, beside) {
            Ok(publisher) => self.publisher = Some(publisher),
            Err(error) => {
                // The process may have ended. The session then offers another one.
                let pause = self.restart.1;
                self.restart = (Instant::now() + pause, (pause * 2).min(RESTART_PAUSES.1));
                post.add_note_once(format!("onbeat cannot publish diagnostics yet: {error}."));
            }
        }
    }

    fn send(&mut self) {
        let Some(publisher) = self.publisher.as_mut().filter(|p| p.link.is_ready()) else {
            return;
        };
        self.sent = Some(Instant::now());
        let (status, age) = self.board.published();
        let moment = Moment {
            now: self.began.elapsed(),
            age,
        };
        let (number, statuses) = self.reporter.report(&status, moment);
        let is_confirmed = publisher.link.publish(number, &statuses);
        if is_confirmed && self.reporter.is_confirmed() {
            // The publisher has run for a while, so the next pause is a short one.
            self.restart.1 = RESTART_PAUSES.0;
        }
        if !self.reporter.is_confirmed() && !self.is_unanswered {
            self.board.post().add_note(
                "The process that publishes diagnostics does not answer (is it stopped?). Shaping continues.".into(),
            );
        }
        self.is_unanswered = !self.reporter.is_confirmed();
    }
}
