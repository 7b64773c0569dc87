//! A program that loads the memory, as isolbench's bandwidth benchmark does (thesis, 5.1.1).

use onbeat_peers::pin;
use onbeat_peers::protocol::Words;

/// Bytes that are written through: more than caches hold.
const BYTES: usize = 256 << 20;
/// Bytes of a cache line.
const LINE: usize = 64;

/// The core to load from, if this process is to do that.
pub fn wanted() -> Option<usize> {
    let words = Words::of_command_line();
    (words.text("side") == Ok("hog")).then(|| words.number("cpu").unwrap_or(0))
}

/// Writes to a line after the other until the process is ended.
pub fn load_memory(cpu: usize) -> ! {
    pin(cpu);
    let mut memory = vec![1u8; BYTES];
    loop {
        for at in (0..BYTES).step_by(LINE) {
            memory[at] = memory[at].wrapping_add(1);
        }
        std::hint::black_box(&mut memory);
    }
}
