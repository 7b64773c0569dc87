//! Links between machines: the interface layer over TCP.
//!
//! Each end has three threads: a reader, a writer and one that keeps it connected. The writer sends
//! counts first, then answers, then messages in chunks. The reader reads each chunk directly into
//! its slot. So neither side copies in user space; if sealed, each side copies once.
//!
//! **Broken connections** cost only time. The connecting end dials again for as long as
//! [`Tcp::resume_within`] says, and both continue where the receiver is ([`crate::resume`]). A
//! restarted process cannot continue in place of the old one: the peer gets [`End::Gone`].
//!
//! **The lock.** The halves share a lock with the threads. A thread holds it for some dozen
//! instructions, never across a wait. The holder inherits the priority of a waiting thread (PI
//! futex).
//!
//! Each module uses those above it only:
//!
//! | module | job |
//! |---|---|
//! | `frame` | the frames of a connection |
//! | `key` | the key file |
//! | `handshake` | proving the key, and comparing sizes and options |
//! | `dial` | sockets and their options |
//! | `door` | handshakes of arriving connections |
//! | `stream` | frames in clear or sealed |
//! | `slots` | the end's memory |
//! | `state` | the state that the threads share |
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
use crate::steps::StepWords;
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
use supervise::{Route, Terms};

pub use key::{Key, KeyError};

/// A backend that links machines over TCP.
#[derive(Debug)]
pub struct Tcp {
    pub(crate) place: Place,
    pub(crate) key: Key,
    chunk: usize,
    sealed: bool,
    resume_within: Duration,
    port: Option<(Port, u8)>,
}

#[derive(Debug)]
pub(crate) enum Place {
    Listen(TcpListener),
    Connect(SocketAddr),
}

impl Tcp {
    /// Makes the end that listens at `address` for one peer. With port 0 the kernel chooses a port
    /// ([`Tcp::address`]).
    ///
    /// # Errors
    /// The address is in use or does not belong to this machine.
    pub fn listen(address: SocketAddr, key: Key) -> Result<Tcp, SetupError> {
        let listener = dial::listen(address);
        let listener = listener.map_err(system(address, "listen"))?;
        Ok(Tcp::new(Place::Listen(listener), key))
    }

    /// Makes the end that connects to `address`.
    pub fn connect(address: SocketAddr, key: Key) -> Tcp {
        Tcp::new(Place::Connect(address), key)
    }

    fn new(place: Place, key: Key) -> Tcp {
        Tcp {
            place,
            key,
            chunk: 64 << 10,
            sealed: true,
            resume_within: Duration::from_secs(30),
            port: None,
        }
    }

    /// Sends through a port. Before each chunk, the port chooses the most urgent of all its
    /// transfers. Larger priorities are more urgent. All messages of a link have the same priority.
    /// The port sets the chunk size. If the other end is not on a port with the same chunk size, it
    /// needs [`Tcp::chunk_bytes`] with [`Settings::chunk`](crate::port::Settings::chunk).
    pub fn on_port(mut self, port: &Port, priority: u8) -> Tcp {
        self.chunk = port.settings().chunk();
        self.port = Some((port.clone(), priority));
        self
    }

    /// Sets the size of chunks, 64 KiB by default. A more urgent message can leave between two
    /// chunks. Both ends must use the same size.
    pub fn chunk_bytes(mut self, bytes: usize) -> Tcp {
        self.chunk = bytes.clamp(1, 1 << 30);
        self
    }

    /// Turns encryption off after the handshake; both ends must do so. The ends still authenticate
    /// each other at the beginning. Later, anybody who can write into the connection can change its
    /// data. Use it in private networks only.
    pub fn in_clear(mut self) -> Tcp {
        self.sealed = false;
        self
    }

    /// Sets how long the ends try to resume a broken link; 30 s by default. During this time, sends
    /// wait for credits.
    pub fn resume_within(mut self, time: Duration) -> Tcp {
        self.resume_within = time;
        self
    }

    /// Returns the address at which this end listens, or to which it connects.
    pub fn address(&self) -> SocketAddr {
        match &self.place {
            Place::Connect(address) => *address,
            // A listening socket has an address.
            Place::Listen(listener) => listener.local_addr().expect("it is bound"),
        }
    }

    /// Returns how many bytes of less urgent data may leave before a more urgent message. On a port
    /// this is the window, over all connections. Without a port it is one chunk plus the kernel's
    /// buffer (SO_SNDBUF, which the kernel doubles).
    pub fn bytes_ahead(&self) -> usize {
        match &self.port {
            Some((port, _)) => port.settings().window_bytes() as usize,
            None => self.chunk + 2 * dial::SOCKET_BYTES,
        }
    }

    /// Returns how long the bytes of [`Tcp::bytes_ahead`] delay a more urgent message on a link of
    /// this rate, in ns.
    pub fn ahead_ns(&self, bits_per_second: u64) -> u64 {
        let bits = self.bytes_ahead() as u128 * 8;
        let ns = bits * 1_000_000_000 / u128::from(bits_per_second.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    pub(crate) fn listener(&self) -> Option<&TcpListener> {
        match &self.place {
            Place::Connect(_) => None,
            Place::Listen(listener) => Some(listener),
        }
    }

    pub(crate) fn again(&self) -> std::io::Result<Tcp> {
        Ok(Tcp {
            place: match &self.place {
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

    pub(crate) fn page(&self, backend: status::Backend, sizes: Sizes) -> Option<Arc<Page>> {
        let listens = matches!(self.place, Place::Listen(_));
        Page::new(backend, listens, &self.peer(), sizes)
    }

    pub(crate) fn directions(
        &self,
        kind: &str,
        stream: &TcpStream,
        session: handshake::Session,
    ) -> Directions {
        let listens = matches!(self.place, Place::Listen(_));
        let place = if listens {
            stream.local_addr()
        } else {
            stream.peer_addr()
        };
        let place = place.unwrap_or_else(|_| self.address());
        Directions::between(session.bytes(), &format!("{kind}/{place}"), listens)
    }

    pub(crate) fn meet(
        &self,
        terms: &Terms,
        wake: &mut PipeReader,
        deadline_ns: Option<u64>,
    ) -> Result<(TcpStream, Agreed), SetupError> {
        let mut refused = None;
        let mut door = match &self.place {
            Place::Listen(listener) => Door::new(listener, &terms.key, terms.hello)
                .map(Some)
                .map_err(system(self.address(), "create a pipe"))?,
            Place::Connect(_) => None,
        };
        loop {
            let met = match &mut door {
                None => supervise::connect_once(self.address(), &terms.key, terms.hello),
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
            terms.count_refusal(&failed);
            let listens = matches!(self.place, Place::Listen(_));
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
        let steps = page.clone().map(|page| page as Arc<dyn StepWords>);
        let seat =
            |(port, priority): &(Port, u8)| port.seat(*priority, &self.peer(), steps.clone());
        let seat = self.port.as_ref().map(seat).transpose()?;
        let address = self.address();
        let failed = |what| system(address, what);
        let (mut wake, waking) = Waking::new().map_err(failed("create a pipe"))?;
        let (stream, agreed) = self.meet(&terms, &mut wake, deadline_ns)?;
        let links = self.directions("tcp", &stream, agreed.session);
        terms.hello.session = Some(agreed.session);

        let shared = Shared::new(sizes, self.chunk, slots, seat).with_page(page.clone());
        let shared = Arc::new(shared);
        shared.install(stream, self.sealed.then_some(agreed.keys));
        let route = match &self.place {
            Place::Connect(address) => Route::Connect(*address),
            Place::Listen(listener) => {
                let listener = listener.try_clone();
                Route::Listen(listener.map_err(failed("use the socket"))?)
            }
        };
        let threads = Threads::start(Arc::clone(&shared), route, terms, (wake, waking));
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
