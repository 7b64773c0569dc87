//! System calls that no library offers: sleeping on a shared word, and hearing of a peer's
//! acknowledgements.

use nix::libc;
use nix::poll::{ppoll, PollFd, PollFlags};
use nix::sys::eventfd::EventFd;
use onbeat_flow::clock::now_ns;
use std::io::{Error, IoSlice, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// The flag with which the kernel reports when the peer has acknowledged all bytes of a write
/// (`linux/net_tstamp.h`). The flags in `REPORT` ask for such reports without the written bytes.
const TX_ACK: u32 = 1 << 9;
const REPORT: u32 = 1 << 4 | 1 << 7 | 1 << 11;

/// Sleeps while the word equals `seen`, until `until_ns` (CLOCK_MONOTONIC) at the latest. Other
/// processes may wake the thread.
pub fn wait(word: &AtomicU32, seen: u32, until_ns: u64) {
    let until = libc::timespec {
        tv_sec: (until_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (until_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: the word and the instant live throughout the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET,
            seen,
            &raw const until,
            std::ptr::null::<u32>(),
            libc::FUTEX_BITSET_MATCH_ANY,
        );
    }
}

pub fn wake(word: &AtomicU32) {
    // SAFETY: the word lives throughout the call.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
    }
}

pub fn unacknowledged_bytes(socket: BorrowedFd<'_>) -> Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ (the same number as TIOCOUTQ) writes one int.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result < 0 {
        return Err(Error::last_os_error());
    }
    Ok(u64::try_from(bytes).unwrap_or(0))
}

pub fn shortest_round_trip_ns(socket: BorrowedFd<'_>) -> Option<u64> {
    /// The size of `tcp_info` up to `tcpi_min_rtt` (Linux 4.6 or later), in words of 32 bits.
    const WORDS: usize = 38;
    let mut info = [0_u32; WORDS];
    let mut length = size_of_val(&info) as libc::socklen_t;
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_INFO);
    let value = (&raw mut info).cast();
    // SAFETY: the kernel writes at most `length` bytes.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, value, &raw mut length) };
    let is_there = result == 0 && length as usize == size_of_val(&info);
    // The kernel has seen no round trip if all bits are set.
    let us = is_there
        .then(|| info[WORDS - 1])
        .filter(|us| *us != u32::MAX)?;
    Some(u64::from(us) * 1000)
}

pub fn report_acknowledgements(socket: BorrowedFd<'_>) -> Result<()> {
    let (level, name) = (libc::SOL_SOCKET, libc::SO_TIMESTAMPING);
    let flags = REPORT;
    let value = &raw const flags;
    let length = size_of::<u32>() as libc::socklen_t;
    // SAFETY: the kernel reads one int.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.cast(), length) };
    (result == 0).then_some(()).ok_or_else(Error::last_os_error)
}

pub fn acknowledge_now(socket: BorrowedFd<'_>) {
    let one: libc::c_int = 1;
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_QUICKACK);
    let value = &raw const one;
    // SAFETY: the kernel reads one int. If the call fails, acknowledgements come later.
    unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.cast(), length) };
}

#[repr(C, align(8))]
struct Control {
    head: libc::cmsghdr,
    flags: u32,
}

pub fn write_marked(socket: BorrowedFd<'_>, parts: &[IoSlice<'_>]) -> Result<usize> {
    let head = libc::cmsghdr {
        cmsg_len: size_of::<libc::cmsghdr>() + size_of::<u32>(),
        cmsg_level: libc::SOL_SOCKET,
        cmsg_type: libc::SO_TIMESTAMPING,
    };
    let flags = TX_ACK;
    let mut control = Control { head, flags };
    // SAFETY: all zeros are an empty message.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    // `IoSlice` is an `iovec` by its documentation, and the kernel only reads it.
    message.msg_iov = parts.as_ptr().cast_mut().cast();
    message.msg_iovlen = parts.len();
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>();
    let flags = libc::MSG_NOSIGNAL;
    // SAFETY: everything that the message points to lives throughout the call.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
    usize::try_from(sent).map_err(|_| Error::last_os_error())
}

const REPORTS_PER_CALL: usize = 8;
/// The size of the buffer for the kernel's report about a message, in words. The kernel cuts off
/// longer reports.
const CONTROL_WORDS: usize = 32;

/// Removes the kernel's reports of acknowledged bytes from a socket's error queue. The number of
/// reports per call is limited, so that a peer cannot keep the thread busy. Returns the time of the
/// first report that the kernel made at or after `since_ns`, in ns of CLOCK_MONOTONIC.
pub fn take_reports(socket: BorrowedFd<'_>, since_ns: u64) -> Option<u64> {
    let mut first = None;
    for _ in 0..128 {
        let mut control = [[0_u64; CONTROL_WORDS]; REPORTS_PER_CALL];
        // SAFETY: all zeros are empty messages.
        let mut messages: [libc::mmsghdr; REPORTS_PER_CALL] =
            unsafe { MaybeUninit::zeroed().assume_init() };
        for (message, control) in messages.iter_mut().zip(&mut control) {
            message.msg_hdr.msg_control = control.as_mut_ptr().cast();
            message.msg_hdr.msg_controllen = size_of_val(control) as _;
        }
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        let (fd, all) = (socket.as_raw_fd(), messages.as_mut_ptr());
        let count = REPORTS_PER_CALL as libc::c_uint;
        // SAFETY: the buffers live throughout the call and have the lengths given.
        let taken = unsafe { libc::recvmmsg(fd, all, count, flags as _, std::ptr::null_mut()) };
        let count = usize::try_from(taken).unwrap_or(0);
        // SAFETY: the kernel has filled these messages, and their buffers are still there.
        let times = messages[..count]
            .iter()
            .filter_map(|m| unsafe { stamp_ns(&m.msg_hdr) });
        first = times.chain(first).filter(|ns| *ns >= since_ns).min();
        if count < REPORTS_PER_CALL {
            break;
        }
    }
    first
}

/// Returns the kernel's time stamp in a message, in ns of CLOCK_MONOTONIC. It is the time at which
/// the kernel received the message's bytes or the reported acknowledgement.
///
/// # Safety
///
/// The message's control buffer is valid.
unsafe fn stamp_ns(message: &libc::msghdr) -> Option<u64> {
    // SAFETY: the caller promises a valid buffer.
    let mut control = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: the kernel wrote the headers in it.
    while let Some(head) = unsafe { control.as_ref() } {
        let is_stamp = matches!(
            head.cmsg_type,
            libc::SCM_TIMESTAMPING | libc::SCM_TIMESTAMPNS
        );
        if head.cmsg_level == libc::SOL_SOCKET && is_stamp {
            // SAFETY: both kinds begin with a `timespec`, which need not be aligned.
            let stamp = unsafe {
                libc::CMSG_DATA(control)
                    .cast::<libc::timespec>()
                    .read_unaligned()
            };
            return monotonic_ns(&stamp);
        }
        // SAFETY: as above.
        control = unsafe { libc::CMSG_NXTHDR(message, control) };
    }
    None
}

/// Converts a time of CLOCK_REALTIME to ns of CLOCK_MONOTONIC. Returns `None` if the time is not
/// within the last ten seconds, for example because the clock was set.
fn monotonic_ns(stamp: &libc::timespec) -> Option<u64> {
    const LONGEST_AGO_NS: u64 = 10_000_000_000;
    let ns = |time: &libc::timespec| time.tv_sec as i128 * 1_000_000_000 + time.tv_nsec as i128;
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one time.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    let ago_ns = u64::try_from(ns(&now) - ns(stamp)).ok()?;
    (ago_ns < LONGEST_AGO_NS).then(|| now_ns().saturating_sub(ago_ns))
}

pub fn stamp_arrivals(socket: BorrowedFd<'_>) {
    let one: libc::c_int = 1;
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS);
    let value = &raw const one;
    // SAFETY: the kernel reads one int. If the call fails, reads report no times.
    unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.cast(), length) };
}

/// Reads from a socket. Also returns when the kernel had received the last of these bytes, ns of
/// CLOCK_MONOTONIC.
pub fn read_stamped(socket: BorrowedFd<'_>, into: &mut [u8]) -> Result<(usize, Option<u64>)> {
    let mut control = [0_u64; CONTROL_WORDS];
    let mut part = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    // SAFETY: all zeros are an empty message.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: everything that the message points to lives throughout the call.
    let read = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let read = usize::try_from(read).map_err(|_| Error::last_os_error())?;
    // SAFETY: the kernel has filled the buffer, which is still there.
    Ok((read, unsafe { stamp_ns(&message) }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketEvent {
    Nothing,
    Report,
    Ended,
}

pub fn wait_for_report(socket: BorrowedFd<'_>, other: &EventFd, until_ns: u64) -> SocketEvent {
    let mut watched = [
        // The kernel reports errors and error-queue events without a request.
        PollFd::new(socket, PollFlags::empty()),
        PollFd::new(other.as_fd(), PollFlags::POLLIN),
    ];
    let left = Duration::from_nanos(until_ns.saturating_sub(now_ns()));
    // After an interruption the caller looks again.
    let _ = ppoll(&mut watched, Some(left.into()), None);
    let [socket, rung] = watched.map(|w| w.revents().unwrap_or(PollFlags::empty()));
    if !rung.is_empty() {
        let _ = other.read();
    }
    if socket.contains(PollFlags::POLLHUP) {
        SocketEvent::Ended
    } else if socket.is_empty() {
        SocketEvent::Nothing
    } else {
        SocketEvent::Report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (sender, listener.accept().unwrap().0)
    }

    /// Returns two time stamps of the kernel: the arrival of a write's bytes, and the first report
    /// of their acknowledgement. Returns `None` unless both times lie at least 10 ms before the
    /// time at which the test reads the stamps.
    fn stamps_long_before_the_read() -> Option<[u64; 2]> {
        let (sender, receiver) = pair();
        stamp_arrivals(receiver.as_fd());
        report_acknowledgements(sender.as_fd()).unwrap();
        let begun_ns = now_ns();
        let parts = [IoSlice::new(b"on"), IoSlice::new(b"beat")];
        assert_eq!(write_marked(sender.as_fd(), &parts).unwrap(), 6);
        std::thread::sleep(Duration::from_millis(20));
        let read_ns = now_ns();
        let mut bytes = [0; 16];
        let (count, arrived_ns) = read_stamped(receiver.as_fd(), &mut bytes).unwrap();
        assert_eq!(&bytes[..count], b"onbeat");
        let stamps = [arrived_ns?, take_reports(sender.as_fd(), begun_ns)?];
        assert!(
            stamps.iter().all(|ns| *ns >= begun_ns),
            "{stamps:?}, {begun_ns}"
        );
        // The reports are gone.
        assert_eq!(take_reports(sender.as_fd(), 0), None);
        let is_long_ago = |ns: &u64| ns + 10_000_000 <= read_ns;
        stamps.iter().all(is_long_ago).then_some(stamps)
    }

    #[test]
    fn stamps_of_the_kernel_give_the_arrival_of_bytes_and_not_their_reading() {
        // On a busy machine, the kernel may be late. The first stamps may be missing, since the
        // kernel begins to stamp a little later.
        let found = (0..50).find_map(|_| stamps_long_before_the_read());
        assert!(found.is_some(), "no stamp is from before the read");
    }

    #[test]
    fn acknowledgement_reports_from_before_the_given_time_do_not_count() {
        let (sender, _receiver) = pair();
        report_acknowledgements(sender.as_fd()).unwrap();
        write_marked(sender.as_fd(), &[IoSlice::new(b"onbeat")]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(take_reports(sender.as_fd(), u64::MAX), None);
    }
}
