//! The roles of the `transport` experiment: pacing, stamps, samples.
//!
//! `../../transport.h` has the same for C and C++.
//!
//! Beside `pub`, `sub`, `pair` and `thread` there are two roles for channels whose producer can be
//! made to wait:
//!
//! ```text
//! slow     consumes RATE_HZ items a second, and writes when it gave each one back (received)
//! flood    sends as fast as it may, and writes when it began to send each item (sent) and when
//!          that was done (received)
//! ```

use crate::protocol::{self, Words};
use crate::{die, now_ns, or_die, pin, sleep_until, used, Usage};

/// The number of messages at the beginning of a run that do not count. They warm up pools, caches
/// and connections.
pub const WARM_UP: i64 = 20;

const STAMP: usize = 24;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// The number of the message, negative during the warm-up.
    pub sequence: i64,
    /// The time at which the message was due to be sent, in ns of CLOCK_MONOTONIC.
    pub intended_ns: i64,
    /// The time at which sending began, in ns of CLOCK_MONOTONIC.
    pub sent_ns: i64,
    /// The time at which the receiver could read the message, in ns of CLOCK_MONOTONIC.
    pub received_ns: i64,
}

/// Writes the stamp into the first and last bytes of a payload, as a sender does that fills its
/// payload in place.
pub fn fill(payload: &mut [u8], sample: &Sample) {
    for (i, word) in [sample.sequence, sample.intended_ns, sample.sent_ns]
        .into_iter()
        .enumerate()
    {
        payload[i * 8..][..8].copy_from_slice(&word.to_le_bytes());
    }
    if let Some(last) = payload.last_mut() {
        *last = sample.sequence as u8;
    }
}

/// Reads the stamp from the first and last bytes of a message that has just arrived, and then the
/// clock for the time of arrival. Ends the program if the message is incomplete.
pub fn arrived(payload: &[u8]) -> Sample {
    let word = |i: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&payload[i * 8..][..8]);
        i64::from_le_bytes(bytes)
    };
    let mut sample = Sample {
        sequence: word(0),
        intended_ns: word(1),
        sent_ns: word(2),
        received_ns: 0,
    };
    let whole = std::hint::black_box(payload[payload.len() - 1]) == sample.sequence as u8;
    sample.received_ns = now_ns();
    if !whole {
        die("an incomplete message arrived");
    }
    sample
}

/// The functions that the peer program of each middleware provides. An endpoint is for one topic
/// and one message size.
pub trait Peer: Sync {
    type Writer;
    type Reader;
    fn writer(&self, topic: &str, bytes: usize) -> Self::Writer;
    fn reader(&self, topic: &str, bytes: usize) -> Self::Reader;
    fn matched(&self, writer: &Self::Writer, readers: usize) -> bool;
    /// Loans a payload, fills it with [`fill`], and sends it.
    fn send(&self, writer: &mut Self::Writer, sample: &Sample, bytes: usize);
    /// Takes a message and reads its stamp with [`arrived`]. Waits until the deadline
    /// (CLOCK_MONOTONIC) and returns `None` if no message comes. Without a deadline, does not wait.
    fn receive(&self, reader: &mut Self::Reader, deadline_ns: Option<i64>) -> Option<Sample>;
    /// Takes a message and gives it back to the producer at `at_ns`, or later if no message has
    /// arrived by then. Returns the message's number and the time just before it was given back.
    /// Returns `None` if no message comes. Only for middleware whose producer can wait.
    fn give_back_at(&self, _reader: &mut Self::Reader, _at_ns: i64) -> Option<(i64, i64)> {
        die("this program has no roles slow and flood, because its producers never wait")
    }
}

#[derive(Debug, Clone)]
pub struct Options {
    /// The role of the program: `pub`, `sub`, `pair`, `thread`, or a role that only this program
    /// has.
    pub role: String,
    /// The prefix of the names of topics. Each run has a prefix of its own, so that runs do not
    /// receive each other's messages.
    pub name: String,
    /// The number of readers that a publisher waits for. In a reader that polls: the number of its
    /// own subscriptions.
    pub readers: usize,
    pub spin: bool,
}

impl Options {
    /// Reads the settings from words. Ends the program if a setting is missing or wrong.
    pub fn new(words: &Words) -> Options {
        let number = or_die(words.number("readers"), "settings");
        Options {
            role: or_die(words.text("role"), "settings").into(),
            name: or_die(words.text("name"), "settings").into(),
            readers: if (1..=16).contains(&number) {
                number
            } else {
                die("readers= must be 1 to 16")
            },
            spin: words.text("wait") == Ok("spin"),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Run {
    pub bytes: usize,
    pub rate_hz: f64,
    /// The number of messages that count, after the warm-up.
    pub count: usize,
    pub file: String,
}

impl Run {
    pub fn period_ns(&self) -> i64 {
        (1e9 / self.rate_hz) as i64
    }

    pub fn next() -> Option<Run> {
        let words = protocol::next_run()?;
        let run = Run::read(&words);
        Some(run.unwrap_or_else(|why| die(why)))
    }

    fn read(words: &Words) -> Result<Run, String> {
        let run = Run {
            bytes: words.number("bytes")?,
            rate_hz: words.number("rate_hz")?,
            count: words.number("count")?,
            file: words.text("file")?.into(),
        };
        if run.bytes < STAMP || run.count == 0 || run.rate_hz <= 0.0 {
            return Err(
                "a run needs bytes= of at least 24, and rate_hz= and count= above 0".into(),
            );
        }
        Ok(run)
    }
}

/// Ends a run: reports the resources used since `began`, and writes the samples when the experiment
/// asks for them.
pub fn finish(run: &Run, messages: usize, began: &Usage, samples: &[Sample]) {
    protocol::done(messages, began);
    protocol::await_stop();
    write(&run.file, samples);
    protocol::written();
}

fn write(file: &str, samples: &[Sample]) {
    let bytes: Vec<u8> = samples
        .iter()
        .flat_map(|s| [s.sequence, s.intended_ns, s.sent_ns, s.received_ns])
        .flat_map(i64::to_le_bytes)
        .collect();
    or_die(std::fs::write(file, bytes), file);
}

/// Allocates memory for `count` samples and writes to it, so that the run has no page faults.
pub fn room(count: usize) -> Vec<Sample> {
    let mut samples = vec![
        Sample {
            sequence: -1,
            ..Sample::default()
        };
        count
    ];
    samples.clear();
    samples
}

struct Endpoints<'p, P: Peer> {
    peer: &'p P,
    options: &'p Options,
    writers: Vec<(usize, P::Writer)>,
    readers: Vec<(usize, Vec<P::Reader>)>,
}

impl<P: Peer> Endpoints<'_, P> {
    fn open_readers(&mut self, bytes: usize, count: usize) -> usize {
        let known = self.readers.iter().position(|r| r.0 == bytes);
        known.unwrap_or_else(|| {
            let topic = format!("{}_{bytes}", self.options.name);
            let made = (0..count)
                .map(|_| self.peer.reader(&topic, bytes))
                .collect();
            self.readers.push((bytes, made));
            self.readers.len() - 1
        })
    }

    fn open_writer(&mut self, bytes: usize, readers: usize) -> usize {
        if let Some(known) = self.writers.iter().position(|w| w.0 == bytes) {
            return known;
        }
        let topic = format!("{}_{bytes}", self.options.name);
        let writer = self.peer.writer(&topic, bytes);
        let limit = now_ns() + 30_000_000_000;
        while !self.peer.matched(&writer, readers) {
            if now_ns() > limit {
                die(format!("{readers} readers did not connect within 30 s"));
            }
            sleep_until(now_ns() + 2_000_000);
        }
        sleep_until(now_ns() + 100_000_000);
        self.writers.push((bytes, writer));
        self.writers.len() - 1
    }
}

/// Calls `each` for every message of a run at its due time. Returns the resources that the process
/// had used before the first message that counts. A late message does not move the due times of
/// later messages.
fn pace(run: &Run, start_ns: i64, mut each: impl FnMut(&Sample)) -> Usage {
    let mut began = used();
    let mut intended_ns = start_ns;
    for sequence in -WARM_UP..run.count as i64 {
        if sequence == 0 {
            began = used();
        }
        sleep_until(intended_ns);
        each(&Sample {
            sequence,
            intended_ns,
            sent_ns: now_ns(),
            received_ns: 0,
        });
        intended_ns += run.period_ns();
    }
    began
}

/// Receives the messages of a run until each subscription has its last message, or until no message
/// has arrived for two seconds.
fn take<P: Peer>(
    peer: &P,
    readers: &mut [P::Reader],
    spin: bool,
    run: &Run,
) -> (Vec<Sample>, Usage) {
    let mut samples = room(run.count * readers.len());
    let mut over = vec![false; readers.len()];
    let mut began = used();
    let mut limit = now_ns() + 30_000_000_000;
    let (mut at, mut polls) = (0, 0u64);
    while over.contains(&false) {
        let deadline = (!spin).then_some(limit);
        match peer.receive(&mut readers[at], deadline) {
            None => {
                polls += 1;
                // Reading the clock in each iteration would add to the latency.
                if (!spin || polls % 4096 == 0) && now_ns() > limit {
                    break;
                }
            }
            Some(sample) if sample.sequence >= 0 => {
                if samples.is_empty() {
                    began = used();
                }
                limit = sample.received_ns + 2_000_000_000;
                if samples.len() < samples.capacity() {
                    samples.push(sample);
                }
                over[at] |= sample.sequence == run.count as i64 - 1;
            }
            Some(_) => {}
        }
        at = (at + 1) % readers.len();
    }
    (samples, began)
}

fn alternate<P: Peer>(peer: &P, writer: &mut P::Writer, reader: &mut P::Reader, run: &Run) {
    let mut samples = room(run.count);
    let began = pace(run, protocol::await_start(), |sample| {
        peer.send(writer, sample, run.bytes);
        let came = peer.receive(reader, Some(sample.sent_ns + 1_000_000_000));
        samples.extend(came.filter(|s| s.sequence >= 0));
    });
    finish(run, samples.len(), &began, &samples);
}

fn slow<P: Peer>(peer: &P, reader: &mut P::Reader, run: &Run) {
    let mut samples = room(run.count);
    let mut began = used();
    let mut at_ns = protocol::await_start() + run.period_ns();
    while let Some((sequence, given_back_ns)) = peer.give_back_at(reader, at_ns) {
        at_ns = (at_ns + run.period_ns()).max(given_back_ns);
        if sequence == 0 {
            began = used();
        }
        if sequence >= 0 {
            samples.push(Sample {
                sequence,
                received_ns: given_back_ns,
                ..Sample::default()
            });
        }
        if sequence == run.count as i64 - 1 {
            break;
        }
    }
    finish(run, samples.len(), &began, &samples);
}

fn flood<P: Peer>(peer: &P, writer: &mut P::Writer, run: &Run) {
    let mut samples = room(run.count);
    // `slow` polls from one period after the start. An item that is sent earlier might find no
    // consumer and would not wait.
    sleep_until(protocol::await_start() + 2 * run.period_ns());
    let mut began = used();
    for sequence in -WARM_UP..run.count as i64 {
        if sequence == 0 {
            began = used();
        }
        let mut sample = Sample {
            sequence,
            sent_ns: now_ns(),
            ..Sample::default()
        };
        peer.send(writer, &sample, run.bytes);
        sample.received_ns = now_ns();
        if sequence >= 0 {
            samples.push(sample);
        }
    }
    finish(run, samples.len(), &began, &samples);
}

/// Runs a sending and a receiving thread. Each thread creates its own endpoint, because some
/// endpoints cannot move to another thread.
fn pair<P: Peer>(peer: &P, options: &Options, run: &Run) {
    let ends = || Endpoints {
        peer,
        options,
        writers: vec![],
        readers: vec![],
    };
    let (opened, open) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| {
            pin(1);
            let mut ends = ends();
            let at = ends.open_readers(run.bytes, 1);
            or_die(opened.send(()), "the sending thread");
            take(peer, &mut ends.readers[at].1, options.spin, run).0
        });
        or_die(open.recv(), "the receiving thread");
        let mut ends = ends();
        let at = ends.open_writer(run.bytes, 1);
        let writer = &mut ends.writers[at].1;
        let start_ns = protocol::await_start();
        let began = pace(run, start_ns, |sample| peer.send(writer, sample, run.bytes));
        let samples = or_die(beside.join(), "the receiving thread");
        finish(run, run.count, &began, &samples);
    });
}

pub fn serve<P: Peer>(peer: &P, options: &Options) {
    let mut ends = Endpoints {
        peer,
        options,
        writers: vec![],
        readers: vec![],
    };
    let role = options.role.as_str();
    if role == "pair" {
        pin(0);
    }
    while let Some(run) = Run::next() {
        let bytes = run.bytes;
        match role {
            "pub" => {
                let at = ends.open_writer(bytes, options.readers);
                let writer = &mut ends.writers[at].1;
                let start_ns = protocol::await_start();
                let began = pace(&run, start_ns, |sample| {
                    peer.send(writer, sample, run.bytes)
                });
                protocol::done(run.count, &began);
                protocol::await_stop();
                protocol::written();
            }
            "sub" => {
                let count = if options.spin { options.readers } else { 1 };
                let at = ends.open_readers(bytes, count);
                protocol::await_start();
                let (samples, began) = take(peer, &mut ends.readers[at].1, options.spin, &run);
                finish(&run, samples.len().saturating_sub(1), &began, &samples);
            }
            "thread" => {
                let r = ends.open_readers(bytes, 1);
                let w = ends.open_writer(bytes, 1);
                let reader = &mut ends.readers[r].1[0];
                alternate(peer, &mut ends.writers[w].1, reader, &run);
            }
            "pair" => pair(peer, options, &run),
            "slow" => {
                let at = ends.open_readers(bytes, 1);
                slow(peer, &mut ends.readers[at].1[0], &run);
            }
            "flood" => {
                let at = ends.open_writer(bytes, 1);
                flood(peer, &mut ends.writers[at].1, &run);
            }
            other => die(format!("unknown role '{other}'")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_received_message_has_the_times_of_its_sender() {
        let sent = Sample {
            sequence: -3,
            intended_ns: 5,
            sent_ns: 6,
            received_ns: 0,
        };
        let mut payload = vec![0; 64];
        fill(&mut payload, &sent);
        assert_eq!(payload[63], 253);
        let came = arrived(&payload);
        assert!(came.received_ns > 0);
        assert_eq!(
            Sample {
                received_ns: 0,
                ..came
            },
            sent
        );
    }
}
