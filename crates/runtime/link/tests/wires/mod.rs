//! Two hosts, and the wire between them: it loses, delays, doubles and reorders packets below TCP,
//! it can be cut, and it can swallow all or some packets while both hosts believe it stands.
//!
//! A host is a network namespace without a name, with a TUN device in it. This program carries the
//! packets from one device to the other. So nothing is left behind, however it ends. What happens
//! to the n-th packet follows from a seed.

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use onbeat_flow::clock::now_ns;
use onbeat_link::interface::{Backend, Halves, Memory, SetupError, Sizes};
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{Error, Read, Result, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A host: its network namespace, and the device that leads to the wire.
pub struct Host {
    namespace: File,
    device: File,
    pub address: Ipv4Addr,
}

fn checked(code: libc::c_int) -> Result<()> {
    (code >= 0).then_some(()).ok_or_else(Error::last_os_error)
}

fn enter(namespace: &File) {
    // SAFETY: a call for this thread alone.
    checked(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }).unwrap();
}

const DEVICE: &str = "wire0";

fn request(name: &str) -> libc::ifreq {
    // SAFETY: zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

fn set(socket: &impl AsRawFd, what: libc::c_ulong, mut request: libc::ifreq) -> Result<()> {
    // SAFETY: the request is one that these calls take.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), what as _, &mut request) })
}

fn internet(address: Ipv4Addr) -> libc::sockaddr {
    let mut bytes = [0; 14];
    bytes[2..6].copy_from_slice(&address.octets());
    libc::sockaddr {
        sa_family: libc::AF_INET as _,
        sa_data: bytes.map(|b: u8| b as libc::c_char),
    }
}

/// Any socket, for what is set by the name of a device.
fn socket() -> Result<std::net::UdpSocket> {
    std::net::UdpSocket::bind("0.0.0.0:0")
}

fn switch(name: &str, up: bool) -> Result<()> {
    let mut flags = request(name);
    flags.ifr_ifru.ifru_flags = if up { libc::IFF_UP as _ } else { 0 };
    set(&socket()?, libc::SIOCSIFFLAGS as _, flags)
}

fn make_device(address: Ipv4Addr) -> Result<File> {
    let mut options = File::options();
    let device = options.read(true).write(true).open("/dev/net/tun")?;
    let mut name = request(DEVICE);
    name.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as _;
    set(&device, libc::TUNSETIFF as _, name)?;
    // SAFETY: a flag of this descriptor.
    checked(unsafe { libc::fcntl(device.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) })?;
    let socket = socket()?;
    for (what, address) in [
        (libc::SIOCSIFADDR, address),
        (libc::SIOCSIFNETMASK, Ipv4Addr::new(255, 255, 255, 0)),
    ] {
        let mut with = request(DEVICE);
        with.ifr_ifru.ifru_addr = internet(address);
        set(&socket, what as _, with)?;
    }
    switch("lo", true)?;
    switch(DEVICE, true)?;
    Ok(device)
}

impl Host {
    fn new(address: Ipv4Addr) -> Result<Host> {
        // This thread's namespace is another from here on: it ends with it.
        let made = std::thread::spawn(move || {
            // SAFETY: a call for this thread alone.
            checked(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
            Ok(Host {
                device: make_device(address)?,
                namespace: File::open("/proc/thread-self/ns/net")?,
                address,
            })
        });
        made.join().unwrap()
    }

    /// Runs on this host. Threads that begin meanwhile stay there.
    pub fn within<T>(&self, run: impl FnOnce() -> T) -> T {
        let here = File::open("/proc/thread-self/ns/net").unwrap();
        enter(&self.namespace);
        let done = run();
        enter(&here);
        done
    }

    /// Plugs the cable in, or out.
    pub fn plug(&self, up: bool) {
        self.within(|| switch(DEVICE, up)).unwrap();
    }
}

/// A backend on a host.
pub struct On<B>(pub Arc<Host>, pub B);

impl<B: Backend> Backend for On<B> {
    fn initialize(
        &self,
        sizes: Sizes,
        memory: Memory,
        deadline_ns: Option<u64>,
    ) -> std::result::Result<Halves, SetupError> {
        let run = || self.1.initialize(sizes, memory, deadline_ns);
        self.0.within(run)
    }
}

/// What a wire does to packets, in thousandths of them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Harm {
    pub lost: u64,
    pub doubled: u64,
    /// Each packet is late by up to so many ns: one overtakes another.
    pub late_ns: u64,
}

/// What a wire has done, over both directions.
#[derive(Debug, Default)]
pub struct Done {
    pub carried: AtomicU64,
    pub lost: AtomicU64,
    pub doubled: AtomicU64,
    pub overtaken: AtomicU64,
    /// Numbers behind a [`MARK`], in the order in which they came onto the wire, if that is wanted.
    pub marks: Option<Mutex<Vec<u64>>>,
    /// Attempts to connect.
    pub dialled: AtomicU64,
}

/// What a wire swallows while it is told to; no host's device notices.
#[derive(Debug, Default)]
pub struct Swallows {
    /// Everything from the first host, and from the second.
    pub all_from: [AtomicBool; 2],
    /// What carries bytes of a TCP connection from the first host, and from the second: what the
    /// other host says is acknowledged all the same.
    pub content_from: [AtomicBool; 2],
    /// Every packet by which a TCP connection ends.
    pub ends: AtomicBool,
}

/// Bits of TCP's flags.
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// What a wire looks at in a packet of TCP.
#[derive(Debug, Clone, Copy, Default)]
struct Head {
    flags: u8,
    has_content: bool,
}

/// The head of a packet; an empty one if it is none of TCP over IPv4.
fn head(packet: &[u8]) -> Head {
    let is_tcp = packet.len() >= 40 && packet[0] >> 4 == 4 && packet[9] == 6;
    let at = 4 * usize::from(packet[0] & 15);
    match packet.get(at + 12..at + 14) {
        Some(&[offset, flags]) if is_tcp => Head {
            flags,
            has_content: packet.len() > at + 4 * usize::from(offset >> 4),
        },
        _ => Head::default(),
    }
}

/// Before a number that is to be seen on the wire.
pub const MARK: [u8; 8] = *b"on wire:";

impl Done {
    fn look(&self, packet: &[u8]) {
        let Some(marks) = &self.marks else { return };
        let marked = packet.windows(16).filter(|part| part.starts_with(&MARK));
        let numbers = marked.map(|part| u64::from_le_bytes(part[8..].try_into().unwrap()));
        marks.lock().unwrap().extend(numbers);
    }

    pub fn of(count: &AtomicU64) -> u64 {
        count.load(Ordering::Relaxed)
    }
}

fn count(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// SplitMix64.
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn hits(&mut self, thousandths: u64) -> bool {
        self.next() % 1000 < thousandths
    }
}

/// A packet on its way: when it is due, its number, its bytes. The heap gives the earliest first.
type OnTheWay = std::cmp::Reverse<(u64, u64, Vec<u8>)>;

/// One direction of a wire.
struct Direction {
    from: usize,
    hosts: [Arc<Host>; 2],
    harm: Harm,
    swallows: Arc<Swallows>,
    dice: Dice,
    done: Arc<Done>,
    stop: Arc<AtomicBool>,
}

impl Direction {
    fn is_swallowed(&self, head: Head) -> bool {
        let is_told = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        let swallows = &*self.swallows;
        is_told(&swallows.all_from[self.from])
            || head.has_content && is_told(&swallows.content_from[self.from])
            || head.flags & (FIN | RST) != 0 && is_told(&swallows.ends)
    }

    fn take(&mut self, number: u64, packet: &[u8], way: &mut BinaryHeap<OnTheWay>) {
        let head = head(packet);
        if head.flags & (SYN | ACK) == SYN {
            count(&self.done.dialled);
        }
        if self.is_swallowed(head) {
            return;
        }
        if self.dice.hits(self.harm.lost) {
            return count(&self.done.lost);
        }
        let twice = self.dice.hits(self.harm.doubled);
        for _ in 0..=u64::from(twice) {
            let late = self.dice.next() % (self.harm.late_ns + 1);
            way.push(std::cmp::Reverse((now_ns() + late, number, packet.into())));
        }
        if twice {
            count(&self.done.doubled);
        }
    }

    fn carry(mut self) {
        let (mut number, mut newest) = (0, 0);
        let mut way = BinaryHeap::<OnTheWay>::new();
        let mut packet = vec![0; 1 << 16];
        while !self.stop.load(Ordering::Relaxed) {
            while let Ok(length @ 1..) = (&self.hosts[0].device).read(&mut packet) {
                number += 1;
                self.done.look(&packet[..length]);
                self.take(number, &packet[..length], &mut way);
            }
            while way.peek().is_some_and(|next| next.0 .0 <= now_ns()) {
                let std::cmp::Reverse((_, number, packet)) = way.pop().unwrap();
                // Fails while the cable is out there: lost.
                if (&self.hosts[1].device).write(&packet).is_ok() {
                    count(&self.done.carried);
                }
                if number < newest {
                    count(&self.done.overtaken);
                }
                newest = newest.max(number);
            }
            let next = way.peek().map_or(20_000_000, |next| {
                next.0 .0.saturating_sub(now_ns()).min(20_000_000)
            });
            let device = self.hosts[0].device.as_fd();
            let timeout = PollTimeout::try_from(next.div_ceil(1_000_000)).unwrap();
            let _ = poll(&mut [PollFd::new(device, PollFlags::POLLIN)], timeout);
        }
    }
}

/// The wire between two hosts, while it lives.
pub struct Wire {
    pub hosts: [Arc<Host>; 2],
    pub done: Arc<Done>,
    pub swallows: Arc<Swallows>,
    stop: Arc<AtomicBool>,
    carriers: Vec<JoinHandle<()>>,
}

impl Wire {
    /// Two hosts and a wire; `None` and a printed reason where there can be none.
    pub fn new(harm: Harm, seed: u64) -> Option<Wire> {
        Wire::with(harm, seed, Done::default())
    }

    /// The same without harm, and what is marked is seen.
    pub fn seen() -> Option<Wire> {
        let marks = Some(Mutex::default());
        let done = Done {
            marks,
            ..Done::default()
        };
        Wire::with(Harm::default(), 1, done)
    }

    fn with(harm: Harm, seed: u64, done: Done) -> Option<Wire> {
        let host = |last| Host::new(Ipv4Addr::new(10, 77, 0, last)).map(Arc::new);
        let hosts = match (host(1), host(2)) {
            (Ok(first), Ok(second)) => [first, second],
            (Err(error), _) | (_, Err(error)) => {
                println!("SKIPPED: no network namespace with a TUN device here: {error}");
                return None;
            }
        };
        let (done, stop) = (Arc::new(done), Arc::<AtomicBool>::default());
        let swallows = Arc::<Swallows>::default();
        let mut dice = Dice(seed);
        let mut carrier = |from: usize| {
            let direction = Direction {
                from,
                swallows: Arc::clone(&swallows),
                hosts: [Arc::clone(&hosts[from]), Arc::clone(&hosts[1 - from])],
                harm,
                dice: Dice(dice.next()),
                done: Arc::clone(&done),
                stop: Arc::clone(&stop),
            };
            std::thread::spawn(|| direction.carry())
        };
        let carriers = vec![carrier(0), carrier(1)];
        Some(Wire {
            hosts,
            done,
            swallows,
            stop,
            carriers,
        })
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for carrier in self.carriers.drain(..) {
            let _ = carrier.join();
        }
    }
}
