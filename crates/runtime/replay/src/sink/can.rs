//! Plays CAN frames through SocketCAN (a raw CAN socket, classic and FD).

use super::{Put, Refused, Sink, SinkError};
use crate::bus::device::Device;
use crate::bus::Speed;
use crate::interface;
use crate::item::StreamId;
use std::os::fd::{AsFd, OwnedFd};

const FRAMES: [usize; 2] = [16, 72];

/// A sink that sends CAN frames through an interface.
pub struct Can {
    interface: String,
    socket: OwnedFd,
    speed: Option<Speed>,
}

impl Can {
    /// Opens a sink for the CAN interface `name`. The bitrates in `stated` replace those that the
    /// kernel reports.
    ///
    /// # Errors
    /// Fails if the interface does not exist, or the kernel does not support CAN.
    pub fn new(name: &str, stated: Option<Speed>) -> Result<Can, SinkError> {
        let failed = |how: &str, e: std::io::Error| {
            SinkError::new(format!("can:{name}"), format!("{e}: {how}"))
        };
        let socket = interface::socket(libc::AF_CAN, libc::CAN_RAW).map_err(|e| {
            failed(
                "this kernel does not support CAN. Load the modules can and can_raw",
                e,
            )
        })?;
        let index = interface::index(name).map_err(|e| {
            failed(
                "create the interface with `ip link add NAME type vcan`, or choose another interface",
                e,
            )
        })?;
        // Without FD, classic frames can still be sent.
        let _ = interface::enable(socket.as_fd(), libc::SOL_CAN_RAW, libc::CAN_RAW_FD_FRAMES);
        // SAFETY: all zero bits are a valid address.
        let mut address: libc::sockaddr_can = unsafe { std::mem::zeroed() };
        address.can_family = libc::AF_CAN as u16;
        address.can_ifindex = index;
        interface::bind(socket.as_fd(), &address)
            .map_err(|e| failed("is it a CAN interface?", e))?;
        let speed = || Device::of(name).ok().and_then(|device| device.speed);
        Ok(Can::over(name, socket, stated.or_else(speed)))
    }

    fn over(name: &str, socket: OwnedFd, speed: Option<Speed>) -> Can {
        Can {
            interface: name.into(),
            socket,
            speed,
        }
    }
}

impl Sink for Can {
    fn name(&self) -> String {
        format!("can:{}", self.interface)
    }

    fn bus(&self) -> Option<(&str, Speed)> {
        Some((&self.interface, self.speed?))
    }

    fn put(&mut self, _stream: StreamId, bytes: &[u8]) -> Result<Put, Refused> {
        if !FRAMES.contains(&bytes.len()) {
            return Ok(Put::Unsuitable);
        }
        match interface::send(self.socket.as_fd(), bytes) {
            Ok(()) => Ok(Put::Left),
            // The interface does not support this frame, for example FD on a classic interface.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(Put::Unsuitable),
            Err(e) => Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixDatagram;

    /// Checks the bytes of frames at a socket that is not a CAN device. A CAN device would need a
    /// kernel with CAN.
    #[test]
    fn can_frames_leave_unchanged_and_a_full_queue_makes_the_sink_busy() {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut can = Can::over("pair", ours.into(), None);
        let frame: [u8; 16] = std::array::from_fn(|i| i as u8);
        assert_eq!(can.put(StreamId(0), &frame).unwrap(), Put::Left);
        let mut received = [0; 72];
        let mut read = std::fs::File::from(OwnedFd::from(theirs));
        assert_eq!(read.read(&mut received).unwrap(), 16);
        assert_eq!(received[..16], frame);
        assert_eq!(can.put(StreamId(0), &frame[..15]).unwrap(), Put::Unsuitable);
        let mut left = 0;
        while can.put(StreamId(0), &[7; 72]).is_ok() {
            left += 1;
            assert!(left < 1_000_000, "the queue never filled");
        }
        assert!(matches!(can.put(StreamId(0), &[7; 72]), Err(Refused::Busy)));
        assert_eq!(read.read(&mut received).unwrap(), 72);
        assert_eq!(can.put(StreamId(0), &[7; 72]).unwrap(), Put::Left);
    }
}
