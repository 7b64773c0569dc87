//! Asks the kernel for the state of a CAN interface: bitrate, mode, and whether it can send.

use super::Speed;
use crate::interface;
use std::io;
use std::os::fd::AsFd;

const HEADER: usize = 16;
const INFO: usize = 16;
const MOST_BYTES: usize = 64 << 10;
const ANSWERS: usize = 16;
/// The number of the netlink attribute for the MTU. This number and the following ones are from
/// `if_link.h` and `can/netlink.h` of Linux.
const MTU: u16 = 4;
const LINK_INFO: u16 = 18;
const INFO_DATA: u16 = 2;
const BIT_TIMING: u16 = 1;
const STATE: u16 = 4;
const MODE: u16 = 5;
const DATA_BIT_TIMING: u16 = 9;
const LISTEN_ONLY: u32 = 2;
const ERROR_PASSIVE: u32 = 2;
const BUS_OFF: u32 = 3;
const CAN: u16 = 280;
const FD_MTU: u32 = 72;

/// The state of a network interface that matters for sending CAN frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Device {
    is_can: bool,
    is_up: bool,
    mtu: u32,
    /// The bitrates of the interface. `None` for virtual interfaces.
    pub speed: Option<Speed>,
    mode: u32,
    state: u32,
}

impl Device {
    /// Asks the kernel for the state of an interface. Needs no rights.
    ///
    /// # Errors
    /// Fails if the interface does not exist, or the kernel does not answer.
    pub fn of(name: &str) -> io::Result<Device> {
        let index = interface::index(name)?;
        let socket = interface::socket(libc::AF_NETLINK, libc::NETLINK_ROUTE)?;
        interface::send(socket.as_fd(), &request(index))?;
        let mut answer = vec![0; MOST_BYTES];
        // The kernel answers during the call of `send`.
        for _ in 0..ANSWERS {
            let length = interface::receive(socket.as_fd(), &mut answer)?;
            if let Some(device) = Device::parse(&answer[..length], index) {
                return Ok(device);
            }
        }
        Err(io::Error::other(
            "the kernel does not answer the request for the interface's state",
        ))
    }

    fn parse(answer: &[u8], index: i32) -> Option<Device> {
        let kind = half(answer, 4)?;
        let info = answer.get(HEADER..)?;
        if kind != libc::RTM_NEWLINK || word(info, 4)? != index as u32 {
            return None;
        }
        let mut device = Device {
            is_can: half(info, 2)? == CAN,
            is_up: word(info, 8)? & libc::IFF_UP as u32 != 0,
            ..Device::default()
        };
        let (mut nominal, mut data) = (0, 0);
        for (kind, value) in Attributes(info.get(INFO..)?) {
            match kind {
                MTU => device.mtu = word(value, 0)?,
                LINK_INFO => {
                    let link = Attributes(value).find(|(kind, _)| *kind == INFO_DATA);
                    for (kind, value) in Attributes(link.map_or(&[], |(_, data)| data)) {
                        match kind {
                            BIT_TIMING => nominal = word(value, 0)?,
                            DATA_BIT_TIMING => data = word(value, 0)?,
                            STATE => device.state = word(value, 0)?,
                            MODE => device.mode = word(value, 4)?,
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        device.speed = (nominal > 0).then(|| Speed {
            nominal: nominal.into(),
            data: if data > 0 { data } else { nominal }.into(),
        });
        Some(device)
    }

    /// Checks whether the interface can send frames. Returns a sentence for each state that may
    /// prevent frames from being sent or acknowledged.
    ///
    /// # Errors
    /// Fails with a sentence if the interface cannot send any frame.
    pub fn check(&self, name: &str) -> Result<Vec<String>, String> {
        if !self.is_can {
            return Err(
                "not a CAN interface. `ip link show type can` lists the CAN interfaces".into(),
            );
        }
        if !self.is_up {
            return Err(format!(
                "the interface is down. Run `ip link set {name} up`"
            ));
        }
        if self.speed.is_some() && self.mode & LISTEN_ONLY != 0 {
            return Err(format!(
                "the interface is in listen-only mode, so no frame would leave. Run `ip link set {name} down`, then `ip link set {name} up type can listen-only off`"
            ));
        }
        let state = match (self.speed, self.state) {
            (Some(_), ERROR_PASSIVE) => "is error-passive: frames are perhaps not acknowledged. Check the other nodes, the bitrate and the termination",
            (Some(_), BUS_OFF) => "is bus-off: it sends nothing until it is restarted. Check the bitrate and the wiring, then run `ip link set NAME type can restart`",
            _ => return Ok(Vec::new()),
        };
        Ok(vec![format!("{name} {}", state.replace("NAME", name))])
    }

    /// Returns whether the interface can send CAN FD frames.
    pub fn takes_fd(&self) -> bool {
        self.mtu >= FD_MTU
    }
}

fn request(index: i32) -> Vec<u8> {
    let length = (HEADER + INFO) as u32;
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(libc::RTM_GETLINK.to_ne_bytes());
    bytes.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    bytes.extend([0; 12]);
    bytes.extend(index.to_ne_bytes());
    bytes.resize(length as usize, 0);
    bytes
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Iterates over the netlink attributes in the kernel's answer. Each entry is the kind and the
/// value of an attribute.
struct Attributes<'b>(&'b [u8]);

impl<'b> Iterator for Attributes<'b> {
    type Item = (u16, &'b [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(half(self.0, 0)?);
        // The two highest bits are flags.
        let kind = half(self.0, 2)? & 0x3fff;
        let value = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = 4 + value.len() as u16;
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn numbers(all: &[u32]) -> Vec<u8> {
        all.iter().flat_map(|number| number.to_ne_bytes()).collect()
    }

    fn answer(flags: u32, mode: u32, state: u32) -> Vec<u8> {
        let can = [
            attribute(BIT_TIMING, &numbers(&[500_000, 875, 1, 2, 3, 4, 5, 6])),
            attribute(STATE, &numbers(&[state])),
            attribute(MODE, &numbers(&[0xff, mode])),
            attribute(DATA_BIT_TIMING, &numbers(&[2_000_000])),
        ]
        .concat();
        let link = [attribute(1, b"can\0"), attribute(INFO_DATA, &can)].concat();
        let mut bytes = vec![0, 0, 0, 0];
        bytes.extend(libc::RTM_NEWLINK.to_ne_bytes());
        bytes.resize(HEADER + 2, 0);
        bytes.extend(CAN.to_ne_bytes());
        bytes.extend(numbers(&[7, flags, 0]));
        bytes.extend(attribute(3, b"can0\0"));
        bytes.extend(attribute(MTU, &numbers(&[72])));
        bytes.extend(attribute(LINK_INFO, &link));
        bytes
    }

    #[test]
    fn bitrates_and_states_that_prevent_sending_are_found_in_the_kernels_answer() {
        let up = libc::IFF_UP as u32;
        let device = Device::parse(&answer(up, 0x20, 0), 7).unwrap();
        let speed = Speed {
            nominal: 500_000,
            data: 2_000_000,
        };
        assert_eq!(device.speed, Some(speed));
        assert_eq!(device.check("can0"), Ok(Vec::new()));
        assert!(device.takes_fd());
        let check = |flags, mode, state| {
            let device = Device::parse(&answer(flags, mode, state), 7).unwrap();
            device.check("can0")
        };
        assert!(check(0, 0, 0).unwrap_err().contains("ip link set can0 up"));
        assert!(check(up, 2, 0).unwrap_err().contains("listen-only off"));
        assert!(check(up, 0, BUS_OFF).unwrap()[0].contains("set can0 type can restart"));
        assert!(check(up, 0, ERROR_PASSIVE).unwrap()[0].contains("termination"));
        assert_eq!(Device::parse(&answer(up, 0, 0), 8), None);
        let whole = answer(up, 0, 0);
        for end in 0..whole.len() {
            Device::parse(&whole[..end], 7);
        }
    }

    #[test]
    fn the_kernel_answers_about_the_loopback_interface() {
        let device = Device::of("lo").unwrap();
        assert!(device
            .check("lo")
            .unwrap_err()
            .contains("not a CAN interface"));
        assert_eq!(
            Device::of("no-such-one").unwrap_err().raw_os_error(),
            Some(libc::ENODEV)
        );
    }
}
