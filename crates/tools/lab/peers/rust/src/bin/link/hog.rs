//! A program that loads the memory bus, as isolbench's bandwidth benchmark does (thesis, 5.1.1).

use onbeat_peers::pin;
use onbeat_peers::protocol::Words;

const BYTES: usize = 256 << 20;
const LINE: usize = 64;

pub fn wanted() -> Option<usize> {
    let words = Words::of_command_line();
    (words.text("side") == Ok("hog")).then(|| words.number("cpu").unwrap_or(0))
}

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
