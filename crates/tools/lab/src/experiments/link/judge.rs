//! Finds in a capture the order of messages on the wire, and the bytes that went ahead of an urgent
//! one.

use crate::measure::capture::Packet;
use std::collections::{BTreeMap, BTreeSet};

/// Returns, for each repetition of the experiment, its messages in the order of their first packets
/// on the wire. A repetition has `per_experiment` messages, whose numbers count over all streams.
pub fn wire_orders(packets: &[Packet], per_experiment: u64) -> Vec<Vec<WireMessage>> {
    let (mut seen, mut orders) = (BTreeSet::new(), BTreeMap::<u64, Vec<WireMessage>>::new());
    for mark in packets.iter().flat_map(|p| &p.marks) {
        if seen.insert(mark.number) {
            orders
                .entry(mark.number / per_experiment)
                .or_default()
                .push(WireMessage {
                    place: mark.number % per_experiment,
                    stream: mark.stream,
                });
        }
    }
    orders.into_values().collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireMessage {
    pub place: u64,
    pub stream: u32,
}

/// Returns the share of messages, in %, whose position on the wire equals their position in the
/// order of sending. Counts only the first `first` messages of each repetition of the experiment,
/// and with `of` only messages of this stream.
pub fn in_place(orders: &[Vec<WireMessage>], first: usize, of: Option<u32>) -> f64 {
    let (mut right, mut all) = (0u64, 0u64);
    for order in orders {
        for (at, seen) in order.iter().take(first).enumerate() {
            if of.is_none_or(|stream| stream == seen.stream) {
                all += 1;
                right += u64::from(seen.place == at as u64);
            }
        }
    }
    100.0 * right as f64 / all.max(1) as f64
}

/// Returns the number of repetitions of the experiment in which the n-th message on the wire
/// belongs to `stream`, for each n below `first`.
pub fn times_at(orders: &[Vec<WireMessage>], first: usize, stream: u32) -> Vec<u64> {
    let mut times = vec![0; first];
    for order in orders {
        for (at, seen) in order.iter().take(first).enumerate() {
            times[at] += u64::from(seen.stream == stream);
        }
    }
    times
}

/// Returns, for each message of `stream` in `pushes`, how many bytes of other streams left between
/// the time of its push and its first packet. `pushes` contains ascending message numbers, each
/// with the time in ns at which the sender had the complete message. Messages without a captured
/// packet are left out.
pub fn bytes_ahead(packets: &[Packet], stream: u32, pushes: &[(u64, i64)]) -> Vec<u64> {
    let mut first = BTreeMap::new();
    // Bytes of other streams before each packet.
    let (mut before, mut others) = (Vec::with_capacity(packets.len() + 1), 0);
    for (at, packet) in packets.iter().enumerate() {
        before.push(others);
        let mut foreign = true;
        for mark in packet.marks.iter().filter(|m| m.stream == stream) {
            first.entry(mark.number).or_insert(at);
            foreign = false;
        }
        others += if foreign { u64::from(packet.bytes) } else { 0 };
    }
    let ahead = |&(number, pushed_ns): &(u64, i64)| {
        let at = *first.get(&number)?;
        let from = packets.partition_point(|p| p.at_ns < pushed_ns);
        Some(before[at].saturating_sub(before[from.min(at)]))
    };
    pushes.iter().filter_map(ahead).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::capture::{marks, Mark};

    fn packet(at_ns: i64, messages: &[(u32, u64)]) -> Packet {
        let mut wire = vec![0xaa; 54];
        for &(stream, number) in messages {
            let unit = [
                &0x6f6e_6274u32.to_le_bytes()[..],
                &stream.to_le_bytes(),
                &number.to_le_bytes(),
            ];
            for _ in 0..4 {
                wire.extend(unit.concat());
            }
        }
        let bytes = wire.len() as u32;
        let marks = marks(&wire);
        Packet {
            at_ns,
            bytes,
            marks,
        }
    }

    #[test]
    fn messages_of_each_experiment_are_ordered_by_their_first_packet() {
        // There are two experiments of four messages. Two messages of the second one have changed
        // places.
        let wire = [
            packet(1, &[(0, 0), (0, 1)]),
            packet(2, &[(1, 2)]),
            packet(3, &[(1, 2), (1, 3)]),
            packet(4, &[(0, 4)]),
            packet(5, &[(1, 6)]),
            packet(6, &[(0, 5)]),
            packet(7, &[(0, 4)]),
            packet(8, &[(1, 7)]),
        ];
        let orders = wire_orders(&wire, 4);
        let places: Vec<Vec<u64>> = orders
            .iter()
            .map(|o| o.iter().map(|s| s.place).collect())
            .collect();
        assert_eq!(places, [[0, 1, 2, 3], [0, 2, 1, 3]]);
        assert_eq!(in_place(&orders, 4, None), 75.0);
        assert_eq!(in_place(&orders, 4, Some(0)), 75.0);
        assert_eq!(in_place(&orders, 2, Some(1)), 0.0);
        assert_eq!(times_at(&orders, 4, 0), [2, 1, 1, 0]);
    }

    #[test]
    fn bytes_ahead_of_a_message_are_packets_of_other_streams_after_its_push() {
        let low = |at| packet(at, &[(1, 0)]);
        let wire = [
            low(10),
            low(20),
            packet(25, &[(0, 6)]),
            low(30),
            low(40),
            packet(50, &[(0, 7)]),
            low(60),
            packet(70, &[(0, 7)]),
        ];
        let one = u64::from(low(0).bytes);
        assert_eq!(
            wire[0].marks,
            [Mark {
                stream: 1,
                number: 0
            }]
        );
        // One message was pushed after the first packet, the other after the third packet of the
        // other stream.
        assert_eq!(
            bytes_ahead(&wire, 0, &[(6, 15), (7, 35), (8, 36)]),
            [one, one]
        );
        assert_eq!(bytes_ahead(&wire, 0, &[(7, 11)]), [3 * one]);
        // The message was pushed and left before any other packet.
        assert_eq!(bytes_ahead(&wire, 0, &[(7, 45)]), [0]);
    }
}
