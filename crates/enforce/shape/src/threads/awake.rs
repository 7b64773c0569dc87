//! Keeps idle CPUs out of deep sleep states while a plan runs, so that they wake up quickly.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

/// The kernel's file for requests of the wake-up latency. A request lasts as long as the file is
/// open.
const DEVICE: &str = "/dev/cpu_dma_latency";

/// Keeps CPUs out of deep sleep states until it is dropped or this process ends.
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
