//! Keeps idle CPUs out of deep sleep states while a plan runs, so that they wake up quickly.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

const DEVICE: &str = "/dev/cpu_dma_latency";

#[derive(Debug)]
pub struct Awake {
    _request: File,
}

impl Awake {
    pub fn new() -> io::Result<Awake> {
        let mut request = OpenOptions::new().write(true).open(DEVICE)?;
        // The greatest wake-up latency, in us.
        request.write_all(&0i32.to_ne_bytes())?;
        Ok(Awake { _request: request })
    }
}
