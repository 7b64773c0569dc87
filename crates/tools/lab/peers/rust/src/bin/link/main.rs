//! Plain TCP and onbeat's links in the `link` experiment: one process of one host.
//!
//! ```text
//! peer-link side=send|receive arm=ARM host=ADDRESS port=FIRST streams=0,1 s0=... s1=...
//!           [key=FILE] [credits=N] [turn=N] [network=yes] [consumers=N] [file=SAMPLES]
//! peer-link side=hog cpu=N
//! ```
//!
//! `../../../../README.md` describes the protocol, and `settings.rs` the streams. The receiver's
//! samples are lines `stream,number,intended_ns,sent_ns,received_ns,finished_ns`.
mod channels;
mod hog;
mod message;
mod multiplexed;
mod network;
mod settings;
mod ways;

use message::Stamp;
use network::Part;
use onbeat_peers::{die, now_ns, or_die, protocol, sleep_until, used};
use settings::{Settings, Stream};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

fn main() {
    if let Some(cpu) = hog::wanted() {
        hog::load_memory(cpu);
    }
    let settings = Arc::new(Settings::read().unwrap_or_else(|e| die(format!("peer-link: {e}"))));
    let fits = |s: &Stream| s.bytes == network::BYTES;
    if settings.network && !settings.streams.iter().all(fits) {
        die(format!(
            "peer-link: network= needs messages of {} bytes, the size of the map that its nodes exchange",
            network::BYTES
        ));
    }
    if settings.sends {
        send_all(&settings);
    } else {
        receive_all(&settings);
    }
}

#[derive(Default)]
struct Turns {
    state: Mutex<(usize, u64)>,
    changed: Condvar,
}

fn send_all(settings: &Arc<Settings>) {
    let mut senders = vec![];
    for stream in &settings.streams {
        let sender = ways::sender(settings, stream);
        let sender = sender.unwrap_or_else(|e| die(format!("peer-link: {e}")));
        senders.push((*stream, sender));
    }
    let start = protocol::await_start();
    let began = used();
    let (stopped, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(Turns::default()));
    let (mut finite, mut floods, mut messages) = (vec![], vec![], 0);
    for (place, (stream, sender)) in senders.into_iter().enumerate() {
        let (settings, stopped) = (Arc::clone(settings), Arc::clone(&stopped));
        let turns = Arc::clone(&turns);
        let thread = std::thread::spawn(move || {
            let mut sending = Sending {
                stream,
                sender,
                part: settings.network.then(|| Part::new(1)),
            };
            match settings.turn {
                Some(turn) => sending.in_turns(start, place, settings.streams.len(), turn, &turns),
                None => sending.by_time(start, &stopped),
            }
            sending
        });
        messages += stream.count as usize;
        match stream.count {
            0 => floods.push(thread),
            _ => finite.push(thread),
        }
    }
    // The senders are kept until the end, because dropping one would end its connection.
    let _kept: Vec<_> = finite
        .into_iter()
        .map(|t| or_die(t.join(), "sending"))
        .collect();
    protocol::done(messages, &began);
    protocol::await_stop();
    stopped.store(true, Ordering::Relaxed);
    protocol::written();
    // A flood may still be waiting for its receiver.
    let _ = std::io::stdin().read_line(&mut String::new());
    std::process::exit(0);
}

struct Sending {
    stream: Stream,
    sender: Box<dyn ways::Send>,
    part: Option<Part>,
}

impl Sending {
    fn one(&mut self, number: u64, intended_ns: i64) -> bool {
        let mut stamp = Stamp {
            stream: self.stream.id,
            number,
            intended_ns,
            sent_ns: 0,
        };
        let part = &self.part;
        self.sender
            .send(self.stream.bytes, &mut |message| match part {
                None => stamp.fill(message, now_ns),
                Some(part) => {
                    part.forward(message);
                    stamp.mark(message, now_ns);
                }
            })
    }

    fn by_time(&mut self, start: i64, stopped: &AtomicBool) {
        let first = start + self.stream.offset_ns;
        let mut number = 0;
        while self.stream.count == 0 || number < self.stream.count {
            let intended = first + number as i64 * self.stream.period_ns;
            sleep_until(intended);
            let intended = if self.stream.period_ns == 0 {
                now_ns()
            } else {
                intended
            };
            if stopped.load(Ordering::Relaxed) || !self.one(number, intended) {
                break;
            }
            number += 1;
        }
    }

    /// Sends in rounds. In a round, each stream sends `turn` messages, one stream after the other.
    /// Message numbers count over all streams. Every nine rounds, the first stream waits until its
    /// next message is due.
    fn in_turns(&mut self, start: i64, place: usize, places: usize, turn: u64, turns: &Turns) {
        const ROUNDS: u64 = 9;
        let per_experiment = ROUNDS * turn;
        for sent in 0..self.stream.count {
            if sent % turn == 0 {
                let mut state = or_die(turns.state.lock().map_err(|e| e.to_string()), "turns");
                while state.0 != place {
                    state = or_die(
                        turns.changed.wait(state).map_err(|e| e.to_string()),
                        "turns",
                    );
                }
            }
            if place == 0 && sent % per_experiment == 0 {
                sleep_until(start + (sent / per_experiment) as i64 * self.stream.period_ns);
            }
            let mut state = or_die(turns.state.lock().map_err(|e| e.to_string()), "turns");
            let number = state.1;
            state.1 += 1;
            drop(state);
            if !self.one(number, now_ns()) {
                die("peer-link: the receiver has closed the connection");
            }
            if sent % turn == turn - 1 {
                let mut state = or_die(turns.state.lock().map_err(|e| e.to_string()), "turns");
                state.0 = (place + 1) % places;
                turns.changed.notify_all();
            }
        }
    }
}

/// A received message: its stamp, and the times in ns at which it could be read and at which it was
/// processed.
type Received = (Stamp, i64, i64);

fn receive_all(settings: &Arc<Settings>) {
    let mut connecting = vec![];
    for stream in settings.streams.clone() {
        let settings = Arc::clone(settings);
        connecting.push(std::thread::spawn(move || {
            let receiver = ways::receiver(&settings, &stream);
            (
                stream,
                receiver.unwrap_or_else(|e| die(format!("peer-link: {e}"))),
            )
        }));
    }
    let receivers: Vec<_> = connecting
        .into_iter()
        .map(|t| or_die(t.join(), "connecting"))
        .collect();
    let samples = Arc::new(Mutex::new(Vec::<Received>::with_capacity(1 << 16)));
    let mut threads = vec![];
    let mut messages = 0;
    for (stream, mut receiver) in receivers {
        let (samples, network) = (Arc::clone(&samples), settings.network);
        messages += stream.count as usize;
        let thread = std::thread::spawn(move || {
            let mut part = network.then(|| Part::new(2));
            let mut next = 0;
            while stream.count == 0 || next < stream.count {
                let mut take = |message: &[u8]| {
                    let received = now_ns();
                    let stamp = Stamp::read(message);
                    let stamp = stamp.unwrap_or_else(|| die("peer-link: a message is incomplete"));
                    if let Some(part) = &mut part {
                        std::hint::black_box(part.backward(message));
                    }
                    let sample = (stamp, received, now_ns());
                    or_die(samples.lock().map_err(|e| e.to_string()), "samples").push(sample);
                };
                if !receiver.receive(&mut take) {
                    break;
                }
                next += 1;
            }
            receiver
        });
        if stream.count > 0 {
            threads.push(thread);
        }
    }
    let _start = protocol::await_start();
    let began = used();
    let _kept: Vec<_> = threads
        .into_iter()
        .map(|t| or_die(t.join(), "receiving"))
        .collect();
    protocol::done(messages, &began);
    protocol::await_stop();
    if let Ok(file) = settings.words.text("file") {
        write(
            file,
            &or_die(samples.lock().map_err(|e| e.to_string()), "samples"),
        );
    }
    protocol::written();
    let _ = std::io::stdin().read_line(&mut String::new());
    std::process::exit(0);
}

fn write(file: &str, samples: &[Received]) {
    let mut out = std::io::BufWriter::new(or_die(std::fs::File::create(file), file));
    for (s, received, finished) in samples {
        let (stream, number) = (s.stream, s.number);
        let line = format!(
            "{stream},{number},{},{},{received},{finished}\n",
            s.intended_ns, s.sent_ns
        );
        or_die(out.write_all(line.as_bytes()), file);
    }
    or_die(out.flush(), file);
}
