//! A session's status as ROS 2 diagnostics: once a second, in the application's domain.
//!
//! A thread of normal priority makes messages of the last status and sends them to a process beside the
//! application's, which publishes them. Neither the session nor that thread waits for that process, and
//! its end is told and harms nothing.
//!
//! | module | task |
//! |---|---|
//! | here | the thread |
//! | `message` | a status as statuses of `diagnostic_msgs`; pure |
//! | `publisher` | the process, seen from its owner |

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

/// Between two messages.
const EVERY: Duration = Duration::from_secs(1);
/// Until there is a publisher, it is looked for this often.
const LOOK: Duration = Duration::from_millis(50);
/// The pause before a publisher that has ended is started again: doubled each time, up to the last.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The running thread. Dropping it sends a last message, and ends it and the process.
#[derive(Debug)]
pub(crate) struct Diagnostics {
    thread: Option<JoinHandle<()>>,
    /// Its end ends the thread.
    wake: Option<Sender<()>>,
}

impl Diagnostics {
    /// Starts the thread; `program` is this one, which is started again to publish. It stays off `cpus`.
    ///
    /// # Errors
    ///
    /// The system's, if it starts no thread.
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
            Desk::new(board, program).run(&woken);
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

/// Runs this thread and what it starts on other CPUs than these, where there are others: under sched_ext
/// normal threads go before those of servers.
fn keep_off(cpus: &[u16]) {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else {
        return;
    };
    let mut others = allowed;
    for cpu in cpus {
        others.unset((*cpu).into());
    }
    if others.count() > 0 {
        // If it is refused, the servers' priorities keep it off.
        let _ = rustix::thread::sched_setaffinity(None, &others);
    }
}

/// What the thread has.
struct Desk {
    board: Arc<Board>,
    program: PathBuf,
    reporter: Reporter,
    began: Instant,
    publisher: Option<Publisher>,
    /// When a publisher may be started, and the pause behind its end.
    again: (Instant, Duration),
    /// When the last message was sent.
    sent: Option<Instant>,
    is_deaf: bool,
}

impl Desk {
    fn new(board: Arc<Board>, program: PathBuf) -> Desk {
        let now = Instant::now();
        Desk {
            board,
            program,
            reporter: Reporter::new(onbeat_proc::system::hostname()),
            began: now,
            publisher: None,
            again: (now, AGAIN.0),
            sent: None,
            is_deaf: false,
        }
    }

    fn run(mut self, woken: &Receiver<()>) {
        loop {
            self.hear();
            self.start();
            if self.sent.is_none_or(|sent| sent.elapsed() >= EVERY) {
                self.send();
            }
            let is_ready = self.publisher.as_ref().is_some_and(|p| p.link.is_ready());
            let wait = match (is_ready, self.sent) {
                (true, Some(sent)) => EVERY.saturating_sub(sent.elapsed()),
                _ => LOOK,
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

    /// Takes what the publisher says, or that it has ended.
    fn hear(&mut self) {
        let Some(publisher) = &mut self.publisher else {
            return;
        };
        let post = self.board.post();
        for event in publisher.link.hear() {
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
        let pause = self.again.1;
        self.again = (Instant::now() + pause, (pause * 2).min(AGAIN.1));
        // Before the first one, the session says it.
        if !post.set_failed(&said) {
            post.say(format!(
                "The process that publishes diagnostics has ended ({said}): it is started again in {} s.",
                pause.as_secs()
            ));
        }
    }

    /// Starts a publisher if none runs and a process of the application does.
    fn start(&mut self) {
        let post = self.board.post();
        if self.publisher.is_some() || Instant::now() < self.again.0 || post.is_hopeless() {
            return;
        }
        let Some(beside) = post.take_process() else {
            return;
        };
        match Publisher::start(&self.program, beside) {
            Ok(publisher) => self.publisher = Some(publisher),
            Err(error) => {
                // That process may have ended: another one is offered.
                let pause = self.again.1;
                self.again = (Instant::now() + pause, (pause * 2).min(AGAIN.1));
                post.say_once(format!("There are no diagnostics yet: {error}."));
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
        let is_heard = publisher.link.publish(number, &statuses);
        if is_heard && self.reporter.is_heard() {
            // It has lived for a while: the next pause is a short one.
            self.again.1 = AGAIN.0;
        }
        if !self.reporter.is_heard() && !self.is_deaf {
            self.board.post().say(
                "The process that publishes diagnostics does not answer (is it stopped?): shaping goes on.".into(),
            );
        }
        self.is_deaf = !self.reporter.is_heard();
    }
}
