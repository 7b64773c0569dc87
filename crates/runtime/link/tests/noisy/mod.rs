//! A backend that changes, loses or doubles what it is given, as told.
#![allow(dead_code)]

use onbeat_link::interface::{Backend, Halves, Memory, Outgoing, SendError, SetupError, Sizes};
use std::sync::Mutex;

/// Messages before the application's: those in which the ends meet.
const MEETING: u64 = 4;

/// What happens to what is sent: by number, counted from the first after the ends have met.
#[derive(Debug, Default, Clone)]
pub struct Noise {
    flips: Vec<(u64, usize)>,
    values: bool,
}

impl Noise {
    /// Changes a byte of a message.
    pub fn flip(mut self, number: u64, byte: usize) -> Noise {
        self.flips.push((number, byte));
        self
    }

    /// Changes a byte of each value.
    pub fn flip_values(mut self) -> Noise {
        self.values = true;
        self
    }
}

/// The backend below, and what happens on the way.
#[derive(Debug)]
pub struct Noisy<B> {
    inner: B,
    noise: Mutex<Noise>,
}

impl<B> Noisy<B> {
    pub fn new(inner: B, noise: Noise) -> Noisy<B> {
        let noise = Mutex::new(noise);
        Noisy { inner, noise }
    }
}

impl<B: Backend> Backend for Noisy<B> {
    fn initialize(
        &self,
        sizes: Sizes,
        memory: Memory,
        deadline_ns: Option<u64>,
    ) -> Result<Halves, SetupError> {
        let (inner, incoming) = self.inner.initialize(sizes, memory, deadline_ns)?;
        let outgoing = NoisyOutgoing {
            inner,
            noise: self.noise.lock().unwrap().clone(),
            sent: 0,
        };
        Ok((Box::new(outgoing), incoming))
    }
}

struct NoisyOutgoing {
    inner: Box<dyn Outgoing>,
    noise: Noise,
    sent: u64,
}

impl Outgoing for NoisyOutgoing {
    fn send(
        &mut self,
        bytes: usize,
        deadline_ns: Option<u64>,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<u64, SendError> {
        let number = self.sent.checked_sub(MEETING);
        let flips = &self.noise.flips;
        let sent = self.inner.send(bytes, deadline_ns, &mut |slot| {
            fill(slot);
            for (_, at) in flips.iter().filter(|(n, _)| Some(*n) == number) {
                slot[*at] ^= 0x10;
            }
        })?;
        self.sent += 1;
        Ok(sent)
    }

    fn publish(&mut self, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<(), SendError> {
        let is_noisy = self.noise.values;
        self.inner.publish(bytes, &mut |slot| {
            fill(slot);
            if is_noisy {
                slot[bytes - 1] ^= 0x10;
            }
        })
    }
}
