//! Keeps the interfaces of a capture: their streams, their clocks and the kind of their packets.

use crate::item::{Extras, Kind, Stamp, Stream, StreamId};
use crate::source::damage::Damage;
use crate::source::{can, extras};
use std::collections::HashMap;

/// The link type `LINKTYPE_CAN_SOCKETCAN`: packets are CAN frames, with the identifier in network
/// byte order.
const SOCKETCAN: u32 = 227;
/// The link type of a capture of all interfaces (`tcpdump -i any`). Its packets have a header of 16
/// bytes. Newer captures have [`LINUX_SLL2`] with 20 bytes instead.
const LINUX_SLL: u32 = 113;
const LINUX_SLL2: u32 = 276;
/// The kernel's type number of CAN interfaces. The headers of [`LINUX_SLL`] and [`LINUX_SLL2`]
/// contain it.
const ARPHRD_CAN: u16 = 280;
const MOST: usize = 4096;

#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub per_second: u64,
    pub offset_s: i64,
}

impl Clock {
    /// Converts a time in units of this clock to ns since 1970. Returns `None` if the time is out
    /// of range.
    pub fn time_ns(self, units: u64) -> Option<i64> {
        let ns = u128::from(units) * 1_000_000_000 / u128::from(self.per_second.max(1));
        let offset_ns = i128::from(self.offset_s) * 1_000_000_000;
        i64::try_from(i128::try_from(ns).ok()? + offset_ns).ok()
    }
}

#[derive(Clone, Debug)]
struct Interface {
    name: String,
    link_type: u32,
    clock: Option<Clock>,
    packets: Option<u32>,
    frames: Vec<(Option<u32>, u32)>,
}

/// The interfaces of all sections of a capture. Interfaces with the same name and link type are one
/// stream.
#[derive(Debug, Default)]
pub struct Interfaces {
    streams: Vec<Stream>,
    known: HashMap<(String, u32), u32>,
    section: Vec<Option<Interface>>,
    extras: Extras,
}

impl Interfaces {
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// Begins the next section. `about` contains the keys and values with which the section
    /// describes itself.
    pub fn section(&mut self, about: &[(&str, String)]) {
        self.section.clear();
        let values = about.iter().map(|(key, value)| (*key, value.as_str()));
        if !about.is_empty() {
            extras::note(&mut self.extras, "section", values);
        }
    }

    pub fn extras(&self) -> &Extras {
        &self.extras
    }

    /// Adds the next interface of the section. If the interface has no name, it is called `ifN`,
    /// where N is its number.
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
        // A capture of all interfaces can have packets, CAN frames or both: its packets tell.
        let is_any = [LINUX_SLL, LINUX_SLL2].contains(&link_type);
        let packets = (!is_any).then(|| self.stream(name.clone(), link_type));
        if clock.is_none() {
            damage.add(
                "interfaces with an impossible time resolution (if_tsresol), not replayed",
                || format!("interface {number}"),
            );
        }
        self.section.push(Some(Interface {
            name,
            link_type,
            clock,
            packets,
            frames: Vec::new(),
        }));
    }

    fn stream(&mut self, name: String, link_type: u32) -> u32 {
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
        stream
    }

    pub fn packet(
        &mut self,
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
        let link_type = there.link_type;
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
        let captured = can_of_any(link_type, data);
        let frame = match link_type {
            SOCKETCAN => Some(data),
            _ => captured.map(|(_, frame)| frame),
        };
        match frame {
            None => {
                payload.clear();
                payload.extend_from_slice(data);
            }
            Some(captured) if frame_of(captured, payload) => {}
            Some(_) => {
                damage.add(
                    "incomplete CAN frames and CAN XL frames, not replayed",
                    || format!("{} bytes", data.len()),
                );
                return None;
            }
        }
        let stream = match captured {
            Some((index, _)) => self.frames_of(interface, index, damage)?,
            None => self.packets_of(interface)?,
        };
        Some(Stamp {
            time_ns,
            stream: StreamId(stream),
        })
    }

    fn packets_of(&mut self, interface: u32) -> Option<u32> {
        let there = self.section.get(interface as usize)?.as_ref()?;
        if let Some(stream) = there.packets {
            return Some(stream);
        }
        let stream = self.stream(there.name.clone(), there.link_type);
        self.section.get_mut(interface as usize)?.as_mut()?.packets = Some(stream);
        Some(stream)
    }

    fn frames_of(
        &mut self,
        interface: u32,
        index: Option<u32>,
        damage: &mut Damage,
    ) -> Option<u32> {
        let there = self.section.get(interface as usize)?.as_ref()?;
        if let Some(&(_, stream)) = there.frames.iter().find(|f| f.0 == index) {
            return Some(stream);
        }
        if self.streams.len() >= MOST {
            damage.add(
                "CAN interfaces beyond the first 4096, not replayed",
                String::new,
            );
            return None;
        }
        let name = match index {
            Some(index) => format!("{}:can{index}", there.name),
            None => format!("{}:can", there.name),
        };
        let stream = self.stream(name, SOCKETCAN);
        let there = self.section.get_mut(interface as usize)?.as_mut()?;
        there.frames.push((index, stream));
        Some(stream)
    }
}

/// Returns the CAN frame in a packet of a capture of all interfaces. Also returns the kernel's
/// number of the frame's interface if the header contains it. Returns `None` for other packets.
fn can_of_any(link_type: u32, packet: &[u8]) -> Option<(Option<u32>, &[u8])> {
    let number = |at: usize| Some(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]));
    match link_type {
        LINUX_SLL if number(2)? == ARPHRD_CAN => Some((None, packet.get(16..)?)),
        LINUX_SLL2 if number(8)? == ARPHRD_CAN => {
            let index = u32::from(number(4)?) << 16 | u32::from(number(6)?);
            Some((Some(index), packet.get(20..)?))
        }
        _ => None,
    }
}

/// Converts a captured SocketCAN frame to Linux's struct. `captured` contains the identifier in
/// network byte order, the length, the flags, two unused bytes and the data.
fn frame_of(captured: &[u8], payload: &mut Vec<u8>) -> bool {
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
