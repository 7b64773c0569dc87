//! Makes sockets: sets their options, connects, listens, and limits the time of the handshake.

use super::handshake::{self, Agreed, Failed, Hello};
use super::key::Key;
use crate::interface::Refusal;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io::{Read, Result, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

pub const HANDSHAKE_LIMIT: Duration = Duration::from_secs(2);
const CONNECT_LIMIT: Duration = Duration::from_secs(1);

/// The size of a socket's send and receive buffers (SO_SNDBUF, SO_RCVBUF), in bytes. The kernel
/// doubles this number, to have room for its own structures.
pub const SOCKET_BYTES: usize = 128 << 10;

/// Makes a listening socket. The socket's receive buffer is set here, because connections inherit
/// it before TCP agrees on the window.
pub fn listen(address: SocketAddr) -> Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_recv_buffer_size(SOCKET_BYTES)?;
    socket.set_send_buffer_size(SOCKET_BYTES)?;
    socket.bind(&address.into())?;
    socket.listen(8)?;
    // A connection may be gone again between `poll` and `accept`.
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

pub fn connect(address: SocketAddr) -> Result<TcpStream> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_recv_buffer_size(SOCKET_BYTES)?;
    socket.set_send_buffer_size(SOCKET_BYTES)?;
    socket.connect_timeout(&address.into(), CONNECT_LIMIT)?;
    Ok(socket.into())
}

/// Turns off Nagle's algorithm, and limits the unsent bytes in the kernel to one chunk. A more
/// urgent message waits for these bytes and for the bytes on the wire.
pub fn tune(stream: &TcpStream, chunk: usize) -> Result<()> {
    let socket = SockRef::from(stream);
    socket.set_nonblocking(false)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(u32::try_from(chunk).unwrap_or(u32::MAX))
}

struct DeadlineStream<'s> {
    stream: &'s TcpStream,
    deadline: Instant,
}

impl DeadlineStream<'_> {
    fn left(&self) -> Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        Ok(left)
    }
}

impl Read for DeadlineStream<'_> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        (&mut &*self.stream).read(into)
    }
}

impl Write for DeadlineStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        (&mut &*self.stream).write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

fn within_limit<T>(
    stream: &TcpStream,
    chunk: usize,
    handshake: impl FnOnce(&mut DeadlineStream<'_>) -> std::result::Result<T, Failed>,
) -> std::result::Result<T, Failed> {
    tune(stream, chunk)?;
    let deadline = Instant::now() + HANDSHAKE_LIMIT;
    let agreed = handshake(&mut DeadlineStream { stream, deadline })?;
    stream.set_write_timeout(None)?;
    stream.set_read_timeout(None)?;
    Ok(agreed)
}

pub fn shake_connecting(
    stream: &TcpStream,
    key: &Key,
    ours: Hello,
) -> std::result::Result<Agreed, Failed> {
    within_limit(stream, ours.chunk, |s| handshake::connect(s, key, ours))
}

/// Shakes hands as the listening end. An end without a session accepts a new session. An end with a
/// session accepts only this session.
pub fn shake_listening(
    stream: &TcpStream,
    key: &Key,
    ours: Hello,
) -> std::result::Result<Agreed, Failed> {
    let answer = |theirs: &Hello| {
        let refusal = (!ours.takes(theirs)).then_some(Refusal::InUse);
        (ours, refusal)
    };
    within_limit(stream, ours.chunk, |s| handshake::accept(s, key, answer))
}
