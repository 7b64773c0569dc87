//! The interface layer between machines, over TCP.
//!
//! Each end has three threads: a reader, a writer and one that keeps it connected. The writer sends
//! counts first, then answers, then messages in chunks; the reader reads each chunk where it stays.
//! So there is no copy in user space on either side, or one each when sealed.
//!
//! **What a broken connection costs.** Time. The connecting end dials anew for as long as
//! [`Tcp::resume_within`] says, and both go on where the receiver is ([`crate::resume`]). A process
//! that was started anew cannot go on in place of the old one: that is [`End::Gone`].
//!
//! **The lock.** The halves share a lock with the threads. It is held for some dozen instructions,
//! never across a wait, and whoever holds it inherits the priority of who waits (PI futex).
//!
//! Each module uses those above it only:
//!
//! | module | job |
//! |---|---|
//! | `frame` | what runs through a connection |
//! | `key` | the key file |
//! | `handshake` | who the peer is, and whether the ends fit |
//! | `dial` | sockets and their options |
//! | `door` | handshakes of those who come |
//! | `stream` | frames in clear or sealed |
//! | `slots` | the end's memory |
//! | `state` | what the threads share |
//! | `threads` | writing and reading |
//! | `supervise` | staying connected |
//! | `ends` | the two halves |
//!
//! [`End::Gone`]: crate::interface::End::Gone

pub(crate) mod dial;
pub(crate) mod door;
mod ends;
pub mod frame;
#[doc(hidden)]
pub mod fuzzing;
pub mod handshake;
mod key;
mod slots;
mod state;
mod stream;
pub(crate) mod supervise;
mod threads;

use crate::interface::{Backend, Halves, Memory, Refusal, SetupError, Sizes};
use crate::port::Port;
use crate::quiet::Waking;
use crate::status::{self, counted, Directions, Page};
use door::Door;
use ends::{TcpIncoming, TcpOutgoing, Threads};
use handshake::{Agreed, Failed, Hello};
use onbeat_flow::clock::now_ns;
use slots::Slots;
use state::Shared;
use std::io::PipeReader;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use supervise::{Terms, Way};

pub use key::{Key, KeyError};

/// Links between machines.
#[derive(Debug)]
pub struct Tcp {
    pub(crate) way: Place,
    pub(crate) key: Key,
    chunk: usize,
    sealed: bool,
    resume_within: Duration,
    port: Option<(Port, u8)>,
}

/// The end's own address, or the peer's.
#[derive(Debug)]
pub(crate) enum Place {
    Listen(TcpListener),
    Connect(SocketAddr),
}

impl Tcp {
    /// The end to which another one connects. With port 0 the kernel chooses one
    /// ([`Tcp::address`]).
    ///
    /// # Errors
    /// The address is in use or not this machine's.
    pub fn listen(address: SocketAddr, key: Key) -> Result<Tcp, SetupError> {
        let listener = dial::listen(address);
        let listener = listener.map_err(system(address, "listen"))?;
        Ok(Tcp::new(Place::Listen(listener), key))
    }

    /// The end that connects.
    pub fn connect(address: SocketAddr, key: Key) -> Tcp {
        Tcp::new(Place::Connect(address), key)
    }

    fn new(way: Place, key: Key) -> Tcp {
        Tcp {
            way,
            key,
            chunk: 64 << 10,
            sealed: true,
            resume_within: Duration::from_secs(30),
            port: None,
        }
    }

    /// Sends through a port: between chunks the most urgent of all its transfers goes first. Larger
    /// priorities are more urgent; all messages of a link have the same. Chunks are the port's from
    /// now on: the other end needs [`Tcp::chunk_bytes`] with
    /// [`Settings::chunk`](crate::port::Settings::chunk), if it is on no such port.
    pub fn on_port(mut self, port: &Port, priority: u8) -> Tcp {
        self.chunk = port.settings().chunk();
        self.port = Some((port.clone(), priority));
        self
    }

    /// Bytes of a chunk, between which what is more urgent goes first; 64 KiB by default. Both ends
    /// must have the same.
    pub fn chunk_bytes(mut self, bytes: usize) -> Tcp {
        self.chunk = bytes.clamp(1, 1 << 30);
        self
    }

    /// Without encryption after the handshake: the peers are still authenticated at the beginning,
    /// but whoever can write into the connection can change what follows. For networks of one's
    /// own. Both ends must do the same.
    pub fn in_clear(mut self) -> Tcp {
        self.sealed = false;
        self
    }

    /// How long a broken link is to be resumed; 30 s by default. Until then sends wait for credits.
    pub fn resume_within(mut self, time: Duration) -> Tcp {
        self.resume_within = time;
        self
    }

    /// The address at which it listens, or to which it connects.
    pub fn address(&self) -> SocketAddr {
        match &self.way {
            Place::Connect(address) => *address,
            // A listening socket has an address.
            Place::Listen(listener) => listener.local_addr().expect("it is bound"),
        }
    }

    /// Bytes of less urgent data that may leave before what is more urgent. On a port its window,
    /// over all connections. Without one the chunk that this end is writing, and what the kernel
    /// holds for it (SO_SNDBUF, which it doubles).
    pub fn bytes_ahead(&self) -> usize {
        match &self.port {
            Some((port, _)) => port.settings().window_bytes() as usize,
            None => self.chunk + 2 * dial::SOCKET_BYTES,
        }
    }

    /// How long these delay it, in ns, on a link of that rate.
    pub fn ahead_ns(&self, bits_per_second: u64) -> u64 {
        let bits = self.bytes_ahead() as u128 * 8;
        let ns = bits * 1_000_000_000 / u128::from(bits_per_second.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// The socket of an end that listens.
    pub(crate) fn listener(&self) -> Option<&TcpListener> {
        match &self.way {
            Place::Connect(_) => None,
            Place::Listen(listener) => Some(listener),
        }
    }

    /// The same end with the same options.
    pub(crate) fn again(&self) -> std::io::Result<Tcp> {
        Ok(Tcp {
            way: match &self.way {
                Place::Connect(address) => Place::Connect(*address),
                Place::Listen(listener) => Place::Listen(listener.try_clone()?),
            },
            key: self.key.clone(),
            port: self.port.clone(),
            ..*self
        })
    }

    fn peer(&self) -> String {
        self.address().to_string()
    }

    pub(crate) fn refused(&self, reason: Refusal) -> SetupError {
        let peer = self.peer();
        SetupError::Refused { peer, reason }
    }

    /// The page of an end that waits for its peer.
    pub(crate) fn page(&self, backend: status::Backend, sizes: Sizes) -> Option<Arc<Page>> {
        let listens = matches!(self.way, Place::Listen(_));
        Page::new(backend, listens, &self.peer(), sizes)
    }

    /// What recordings know the link by: its session, and the address that the connecting end has
    /// used.
    pub(crate) fn directions(
        &self,
        kind: &str,
        stream: &TcpStream,
        session: handshake::Session,
    ) -> Directions {
        let listens = matches!(self.way, Place::Listen(_));
        let place = if listens {
            stream.local_addr()
        } else {
            stream.peer_addr()
        };
        let place = place.unwrap_or_else(|_| self.address());
        Directions::between(session.bytes(), &format!("{kind}/{place}"), listens)
    }

    /// The first connection of a session.
    pub(crate) fn meet(
        &self,
        terms: &Terms,
        wake: &mut PipeReader,
        deadline_ns: Option<u64>,
    ) -> Result<(TcpStream, Agreed), SetupError> {
        let mut refused = None;
        let mut door = match &self.way {
            Place::Listen(listener) => Door::new(listener, &terms.key, terms.hello)
                .map(Some)
                .map_err(system(self.address(), "make a pipe"))?,
            Place::Connect(_) => None,
        };
        loop {
            let met = match &mut door {
                None => supervise::dial(self.address(), &terms.key, terms.hello),
                Some(door) => door
                    .greet(wake, deadline_ns)
                    .unwrap_or_else(|| Err(Failed::Broken(std::io::ErrorKind::TimedOut.into()))),
            };
            let failed = match met {
                Ok(met) => {
                    terms.met(&met.0);
                    return Ok(met);
                }
                Err(failed) => failed,
            };
            terms.not_met(&failed);
            let listens = matches!(self.way, Place::Listen(_));
            let last = supervise::is_final(&failed) && !listens;
            match failed {
                Failed::Refused(reason) if last => return Err(self.refused(reason)),
                Failed::Refused(reason) => refused = Some(reason),
                Failed::Broken(_) => {}
            }
            if deadline_ns.is_some_and(|d| now_ns() >= d) {
                let peer = self.peer();
                return Err(SetupError::NoPeer { peer, refused });
            }
            if !listens {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

pub(crate) fn system(
    peer: SocketAddr,
    what: &'static str,
) -> impl FnOnce(std::io::Error) -> SetupError {
    move |source| SetupError::System {
        peer: peer.to_string(),
        what,
        source,
    }
}

impl Backend for Tcp {
    fn initialize(
        &self,
        sizes: Sizes,
        memory: Memory,
        deadline_ns: Option<u64>,
    ) -> Result<Halves, SetupError> {
        let slots = Slots::new(sizes, memory)?;
        let page = self.page(status::Backend::Tcp, sizes);
        let mut terms = Terms {
            page: page.clone(),
            key: self.key.clone(),
            hello: Hello {
                sizes,
                chunk: self.chunk,
                sealed: self.sealed,
                session: None,
                is_unheard: false,
            },
            resume_within_ns: u64::try_from(self.resume_within.as_nanos()).unwrap_or(u64::MAX),
        };
        let seat = |(port, priority): &(Port, u8)| port.seat(*priority, &self.peer());
        let seat = self.port.as_ref().map(seat).transpose()?;
        let address = self.address();
        let failed = |what| system(address, what);
        let (mut wake, waking) = Waking::new().map_err(failed("make a pipe"))?;
        let (stream, agreed) = self.meet(&terms, &mut wake, deadline_ns)?;
        let links = self.directions("tcp", &stream, agreed.session);
        terms.hello.session = Some(agreed.session);

        let shared = Shared::new(sizes, self.chunk, slots, seat).counting_in(page.clone());
        let shared = Arc::new(shared);
        shared.install(stream, self.sealed.then_some(agreed.keys));
        let way = match &self.way {
            Place::Connect(address) => Way::Connect(*address),
            Place::Listen(listener) => {
                let listener = listener.try_clone();
                Way::Listen(listener.map_err(failed("use the socket"))?)
            }
        };
        let threads = Threads::start(Arc::clone(&shared), way, terms, (wake, waking));
        let threads = threads.map_err(failed("start threads"))?;
        let outgoing = TcpOutgoing {
            shared: Arc::clone(&shared),
            _threads: Arc::clone(&threads),
        };
        let incoming = TcpIncoming {
            shared,
            _threads: threads,
        };
        let halves: Halves = (Box::new(outgoing), Box::new(incoming));
        Ok(counted(page, Some(links), sizes, halves))
    }
}
