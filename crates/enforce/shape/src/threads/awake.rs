//! Keeps idle CPUs from sleeping deeply while a plan runs, so that they wake as fast as possible.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

/// The kernel's interface for it. A request lasts as long as the file is open.
const DEVICE: &str = "/dev/cpu_dma_latency";

/// CPUs do not sleep deeply until this is dropped or this process ends in any way.
#[derive(Debug)]
pub struct Awake {
    _request: File,
}

impl Awake {
    /// Asks the kernel for it. Needs root.
    pub fn new() -> io::Result<Awake> {
        let mut request = OpenOptions::new().write(true).open(DEVICE)?;
        // The longest time that waking up may take, us.
        request.write_all(&0i32.to_ne_bytes())?;
        Ok(Awake { _request: request })
    }
}
