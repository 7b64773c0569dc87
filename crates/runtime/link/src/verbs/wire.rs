//! The records of the side channel: the ends' addresses and keys, and notes when they close.
//!
//! Compiled without the feature `verbs` too, because it reads bytes of the network, and is tested
//! and fuzzed.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lane {
    pub number: u32,
    /// The number of the first packet (packet sequence number), which has 24 bits.
    pub psn: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Window {
    /// The address in the process that owns the memory. Only requests to that process's device use
    /// it.
    pub address: u64,
    pub key: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Endpoint {
    pub gid: [u8; 16],
    pub mtu: u8,
    pub out: Lane,
    pub incoming: Lane,
    /// The slots of messages to this end, which the peer writes.
    pub ring: Window,
    pub values: Window,
    pub heads: Window,
    /// The word in which the peer writes which value it is reading.
    pub reading: Window,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// The addresses and keys of an end. Each end must send this record first.
    Endpoint(Endpoint),
    /// The end has no RDMA device with the connection's address. The end sends this record instead
    /// of [`Record::Endpoint`].
    NoDevice,
    Ready,
    /// The number of all messages that the end has sent. The end sends no more messages.
    SendsNoMore(u64),
    ReceivesNoMore,
}

struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    fn lane(&mut self, lane: Lane) {
        self.u32(lane.number);
        self.u32(lane.psn);
    }

    fn window(&mut self, window: Window) {
        self.0.extend(window.address.to_le_bytes());
        self.u32(window.key);
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn lane(&mut self) -> Option<Lane> {
        let lane = Lane {
            number: self.u32()?,
            psn: self.u32()?,
        };
        (lane.number < 1 << 24 && lane.psn < 1 << 24).then_some(lane)
    }

    fn window(&mut self) -> Option<Window> {
        Some(Window {
            address: self.take().map(u64::from_le_bytes)?,
            key: self.u32()?,
        })
    }

    fn endpoint(&mut self) -> Option<Endpoint> {
        let endpoint = Endpoint {
            gid: self.take()?,
            mtu: self.take::<1>()?[0],
            out: self.lane()?,
            incoming: self.lane()?,
            ring: self.window()?,
            values: self.window()?,
            heads: self.window()?,
            reading: self.window()?,
        };
        (1..=5).contains(&endpoint.mtu).then_some(endpoint)
    }
}

impl Record {
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(crate::sealed::MOST);
        self.write(&mut bytes);
        bytes
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        match self {
            Record::Endpoint(e) => {
                bytes.push(1);
                bytes.extend(e.gid);
                bytes.push(e.mtu);
                let mut writer = Writer(bytes);
                writer.lane(e.out);
                writer.lane(e.incoming);
                for window in [e.ring, e.values, e.heads, e.reading] {
                    writer.window(window);
                }
            }
            Record::NoDevice => bytes.push(2),
            Record::Ready => bytes.push(3),
            Record::SendsNoMore(count) => {
                bytes.push(4);
                bytes.extend(count.to_le_bytes());
            }
            Record::ReceivesNoMore => bytes.push(5),
        }
    }

    pub fn parse(bytes: &[u8]) -> Option<Record> {
        let mut reader = Reader(bytes);
        let record = match reader.take::<1>()?[0] {
            1 => Record::Endpoint(reader.endpoint()?),
            2 => Record::NoDevice,
            3 => Record::Ready,
            4 => Record::SendsNoMore(reader.take().map(u64::from_le_bytes)?),
            5 => Record::ReceivesNoMore,
            _ => return None,
        };
        reader.0.is_empty().then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_rdma_link_record_is_read_as_it_was_written(
            gid: [u8; 16], mtu in 1u8..6, lanes: [u32; 4], windows: [(u64, u32); 4], count: u64
        ) {
            let lane = |at: usize| Lane { number: lanes[at] >> 8, psn: lanes[at + 1] >> 8 };
            let window = |at: usize| Window { address: windows[at].0, key: windows[at].1 };
            let endpoint = Endpoint {
                gid, mtu, out: lane(0), incoming: lane(2), ring: window(0), values: window(1),
                heads: window(2), reading: window(3),
            };
            prop_assert!(Record::Endpoint(endpoint).bytes().len() <= crate::sealed::MOST);
            for record in [
                Record::Endpoint(endpoint), Record::NoDevice, Record::Ready,
                Record::SendsNoMore(count), Record::ReceivesNoMore,
            ] {
                prop_assert_eq!(Record::parse(&record.bytes()), Some(record));
            }
        }

        #[test]
        fn bytes_that_are_not_an_rdma_link_record_are_refused(garbage in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Some(record) = Record::parse(&garbage) {
                prop_assert_eq!(record.bytes(), garbage);
            }
        }
    }
}
