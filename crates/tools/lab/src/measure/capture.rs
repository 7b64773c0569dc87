//! What is seen on the wire: packets with the marks of the messages that they carry.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

/// What a mark in a message begins with.
pub const MAGIC: [u8; 4] = 0x6f6e_6274u32.to_le_bytes();
const UNIT: usize = 16;
/// Bytes of a packet that are looked at: all, also where the kernel hands on several as one.
const LOOK: usize = (64 << 10) + 256;
/// Packets that wait to be looked at, bytes.
const BUFFER: i32 = 256 << 20;
const ETH_P_ALL: u16 = 3;

/// A message of which a packet carries a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Its stream.
    pub stream: u32,
    /// Its number.
    pub number: u64,
}

/// A packet on the wire that carries parts of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// When it was sent, ns of CLOCK_MONOTONIC.
    pub at_ns: i64,
    /// Its length, with all heads.
    pub bytes: u32,
    /// The messages, in their order; each once.
    pub marks: Vec<Mark>,
}

/// Which packets of an interface are seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Those that leave.
    Leaving,
    /// Those that arrive.
    Arriving,
}

/// Packets of an interface of this thread's network namespace, until it is stopped.
pub struct Capture {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Vec<Packet>>>,
}

impl Capture {
    /// Begins; call it on a thread of the host.
    pub fn start(interface: &str, seen: Seen) -> io::Result<Capture> {
        let socket = open(interface)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || read(&socket, seen, &stopped));
        Ok(Capture { stop, thread })
    }

    /// Ends; an error if a packet was lost.
    pub fn stop(self) -> io::Result<Vec<Packet>> {
        self.stop.store(true, Ordering::Relaxed);
        let packets = self.thread.join();
        packets.unwrap_or_else(|_| Err(io::Error::other("it panicked")))
    }
}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        other => Ok(other),
    }
}

fn option<T>(socket: &OwnedFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let (at, size) = (
        (value as *const T).cast(),
        size_of::<T>() as libc::socklen_t,
    );
    // SAFETY: the pointer is to a live value of the given size.
    checked(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, at, size) }).map(drop)
}

fn open(interface: &str) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: plain numbers; the result is checked before it is owned.
    let socket = checked(unsafe { libc::socket(libc::AF_PACKET, flags, 0) })?;
    // SAFETY: a new descriptor, which nobody else has.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &BUFFER)?;
    option(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1i32)?;
    let patience = libc::timeval {
        tv_sec: 0,
        tv_usec: 20_000,
    };
    option(&socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &patience)?;
    let name = std::ffi::CString::new(interface)?;
    // SAFETY: the name ends with a zero.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    // SAFETY: an all-zero address is a valid value of a plain C struct.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = ETH_P_ALL.to_be();
    address.sll_ifindex = index as i32;
    let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address is live and of the given size.
    checked(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) })?;
    Ok(socket)
}

/// What CLOCK_MONOTONIC is behind CLOCK_REALTIME, ns.
fn behind_ns() -> i64 {
    let now = |clock| {
        // SAFETY: an all-zero time is valid, and the pointer is to it.
        unsafe {
            let mut time: libc::timespec = std::mem::zeroed();
            libc::clock_gettime(clock, &mut time);
            time.tv_sec * 1_000_000_000 + time.tv_nsec
        }
    };
    now(libc::CLOCK_REALTIME) - now(libc::CLOCK_MONOTONIC)
}

fn read(socket: &OwnedFd, seen: Seen, stop: &AtomicBool) -> io::Result<Vec<Packet>> {
    let behind = behind_ns();
    let (mut packets, mut look) = (Vec::with_capacity(1 << 18), [0u8; LOOK]);
    loop {
        match receive(socket, seen, &mut look) {
            Ok(Some((bytes, at_ns))) => {
                let marks = marks(&look[..bytes.min(LOOK)]);
                if !marks.is_empty() {
                    packets.push(Packet {
                        at_ns: at_ns - behind,
                        bytes: bytes as u32,
                        marks,
                    });
                }
            }
            Ok(None) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    match lost(socket)? {
        0 => Ok(packets),
        n => Err(io::Error::other(format!("{n} packets were not captured"))),
    }
}

/// The next packet, if it is to be seen: its length, and its time in ns of CLOCK_REALTIME.
fn receive(socket: &OwnedFd, seen: Seen, look: &mut [u8]) -> io::Result<Option<(usize, i64)>> {
    // SAFETY: all-zero values of plain C structs are valid.
    let (mut from, mut header): (libc::sockaddr_ll, libc::msghdr) = unsafe { std::mem::zeroed() };
    let mut part = libc::iovec {
        iov_base: look.as_mut_ptr().cast(),
        iov_len: look.len(),
    };
    let mut control = [0u64; 16];
    header.msg_name = (&raw mut from).cast();
    header.msg_namelen = size_of_val(&from) as u32;
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    // SAFETY: everything that the header names is live and as long as it says.
    let bytes = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, libc::MSG_TRUNC) };
    if bytes < 0 {
        return Err(io::Error::last_os_error());
    }
    if (from.sll_pkttype == libc::PACKET_OUTGOING) != (seen == Seen::Leaving) {
        return Ok(None);
    }
    // SAFETY: the kernel has filled the header; the first control message is the time that was
    // asked for, or there is none.
    let at_ns = unsafe {
        let message = libc::CMSG_FIRSTHDR(&header);
        if message.is_null() || (*message).cmsg_type != libc::SCM_TIMESTAMPNS {
            return Err(io::Error::other("a packet came without its time"));
        }
        let time: libc::timespec = std::ptr::read_unaligned(libc::CMSG_DATA(message).cast());
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    };
    Ok(Some((bytes as usize, at_ns)))
}

/// Packets that the kernel had no room for.
fn lost(socket: &OwnedFd) -> io::Result<u32> {
    let mut counts = [0u32; 2];
    let mut size = size_of_val(&counts) as libc::socklen_t;
    let at = counts.as_mut_ptr().cast();
    let fd = socket.as_raw_fd();
    // SAFETY: the pointer is to live counters of the given size.
    let got =
        unsafe { libc::getsockopt(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, at, &mut size) };
    checked(got).map(|_| counts[1])
}

/// The messages that a packet carries, in their order. A unit counts if the next one is the same, or
/// the one after the times that follow a message's first: what a middleware's heads cut a unit with
/// would be read as another message.
pub fn marks(packet: &[u8]) -> Vec<Mark> {
    let mut found: VecDeque<Mark> = VecDeque::new();
    let mut at = 0;
    while at + UNIT <= packet.len() {
        let unit = &packet[at..at + UNIT];
        let again = |units: usize| {
            let from = at + units * UNIT;
            packet.get(from..from + UNIT) == Some(unit)
        };
        if unit[..4] != MAGIC || !(again(1) || again(2)) {
            at += 1;
            continue;
        }
        let number = |from: usize| u64::from_le_bytes(unit[from..from + 8].try_into().expect("8"));
        let mark = Mark {
            stream: (number(0) >> 32) as u32,
            number: number(8),
        };
        if found.back() != Some(&mark) {
            found.push_back(mark);
        }
        at += UNIT;
    }
    found.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(stream: u32, number: u64) -> Vec<u8> {
        [&MAGIC[..], &stream.to_le_bytes(), &number.to_le_bytes()].concat()
    }

    #[test]
    fn a_packet_tells_its_messages_wherever_they_begin() {
        let mut packet = vec![1, 2, 3, 4, 5];
        packet.extend(&unit(1, 7)[9..]);
        for _ in 0..20 {
            packet.extend(unit(1, 7));
        }
        packet.extend([0; 13]);
        // The first units of a message, with its times between them.
        packet.extend([unit(2, 8), vec![1; UNIT], unit(2, 8)].concat());
        packet.extend(&unit(2, 8)[..11]);
        let mark = |stream, number| Mark { stream, number };
        assert_eq!(marks(&packet), [mark(1, 7), mark(2, 8)]);
        assert_eq!(marks(&packet[..20]), []);
        // Cut by a head: it looks like another message.
        let cut = [&unit(1, 7)[..9], &[9; 20], &unit(1, 7)[9..], &unit(1, 7)];
        assert_eq!(marks(&cut.concat()), []);
    }
}
