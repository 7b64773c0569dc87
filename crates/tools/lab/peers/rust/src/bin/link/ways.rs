//! The ways from one host to the other: plain TCP and onbeat's links.

use crate::settings::{Settings, Stream};
use crate::{channels, multiplexed};
use onbeat_link::interface::{Backend, Halves, Incoming, Memory, Outgoing, Sizes};
use onbeat_link::port::{self, Port};
use onbeat_link::{Key, Tcp};
use onbeat_peers::{now_ns, set_priority};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

const CONNECT_NS: u64 = 20_000_000_000;

pub trait Send: std::marker::Send {
    /// Sends a message whose bytes `fill` writes into the send buffer. Returns `false` if the
    /// receiver has closed the connection.
    fn send(&mut self, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> bool;
}

pub trait Receive: std::marker::Send {
    fn receive(&mut self, take: &mut dyn FnMut(&[u8])) -> bool;
}

struct Plain {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Plain {
    fn of(stream: TcpStream, bytes: usize) -> Result<Plain, String> {
        let set = stream.set_nodelay(true);
        set.map_err(|e| format!("TCP_NODELAY: {e}"))?;
        let buffer = vec![0; bytes];
        Ok(Plain { stream, buffer })
    }
}

impl Send for Plain {
    fn send(&mut self, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        fill(&mut self.buffer[..bytes]);
        self.stream.write_all(&self.buffer[..bytes]).is_ok()
    }
}

impl Receive for Plain {
    fn receive(&mut self, take: &mut dyn FnMut(&[u8])) -> bool {
        let whole = self.stream.read_exact(&mut self.buffer).is_ok();
        if whole {
            take(&self.buffer);
        }
        whole
    }
}

struct LinkOut(Box<dyn Outgoing>);

impl Send for LinkOut {
    fn send(&mut self, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        self.0.send(bytes, None, fill).is_ok()
    }
}

/// The receiving end of a TCP connection. It never closes its own direction of the connection, so
/// the peer sees that this end still receives.
struct LinkIn {
    incoming: Box<dyn Incoming>,
    _outgoing: Box<dyn Outgoing>,
}

impl Receive for LinkIn {
    fn receive(&mut self, take: &mut dyn FnMut(&[u8])) -> bool {
        let mut take = |_, message: &[u8]| take(message);
        matches!(self.incoming.receive(None, &mut take), Ok(true))
    }
}

fn socket_priority(priority: u8) -> i32 {
    match priority {
        0 => 2,
        1 => 0,
        _ => 6,
    }
}

/// Connects to a receiver. Tries again as long as the receiver does not listen yet.
pub fn dial(address: SocketAddr) -> Result<TcpStream, String> {
    let until = now_ns() + CONNECT_NS as i64;
    loop {
        match TcpStream::connect(address) {
            Ok(connected) => return Ok(connected),
            Err(e) if now_ns() > until => return Err(format!("connecting: {e}")),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

pub fn accept(address: SocketAddr) -> Result<TcpStream, String> {
    let listener = TcpListener::bind(address).map_err(|e| format!("listening: {e}"))?;
    let accepted = listener.accept().map_err(|e| format!("accepting: {e}"))?;
    Ok(accepted.0)
}

/// The rate in bits/s that the virtual interfaces report if the link has no limit.
const UNLIMITED: u64 = 10_000_000_000;

fn port_settings(settings: &Settings) -> Result<port::Settings, String> {
    let rate = match settings.words.number("rate")? {
        0 => UNLIMITED,
        rate => rate,
    };
    Ok(port::Settings::of_rate(rate))
}

fn port(settings: &Settings) -> Result<Port, String> {
    let name = format!("bench/{}", settings.first_port);
    Port::shared(&name, port_settings(settings)?).map_err(|e| e.to_string())
}

pub fn tcp(settings: &Settings, stream: &Stream) -> Result<Tcp, String> {
    let key = settings.words.text("key")?;
    let key = Key::read_file(Path::new(key)).map_err(|e| e.to_string())?;
    let address = settings.address(stream);
    let tcp = if settings.sends {
        Tcp::connect(address, key)
    } else {
        Tcp::listen(address, key).map_err(|e| e.to_string())?
    };
    let tcp = match settings.words.text("arm")? {
        "sealed" => return Ok(tcp),
        "ours" if settings.sends => tcp.on_port(&port(settings)?, 100 * stream.priority),
        "ours" => tcp.chunk_bytes(port_settings(settings)?.chunk()),
        _ => tcp,
    };
    Ok(tcp.in_clear())
}

fn link(settings: &Settings, stream: &Stream) -> Result<Halves, String> {
    let sizes = Sizes {
        credits: settings.credits,
        message_bytes: stream.bytes,
        value_bytes: 0,
    };
    let until = now_ns() as u64 + CONNECT_NS;
    let ends = tcp(settings, stream)?.initialize(sizes, Memory::Allot, Some(until));
    ends.map_err(|e| e.to_string())
}

pub fn sender(settings: &Settings, stream: &Stream) -> Result<Box<dyn Send>, String> {
    match settings.words.text("arm")? {
        arm @ ("tcp" | "prio") => {
            let connected = dial(settings.address(stream))?;
            if arm == "prio" {
                set_priority(&connected, socket_priority(stream.priority))?;
            }
            Ok(Box::new(Plain::of(connected, stream.bytes)?))
        }
        "interface" | "sealed" | "ours" => Ok(Box::new(LinkOut(link(settings, stream)?.0))),
        "multiplexed" => multiplexed::sender(settings, stream),
        "channels" => channels::sender(settings, stream),
        arm => Err(format!("unknown arm '{arm}'")),
    }
}

pub fn receiver(settings: &Settings, stream: &Stream) -> Result<Box<dyn Receive>, String> {
    match settings.words.text("arm")? {
        "tcp" | "prio" => {
            let accepted = accept(settings.address(stream))?;
            Ok(Box::new(Plain::of(accepted, stream.bytes)?))
        }
        "interface" | "sealed" | "ours" => {
            let (_outgoing, incoming) = link(settings, stream)?;
            Ok(Box::new(LinkIn {
                incoming,
                _outgoing,
            }))
        }
        "multiplexed" => multiplexed::receiver(settings, stream),
        "channels" => channels::receiver(settings, stream),
        arm => Err(format!("unknown arm '{arm}'")),
    }
}
