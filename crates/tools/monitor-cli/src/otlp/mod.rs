//! Sends the metrics to an OpenTelemetry collector: OTLP over HTTP, in JSON.
//!
//! A thread of its own sends, so that a slow collector delays neither the recorder nor the
//! judgement. At most one message waits: all figures of a message are in the next one, too, so a
//! newer message replaces it.
//!
//! | module | task |
//! |---|---|
//! | here | the thread |
//! | `message` | converts metrics to a message; pure |
//! | `endpoint` | parses the collector's address; pure |
//! | `post` | sends a message, and reads the answer |

mod endpoint;
mod message;
mod post;

pub use endpoint::Endpoint;

use crate::counters::Exports;
use crate::journal::Level;
use crate::metrics::Family;
use message::{message, Resource, Times};
use post::{post, Failure};
use std::io;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time within which the collector must accept a message of metrics.
const PATIENCE: Duration = Duration::from_secs(5);

/// The change of CLOCK_REALTIME against CLOCK_MONOTONIC, in ns, from which on the monitor assumes
/// that somebody has set the clock. A smaller change counts as a correction.
const STEP_NS: u64 = 60_000_000_000;

/// The longest pause before the next message. A collector that requests a longer pause gets this
/// one.
const PAUSE_MAX: Duration = Duration::from_secs(300);

#[derive(Default)]
struct Mail {
    body: Option<Vec<u8>>,
    is_last: bool,
}

#[derive(Default)]
struct Mailbox {
    mail: Mutex<Mail>,
    changed: Condvar,
}

pub struct Otlp {
    name: String,
    resource: Resource,
    /// The offset of CLOCK_REALTIME from CLOCK_MONOTONIC in ns, if the monitor judges a recorded
    /// trace. `None` if it watches a running system.
    recorded_offset_ns: Option<i128>,
    /// The time of the first event, in ns since 1970. `None` until the first message is sent.
    start_ns: Option<u64>,
    mailbox: Arc<Mailbox>,
    results: Receiver<Result<(), Failure>>,
    thread: Option<JoinHandle<()>>,
    counts: Exports,
    /// The number of messages that failed since the collector last accepted one.
    failures: u64,
}

impl Otlp {
    /// Starts the thread that sends metrics. `host` is the name of the observed machine.
    ///
    /// # Errors
    /// Returns the system's error if it cannot start a thread.
    pub fn begin(
        endpoint: Endpoint,
        host: String,
        recorded_offset_ns: Option<i128>,
    ) -> io::Result<Otlp> {
        let mailbox = Arc::new(Mailbox::default());
        let (report, results) = channel();
        let name = endpoint.to_string();
        let theirs = Arc::clone(&mailbox);
        let work = move || {
            // Strangers answer this thread, so it has no right of the recorder.
            onbeat_rights::keep([]);
            send_all(&endpoint, &theirs, &report);
        };
        let thread = std::thread::Builder::new().name("otlp".into());
        Ok(Otlp {
            name,
            resource: Resource { host },
            recorded_offset_ns,
            start_ns: None,
            mailbox,
            results,
            thread: Some(thread.spawn(work)?),
            counts: Exports::default(),
            failures: 0,
        })
    }

    /// Gives the metrics to the sending thread and returns at once. A message that is still waiting
    /// is replaced. `now_ns` is the time of the latest event (CLOCK_MONOTONIC), `elapsed_ns` the
    /// time from the first event to the latest.
    pub fn send(&mut self, families: &[Family], now_ns: u64, elapsed_ns: u64) {
        let now_ns = match self.recorded_offset_ns {
            Some(offset_ns) => u64::try_from(i128::from(now_ns) + offset_ns).unwrap_or(0),
            None => unix_ns(),
        };
        let times = times(self.start_ns, now_ns, elapsed_ns);
        self.start_ns = Some(times.start_ns);
        let body = message(families, &self.resource, times);
        let mut mail = self.mailbox.lock();
        let replaced = mail.body.replace(body.into_bytes());
        self.counts.replaced += u64::from(replaced.is_some());
        drop(mail);
        self.mailbox.changed.notify_one();
    }

    /// Handles the collector's answers to earlier messages. Returns a line for the journal when the
    /// collector fails for the first time, and when it accepts messages again.
    pub fn news(&mut self) -> Vec<(Level, String)> {
        let mut lines = Vec::new();
        for result in self.results.try_iter() {
            match result {
                Ok(()) => {
                    self.counts.sent += 1;
                    if self.failures > 0 {
                        let text = format!(
                            "the collector {} takes metrics again, after {} failures",
                            self.name, self.failures
                        );
                        lines.push((Level::Notice, text));
                    }
                    self.failures = 0;
                }
                Err(failure) => {
                    self.counts.failed += 1;
                    if self.failures == 0 {
                        let text = format!(
                            "the collector {} has not taken the metrics: {}. onbeat goes on, and tries again",
                            self.name, failure.why
                        );
                        lines.push((Level::Warning, text));
                    }
                    self.failures += 1;
                }
            }
        }
        lines
    }

    pub fn counts(&self) -> Exports {
        self.counts
    }

    /// Lets the thread send the last message and waits for this, but at most one second longer than
    /// [`PATIENCE`].
    pub fn end(&mut self) {
        self.mailbox.lock().is_last = true;
        self.mailbox.changed.notify_one();
        let until = Instant::now() + PATIENCE + Duration::from_secs(1);
        while self.thread.as_ref().is_some_and(|t| !t.is_finished()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}

impl Mailbox {
    fn lock(&self) -> std::sync::MutexGuard<'_, Mail> {
        // No thread panics while it holds the lock, so a poisoned value is whole.
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is a message and `pause` is over, and returns the message. The last
    /// message does not wait for the pause. Returns `None` if no message will follow.
    fn take(&self, pause: Duration) -> Option<Vec<u8>> {
        let until = Instant::now() + pause;
        let mut mail = self.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || mail.is_last {
                if let Some(body) = mail.body.take() {
                    return Some(body);
                }
            }
            if mail.is_last {
                return None;
            }
            let wait = match left.is_zero() {
                true => PAUSE_MAX,
                false => left,
            };
            let waited = self.changed.wait_timeout(mail, wait);
            mail = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn send_all(endpoint: &Endpoint, mailbox: &Mailbox, report: &Sender<Result<(), Failure>>) {
    let mut pause = Duration::ZERO;
    while let Some(body) = mailbox.take(pause) {
        let result = post(endpoint, &body, PATIENCE);
        pause = match &result {
            Err(Failure {
                retry_after: Some(after),
                ..
            }) => (*after).min(PAUSE_MAX),
            _ => Duration::ZERO,
        };
        if report.send(result).is_err() {
            return;
        }
    }
}

/// Returns the times for the next message. `start_ns` is the start of counting in the previous
/// message, which stays the same unless somebody has set the clock. `now_ns` is the present,
/// `elapsed_ns` the time since the first event.
fn times(start_ns: Option<u64>, now_ns: u64, elapsed_ns: u64) -> Times {
    let begin_ns = now_ns.saturating_sub(elapsed_ns);
    // After a step of the clock, counters begin at another time.
    let same = |start_ns: &u64| start_ns.abs_diff(begin_ns) < STEP_NS;
    let start_ns = start_ns.filter(same).unwrap_or(begin_ns);
    Times {
        start_ns,
        // A small step backwards may put the time before the start.
        now_ns: now_ns.max(start_ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exported_times_follow_a_step_of_the_clock_and_never_end_before_they_start() {
        const S: u64 = 1_000_000_000;
        let of = |start_s: u64, now_s, elapsed_s| {
            let found = times(Some(start_s * S), now_s * S, elapsed_s * S);
            (found.start_ns / S, found.now_ns / S)
        };
        assert_eq!(of(1000, 1010, 10), (1000, 1010));
        // Slewed by a second, set back by 30 s, set back by an hour, set forward by an hour.
        assert_eq!(of(1000, 1021, 20), (1000, 1021));
        assert_eq!(of(1000, 990, 20), (1000, 1000));
        assert_eq!(of(5000, 1410, 10), (1400, 1410));
        assert_eq!(of(1000, 4610, 10), (4600, 4610));
    }
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// Waits until the counts of sent and failed messages satisfy `is_enough`. Returns the lines
    /// that were meanwhile written to the journal.
    fn news_until(otlp: &mut Otlp, is_enough: impl Fn(Exports) -> bool) -> Vec<String> {
        let mut lines = Vec::new();
        let until = Instant::now() + Duration::from_secs(60);
        while !is_enough(otlp.counts()) {
            assert!(Instant::now() < until, "{:?} {lines:?}", otlp.counts());
            lines.extend(otlp.news().into_iter().map(|(_, line)| line));
            std::thread::sleep(Duration::from_millis(2));
        }
        lines
    }

    #[test]
    fn a_collector_that_is_away_or_hangs_delays_nothing_and_its_return_is_reported() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let endpoint: Endpoint = format!("http://{at}").parse().unwrap();
        let mut otlp = Otlp::begin(endpoint, "robot".into(), None).unwrap();
        let (go_on, wait) = channel::<()>();
        let (accept, accepted) = channel::<()>();
        let serving = std::thread::spawn(move || {
            let mut request = [0; 4096];
            for answer in ["503 x", "2OO x", "200 OK"] {
                let (mut stream, _) = listener.accept().unwrap();
                accept.send(()).unwrap();
                let _ = stream.read(&mut request);
                wait.recv().unwrap();
                let answer = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        otlp.send(&[], 5, 5);
        accepted.recv().unwrap();
        // The collector does not answer yet.
        (0..100).for_each(|_| otlp.send(&[], 5, 5));
        assert_eq!(otlp.counts().replaced, 99);
        assert!(otlp.mailbox.lock().body.is_some(), "one message waits");
        (0..2).for_each(|_| go_on.send(()).unwrap());
        let lines = news_until(&mut otlp, |counts| counts.failed == 2);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("the collector answers 503"), "{lines:?}");
        otlp.send(&[], 6, 6);
        go_on.send(()).unwrap();
        let lines = news_until(&mut otlp, |counts| counts.sent == 1);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("again, after 2 failures"), "{lines:?}");
        serving.join().unwrap();
        otlp.end();
        assert!(otlp.thread.as_ref().is_some_and(JoinHandle::is_finished));
    }
}
