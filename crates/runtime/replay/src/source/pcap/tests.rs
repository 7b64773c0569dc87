use super::*;
use crate::item::Kind;
use proptest::prelude::*;
use std::io::Cursor;

type Item = (i64, u32, Vec<u8>);

fn items(bytes: Vec<u8>) -> (Vec<Stream>, Vec<Item>, Vec<String>) {
    let mut source =
        read("capture", Cursor::new(bytes), &mut Survey::default()).expect("a capture");
    let mut payload = Vec::new();
    let mut all = Vec::new();
    while let Some(stamp) = source.next(&mut payload).expect("readable") {
        all.push((stamp.time_ns, stamp.stream.0, payload.clone()));
    }
    (source.streams().to_vec(), all, source.damage().to_vec())
}

struct Writer {
    big: bool,
    bytes: Vec<u8>,
}

impl Writer {
    fn u16(&mut self, number: u16) {
        self.bytes.extend(if self.big {
            number.to_be_bytes()
        } else {
            number.to_le_bytes()
        });
    }

    fn u32(&mut self, number: u32) {
        self.bytes.extend(if self.big {
            number.to_be_bytes()
        } else {
            number.to_le_bytes()
        });
    }

    fn block(&mut self, kind: u32, content: impl FnOnce(&mut Writer)) {
        let mut inner = Writer {
            big: self.big,
            bytes: Vec::new(),
        };
        content(&mut inner);
        inner.pad();
        let length = inner.bytes.len() as u32 + 12;
        self.u32(kind);
        self.u32(length);
        self.bytes.extend(inner.bytes);
        self.u32(length);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.u16(code);
        self.u16(value.len() as u16);
        self.bytes.extend(value);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn section(&mut self) {
        self.block(0x0a0d_0d0a, |block| {
            block.u32(0x1a2b_3c4d);
            block.u16(1);
            block.u16(0);
            block.u32(u32::MAX);
            block.u32(u32::MAX);
        });
    }

    fn interface(&mut self, name: &str, link_type: u16, resolution: u8) {
        self.block(1, |block| {
            block.u16(link_type);
            block.u16(0);
            block.u32(0);
            block.option(2, name.as_bytes());
            block.option(9, &[resolution]);
            block.option(0, &[]);
        });
    }

    fn packet(&mut self, interface: u32, units: u64, data: &[u8]) {
        self.block(6, |block| {
            block.u32(interface);
            block.u32((units >> 32) as u32);
            block.u32(units as u32);
            block.u32(data.len() as u32);
            block.u32(data.len() as u32);
            block.bytes.extend(data);
        });
    }
}

fn pcapng(big: bool, items: &[Item]) -> Vec<u8> {
    let mut file = Writer {
        big,
        bytes: Vec::new(),
    };
    file.section();
    file.interface("eth0", 1, 9);
    file.interface("eth1", 1, 0x80 | 20);
    for (time_ns, stream, data) in items {
        let units = if *stream == 0 {
            *time_ns as u64
        } else {
            (*time_ns as u64 / 1_000_000_000) << 20
        };
        file.packet(*stream, units, data);
    }
    file.bytes
}

fn pcap(big: bool, nanoseconds: bool, items: &[Item]) -> Vec<u8> {
    let mut file = Writer {
        big,
        bytes: Vec::new(),
    };
    file.u32(if nanoseconds {
        0xa1b2_3c4d
    } else {
        0xa1b2_c3d4
    });
    file.u16(2);
    file.u16(4);
    for number in [0, 0, 65535, 1] {
        file.u32(number);
    }
    for (time_ns, _, data) in items {
        let part = (*time_ns % 1_000_000_000) as u32;
        file.u32((*time_ns / 1_000_000_000) as u32);
        file.u32(if nanoseconds { part } else { part / 1000 });
        file.u32(data.len() as u32);
        file.u32(data.len() as u32);
        file.bytes.extend(data);
    }
    file.bytes
}

fn some_items() -> impl Strategy<Value = Vec<Item>> {
    let item = (
        0i64..100,
        0u32..2,
        prop::collection::vec(any::<u8>(), 0..40),
    );
    let whole_seconds =
        item.prop_map(|(second, stream, data)| (second * 1_000_000_000, stream, data));
    prop::collection::vec(whole_seconds, 0..30)
}

proptest! {
    #[test]
    fn captured_packets_are_read_in_time_order(all in some_items(), big in any::<bool>()) {
        let mut wanted = all.clone();
        wanted.sort_by_key(|item| item.0);
        let (streams, read, damage) = items(pcapng(big, &all));
        prop_assert_eq!(&read, &wanted);
        prop_assert!(damage.is_empty(), "{:?}", damage);
        let names: Vec<_> = streams.iter().map(|stream| stream.name.as_str()).collect();
        prop_assert_eq!(names, ["eth0", "eth1"]);
    }

    #[test]
    fn pcap_files_are_read_in_both_byte_orders_and_time_units(
        all in some_items(), part in 0i64..1_000_000, big in any::<bool>(), ns in any::<bool>(),
    ) {
        let part = part * if ns { 1 } else { 1000 };
        let all: Vec<Item> = all.into_iter().map(|(time, _, data)| (time + part, 0, data)).collect();
        let mut wanted = all.clone();
        wanted.sort_by_key(|item| item.0);
        prop_assert_eq!(items(pcap(big, ns, &all)).1, wanted);
    }

    #[test]
    fn packets_before_a_truncation_of_a_capture_are_read(all in some_items(), share in 0.0..1.0f64, old in any::<bool>()) {
        let whole = if old { pcap(false, true, &all) } else { pcapng(true, &all) };
        let cut = 4 + ((whole.len() - 4) as f64 * share) as usize;
        let mut wanted = all;
        if old {
            wanted.iter_mut().for_each(|item| item.1 = 0);
        }
        let (_, read, _) = items(whole[..cut].to_vec());
        wanted.truncate(read.len());
        wanted.sort_by_key(|item| item.0);
        prop_assert_eq!(read, wanted);
    }
}

#[test]
fn socketcan_frames_become_the_kernels_structs() {
    let mut file = Writer {
        big: false,
        bytes: Vec::new(),
    };
    file.section();
    file.interface("vcan0", 227, 6);
    file.packet(0, 1, &[0, 0, 1, 0x23, 2, 0, 0, 0, 0xaa, 0xbb]);
    file.packet(
        0,
        2,
        &[&[0x80, 0, 0, 1, 12, 0x05, 0, 0][..], &[7; 12]].concat(),
    );
    file.packet(0, 3, &[0, 0, 1, 0x23, 8, 0, 0, 0, 0xaa]);
    let (streams, read, damage) = items(file.bytes);
    assert_eq!(streams[0].kind, Kind::Can);
    let mut classic = 0x123u32.to_ne_bytes().to_vec();
    classic.extend([2, 0, 0, 0, 0xaa, 0xbb, 0, 0, 0, 0, 0, 0]);
    assert_eq!(read[0], (1000, 0, classic));
    assert_eq!((&read[1].2[4..6], read[1].2.len()), (&[12, 5][..], 72));
    assert_eq!((read.len(), damage.len()), (2, 1));
}

#[test]
fn can_frames_of_a_capture_of_all_interfaces_are_streams_of_their_own() {
    let mut file = Writer {
        big: false,
        bytes: Vec::new(),
    };
    file.section();
    file.interface("any", 276, 6);
    file.interface("any", 113, 6);
    let frame = [0u8, 0, 1, 0x23, 2, 0, 0, 0, 0xaa, 0xbb];
    let sll2 = |kind: u16, index: u8, rest: &[u8]| {
        let mut packet = vec![0, 12, 0, 0, 0, 0, 0, index];
        packet.extend(kind.to_be_bytes());
        packet.resize(20, 0);
        [&packet, rest].concat()
    };
    file.packet(0, 1, &sll2(280, 3, &frame));
    file.packet(0, 2, &sll2(1, 2, b"a packet"));
    file.packet(0, 3, &sll2(280, 4, &frame));
    file.packet(1, 4, &[&[0u8, 0, 1, 24][..], &[0; 12], &frame].concat());
    let (streams, read, damage) = items(file.bytes);
    let names: Vec<_> = streams.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["any:can3", "any", "any:can4", "any:can"]);
    assert_eq!(streams[0].kind, Kind::Can);
    assert_eq!(streams[1].kind, Kind::Packets { link_type: 276 });
    let mut classic = 0x123u32.to_ne_bytes().to_vec();
    classic.extend([2, 0, 0, 0, 0xaa, 0xbb, 0, 0, 0, 0, 0, 0]);
    let of = |stream: u32| (i64::from(stream + 1) * 1000, stream, classic.clone());
    assert_eq!((&read[0], &read[2], &read[3]), (&of(0), &of(2), &of(3)));
    assert!(damage.is_empty(), "{damage:?}");
}

#[test]
fn a_pcap_block_shorter_than_its_fields_counts_as_damage() {
    for kind in [0x8000_0001u32, 9, 1] {
        let mut file = Writer {
            big: true,
            bytes: Vec::new(),
        };
        file.section();
        file.interface("eth0", 1, 6);
        file.packet(0, 1, b"before");
        file.bytes.extend(kind.to_be_bytes());
        file.bytes.extend([0, 0, 0, 8, 0, 0, 0, 8]);
        let (_, read, damage) = items(file.bytes);
        assert_eq!((read.len(), damage.len()), (1, 1), "{damage:?}");
    }
}

#[test]
fn a_section_of_a_capture_is_listed_with_its_comments_and_application() {
    for big in [false, true] {
        let mut file = Writer {
            big,
            bytes: Vec::new(),
        };
        file.block(0x0a0d_0d0a, |block| {
            block.u32(0x1a2b_3c4d);
            block.u16(1);
            block.u16(0);
            block.u32(u32::MAX);
            block.u32(u32::MAX);
            for (code, text) in [(1, "drive 7"), (4, "dumpcap"), (1, "rain"), (3, "")] {
                block.option(code, text.as_bytes());
            }
            block.option(0, &[]);
        });
        file.interface("eth0", 1, 9);
        file.packet(0, 5, &[1, 2]);
        let bytes = Cursor::new(file.bytes);
        let mut source = read("capture", bytes, &mut Survey::default()).expect("a capture");
        while source.next(&mut Vec::new()).expect("readable").is_some() {}
        let metadata = source.extras().metadata;
        let values: Vec<_> = metadata
            .iter()
            .flat_map(|section| &section.values)
            .collect();
        let values = values
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()));
        let wanted = [("application", "dumpcap"), ("comment", "drive 7; rain")];
        assert!(values.eq(wanted), "{metadata:?}");
    }
}
