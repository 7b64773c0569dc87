//! Keeps CPUs from sleeping deeply while a plan runs: being woken is then as quick as it gets.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

/// The kernel's place for such wishes; they hold as long as the file is open.
const DEVICE: &str = "/dev/cpu_dma_latency";

/// CPUs are ready at once until this is dropped, or this process ends in any way.
#[derive(Debug)]
pub struct Awake {
    _wish: File,
}

impl Awake {
    /// Asks the kernel for it. Wants root.
    pub fn new() -> io::Result<Awake> {
        let mut wish = OpenOptions::new().write(true).open(DEVICE)?;
        // The longest time that waking up may take, us.
        wish.write_all(&0i32.to_ne_bytes())?;
        Ok(Awake { _wish: wish })
    }
}
