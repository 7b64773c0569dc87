//! The roles of the `transport` experiment: pacing, stamps, samples. The same for C and C++ is in
//! `../../transport.h`.
//!
//! Beside `pub`, `sub`, `pair` and `thread` there are two roles for channels on which a producer
//! can be made to wait:
//!
//! ```text
//! slow     consumes RATE_HZ items a second, and writes when it gave each one back (received)
//! flood    sends as fast as it may, and writes when it began to send each item (sent) and when
//!          that was done (received)
//! ```

use crate::protocol::{self, Words};
use crate::{die, now_ns, or_die, pin, sleep_until, used, Usage};

/// Messages before the first that counts: pools, caches and connections are warm after them.
pub const WARM_UP: i64 = 20;

const STAMP: usize = 24;

/// What every message begins with, and when it was received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// Number of the message; negative during the warm-up.
    pub sequence: i64,
    /// When it was due to be sent.
    pub intended_ns: i64,
    /// When sending began.
    pub sent_ns: i64,
    /// When it could be read.
    pub received_ns: i64,
}

/// Writes what a message begins and ends with, as a sender that fills its payload in place would
/// begin and end.
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

/// Records a message that can be read now: reads its first and its last bytes.
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
        die("a message arrived that was not whole");
    }
    sample
}

/// What a peer has to bring. An endpoint is for one topic and size.
pub trait Peer: Sync {
    /// A side that sends.
    type Writer;
    /// A side that receives.
    type Reader;
    /// Makes a side that sends.
    fn writer(&self, topic: &str, bytes: usize) -> Self::Writer;
    /// Makes a side that receives.
    fn reader(&self, topic: &str, bytes: usize) -> Self::Reader;
    /// Whether so many readers are connected.
    fn matched(&self, writer: &Self::Writer, readers: usize) -> bool;
    /// Loans a payload, fills it with [`fill`], sends it.
    fn send(&self, writer: &mut Self::Writer, sample: &Sample, bytes: usize);
    /// Takes a message with [`arrived`], waiting until a deadline at most; `None` for the deadline:
    /// does not wait.
    fn receive(&self, reader: &mut Self::Reader, deadline_ns: Option<i64>) -> Option<Sample>;
    /// Takes a message and gives it back at a time, or as soon after it as there is one; its number
    /// and the time just before it was given back. Only for peers whose producer can wait.
    fn give_back_at(&self, _reader: &mut Self::Reader, _at_ns: i64) -> Option<(i64, i64)> {
        die("this peer has no producer that waits")
    }
}

/// How a peer is started: the settings of its command line.
#[derive(Debug, Clone)]
pub struct Options {
    /// What the program does: `pub`, `sub`, `pair`, `thread`, or one of its own.
    pub role: String,
    /// Begin of the topics' names.
    pub name: String,
    /// Readers that are waited for; subscriptions of a reader that spins.
    pub readers: usize,
    /// Receivers wait busily.
    pub spin: bool,
}

impl Options {
    /// From the settings of the command line.
    pub fn new(words: &Words) -> Options {
        let number = or_die(words.number("readers"), "settings");
        Options {
            role: or_die(words.text("role"), "settings").into(),
            name: or_die(words.text("name"), "settings").into(),
            readers: if (1..=16).contains(&number) {
                number
            } else {
                die("1 to 16 readers")
            },
            spin: words.text("wait") == Ok("spin"),
        }
    }
}

/// What a run is to do: the settings behind `run`.
#[derive(Debug, Clone)]
pub struct Run {
    /// Size of a message.
    pub bytes: usize,
    /// Messages a second.
    pub rate_hz: f64,
    /// Messages that count.
    pub count: usize,
    /// File of the samples.
    pub file: String,
}

impl Run {
    /// Time between two messages.
    pub fn period_ns(&self) -> i64 {
        (1e9 / self.rate_hz) as i64
    }

    /// The next run; `None` at the end of standard input.
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
            return Err("a run needs a size, a rate and a number of messages".into());
        }
        Ok(run)
    }
}

/// Ends a run: says what it used, and writes its samples when the experiment asks for them.
pub fn finish(run: &Run, messages: usize, began: &Usage, samples: &[Sample]) {
    protocol::done(messages, began);
    protocol::await_stop();
    write(&run.file, samples);
    protocol::written();
}

/// Writes the samples of a run.
fn write(file: &str, samples: &[Sample]) {
    let bytes: Vec<u8> = samples
        .iter()
        .flat_map(|s| [s.sequence, s.intended_ns, s.sent_ns, s.received_ns])
        .flat_map(i64::to_le_bytes)
        .collect();
    or_die(std::fs::write(file, bytes), file);
}

/// Room for samples that is in memory already.
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
    /// By size.
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

    /// Makes the writer and waits for its readers.
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

/// Calls `each` for every message of a run, and says what was used before the first that counts.
/// The grid of intended times is fixed: a message that is late does not move the next one.
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

/// The receiving side of a run: to the last message of each subscription, or until nothing has
/// come for two seconds.
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
                // Reading the clock at each turn would be a part of the latency.
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

/// Publishes and takes in turn, all on this thread.
fn alternate<P: Peer>(peer: &P, writer: &mut P::Writer, reader: &mut P::Reader, run: &Run) {
    let mut samples = room(run.count);
    let began = pace(run, protocol::await_start(), |sample| {
        peer.send(writer, sample, run.bytes);
        let came = peer.receive(reader, Some(sample.sent_ns + 1_000_000_000));
        samples.extend(came.filter(|s| s.sequence >= 0));
    });
    finish(run, samples.len(), &began, &samples);
}

/// Consumes at a slow pace.
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

/// Sends as fast as it may.
fn flood<P: Peer>(peer: &P, writer: &mut P::Writer, run: &Run) {
    let mut samples = room(run.count);
    // `slow` polls from one period after the start on. An item that is sent earlier may find nobody
    // and would not wait.
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

/// A sending and a receiving thread, each with an endpoint of its own, since some may not move from
/// one thread to another.
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

/// Does the runs that the experiment asks for, in one of the common roles.
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
            other => die(format!("no role '{other}'")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_when_it_was_sent_and_is_checked_at_both_ends() {
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
