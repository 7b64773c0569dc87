//! The egress of one network interface: decides which connection sends the next chunk (thesis,
//! 5.4.2 and 5.4.3).
//!
//! ```
//! use onbeat_link::port::{Port, Settings};
//! use onbeat_link::{Key, Tcp};
//!
//! // 1 Gbit/s: urgent messages wait at most 1 ms for less urgent ones.
//! let port = Port::alone(Settings::of_rate(1_000_000_000))?;
//! let key = Key::from_bytes([7; 32]);
//! let brakes = Tcp::connect("10.0.0.2:7400".parse()?, key.clone()).on_port(&port, 200);
//! let camera = Tcp::connect("10.0.0.2:7401".parse()?, key).on_port(&port, 10);
//! # drop((brakes, camera));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Fixed-point preemption.** All messages and values are cut into chunks. Over all connections of
//! the port, the bytes that are posted and not acknowledged stay within a window. Between chunks
//! the most urgent transfer goes first: by static priority, and among equals the message that came
//! first. A message has its place from its push until its last chunk is written. So among all links
//! of one priority, messages leave in the order of their pushes. A more urgent message holds back
//! the others before its thread wakes up. *Written* means handed to TCP. TCP may keep a part back
//! until the peer acknowledges (its congestion window), and the next link's chunk can overtake that
//! part. *Acknowledged* means received by the peer's kernel, or over RDMA by its device: the bytes
//! have left this machine, whatever queues it has.
//!
//! **Not in the window:** counts (40 bytes each) and requests for values; handshakes; bytes that a
//! connection sends again.
//!
//! **Over processes.** [`Port::shared`] arbitrates all processes of this user that open the port by
//! the same name. Its memory is found as channels are ([`crate::channel`]): it has no file, and
//! goes with the last process. No process holds a lock. A process that dies, is stopped or stalls
//! keeps the others waiting for [`Settings::stall_ns`] at most. Its chunks count as gone when their
//! lease ends, and its wants are passed over. Bytes that it wrote just before it was stopped, and
//! after it goes on, can come on top of the window: a chunk for each of its connections.
//!
//! **Real time.** A chunk's way through the port allocates nothing and takes only its own
//! transfer's lock, for some dozen instructions and two system calls that do not wait.
//!
//! Each module uses those above it only:
//!
//! | module | job |
//! |---|---|
//! | `sys` | the kernel's calls |
//! | `meter` | the port's measured rate |
//! | `page` | the memory that transfers share |
//! | `arbiter` | the choice of the next transfer |
//! | `settings` | rate, chunk, window, limits |
//! | `transfer` | the sending side of a connection |
//! | `watch` | the thread that hears of acknowledgements |
//! | `stats` | counts |

mod arbiter;
mod meter;
mod page;
mod settings;
mod stats;
mod sys;
mod transfer;
mod watch;

use crate::error::LinkError;
use crate::quiet::Quiet;
use crate::steps::StepWords;
use page::Mapped;
use std::io::{IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use thiserror::Error;
use transfer::Transfer;
use watch::{Watch, Watched};

pub use settings::{Settings, SettingsError};
pub use stats::{PortStats, Sent, TransferStats};
pub(crate) use transfer::{Go, Turn};

/// The reasons why a port, or a place on a port, is not available.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Error)]
pub enum PortError {
    #[error("port: {0}")]
    Settings(#[from] SettingsError),
    #[error("port: {0}")]
    Memory(#[from] LinkError),
    #[error("port '{name}' has {theirs}, but this process wants {ours}. Give all processes the same settings.")]
    Differs {
        name: String,
        ours: Box<Settings>,
        theirs: Box<Settings>,
    },
    #[error("this user has no port '{name}'. Start a process that uses it.")]
    NotThere { name: String },
    #[error(
        "the port already has {} transfers, the most that it can hold. Close one of its links.",
        page::SEATS
    )]
    Full,
    #[error("port: cannot {what}: {source}")]
    System {
        what: &'static str,
        source: std::io::Error,
    },
}

/// The sending side of a network interface, which gives urgent messages precedence. Clones are the
/// same port.
#[derive(Clone)]
pub struct Port {
    mapped: Arc<Mapped>,
    settings: Settings,
    watch: Arc<Watch>,
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Port({})", self.settings)
    }
}

fn memory_name(name: &str) -> String {
    format!(".port/{name}")
}

impl Port {
    /// Makes a port for the connections of this process only.
    ///
    /// # Errors
    /// The settings are impossible, or the kernel gives no memory or thread.
    pub fn alone(settings: Settings) -> Result<Port, PortError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let settings = settings.check()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = memory_name(&format!("{}/{number}", std::process::id()));
        Port::of(Mapped::alone(&name, settings.terms())?, settings)
    }

    /// Opens the port of that name, which all processes of this user share. Name it after its
    /// network interface. Waits up to 5 s for another process that is creating the port. Not
    /// real-time safe: searches all processes of the machine.
    ///
    /// # Errors
    /// The errors of [`Port::alone`]. In addition, other processes may use the port with other
    /// settings.
    pub fn shared(name: &str, settings: Settings) -> Result<Port, PortError> {
        let settings = settings.check()?;
        let (mapped, terms) = Mapped::shared(&memory_name(name), settings.terms())?;
        let theirs = Settings::of_terms(terms);
        if theirs != settings {
            return Err(PortError::Differs {
                name: name.into(),
                ours: Box::new(settings),
                theirs: Box::new(theirs),
            });
        }
        Port::of(mapped, settings)
    }

    fn of(mapped: Mapped, settings: Settings) -> Result<Port, PortError> {
        let what = "start a thread";
        let watch = Watch::start().map_err(|source| PortError::System { what, source })?;
        Ok(Port {
            mapped: Arc::new(mapped),
            settings,
            watch: Arc::new(watch),
        })
    }

    /// Returns the settings with which the port was made.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// Reads the counts of the port's transfers in all processes. Not real-time safe.
    pub fn stats(&self) -> PortStats {
        stats::of(&self.mapped, self.settings)
    }

    /// Reads the counts of all transfers of the port of that name. The caller does not take a place
    /// on the port.
    ///
    /// # Errors
    /// No process has a port of this name.
    pub fn look(name: &str) -> Result<PortStats, PortError> {
        let found = Mapped::find(&memory_name(name))?;
        let not_there = || PortError::NotThere { name: name.into() };
        let (mapped, terms) = found.ok_or_else(not_there)?;
        Ok(stats::of(&mapped, Settings::of_terms(terms).check()?))
    }

    pub(crate) fn seat(
        &self,
        priority: u8,
        label: &str,
        steps: Option<Arc<dyn StepWords>>,
    ) -> Result<Seated, PortError> {
        let seat = self.mapped.sit(priority, label).ok_or(PortError::Full)?;
        let mapped = Arc::clone(&self.mapped);
        let transfer = Transfer::new(mapped, self.settings, (seat, priority), steps);
        let transfer = transfer.map_err(|source| {
            let what = "make an event";
            PortError::System { what, source }
        })?;
        Ok(Seated {
            transfer: Arc::new(transfer),
            watched: self.watch.watched(),
            _port: self.clone(),
        })
    }
}

pub(crate) struct Seated {
    transfer: Arc<Transfer>,
    watched: Arc<Watched>,
    _port: Port,
}

impl std::ops::Deref for Seated {
    type Target = Transfer;

    fn deref(&self) -> &Transfer {
        &self.transfer
    }
}

impl Seated {
    pub(crate) fn begin(&self, stream: &TcpStream) -> std::io::Result<()> {
        self.watched.begin(&self.transfer, stream)
    }

    pub(crate) fn end(&self) {
        self.watched.end(&self.transfer);
    }

    /// Makes the port's thread wait for acknowledgements from now on, because the thread that posts
    /// chunks waits for something else.
    pub(crate) fn hand_over(&self) {
        if self.transfer.hand_over() {
            self.watched.hear(&self.transfer);
        }
    }

    pub(crate) fn sleep(&self, bell: u32, until_ns: u64) {
        self.hand_over();
        self.transfer.sleep(bell, until_ns);
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.end();
    }
}

/// Makes the receiver's kernel send its acknowledgement at once, because the sender's window may
/// wait for it.
pub(crate) fn acknowledge_now(stream: &TcpStream) {
    sys::acknowledge_now(stream.as_fd());
}

/// The receiving side of a connection. It records when the kernel received the bytes that were read
/// last.
pub(crate) struct Arrivals<'a> {
    stream: &'a TcpStream,
    arrived_ns: &'a AtomicU64,
}

impl<'a> Arrivals<'a> {
    /// Reads from `stream`. After each read, writes the time at which the kernel received the last
    /// byte to `arrived_ns`, in ns of CLOCK_MONOTONIC.
    pub(crate) fn of(stream: &'a TcpStream, arrived_ns: &'a AtomicU64) -> Arrivals<'a> {
        sys::stamp_arrivals(stream.as_fd());
        Arrivals { stream, arrived_ns }
    }
}

impl Read for Arrivals<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let (read, arrived_ns) = sys::read_stamped(self.stream.as_fd(), into)?;
        if let Some(ns) = arrived_ns {
            self.arrived_ns.store(ns, Ordering::Relaxed);
        }
        Ok(read)
    }
}

pub(crate) struct Counted<'a> {
    pub(crate) stream: &'a TcpStream,
    pub(crate) transfer: Option<&'a Seated>,
    /// The written bytes are a chunk. The port gets a report when the peer has acknowledged the
    /// chunk.
    pub(crate) marked: bool,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> std::io::Result<usize> {
        match self.transfer {
            None => Quiet(self.stream).write_vectored(parts),
            Some(transfer) => transfer.write(self.stream, parts, self.marked),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
