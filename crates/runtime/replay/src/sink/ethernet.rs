//! Sends recorded Ethernet packets unchanged through an interface (AF_PACKET).

use super::udp::ETHERNET;
use super::{Put, Refused, Sink, SinkError};
use crate::interface;
use crate::item::{Kind, Stream, StreamId};
use std::os::fd::{AsFd, OwnedFd};

/// A sink that sends Ethernet packets through an interface.
pub struct Ethernet {
    interface: String,
    socket: OwnedFd,
    fits: Vec<bool>,
}

impl Ethernet {
    /// Opens a sink for the Ethernet interface `name`. Needs CAP_NET_RAW.
    ///
    /// # Errors
    /// Fails if the interface does not exist, or the process lacks the capability.
    pub fn new(name: &str, streams: &[Stream]) -> Result<Ethernet, SinkError> {
        let failed = |how: &str, e: std::io::Error| {
            SinkError::new(format!("eth:{name}"), format!("{e}: {how}"))
        };
        let index =
            interface::index(name).map_err(|e| failed("List the interfaces with `ip link`", e))?;
        // Protocol 0 makes the socket receive nothing.
        let socket = interface::socket(libc::AF_PACKET, 0)
            .map_err(|e| failed("raw packets need root or CAP_NET_RAW", e))?;
        // SAFETY: all zero bits are a valid address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = index;
        interface::bind(socket.as_fd(), &address).map_err(|e| failed("is it up?", e))?;
        let fits = |s: &Stream| {
            s.kind
                == Kind::Packets {
                    link_type: ETHERNET,
                }
        };
        Ok(Ethernet {
            interface: name.into(),
            socket,
            fits: streams.iter().map(fits).collect(),
        })
    }
}

impl Sink for Ethernet {
    fn name(&self) -> String {
        format!("eth:{}", self.interface)
    }

    fn put(&mut self, stream: StreamId, bytes: &[u8]) -> Result<Put, Refused> {
        if !self.fits.get(stream.0 as usize).copied().unwrap_or(false) {
            return Ok(Put::Unsuitable);
        }
        match interface::send(self.socket.as_fd(), bytes) {
            Ok(()) => Ok(Put::Left),
            // The packet is longer than the interface permits, or shorter than a header.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EMSGSIZE | libc::EINVAL)) => {
                Ok(Put::Unsuitable)
            }
            Err(e) => Err(e.into()),
        }
    }
}
