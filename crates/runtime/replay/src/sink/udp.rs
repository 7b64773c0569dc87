//! Sends UDP datagrams to one address: the payloads of recorded packets, or items as they are.

use super::{Put, Refused, Sink, SinkError};
use crate::item::{Kind, Stream, StreamId};
use etherparse::{LaxSlicedPacket, TransportSlice};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};

/// `LINKTYPE_ETHERNET`. All numbers here come from the list of tcpdump.
pub(super) const ETHERNET: u32 = 1;
const RAW_IP: [u32; 4] = [12, 101, 228, 229];
const LINUX_SLL: u32 = 113;

/// A sink that sends UDP datagrams to one address.
pub struct Udp {
    socket: UdpSocket,
    to: SocketAddr,
    /// For each stream: the link type of its packets, or `None` if its items are sent as they are.
    links: Vec<Option<u32>>,
}

impl Udp {
    /// Opens a socket that sends to `to` (`HOST:PORT`), for these streams.
    ///
    /// # Errors
    /// Fails if the text is not an address, or if no socket can be opened.
    pub fn new(to: &str, streams: &[Stream]) -> Result<Udp, SinkError> {
        let failed = |fault: String| SinkError::new(format!("udp:{to}"), fault);
        let address = to.to_socket_addrs().ok().and_then(|mut all| all.next());
        let address = address.ok_or_else(|| {
            failed("not an address. Write udp:HOST:PORT, for example udp:10.0.0.2:7400".into())
        })?;
        let any = match address.is_ipv4() {
            true => "0.0.0.0:0",
            false => "[::]:0",
        };
        // The socket is not connected, because a consumer that does not run yet is not an error.
        let socket = UdpSocket::bind(any).map_err(|e| failed(format!("no socket: {e}")))?;
        let link = |s: &Stream| match s.kind {
            Kind::Packets { link_type } => Some(link_type),
            _ => None,
        };
        Ok(Udp {
            socket,
            to: address,
            links: streams.iter().map(link).collect(),
        })
    }
}

impl Sink for Udp {
    fn name(&self) -> String {
        format!("udp:{}", self.to)
    }

    fn put(&mut self, stream: StreamId, bytes: &[u8]) -> Result<Put, Refused> {
        let payload = match self.links.get(stream.0 as usize) {
            Some(Some(link)) => payload(*link, bytes),
            _ => Some(bytes),
        };
        let Some(payload) = payload else {
            return Ok(Put::Unsuitable);
        };
        match self.socket.send_to(payload, self.to) {
            Ok(_) => Ok(Put::Left),
            Err(e) if e.raw_os_error() == Some(libc::EMSGSIZE) => Ok(Put::Unsuitable),
            // This error belongs to an earlier datagram, so the current one is tried again.
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => Err(Refused::Busy),
            Err(e) => Err(e.into()),
        }
    }
}

/// Returns the payload of a captured UDP packet. It is `None` for other packets, fragments, and
/// packets that the capture cut off. Real-time safe.
pub fn payload(link_type: u32, packet: &[u8]) -> Option<&[u8]> {
    let sliced = match link_type {
        ETHERNET => LaxSlicedPacket::from_ethernet(packet).ok()?,
        LINUX_SLL => LaxSlicedPacket::from_ether_type(
            etherparse::EtherType(u16::from_be_bytes(packet.get(14..16)?.try_into().ok()?)),
            packet.get(16..)?,
        ),
        link if RAW_IP.contains(&link) => LaxSlicedPacket::from_ip(packet).ok()?,
        _ => return None,
    };
    match sliced.transport {
        Some(TransportSlice::Udp(udp)) => {
            let payload = udp.payload();
            let whole = usize::from(udp.length()).checked_sub(8)?;
            // A length of 0 means all remaining bytes (jumbograms). A payload that is shorter than
            // its length was cut off.
            (udp.length() == 0 || payload.len() == whole).then_some(payload)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    fn packet(payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        PacketBuilder::ethernet2([1; 6], [2; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 20)
            .udp(7, 8)
            .write(&mut bytes, payload)
            .unwrap();
        bytes
    }

    #[test]
    fn udp_payloads_leave_and_packets_without_one_are_unsuitable() {
        let device = UdpSocket::bind("127.0.0.1:0").unwrap();
        let stream = |link_type| Stream {
            name: "eth0".into(),
            kind: Kind::Packets { link_type },
        };
        let raw = Stream {
            name: "can0".into(),
            kind: Kind::Can,
        };
        let to = device.local_addr().unwrap().to_string();
        let mut udp = Udp::new(&to, &[stream(ETHERNET), stream(101), raw]).unwrap();
        let whole = packet(b"payload");
        let mut received = [0; 64];
        for (stream, bytes, expected) in [
            (0, &whole[..], &b"payload"[..]),
            (1, &whole[14..], b"payload"),
            (2, b"as it is", b"as it is"),
        ] {
            assert_eq!(udp.put(StreamId(stream), bytes).unwrap(), Put::Left);
            let length = device.recv(&mut received).unwrap();
            assert_eq!(&received[..length], expected);
        }
        let mut tcp = whole.clone();
        tcp[23] = 6;
        let cut_off = &whole[..whole.len() - 1];
        for unsuitable in [&tcp[..], cut_off, b"", b"\0"] {
            let put = udp.put(StreamId(0), unsuitable).unwrap();
            assert_eq!(put, Put::Unsuitable, "{unsuitable:?}");
        }
        let error = Udp::new("nowhere", &[]).err().unwrap().to_string();
        assert!(error.contains("HOST:PORT"), "{error}");
    }
}
