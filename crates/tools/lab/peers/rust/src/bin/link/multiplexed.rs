//! All streams of a process over one connection, as a comparison with one connection per class.
//!
//! Senders write their own chunks, the most urgent waiting chunk first. The socket's buffer holds
//! at most one window of sent and unsent bytes. One thread reads for all streams, so a slow stream
//! stops the others.

use crate::settings::{Settings, Stream};
use crate::ways::{accept, dial, Receive, Send};
use onbeat_peers::{die, set_send_buffer, writable};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::{Arc, Condvar, Mutex, OnceLock};

/// The size of a chunk in bytes. It equals the size that onbeat's links use at 1 Gbit/s.
const CHUNK: usize = 60 << 10;
const WINDOW: usize = 125_000;
const HEAD: usize = 8;
/// The offset of this arm's port from the first port of the run. A run has eight ports, and its
/// streams use the first ones.
const PORT: u16 = 7;

fn address(settings: &Settings) -> SocketAddr {
    SocketAddr::new(settings.host, settings.first_port + PORT)
}

#[derive(Default)]
struct Line {
    busy: bool,
    waiting: [u32; 3],
}

struct Shared {
    connection: TcpStream,
    line: Mutex<Line>,
    free: Condvar,
}

impl Shared {
    fn write(&self, priority: usize, chunk: &[u8]) -> bool {
        let Ok(mut line) = self.line.lock() else {
            return false;
        };
        line.waiting[priority] += 1;
        loop {
            let more_urgent = |l: &Line| l.waiting[priority + 1..].iter().any(|n| *n > 0);
            while line.busy || more_urgent(&line) {
                let Ok(woken) = self.free.wait(line) else {
                    return false;
                };
                line = woken;
            }
            line.busy = true;
            drop(line);
            let room = writable(&self.connection);
            let Ok(again) = self.line.lock() else {
                return false;
            };
            line = again;
            if !(room && more_urgent(&line)) {
                break;
            }
            line.busy = false;
            self.free.notify_all();
        }
        line.waiting[priority] -= 1;
        drop(line);
        let written = (&self.connection).write_all(chunk).is_ok();
        if let Ok(mut line) = self.line.lock() {
            line.busy = false;
        }
        self.free.notify_all();
        written
    }
}

struct Out {
    shared: Arc<Shared>,
    stream: Stream,
    message: Vec<u8>,
    chunk: Vec<u8>,
}

impl Send for Out {
    fn send(&mut self, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        fill(&mut self.message[..bytes]);
        self.message[..bytes].chunks(CHUNK).all(|part| {
            self.chunk.clear();
            self.chunk.extend(self.stream.id.to_le_bytes());
            self.chunk.extend((part.len() as u32).to_le_bytes());
            self.chunk.extend(part);
            self.shared
                .write(usize::from(self.stream.priority), &self.chunk)
        })
    }
}

/// Returns the sender of a stream. The first call in a process also makes the connection that all
/// streams share.
pub fn sender(settings: &Settings, stream: &Stream) -> Result<Box<dyn Send>, String> {
    static SHARED: OnceLock<Result<Arc<Shared>, String>> = OnceLock::new();
    let connect = || {
        let connection = dial(address(settings))?;
        connection.set_nodelay(true).map_err(|e| e.to_string())?;
        // The kernel doubles the size, because it includes its own records.
        set_send_buffer(&connection, WINDOW / 2)?;
        let (line, free) = Default::default();
        Ok(Arc::new(Shared {
            connection,
            line,
            free,
        }))
    };
    Ok(Box::new(Out {
        shared: SHARED.get_or_init(connect).clone()?,
        stream: *stream,
        message: vec![0; stream.bytes],
        chunk: Vec::with_capacity(HEAD + CHUNK),
    }))
}

/// The receiving end of a stream: the queue of received messages, and the queue in which empty
/// buffers return to the reading thread.
struct In {
    messages: Receiver<Vec<u8>>,
    back: SyncSender<Vec<u8>>,
}

impl Receive for In {
    fn receive(&mut self, take: &mut dyn FnMut(&[u8])) -> bool {
        let Ok(message) = self.messages.recv() else {
            return false;
        };
        take(&message);
        self.back.send(message).is_ok()
    }
}

struct Gathered {
    message: Vec<u8>,
    filled: usize,
    messages: SyncSender<Vec<u8>>,
    free: Receiver<Vec<u8>>,
}

fn read(mut connection: TcpStream, mut streams: BTreeMap<u32, Gathered>) {
    let mut head = [0; HEAD];
    while connection.read_exact(&mut head).is_ok() {
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let of = streams.get_mut(&word(0));
        let of = of.unwrap_or_else(|| die("peer-link: a chunk belongs to no stream"));
        let end = of.filled + word(4) as usize;
        let Some(part) = of.message.get_mut(of.filled..end) else {
            die("peer-link: a chunk is longer than the rest of its message");
        };
        if connection.read_exact(part).is_err() {
            return;
        }
        of.filled = end;
        if end == of.message.len() {
            let Ok(next) = of.free.recv() else { return };
            let whole = std::mem::replace(&mut of.message, next);
            of.filled = 0;
            if of.messages.send(whole).is_err() {
                return;
            }
        }
    }
}

/// Returns the receiver of a stream. The first call in a process also accepts the connection that
/// all streams share, and starts the thread that reads from it.
pub fn receiver(settings: &Settings, stream: &Stream) -> Result<Box<dyn Receive>, String> {
    static RECEIVERS: OnceLock<Mutex<Result<BTreeMap<u32, In>, String>>> = OnceLock::new();
    let listen = || {
        let connection = accept(address(settings))?;
        let (mut receivers, mut gathered) = (BTreeMap::new(), BTreeMap::new());
        for s in &settings.streams {
            let (to, messages) = sync_channel(settings.credits);
            let (back, free) = sync_channel(settings.credits + 1);
            for _ in 0..settings.credits {
                back.send(vec![0; s.bytes]).map_err(|e| e.to_string())?;
            }
            receivers.insert(s.id, In { messages, back });
            let of = Gathered {
                message: vec![0; s.bytes],
                filled: 0,
                messages: to,
                free,
            };
            gathered.insert(s.id, of);
        }
        std::thread::spawn(move || read(connection, gathered));
        Ok(receivers)
    };
    let all = RECEIVERS.get_or_init(|| Mutex::new(listen()));
    let mut all = all.lock().map_err(|e| e.to_string())?;
    let all = all.as_mut().map_err(|e| e.clone())?;
    let taken = all
        .remove(&stream.id)
        .ok_or("the stream already has a receiver")?;
    Ok(Box::new(taken))
}
