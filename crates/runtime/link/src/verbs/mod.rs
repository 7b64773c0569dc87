//! Links between machines over RDMA: reliable connections over RoCE v2, on hardware or Soft-RoCE
//! (thesis, 5.2 and 5.4.1).
//!
//! The device writes a message into the peer's memory. The sending side makes no copy, and the
//! peer's kernel is not called. The write carries the message's number, which the peer's half
//! receives. The peer's count of consumed messages comes back the same way. Credits guarantee that
//! a receive is posted for each message. A peer that is not ready would break the link at once.
//!
//! **What a peer can reach.** It can write its slots of messages, and one word that says which
//! value it is reading. It can read the values. Each is a region with a separate key, in a
//! protection domain of this link. The keys end with the link. A message is copied before the
//! application gets it, because the peer could change the original at any time. See
//! `docs/security.md`.
//!
//! **Side channel.** The peers first connect over TCP, with the handshake of [`crate::tcp`], and
//! exchange addresses and keys, sealed. This connection also reports when a peer closes. Its end
//! means that the peer died.
//!
//! **Death.** The kernel ends the side channel of a process that dies. A machine or network that
//! falls silent is noticed after [`Verbs::gone_after`]. A broken link is not resumed.
//!
//! **On a port** ([`Verbs::on_port`]) a message leaves in chunks, each when the port lets it go.
//! The last write says how many there were.
//!
//! **Real time.** Sending, receiving and publishing allocate nothing. They take no lock, except
//! that of the own transfer on a port. They call the kernel to wait, and on Soft-RoCE for each
//! request.
//!
//! Each module uses those above it only:
//!
//! | module | job |
//! |---|---|
//! | `value` | fetching the latest value |
//! | `device` | devices and queue pairs |
//! | `tags` | the content of immediate values |
//! | `memory` | slots, and the peer's access to them |
//! | `session` | the side channel, and the end of a link |
//! | `ends` | the two halves |

mod device;
mod ends;
#[cfg(test)]
mod hostile;
mod memory;
#[cfg(test)]
#[path = "../../tests/places/mod.rs"]
mod places;
mod session;
mod tags;
mod value;

use crate::interface::{Backend, Halves, Memory, SetupError, Sizes};
use crate::port::Port;
use crate::sealed::{self, Counter};
use crate::status::{self, counted, Directions};
use crate::tcp::door::Keeper;
use crate::tcp::handshake::{Agreed, Hello};
use crate::tcp::supervise::Terms;
use crate::tcp::{Key, Tcp};
use crate::verbs_wire::{Endpoint, Lane, Record};
use device::{Device, Queue};
use ends::{Egress, VerbsIncoming, VerbsOutgoing};
use memory::{Block, EndMemory};
use session::{Parts, Session, Side};
use socket2::{SockRef, TcpKeepalive};
use std::io::{Error, Result};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tags::MOST_CHUNKS;

/// A backend that links machines over RDMA.
#[derive(Debug)]
pub struct Verbs {
    side: Tcp,
    key: Key,
    chunk: Option<usize>,
    port: Option<(Port, u8)>,
    polling: bool,
    gone_after: Duration,
}

/// The chunk size in the hello of an end that does not use chunks. No TCP end states this size,
/// because chunks over TCP have at least one byte.
const NO_CHUNKS: usize = 0;
/// The bit that an end which uses chunks sets in the chunk size of its hello. The chunk sizes of
/// TCP ends are at most 1 GiB, so TCP ends never set this bit.
const IN_CHUNKS: usize = 1 << 31;
const SETUP_LIMIT: Duration = Duration::from_secs(30);

impl Verbs {
    /// Makes the end that listens at `address` for one peer. An RDMA device must have the address.
    ///
    /// # Errors
    /// The address is in use or does not belong to this machine.
    pub fn listen(address: SocketAddr, key: Key) -> std::result::Result<Verbs, SetupError> {
        Ok(Verbs::new(Tcp::listen(address, key.clone())?, key))
    }

    /// Makes the end that connects to `address`. The local address of the connection must belong to
    /// an RDMA device.
    pub fn connect(address: SocketAddr, key: Key) -> Verbs {
        Verbs::new(Tcp::connect(address, key.clone()), key)
    }

    pub(crate) fn over(side: Tcp) -> Verbs {
        let key = side.key.clone();
        Verbs::new(side, key)
    }

    fn new(side: Tcp, key: Key) -> Verbs {
        Verbs {
            side,
            key,
            chunk: None,
            port: None,
            polling: false,
            gone_after: Duration::from_secs(2),
        }
    }

    /// Makes waiting calls poll for completions instead of waiting for an event. This is faster,
    /// but each waiting call takes a whole CPU.
    pub fn polling(mut self) -> Verbs {
        self.polling = true;
        self
    }

    /// Sends through a port. Before each chunk, the port chooses the most urgent of all its
    /// transfers. Larger priorities are more urgent. If the other end is not on a port with the
    /// same chunk size, it needs [`Verbs::chunk_bytes`] with
    /// [`Settings::chunk`](crate::port::Settings::chunk).
    ///
    /// A send then lasts until the peer's device has the whole message, because only the sending
    /// thread reads the acknowledgements. The deadline applies only to the wait for a credit.
    /// Values do not count in the port's window, because the peer fetches them. The chunk size
    /// stays as it was given, even if the port measures a lower rate.
    pub fn on_port(mut self, port: &Port, priority: u8) -> Verbs {
        self.port = Some((port.clone(), priority));
        self.chunk_bytes(port.settings().chunk())
    }

    /// Sets the size of chunks for messages that leave the other end through a port. Both ends must
    /// use the same size.
    pub fn chunk_bytes(mut self, bytes: usize) -> Verbs {
        self.chunk = Some(bytes.clamp(1, 1 << 30));
        self
    }

    /// Sets how long a peer may be silent before it counts as gone; 2 s by default. The real limit
    /// can be up to three times as long. The death of the peer's process is noticed at once.
    pub fn gone_after(mut self, time: Duration) -> Verbs {
        self.gone_after = time;
        self
    }

    /// Returns the address at which this end listens, or to which it connects.
    pub fn address(&self) -> SocketAddr {
        self.side.address()
    }

    fn egress(&self, sizes: Sizes) -> std::result::Result<Option<Egress>, SetupError> {
        let chunk = self.chunk.unwrap_or(sizes.message_bytes.max(1));
        let most = chunk.saturating_mul(MOST_CHUNKS);
        if sizes.message_bytes > most {
            return Err(SetupError::Number {
                what: "`message_bytes`, in chunks of this size,",
                value: sizes.message_bytes,
                most,
            });
        }
        let label = self.address().to_string();
        let seat = |(port, priority): &(Port, u8)| port.seat(*priority, &label, None);
        let seat = self.port.as_ref().map(seat).transpose()?;
        Ok(seat.map(|seat| Egress { seat, chunk }))
    }

    fn error(&self, what: &'static str) -> impl FnOnce(Error) -> SetupError {
        let peer = self.address().to_string();
        move |source| SetupError::System { peer, what, source }
    }

    fn terms(&self, sizes: Sizes) -> Terms {
        Terms {
            key: self.key.clone(),
            hello: Hello {
                sizes,
                chunk: self.chunk.map_or(NO_CHUNKS, |bytes| IN_CHUNKS | bytes),
                sealed: true,
                session: None,
                is_unheard: false,
            },
            resume_within_ns: 0,
            page: self.side.page(status::Backend::Verbs, sizes),
        }
    }
}

pub(crate) fn is_on(address: std::net::IpAddr) -> bool {
    Device::of(address).is_ok()
}

struct Queues {
    out: Queue,
    incoming: Queue,
}

fn register(stream: &TcpStream, block: Block, sizes: Sizes) -> Result<(Device, Queues, EndMemory)> {
    let device = Device::of(stream.local_addr()?.ip().to_canonical())?;
    let domain = device.domain()?;
    let memory = EndMemory::register(block, sizes, &domain)?;
    // One for each message or count that can be on its way, and one that is being processed.
    let receives = sizes.credits as u32 + 1;
    let queues = Queues {
        out: device.queue(&domain, receives)?,
        incoming: device.queue(&domain, receives)?,
    };
    Ok((device, queues, memory))
}

/// Returns the packet sequence numbers with which the two directions of an end begin. Nobody
/// without the key can guess a number before its packet is on the wire.
fn first_packets(agreed: &Agreed, listens: bool) -> [u32; 2] {
    let word = |at: usize| {
        let bytes = agreed.session.bytes();
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], 0])
    };
    let at = if listens { 0 } else { 6 };
    [word(at), word(at + 3)]
}

fn join(
    side: &Side,
    received: &mut Counter,
    (device, queues, memory): (&Device, &mut Queues, &EndMemory),
    psn: [u32; 2],
    gone_after: Duration,
) -> Result<Endpoint> {
    let lane = |queue: &Queue, psn| Lane {
        number: queue.number(),
        psn,
    };
    let (out, incoming) = (lane(&queues.out, psn[0]), lane(&queues.incoming, psn[1]));
    let ours = memory.windows(Endpoint {
        gid: device.gid,
        mtu: device.mtu,
        out,
        incoming,
        ..Endpoint::default()
    });
    side.tell(Record::Endpoint(ours))?;
    let mut next = || sealed::receive(&mut &side.stream, &side.keys, received, Record::parse);
    let theirs = match next()? {
        Record::Endpoint(theirs) => theirs,
        Record::NoDevice => {
            return Err(Error::other(
                "the other end has no RDMA device with the connection's address",
            ))
        }
        _ => return Err(Error::other("the other end sent a record out of order")),
    };
    device.join(&mut queues.out, out, &theirs, theirs.incoming, gone_after)?;
    device.join(
        &mut queues.incoming,
        incoming,
        &theirs,
        theirs.out,
        gone_after,
    )?;
    side.tell(Record::Ready)?;
    match next()? {
        Record::Ready => Ok(theirs),
        _ => Err(Error::other("the other end sent a record out of order")),
    }
}

fn keep_alive(stream: &TcpStream, gone_after: Duration) -> Result<()> {
    let each = (gone_after / 3).max(Duration::from_secs(1));
    let keepalive = TcpKeepalive::new().with_time(each).with_interval(each);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive.with_retries(2))?;
    socket.set_tcp_user_timeout(Some(gone_after.max(Duration::from_secs(1))))
}

struct Joined {
    queues: Queues,
    memory: EndMemory,
    side: Side,
    received: Counter,
    peer: Endpoint,
    links: Directions,
    keeper: Option<Keeper>,
}

impl Verbs {
    fn joined(
        &self,
        (sizes, block): (Sizes, Block),
        mut terms: Terms,
        deadline_ns: Option<u64>,
    ) -> std::result::Result<Joined, SetupError> {
        let (mut wake, _waking) = crate::quiet::Waking::new().map_err(self.error("make a pipe"))?;
        let (stream, agreed) = self.side.meet(&terms, &mut wake, deadline_ns)?;
        let links = self.side.directions("verbs", &stream, agreed.session);
        terms.hello.session = Some(agreed.session);
        let keeper = self
            .side
            .listener()
            .map(|listener| Keeper::start(listener, &self.key, terms.hello))
            .transpose()
            .map_err(self.error("start threads"))?;
        let timed = stream.set_read_timeout(Some(SETUP_LIMIT));
        timed.map_err(self.error("use the socket"))?;
        let psn = first_packets(&agreed, keeper.is_some());
        let (side, mut received) = (
            Side {
                stream,
                keys: agreed.keys,
                sent: Mutex::new(Counter::new()),
            },
            Counter::new(),
        );
        let registered = register(&side.stream, block, sizes);
        if registered.is_err() {
            let _ = side.tell(Record::NoDevice);
        }
        let (device, mut queues, memory) = registered.map_err(self.error("use RDMA"))?;
        let parts = (&device, &mut queues, &memory);
        let joined = join(&side, &mut received, parts, psn, self.gone_after);
        let peer = joined.map_err(self.error("use RDMA"))?;
        let ready = side.stream.set_read_timeout(None);
        let ready = ready.and_then(|()| keep_alive(&side.stream, self.gone_after));
        ready.map_err(self.error("use the socket"))?;
        Ok(Joined {
            queues,
            memory,
            side,
            received,
            peer,
            links,
            keeper,
        })
    }
}

impl Backend for Verbs {
    fn initialize(
        &self,
        sizes: Sizes,
        memory: Memory,
        deadline_ns: Option<u64>,
    ) -> std::result::Result<Halves, SetupError> {
        let block = Block::new(sizes, memory)?;
        let egress = self.egress(sizes)?;
        let terms = self.terms(sizes);
        let page = terms.page.clone();
        let joined = self.joined((sizes, block), terms, deadline_ns)?;
        let queues = joined.queues;
        let pairs = [queues.out.pair(), queues.incoming.pair()];
        let (out_memory, in_memory, memory) = joined.memory.halves();
        let parts = Parts {
            sizes,
            peer: joined.peer,
            polling: self.polling,
            side: joined.side,
            pairs,
            memory,
        };
        let session = Session::start(parts, joined.received, joined.keeper);
        let session = Arc::new(session.map_err(self.error("start threads"))?);
        let outgoing = VerbsOutgoing::new(Arc::clone(&session), queues.out, out_memory, egress);
        let incoming = VerbsIncoming::new(session, queues.incoming, in_memory, self.chunk);
        let halves: Halves = (Box::new(outgoing), Box::new(incoming));
        Ok(counted(page, Some(joined.links), sizes, halves))
    }
}
