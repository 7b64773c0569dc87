//! Entry points for fuzz targets and tests: the readers of network bytes. Not part of the
//! interface.

use super::handshake::{self, Hello};
use super::key::Key;
use super::slots::Slots;
use super::state::Shared;
use super::threads;
use crate::interface::{Memory, Sizes};
use std::io::{Read, Write};

/// Reads these bytes as the frames of an authenticated peer. Returns how many complete messages
/// they contain.
pub fn frames(mut bytes: &[u8], sizes: Sizes, chunk: usize) -> u64 {
    let Ok(slots) = Slots::new(sizes, Memory::Allot) else {
        return 0;
    };
    let shared = Shared::new(sizes, chunk, slots, None);
    // A question is open, so that values are read too.
    let mut state = shared.lock();
    (state.questions.wanted, state.questions.asked) = (1, 1);
    drop(state);
    let reader: &mut dyn Read = &mut bytes;
    let mut reader = reader;
    threads::read_frames(&shared, 0, &mut reader);
    let progress = shared.lock().receiver.progress();
    assert!(progress.received <= sizes.credits as u64 + progress.consumed);
    progress.received
}

struct Stranger<'b>(&'b [u8]);

impl Read for Stranger<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Stranger<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Lets a listening and a connecting end shake hands with a stranger that sends these bytes.
/// Returns whether one of the two ends accepted the stranger as a peer.
pub fn handshake(bytes: &[u8], key: [u8; 32]) -> bool {
    let key = Key::from_bytes(key);
    let ours = Hello {
        sizes: Sizes {
            credits: 2,
            message_bytes: 64,
            value_bytes: 32,
        },
        chunk: 16,
        sealed: true,
        session: None,
        is_unheard: false,
    };
    let accepted = handshake::accept(&mut Stranger(bytes), &key, |_| (ours, None));
    let connected = handshake::connect(&mut Stranger(bytes), &key, ours);
    accepted.is_ok() || connected.is_ok()
}

/// Checks that parsing and writing do not change the bytes of a hello. Returns `true` also if the
/// bytes are not a hello.
pub fn hello(bytes: &[u8]) -> bool {
    Hello::parse(bytes).is_none_or(|hello| Hello::parse(&hello.bytes()) == Some(hello))
}
