//! A backend for tests that changes, loses or doubles chosen frames.
#![allow(dead_code)]

use onbeat_link::interface::{Backend, Halves, Memory, Outgoing, SendError, SetupError, Sizes};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    Flip(usize),
    Lose,
    Double,
}

const MESSAGE: u8 = 1;
const STATUS: u8 = 5;

#[derive(Debug, Default, Clone)]
pub struct Noise {
    /// The messages to harm. Each entry contains the number of a message, the kind of harm, and how
    /// many copies of the message are harmed.
    messages: Vec<(u64, Harm, usize)>,
    statuses: usize,
    values: bool,
    pub is_mute: Arc<AtomicBool>,
}

impl Noise {
    pub fn harm(mut self, number: u64, harm: Harm, times: usize) -> Noise {
        self.messages.push((number, harm, times));
        self
    }

    pub fn harm_statuses(mut self, count: usize) -> Noise {
        self.statuses = count;
        self
    }

    pub fn flip_values(mut self) -> Noise {
        self.values = true;
        self
    }

    fn next(&mut self, slot: &[u8]) -> Option<Harm> {
        let number = u64::from_le_bytes(slot[8..16].try_into().unwrap());
        if slot[0] == STATUS && self.statuses > 0 {
            self.statuses -= 1;
            return Some(Harm::Flip(50));
        }
        let planned = self.messages.iter_mut();
        let mut planned = planned.filter(|m| slot[0] == MESSAGE && m.0 == number && m.2 > 0);
        let (_, harm, times) = planned.next()?;
        *times -= 1;
        Some(*harm)
    }
}

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
            slot: vec![0; sizes.message_bytes],
            sent: 0,
        };
        Ok((Box::new(outgoing), incoming))
    }
}

struct NoisyOutgoing {
    inner: Box<dyn Outgoing>,
    noise: Noise,
    slot: Vec<u8>,
    sent: u64,
}

impl NoisyOutgoing {
    fn pass(&mut self, bytes: usize, deadline_ns: Option<u64>) -> Result<(), SendError> {
        let slot = &self.slot[..bytes];
        let copy = &mut |to: &mut [u8]| to.copy_from_slice(slot);
        self.inner.send(bytes, deadline_ns, copy).map(|_| ())
    }
}

impl Outgoing for NoisyOutgoing {
    fn send(
        &mut self,
        bytes: usize,
        deadline_ns: Option<u64>,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<u64, SendError> {
        fill(&mut self.slot[..bytes]);
        let mut plan = self.noise.clone();
        match plan.next(&self.slot[..bytes]) {
            _ if self.noise.is_mute.load(Ordering::Relaxed) => {}
            Some(Harm::Lose) => {}
            Some(Harm::Flip(at)) => {
                self.slot[at] ^= 0x10;
                self.pass(bytes, deadline_ns)?;
            }
            Some(Harm::Double) => {
                self.pass(bytes, deadline_ns)?;
                self.pass(bytes, None)?;
            }
            None => self.pass(bytes, deadline_ns)?,
        }
        // The plan advances only if the frame has left.
        self.noise = plan;
        self.sent += 1;
        Ok(self.sent - 1)
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
