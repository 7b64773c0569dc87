//! The interfaces of a capture: their streams, their clocks, and what their packets are.

use crate::item::{Kind, Stamp, Stream, StreamId};
use crate::source::can;
use crate::source::damage::Damage;
use std::collections::HashMap;

/// `LINKTYPE_CAN_SOCKETCAN`: its packets are CAN frames, with the identifier in network order.
const SOCKETCAN: u32 = 227;
/// More interfaces than a capture has; a damaged file does not make more.
const MOST: usize = 4096;

/// How an interface's times read.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Units in a second.
    pub per_second: u64,
    /// Seconds that are added.
    pub offset_s: i64,
}

impl Clock {
    /// Nanoseconds since 1970. `None`: beyond what they can say.
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
    /// Those of the section that is read.
    section: Vec<Option<Interface>>,
}

impl Interfaces {
    /// The streams that were met.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// A new section: interfaces are numbered from 0 again.
    pub fn section(&mut self) {
        self.section.clear();
    }

    /// The section's next interface. Without a name it is called `ifN`.
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
            damage.add(
                "interfaces with a clock that cannot be, not replayed",
                || format!("interface {number}"),
            );
        }
        self.section.push(Some(Interface {
            stream,
            link_type,
            clock,
        }));
    }

    /// Puts a packet into `payload` and says when and where it was captured. `None`: it is skipped.
    pub fn packet(
        &self,
        interface: u32,
        units: u64,
        (data, whole): (&[u8], u32),
        payload: &mut Vec<u8>,
        damage: &mut Damage,
    ) -> Option<Stamp> {
        let Some(Some(there)) = self.section.get(interface as usize) else {
            damage.add("packets of an interface that is not described", || {
                format!("interface {interface}")
            });
            return None;
        };
        let Some(time_ns) = there.clock?.time_ns(units) else {
            damage.add("packets of a time that cannot be", String::new);
            return None;
        };
        if data.len() < whole as usize {
            damage.add(
                "packets that were captured shortened, replayed as they are",
                || format!("{} of {whole} bytes", data.len()),
            );
        }
        if there.link_type != SOCKETCAN {
            payload.clear();
            payload.extend_from_slice(data);
        } else if !frame(data, payload) {
            damage.add("CAN frames that are not whole, or CAN XL", || {
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

/// From a captured SocketCAN frame to Linux's struct: identifier in network order, length, flags, two bytes, data.
fn frame(captured: &[u8], payload: &mut Vec<u8>) -> bool {
    /// Flag of the capture: the frame is CAN FD.
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
