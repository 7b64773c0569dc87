//! What the peers in Rust share: command line, pacing, stamps, and what a run used. The protocol is
//! that of `../peer.h`, which says how it goes.
//!
//! Two roles are added for channels on which a producer can be made to wait:
//!
//! ```text
//! slow     consumes RATE_HZ items a second, and writes when it gave each one back (received)
//! flood    sends as fast as it is let, and writes when it began to send each item (sent) and when
//!          that was done (received)
//! ```
mod system;

use std::fmt::Display;
use std::io::{BufRead, Write};

pub use system::{now_ns, pin, sleep_until, used, Usage};

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

/// Notes a message that can be read now: looks at its first and its last bytes.
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

/// Ends the program with one line.
pub fn die(why: impl Display) -> ! {
    eprintln!("{why}");
    std::process::exit(1)
}

/// The result, or the end of the program.
pub fn or_die<T, E: std::fmt::Debug>(result: Result<T, E>, what: &str) -> T {
    result.unwrap_or_else(|e| die(format!("{what}: {e:?}")))
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

/// How a peer is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// What the program does: `pub`, `sub`, `pair`, `thread`, or one of its own.
    pub role: String,
    /// Begin of the topics' names.
    pub name: String,
    /// Readers that are waited for; subscriptions of a reader that is busy waiting.
    pub readers: usize,
    /// Receivers wait busily.
    pub spin: bool,
    /// What else stands on the command line.
    pub rest: Vec<String>,
}

impl Options {
    /// From the command line.
    pub fn parse(program: &str) -> Options {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let usage = format!(
            "usage: {program} pub|sub|pair|thread|slow|flood NAME READERS sleep|spin [...]"
        );
        let [role, name, readers, wait, rest @ ..] = arguments.as_slice() else {
            die(usage);
        };
        let Ok(readers @ 1..=16) = readers.parse() else {
            die(usage);
        };
        Options {
            role: role.clone(),
            name: name.clone(),
            readers,
            spin: wait == "spin",
            rest: rest.to_vec(),
        }
    }
}

/// One line of standard input.
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
    fn period_ns(&self) -> i64 {
        (1e9 / self.rate_hz) as i64
    }

    /// The next line of standard input; `None` at its end.
    pub fn next() -> Option<Run> {
        let mut line = String::new();
        or_die(
            std::io::stdin().lock().read_line(&mut line),
            "standard input",
        );
        let words: Vec<&str> = line.split_whitespace().collect();
        let parsed = match words.as_slice() {
            [] => return None,
            ["run", bytes, rate_hz, count, file] => (|| {
                Some(Run {
                    bytes: bytes.parse().ok().filter(|b| *b >= STAMP)?,
                    rate_hz: rate_hz.parse().ok().filter(|r| *r > 0.0)?,
                    count: count.parse().ok().filter(|c| *c > 0)?,
                    file: file.to_string(),
                })
            })(),
            _ => None,
        };
        Some(parsed.unwrap_or_else(|| die(format!("cannot be understood: {line}"))))
    }
}

/// Says something to the laboratory.
pub fn say(line: impl Display) {
    let mut out = std::io::stdout().lock();
    or_die(
        writeln!(out, "{line}").and_then(|()| out.flush()),
        "standard output",
    );
}

/// Says that a run is over, and what it used.
pub fn done(messages: usize, since: &Usage) {
    let now = used();
    say(format!(
        "done {messages} {} {} {}",
        now.cpu_ns - since.cpu_ns,
        now.voluntary - since.voluntary,
        now.involuntary - since.involuntary
    ));
}

/// Writes the samples of a run.
pub fn write(file: &str, samples: &[Sample]) {
    let bytes: Vec<u8> = samples
        .iter()
        .flat_map(|s| [s.sequence, s.intended_ns, s.sent_ns, s.received_ns])
        .flat_map(i64::to_le_bytes)
        .collect();
    or_die(std::fs::write(file, bytes), file);
    say("written");
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

/// Calls `each` for every message of a run, and says what was used before the first that counts. The
/// grid of intended times is fixed: a message that is late does not move the next one.
fn pace(run: &Run, mut each: impl FnMut(&Sample)) -> Usage {
    let mut began = used();
    let mut intended_ns = now_ns() + 2_000_000;
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
                // Looking at the clock at each turn would be a part of the latency.
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
    let began = pace(run, |sample| {
        peer.send(writer, sample, run.bytes);
        let came = peer.receive(reader, Some(sample.sent_ns + 1_000_000_000));
        samples.extend(came.filter(|s| s.sequence >= 0));
    });
    done(samples.len(), &began);
    write(&run.file, &samples);
}

/// Consumes at a slow pace.
fn slow<P: Peer>(peer: &P, reader: &mut P::Reader, run: &Run) {
    let mut samples = room(run.count);
    let mut began = used();
    let mut at_ns = now_ns() + run.period_ns();
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
    done(samples.len(), &began);
    write(&run.file, &samples);
}

/// Sends as fast as it is let.
fn flood<P: Peer>(peer: &P, writer: &mut P::Writer, run: &Run) {
    let mut samples = room(run.count);
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
    done(samples.len(), &began);
    write(&run.file, &samples);
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
        let began = pace(run, |sample| peer.send(writer, sample, run.bytes));
        let samples = or_die(beside.join(), "the receiving thread");
        done(run.count, &began);
        write(&run.file, &samples);
    });
}

/// Does what standard input says, in one of the common roles.
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
                let began = pace(&run, |sample| peer.send(writer, sample, run.bytes));
                done(run.count, &began);
            }
            "sub" => {
                let count = if options.spin { options.readers } else { 1 };
                let at = ends.open_readers(bytes, count);
                say("open");
                let (samples, began) = take(peer, &mut ends.readers[at].1, options.spin, &run);
                done(samples.len().saturating_sub(1), &began);
                write(&run.file, &samples);
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
                say("open");
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
