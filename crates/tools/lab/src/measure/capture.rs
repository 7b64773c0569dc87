//! Packet capture: the packets of an interface, and the messages that each one carries.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

/// The first bytes of a mark. A mark in a packet shows to which message the packet's data belong.
pub const MAGIC: [u8; 4] = 0x6f6e_6274u32.to_le_bytes();
const UNIT: usize = 16;
/// The number of bytes of a packet that are searched for marks. It is the size of the largest
/// packet, because the kernel can merge several packets into one.
const SEARCHED_BYTES: usize = (64 << 10) + 256;
const BUFFER: i32 = 256 << 20;
const ETH_P_ALL: u16 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    pub stream: u32,
    pub number: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    pub at_ns: i64,
    pub bytes: u32,
    pub marks: Vec<Mark>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Leaving,
    Arriving,
}

pub struct Capture {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Vec<Packet>>>,
}

impl Capture {
    pub fn start(interface: &str, direction: Direction) -> io::Result<Capture> {
        let socket = open(interface)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || read(&socket, direction, &stopped));
        Ok(Capture { stop, thread })
    }

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
    // SAFETY: the descriptor is new, and nothing else owns it.
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

fn behind_ns() -> i64 {
    let now = |clock| {
        // SAFETY: an all-zero time is a valid value, and the pointer points to it.
        unsafe {
            let mut time: libc::timespec = std::mem::zeroed();
            libc::clock_gettime(clock, &mut time);
            time.tv_sec * 1_000_000_000 + time.tv_nsec
        }
    };
    now(libc::CLOCK_REALTIME) - now(libc::CLOCK_MONOTONIC)
}

fn read(socket: &OwnedFd, direction: Direction, stop: &AtomicBool) -> io::Result<Vec<Packet>> {
    let behind = behind_ns();
    let (mut packets, mut look) = (Vec::with_capacity(1 << 18), [0u8; SEARCHED_BYTES]);
    loop {
        match receive(socket, direction, &mut look) {
            Ok(Some((bytes, at_ns))) => {
                let marks = marks(&look[..bytes.min(SEARCHED_BYTES)]);
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
        n => Err(io::Error::other(format!(
            "the kernel dropped {n} packets because the buffer was full"
        ))),
    }
}

/// Receives a packet into the buffer `look`. Returns the packet's length and its time in ns of
/// CLOCK_REALTIME. Returns `None` for a packet that does not have the direction `direction`.
fn receive(
    socket: &OwnedFd,
    direction: Direction,
    look: &mut [u8],
) -> io::Result<Option<(usize, i64)>> {
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
    // SAFETY: everything that the header points to is live and has the length that the header
    // states.
    let bytes = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, libc::MSG_TRUNC) };
    if bytes < 0 {
        return Err(io::Error::last_os_error());
    }
    if (from.sll_pkttype == libc::PACKET_OUTGOING) != (direction == Direction::Leaving) {
        return Ok(None);
    }
    // SAFETY: the kernel has filled the header. CMSG_FIRSTHDR returns the first control message or
    // null, and only a message with a time is read.
    let at_ns = unsafe {
        let message = libc::CMSG_FIRSTHDR(&header);
        if message.is_null() || (*message).cmsg_type != libc::SCM_TIMESTAMPNS {
            return Err(io::Error::other(
                "the kernel gave no time stamp for a packet",
            ));
        }
        let time: libc::timespec = std::ptr::read_unaligned(libc::CMSG_DATA(message).cast());
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    };
    Ok(Some((bytes as usize, at_ns)))
}

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

/// Returns the marks of the messages that a packet carries, in their order in the packet.
///
/// A message repeats its mark in units of equal size. The times of the message follow its first
/// mark, so a unit counts only if it equals one of the next two units. Without this check, a unit
/// that the header of a middleware divides would look like another message.
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
    fn messages_are_found_at_any_offset_in_a_packet() {
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
        // A header cuts the unit in two, which makes it look like another message.
        let cut = [&unit(1, 7)[..9], &[9; 20], &unit(1, 7)[9..], &unit(1, 7)];
        assert_eq!(marks(&cut.concat()), []);
    }
}
