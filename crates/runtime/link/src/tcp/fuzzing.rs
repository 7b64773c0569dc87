//! What reads bytes of the network, for fuzz targets and tests; not part of the interface.

use super::slots::Slots;
use super::state::Shared;
use super::threads;
use crate::interface::{Memory, Sizes};
use std::io::Read;

/// Reads these bytes as the frames of an authenticated peer. Returns messages that have arrived.
pub fn frames(mut bytes: &[u8], sizes: Sizes, chunk: usize) -> u64 {
    let Ok(slots) = Slots::new(sizes, Memory::Allot) else {
        return 0;
    };
    let shared = Shared::new(sizes, chunk, slots);
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
