//! Keeps the interfaces of a capture: their streams, their clocks and the kind of their packets.

use crate::item::{Kind, Stamp, Stream, StreamId};
use crate::source::can;
use crate::source::damage::Damage;
use std::collections::HashMap;

/// `LINKTYPE_CAN_SOCKETCAN`: packets are CAN frames, with the identifier in network order.
const SOCKETCAN: u32 = 227;
/// The limit for damaged files. No real capture has as many interfaces.
const MOST: usize = 4096;

#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub per_second: u64,
    /// The offset that is added to each time, in seconds.
    pub offset_s: i64,
}

impl Clock {
    /// Returns nanoseconds since 1970, or `None` if the time is out of range.
    pub fn time_ns(self, units: u64) -> Option<i64> {
        let ns = u128::from(units) * 1_000_000_000 / u128::from(self.per_second.max(1));
        let offset_ns = i128::from(self.offset_s) * 1_000_000_000;
        i64::try_from(i128::try_from(ns).ok()? + offset_ns).ok()
    }
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    stream: u32,
    link_type: u32,
    clock: Option<Clock>,
}

/// The interfaces of all sections, one stream per name and link type.
#[derive(Debug, Default)]
pub struct Interfaces {
    streams: Vec<Stream>,
    known: HashMap<(String, u32), u32>,
    section: Vec<Option<Interface>>,
}

impl Interfaces {
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// Begins a section, which numbers its interfaces from 0 again.
    pub fn section(&mut self) {
        self.section.clear();
    }

    /// Adds the next interface of the section. An interface without a name is called `ifN`.
    pub fn add(
        &mut self,
        name: Option<&str>,
        link_type: u32,
        clock: Option<Clock>,
        damage: &mut Damage,
    ) {
        if self.section.len() >= MOST || self.streams.len() >= MOST {
            damage.add(
                "interfaces beyond the first 4096, not replayed",
                String::new,
            );
            return;
        }
        let number = self.section.len();
        let name = name.map_or_else(|| format!("if{number}"), str::to_owned);
        let next = self.streams.len() as u32;
        let stream = *self.known.entry((name.clone(), link_type)).or_insert(next);
        if stream == next {
            let kind = if link_type == SOCKETCAN {
                Kind::Can
            } else {
                Kind::Packets { link_type }
            };
            self.streams.push(Stream { name, kind });
        }
        if clock.is_none() {
            damage.add("interfaces with an impossible clock, not replayed", || {
                format!("interface {number}")
            });
        }
        self.section.push(Some(Interface {
            stream,
            link_type,
            clock,
        }));
    }

    /// Copies a packet to `payload`, and returns its time and stream. Returns `None` if the packet
    /// is skipped.
    pub fn packet(
        &self,
        interface: u32,
        units: u64,
        (data, whole): (&[u8], u32),
        payload: &mut Vec<u8>,
        damage: &mut Damage,
    ) -> Option<Stamp> {
        let Some(Some(there)) = self.section.get(interface as usize) else {
            damage.add(
                "packets of an interface that the file does not describe",
                || format!("interface {interface}"),
            );
            return None;
        };
        let Some(time_ns) = there.clock?.time_ns(units) else {
            damage.add("packets with an impossible time", String::new);
            return None;
        };
        if data.len() < whole as usize {
            damage.add(
                "packets that the capture cut off, replayed as they are",
                || format!("{} of {whole} bytes", data.len()),
            );
        }
        if there.link_type != SOCKETCAN {
            payload.clear();
            payload.extend_from_slice(data);
        } else if !frame(data, payload) {
            damage.add("incomplete CAN frames, or CAN XL frames", || {
                format!("{} bytes", data.len())
            });
            return None;
        }
        Some(Stamp {
            time_ns,
            stream: StreamId(there.stream),
        })
    }
}

/// Converts a captured SocketCAN frame to Linux's struct. The capture has the identifier in network
/// order, length, flags, two bytes and data.
fn frame(captured: &[u8], payload: &mut Vec<u8>) -> bool {
    const FDF: u8 = 0x04;
    let Some((&[a, b, c, d, length, flags, _, raw], data)) = captured.split_first_chunk() else {
        return false;
    };
    let id = u32::from_be_bytes([a, b, c, d]);
    let length_of_data = usize::from(length);
    let is_fd = flags & FDF != 0 || length_of_data > can::DATA || captured.len() == 72;
    let remote = id & can::REMOTE != 0 && !is_fd;
    if length_of_data > can::FD_DATA || (!remote && data.len() < length_of_data) {
        return false;
    }
    if is_fd {
        can::fd(id, flags, &data[..length_of_data], payload);
    } else {
        let data = if remote { &[] } else { &data[..length_of_data] };
        can::classic(id, data, length, raw, payload);
    }
    true
}
