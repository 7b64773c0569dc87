//! The thread that publishes diagnostics: about once a second, in the application's domain.
//!
//! A thread of normal priority sends messages to a process beside the application's, which
//! publishes them. Neither the session nor the thread waits for that process. If it ends, the
//! session reports it and goes on.

use super::post::{Post, Standing};
use super::publisher::{Event, Publisher};
use super::DiagnosticStatus;
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

const NO_FLOAT64: &str =
    "latencies are not published as Float64: the watched system's ROS 2 has no std_msgs. \
    Install the package there (ros-DISTRO-std-msgs), and start onbeat monitor again";

/// A source of the statuses that the thread of diagnostics publishes.
pub trait Source: Send {
    /// Returns the statuses of the message that the publisher sends if this process ends
    /// unexpectedly.
    fn will(&mut self) -> Vec<DiagnosticStatus>;

    /// Returns the next message: its number and its statuses.
    fn report(&mut self) -> (u32, Vec<DiagnosticStatus>);

    /// Notes that the publisher has published the message with this number.
    fn published(&mut self, number: u32);

    /// Forgets the messages to which the publisher did not reply before it ended.
    fn forget_sent(&mut self);

    /// Reports whether the publisher keeps replying: only the latest few messages may still have no
    /// reply.
    fn is_confirmed(&self) -> bool;

    /// Returns the numbers to publish together with the message that [`Source::report`] has just
    /// returned: each number with the topic on which it is published as `std_msgs/msg/Float64`.
    fn values(&mut self) -> Vec<(String, f64)> {
        Vec::new()
    }

    /// Returns the time between two messages to the publisher.
    fn interval(&self) -> Duration {
        MESSAGE_INTERVAL
    }
}

/// The thread that publishes diagnostics. Dropping this value sends a last message, and ends the
/// thread and the publisher's process.
#[derive(Debug)]
pub struct Diagnostics {
    thread: Option<JoinHandle<()>>,
    wake: Option<Sender<()>>,
}

impl Diagnostics {
    /// Starts the diagnostics thread, which does not run on `cpus`. The thread starts this program,
    /// whose path is `program`, once more as the publisher. `prepare` runs first in the thread.
    ///
    /// # Errors
    ///
    /// Returns the system's error if it cannot start a thread.
    pub fn start(
        source: Box<dyn Source>,
        post: Arc<Post>,
        program: PathBuf,
        cpus: &[u16],
        prepare: fn(),
    ) -> std::io::Result<Diagnostics> {
        let (wake, woken) = channel();
        let cpus = cpus.to_vec();
        post.ask();
        let thread = std::thread::Builder::new().name("onbeat-diagnose".into());
        let thread = thread.spawn(move || {
            prepare();
            keep_off(&cpus);
            Worker::new(source, post, program).run(&woken);
        })?;
        Ok(Diagnostics {
            thread: Some(thread),
            wake: Some(wake),
        })
    }

    /// Makes the thread send a message at once.
    pub fn wake(&self) {
        if let Some(wake) = &self.wake {
            // Fails only if the thread has ended.
            let _ = wake.send(());
        }
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
/// these normal threads would run before the servers' threads.
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
    source: Box<dyn Source>,
    post: Arc<Post>,
    program: PathBuf,
    publisher: Option<Publisher>,
    restart: (Instant, Duration),
    sent: Option<Instant>,
    is_unanswered: bool,
}

impl Worker {
    fn new(source: Box<dyn Source>, post: Arc<Post>, program: PathBuf) -> Worker {
        let now = Instant::now();
        Worker {
            source,
            post,
            program,
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
                .is_none_or(|sent| sent.elapsed() >= self.source.interval())
            {
                self.send();
            }
            let is_ready = self.publisher.as_ref().is_some_and(|p| p.link.is_ready());
            let wait = match (is_ready, self.sent) {
                (true, Some(sent)) => self.source.interval().saturating_sub(sent.elapsed()),
                _ => SEARCH_INTERVAL,
            };
            match woken.recv_timeout(wait) {
                Ok(()) => {
                    while woken.try_recv().is_ok() {}
                    self.send();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
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
        for event in publisher.link.read_replies() {
            match event {
                Event::Ready => {
                    let statuses = self.source.will();
                    publisher.link.will(&statuses);
                    self.post.set(Standing::Ready);
                }
                Event::NoPackage => self.post.set(Standing::NoPackage),
                Event::NoFloat64 => self.post.add_note_once(NO_FLOAT64.into()),
                Event::Published(number) => self.source.published(number),
            }
        }
        let Some(said) = publisher.ended() else {
            return;
        };
        self.publisher = None;
        self.source.forget_sent();
        let pause = self.restart.1;
        self.restart = (Instant::now() + pause, (pause * 2).min(RESTART_PAUSES.1));
        // Until the first publisher answers, the standing reports the end to the session.
        if !self.post.set_failed(&said) {
            self.post.add_note(format!(
                "The process that publishes diagnostics has ended ({said}). onbeat starts it again in {} s.",
                pause.as_secs()
            ));
        }
    }

    fn start(&mut self) {
        if self.publisher.is_some() || Instant::now() < self.restart.0 || self.post.has_failed() {
            return;
        }
        let Some(beside) = self.post.take_process() else {
            return;
        };
        match Publisher::start(&self.program, beside) {
            Ok(publisher) => self.publisher = Some(publisher),
            Err(error) => {
                // The process may have ended. The session then offers another one.
                let pause = self.restart.1;
                self.restart = (Instant::now() + pause, (pause * 2).min(RESTART_PAUSES.1));
                self.post
                    .add_note_once(format!("onbeat cannot publish diagnostics yet: {error}."));
            }
        }
    }

    fn send(&mut self) {
        let Some(publisher) = self.publisher.as_mut().filter(|p| p.link.is_ready()) else {
            return;
        };
        self.sent = Some(Instant::now());
        let (number, statuses) = self.source.report();
        let is_confirmed = publisher.link.publish(number, &statuses);
        for (topic, value) in self.source.values() {
            publisher.link.value(&topic, value);
        }
        if is_confirmed && self.source.is_confirmed() {
            // The publisher has run for a while, so the next pause is a short one.
            self.restart.1 = RESTART_PAUSES.0;
        }
        if !self.source.is_confirmed() && !self.is_unanswered {
            self.post.add_note(
                "The process that publishes diagnostics does not answer (is it stopped?). onbeat goes on.".into(),
            );
        }
        self.is_unanswered = !self.source.is_confirmed();
    }
}
