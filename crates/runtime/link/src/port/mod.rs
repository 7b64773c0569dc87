//! The egress of one network interface: who sends the next chunk (thesis, 5.4.2 and 5.4.3).
//!
//! ```
//! use onbeat_link::port::{Port, Settings};
//! use onbeat_link::{Key, Tcp};
//!
//! // 1 Gbit/s: chunks such that nothing urgent waits more than 1 ms for what is less urgent.
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
//! first. A message has its place from its push until its last chunk is written: so what is pushed
//! first leaves first, over all links of one priority, and what is more urgent holds back the rest
//! before its thread wakes up. Written is what TCP has: it may keep a part back until the peer
//! acknowledges (its congestion window), and the next link's chunk can overtake that part.
//! *Acknowledged* is what the peer's kernel has, or over RDMA its device: so it has left this machine,
//! whatever queues it has.
//!
//! **Not in the window:** counts (40 bytes each) and questions for values; handshakes; what a
//! connection sends again.
//!
//! **Over processes.** [`Port::shared`] arbitrates all processes of this user that open the port by
//! the same name, in memory that is found as channels are ([`crate::channel`]): it has no file, and
//! is gone with the last process. Nobody has a lock. A process that dies, is stopped or stalls
//! keeps the others for [`Settings::stall_ns`] at most: its chunks count as gone when their lease
//! ends, and its wants are passed over. What it wrote just before it was stopped, and after it goes
//! on, can come on top of the window: a chunk for each of its connections.
//!
//! **Real time.** A chunk's way through the port allocates nothing and takes no lock but its own
//! transfer's, for some dozen instructions and two system calls that do not wait.
//!
//! Each module uses those above it only:
//!
//! | module | job |
//! |---|---|
//! | `sys` | the kernel's calls |
//! | `meter` | the rate that it has in fact |
//! | `page` | what transfers share |
//! | `arbiter` | who goes |
//! | `settings` | rate, chunk, window, limits |
//! | `transfer` | the sending side of a connection |
//! | `watch` | hearing of acknowledgements that no writer waits for |
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
use page::Mapped;
use std::io::{IoSlice, Write};
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

/// Why there is no port, or no place on it.
#[derive(Debug, Error)]
pub enum PortError {
    /// There can be none with these settings.
    #[error("port: {0}")]
    Settings(#[from] SettingsError),
    /// Its memory cannot be made or found.
    #[error("port: {0}")]
    Memory(#[from] LinkError),
    /// Other processes have it with other settings.
    #[error("port '{name}' has {theirs}; this process wants {ours}: give all the same")]
    Differs {
        /// Name of the port.
        name: String,
        /// Settings that were given.
        ours: Box<Settings>,
        /// Settings that it has.
        theirs: Box<Settings>,
    },
    /// Nobody has it.
    #[error("there is no port '{name}' of this user: is a process that uses it running?")]
    NotThere {
        /// Name of the port.
        name: String,
    },
    /// It has as many transfers as it can.
    #[error(
        "the port has {} transfers already: more are not possible",
        page::SEATS
    )]
    Full,
    /// The kernel has refused a call.
    #[error("port: cannot {what}: {source}")]
    System {
        /// What the call was for.
        what: &'static str,
        /// The kernel's error.
        source: std::io::Error,
    },
}

/// The egress of a network interface. Clones are the same port.
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

/// The name of a port's memory among those of channels.
fn memory_name(name: &str) -> String {
    format!(".port/{name}")
}

impl Port {
    /// A port for the connections of this process alone.
    ///
    /// # Errors
    /// The settings are impossible, or there is no memory or thread.
    pub fn alone(settings: Settings) -> Result<Port, PortError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let settings = settings.check()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = memory_name(&format!("{}/{number}", std::process::id()));
        Port::of(Mapped::alone(&name, settings.terms())?, settings)
    }

    /// The port of that name, which all processes of this user share that open it: name it by its
    /// interface. Waits up to 5 s for another process that is making it. Not real-time safe:
    /// searches all processes of the machine.
    ///
    /// # Errors
    /// As [`Port::alone`], or others have it with other settings.
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

    /// What it was made for.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// What its transfers have done, of all processes. Not real-time safe.
    pub fn stats(&self) -> PortStats {
        stats::of(&self.mapped, self.settings)
    }

    /// What the transfers of the port of that name have done, for a tool beside it.
    ///
    /// # Errors
    /// There is no such port.
    pub fn look(name: &str) -> Result<PortStats, PortError> {
        let found = Mapped::find(&memory_name(name))?;
        let not_there = || PortError::NotThere { name: name.into() };
        let (mapped, terms) = found.ok_or_else(not_there)?;
        Ok(stats::of(&mapped, Settings::of_terms(terms).check()?))
    }

    /// A transfer of its own.
    pub(crate) fn seat(&self, priority: u8, label: &str) -> Result<Seated, PortError> {
        let seat = self.mapped.sit(priority, label).ok_or(PortError::Full)?;
        let mapped = Arc::clone(&self.mapped);
        let transfer = Transfer::new(mapped, self.settings, seat, priority).map_err(|source| {
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

/// A transfer that its port watches.
pub(crate) struct Seated {
    transfer: Arc<Transfer>,
    watched: Arc<Watched>,
    /// Its thread lives as long as there are connections.
    _port: Port,
}

impl std::ops::Deref for Seated {
    type Target = Transfer;

    fn deref(&self) -> &Transfer {
        &self.transfer
    }
}

impl Seated {
    /// From now on it sends through this connection.
    pub(crate) fn begin(&self, stream: &TcpStream) -> std::io::Result<()> {
        self.watched.begin(&self.transfer, stream)
    }

    /// The connection has ended.
    pub(crate) fn end(&self) {
        self.watched.end(&self.transfer);
    }

    /// The posting thread waits for something else than what the peer acknowledges: the port's thread
    /// hears that.
    pub(crate) fn hand_over(&self) {
        if self.transfer.hand_over() {
            self.watched.hear(&self.transfer);
        }
    }

    /// Waits for the bell, until that instant (ns) at most.
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

/// The receiver's kernel acknowledges at once: the sender's window may wait for it.
pub(crate) fn acknowledge_now(stream: &TcpStream) {
    sys::acknowledge_now(stream.as_fd());
}

/// A connection as its writer sees it: counted, if it is on a port.
pub(crate) struct Counted<'a> {
    pub(crate) stream: &'a TcpStream,
    pub(crate) transfer: Option<&'a Seated>,
    /// What is written is a chunk, of whose acknowledgement the port is to hear.
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
