//! Sends UDP datagrams: the payloads of recorded packets, or items as they are.

use super::fragments::{Fragment, Fragments, Joined};
use super::{Put, Refused, Sink, SinkError};
use crate::item::{Kind, Stream, StreamId};
use etherparse::{EtherType, LaxSlicedPacket, TransportSlice};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};

/// The link type `LINKTYPE_ETHERNET`. All link types in this file are from tcpdump's list.
pub(super) const ETHERNET: u32 = 1;
const RAW_IP: [u32; 4] = [12, 101, 228, 229];
/// The link types of the loopback interfaces of macOS and BSD. A packet has four bytes with the
/// address family, then the IP packet.
const LOOPBACK: [u32; 2] = [0, 108];
/// The link type of `tcpdump -i any`. The EtherType is at byte 14 of the 16-byte header. In the
/// second version ([`LINUX_SLL2`]) it is at byte 0 of a 20-byte header.
const LINUX_SLL: u32 = 113;
const LINUX_SLL2: u32 = 276;

/// The addresses to which UDP datagrams go, by the port to which the datagrams were recorded.
pub type Ports = Vec<(u16, String)>;

/// A sink that sends UDP datagrams.
pub struct Udp {
    name: String,
    /// The socket for IPv4 and the socket for IPv6. An entry is `None` if no address is of its
    /// kind.
    sockets: [Option<UdpSocket>; 2],
    places: Places,
    links: Vec<Option<u32>>,
    /// The datagrams that were captured as fragments. `None` if no stream has packets.
    fragments: Option<Fragments>,
}

struct Places {
    to: SocketAddr,
    /// True if the user's address has no port. Datagrams then keep the port to which they were
    /// recorded.
    keeps_ports: bool,
    ports: Vec<(u16, SocketAddr)>,
}

impl Places {
    fn of(&self, recorded: Option<u16>) -> Option<SocketAddr> {
        let mapped = |port| self.ports.iter().find(|(from, _)| *from == port);
        match (recorded.and_then(mapped), recorded) {
            (Some((_, to)), _) => Some(*to),
            (None, _) if !self.keeps_ports => Some(self.to),
            (None, Some(port)) => Some(SocketAddr::new(self.to.ip(), port)),
            (None, None) => None,
        }
    }
}

impl Udp {
    /// Opens a sink that sends the streams to `to` (`HOST:PORT` or `HOST`). Datagrams that were
    /// recorded to one of `ports` go to the address of this port.
    ///
    /// # Errors
    /// Fails if `to` is not an address, or if no socket can be opened.
    pub fn new(to: &str, ports: &Ports, streams: &[Stream]) -> Result<Udp, SinkError> {
        let failed = |fault: String| SinkError::new(format!("udp:{to}"), fault);
        let with_port = address_of(to);
        let keeps_ports = with_port.is_none();
        let address = with_port.or_else(|| address_of(&format!("{to}:0")));
        let address = address.ok_or_else(|| {
            failed(
                "not an address. Write udp:HOST:PORT or udp:HOST, for example udp:10.0.0.2:7400"
                    .into(),
            )
        })?;
        let ports = ports.iter().map(|(port, to)| {
            let fault = || {
                failed(format!(
                    "--map {port}={to}: not an address. Write PORT=HOST:PORT"
                ))
            };
            Ok((*port, address_of(to).ok_or_else(fault)?))
        });
        let ports = ports.collect::<Result<Vec<_>, SinkError>>()?;
        let all = || ports.iter().map(|(_, to)| *to).chain([address]);
        // The socket is not connected, because a consumer that does not run yet is not an error.
        let socket = |is_needed: bool, any: &str| match is_needed {
            true => UdpSocket::bind(any)
                .map(Some)
                .map_err(|e| failed(format!("no socket: {e}"))),
            false => Ok(None),
        };
        let sockets = [
            socket(all().any(|to| to.is_ipv4()), "0.0.0.0:0")?,
            socket(all().any(|to| to.is_ipv6()), "[::]:0")?,
        ];
        let link = |s: &Stream| match s.kind {
            Kind::Packets { link_type } => Some(link_type),
            _ => None,
        };
        Ok(Udp {
            name: format!("udp:{to}"),
            sockets,
            places: Places {
                to: address,
                keeps_ports,
                ports,
            },
            links: streams.iter().map(link).collect(),
            fragments: streams
                .iter()
                .any(|s| link(s).is_some())
                .then(Fragments::new),
        })
    }
}

fn address_of(text: &str) -> Option<SocketAddr> {
    text.to_socket_addrs().ok()?.next()
}

impl Sink for Udp {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn put(&mut self, stream: StreamId, bytes: &[u8]) -> Result<Put, Refused> {
        let link = self.links.get(stream.0 as usize).copied().flatten();
        let (content, put) = match link {
            None => (Some((bytes, None)), Put::Left),
            Some(link) => match content(link, bytes) {
                Some(Content::Payload(payload, port)) => (Some((payload, Some(port))), Put::Left),
                Some(Content::Part(part)) => match self.fragments.as_mut().map(|f| f.join(&part)) {
                    Some(Joined::Whole {
                        payload,
                        port,
                        parts,
                    }) => (Some((payload, Some(port))), Put::Joined { parts }),
                    Some(Joined::Waits) => return Ok(Put::Kept),
                    Some(Joined::Useless) | None => (None, Put::Unsuitable),
                },
                None => (None, Put::Unsuitable),
            },
        };
        let Some((payload, port)) = content else {
            return Ok(put);
        };
        let to = self.places.of(port);
        let socket = |to: &SocketAddr| self.sockets[usize::from(to.is_ipv6())].as_ref();
        let Some((to, socket)) = to.and_then(|to| Some((to, socket(&to)?))) else {
            return Ok(Put::Unsuitable);
        };
        let sent = socket.send_to(payload, to);
        let again = matches!(&sent, Err(e) if e.kind() == io::ErrorKind::ConnectionRefused);
        if let (false, Some(fragments)) = (again, &mut self.fragments) {
            fragments.sent();
        }
        match sent {
            Ok(_) => Ok(put),
            Err(e) if e.raw_os_error() == Some(libc::EMSGSIZE) => Ok(Put::Unsuitable),
            // This error belongs to an earlier datagram, so the current one is tried again.
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => Err(Refused::Busy),
            Err(e) => Err(e.into()),
        }
    }
}

enum Content<'p> {
    Payload(&'p [u8], u16),
    Part(Fragment<'p>),
}

/// Returns whether a UDP sink can find UDP datagrams in packets of this link type.
pub(crate) fn unpacks(link_type: u32) -> bool {
    matches!(link_type, ETHERNET | LINUX_SLL | LINUX_SLL2)
        || RAW_IP.contains(&link_type)
        || LOOPBACK.contains(&link_type)
}

/// Returns the part of a captured packet that a UDP sink sends. Returns `None` for protocols other
/// than UDP, and for packets that the capture cut off. Real-time safe.
fn content(link_type: u32, packet: &[u8]) -> Option<Content<'_>> {
    let of_type = |at: usize, header: usize| {
        let kind = u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?);
        let packet = packet.get(header..)?;
        Some(LaxSlicedPacket::from_ether_type(EtherType(kind), packet))
    };
    let sliced = match link_type {
        ETHERNET => LaxSlicedPacket::from_ethernet(packet).ok()?,
        LINUX_SLL => of_type(14, 16)?,
        LINUX_SLL2 => of_type(0, 20)?,
        link if RAW_IP.contains(&link) => LaxSlicedPacket::from_ip(packet).ok()?,
        link if LOOPBACK.contains(&link) => LaxSlicedPacket::from_ip(packet.get(4..)?).ok()?,
        _ => return None,
    };
    match sliced.transport {
        Some(TransportSlice::Udp(udp)) => {
            let payload = udp.payload();
            let whole = usize::from(udp.length()).checked_sub(8)?;
            // A length of 0 means all remaining bytes (jumbograms). A payload that is shorter than
            // its length was cut off.
            (udp.length() == 0 || payload.len() == whole)
                .then_some(Content::Payload(payload, udp.destination_port()))
        }
        Some(_) => None,
        None => Fragment::of(sliced.net.as_ref()?).map(Content::Part),
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

    fn payload(link_type: u32, packet: &[u8]) -> Option<&[u8]> {
        match content(link_type, packet)? {
            Content::Payload(payload, _) => Some(payload),
            Content::Part(_) => None,
        }
    }

    fn fragment(v6: bool, at: u16, more: bool, data: &[u8]) -> Vec<u8> {
        let offset = etherparse::IpFragOffset::try_new(at / 8).unwrap();
        let mut bytes = vec![1; 12];
        if v6 {
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            bytes.extend((data.len() as u16 + 8).to_be_bytes());
            bytes.extend([44, 64]);
            bytes.extend([[1; 16], [2; 16]].concat());
            let header = etherparse::Ipv6FragmentHeader::new(17.into(), offset, more, 77);
            bytes.extend(header.to_bytes());
        } else {
            bytes.extend([8, 0]);
            let (from, to) = ([10, 0, 0, 1], [10, 0, 0, 2]);
            let length = data.len() as u16;
            let mut ip = etherparse::Ipv4Header::new(length, 64, 17.into(), from, to).unwrap();
            (ip.identification, ip.fragment_offset, ip.more_fragments) = (77, offset, more);
            bytes.extend(ip.to_bytes());
        }
        bytes.extend(data);
        bytes
    }

    #[test]
    fn a_datagram_in_ip_fragments_leaves_whole_with_its_last_fragment() {
        let device = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = device.local_addr().unwrap().to_string();
        let stream = Stream {
            name: "eth0".into(),
            kind: Kind::Packets {
                link_type: ETHERNET,
            },
        };
        let mut udp = Udp::new(&to, &Ports::new(), &[stream]).unwrap();
        let sent: Vec<u8> = (0..3000u32).map(|i| (i % 251) as u8).collect();
        let datagram = [&[0, 7, 0, 8, 0x0b, 0xc0, 0, 0][..], &sent].concat();
        let mut received = [0; 4000];
        for v6 in [false, true] {
            let part = |from: usize, until: usize| {
                let more = until < datagram.len();
                fragment(v6, from as u16, more, &datagram[from..until])
            };
            let (first, second, last) = (part(0, 1480), part(1480, 2960), part(2960, 3008));
            let mut put = |packet: &[u8]| udp.put(StreamId(0), packet).unwrap();
            assert_eq!(put(&first), Put::Kept);
            assert_eq!(put(&last), Put::Kept);
            assert_eq!(put(&second[..second.len() - 1]), Put::Unsuitable);
            assert_eq!(put(&second), Put::Joined { parts: 3 });
            let length = device.recv(&mut received).unwrap();
            assert_eq!(received[..length], sent);
        }
    }

    #[test]
    fn datagrams_keep_the_recorded_port_or_go_to_the_address_of_that_port() {
        let open = |address: &str| {
            let socket = UdpSocket::bind(address).unwrap();
            let patience = std::time::Duration::from_secs(5);
            socket.set_read_timeout(Some(patience)).unwrap();
            let port = socket.local_addr().unwrap().port();
            (socket, port)
        };
        let ((kept, kept_port), (other, other_port)) = (open("127.0.0.1:0"), open("127.0.0.1:0"));
        let (far, far_port) = open("[::1]:0");
        let packet = |port: u16| {
            let mut bytes = Vec::new();
            PacketBuilder::ethernet2([1; 6], [2; 6])
                .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 20)
                .udp(7, port)
                .write(&mut bytes, &port.to_le_bytes())
                .unwrap();
            bytes
        };
        let stream = Stream {
            name: "eth0".into(),
            kind: Kind::Packets {
                link_type: ETHERNET,
            },
        };
        let streams = [stream];
        let ports = vec![
            (2368, format!("127.0.0.1:{other_port}")),
            (2369, format!("[::1]:{far_port}")),
        ];
        let mut udp = Udp::new("127.0.0.1", &ports, &streams).unwrap();
        assert_eq!(udp.name(), "udp:127.0.0.1");
        let mut received = [0; 8];
        for (socket, port) in [(&kept, kept_port), (&other, 2368), (&far, 2369)] {
            assert_eq!(udp.put(StreamId(0), &packet(port)).unwrap(), Put::Left);
            assert_eq!(socket.recv(&mut received).unwrap(), 2);
            assert_eq!(received[..2], port.to_le_bytes());
        }
        // A fragment has the port in the header of its datagram.
        let payload = [&[0, 7, 9, 64, 0, 24, 0, 0][..], &[5; 16]].concat();
        let (first, last) = (
            fragment(false, 0, true, &payload[..16]),
            fragment(false, 16, false, &payload[16..]),
        );
        assert_eq!(udp.put(StreamId(0), &first).unwrap(), Put::Kept);
        assert_eq!(
            udp.put(StreamId(0), &last).unwrap(),
            Put::Joined { parts: 2 }
        );
        let mut all = [0; 32];
        assert_eq!(other.recv(&mut all).unwrap(), 16);
        assert_eq!(udp.put(StreamId(9), b"no port").unwrap(), Put::Unsuitable);
        let fixed = format!("127.0.0.1:{kept_port}");
        let mut udp = Udp::new(&fixed, &ports, &streams).unwrap();
        for (socket, port) in [(&kept, 1), (&other, 2368)] {
            udp.put(StreamId(0), &packet(port)).unwrap();
            socket.recv(&mut received).unwrap();
            assert_eq!(received[..2], port.to_le_bytes());
        }
        let wrong = vec![(1, "nowhere".into())];
        let error = Udp::new(&fixed, &wrong, &streams).err().unwrap();
        assert!(error.to_string().contains("PORT=HOST:PORT"), "{error}");
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
        let mut udp = Udp::new(&to, &Ports::new(), &[stream(ETHERNET), stream(101), raw]).unwrap();
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
        let mut sll = [&[0u8; 14][..], &[8, 0], &whole[14..]].concat();
        assert_eq!(payload(LINUX_SLL, &sll), Some(&b"payload"[..]));
        sll = [&[8u8, 0][..], &[0; 18], &whole[14..]].concat();
        assert_eq!(payload(LINUX_SLL2, &sll), Some(&b"payload"[..]));
        for link in LOOPBACK {
            let loopback = [&[2u8, 0, 0, 0][..], &whole[14..]].concat();
            assert_eq!(payload(link, &loopback), Some(&b"payload"[..]));
        }
        let mut tcp = whole.clone();
        tcp[23] = 6;
        let cut_off = &whole[..whole.len() - 1];
        for unsuitable in [&tcp[..], cut_off, b"", b"\0"] {
            let put = udp.put(StreamId(0), unsuitable).unwrap();
            assert_eq!(put, Put::Unsuitable, "{unsuitable:?}");
        }
        let error = Udp::new("no where", &Ports::new(), &[])
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("HOST:PORT"), "{error}");
    }
}
