//! Two hosts, and a wire between them that loses, delays, doubles and reorders packets below TCP.
//! The wire can be cut, and it can swallow all or some packets while both hosts believe it works.
//!
//! A host is a network namespace without a name, with a TUN device in it. This program carries the
//! packets from one device to the other, so it leaves nothing behind, however it ends. A seed
//! decides the harm to the n-th packet.

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

pub struct Host {
    namespace: File,
    device: File,
    pub address: Ipv4Addr,
}

fn checked(code: libc::c_int) -> Result<()> {
    (code >= 0).then_some(()).ok_or_else(Error::last_os_error)
}

fn enter(namespace: &File) {
    // SAFETY: the call affects only this thread.
    checked(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }).unwrap();
}

const DEVICE: &str = "wire0";

fn request(name: &str) -> libc::ifreq {
    // SAFETY: all zeros are a valid request.
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
    // SAFETY: sets a flag of this descriptor.
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
        // Only this thread enters the new namespace, and the thread ends here.
        let made = std::thread::spawn(move || {
            // SAFETY: the call affects only this thread.
            checked(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
            Ok(Host {
                device: make_device(address)?,
                namespace: File::open("/proc/thread-self/ns/net")?,
                address,
            })
        });
        made.join().unwrap()
    }

    pub fn within<T>(&self, run: impl FnOnce() -> T) -> T {
        let here = File::open("/proc/thread-self/ns/net").unwrap();
        enter(&self.namespace);
        let done = run();
        enter(&here);
        done
    }

    pub fn plug(&self, up: bool) {
        self.within(|| switch(DEVICE, up)).unwrap();
    }
}

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

/// The harm that a wire does to packets, as numbers out of a thousand packets.
#[derive(Debug, Clone, Copy, Default)]
pub struct Harm {
    pub lost: u64,
    pub doubled: u64,
    /// The longest delay of a packet. Packets with different delays overtake each other.
    pub late_ns: u64,
}

#[derive(Debug, Default)]
pub struct Done {
    pub carried: AtomicU64,
    pub lost: AtomicU64,
    pub doubled: AtomicU64,
    pub overtaken: AtomicU64,
    /// The numbers that follow a [`MARK`] in packets, in their order on the wire. `None` if no test
    /// needs them.
    pub marks: Option<Mutex<Vec<u64>>>,
    pub dialled: AtomicU64,
}

/// The packets that a wire swallows while a flag is set. The hosts' devices do not notice the loss.
#[derive(Debug, Default)]
pub struct Swallows {
    pub all_from: [AtomicBool; 2],
    /// Two flags: drop packets with TCP content from the first host, and from the second host.
    /// Acknowledgements pass.
    pub content_from: [AtomicBool; 2],
    pub ends: AtomicBool,
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

#[derive(Debug, Clone, Copy, Default)]
struct Head {
    flags: u8,
    has_content: bool,
}

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

/// A packet on its way: the time at which it is due, its number, its bytes. The heap returns the
/// earliest first.
type OnTheWay = std::cmp::Reverse<(u64, u64, Vec<u8>)>;

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
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        let swallows = &*self.swallows;
        is_set(&swallows.all_from[self.from])
            || head.has_content && is_set(&swallows.content_from[self.from])
            || head.flags & (FIN | RST) != 0 && is_set(&swallows.ends)
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
                // The write fails while the cable is out at that host; the packet is lost.
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

pub struct Wire {
    pub hosts: [Arc<Host>; 2],
    pub done: Arc<Done>,
    pub swallows: Arc<Swallows>,
    stop: Arc<AtomicBool>,
    carriers: Vec<JoinHandle<()>>,
}

impl Wire {
    /// Makes two hosts and a wire between them. Prints the reason and returns `None` if this
    /// machine does not allow it.
    pub fn new(harm: Harm, seed: u64) -> Option<Wire> {
        Wire::with(harm, seed, Done::default())
    }

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
