//! This program's side of the protocol. A thread reads the commands, so that `stop` can end a run
//! early.

use onbeat_peers::protocol::{self, Command};
use onbeat_peers::used;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};

static STOPPED: AtomicBool = AtomicBool::new(false);

pub fn stopped() -> bool {
    STOPPED.load(Ordering::Relaxed)
}

pub struct Control {
    start: Receiver<u64>,
    stop: Receiver<()>,
}

impl Control {
    pub fn new() -> Control {
        let (started, start) = mpsc::channel();
        let (ended, stop) = mpsc::channel();
        std::thread::spawn(move || {
            while let Some(Command::Start(ns)) = Command::read() {
                let _ = started.send(ns as u64);
            }
            STOPPED.store(true, Ordering::Relaxed);
            // A wait for the start then ends.
            drop(started);
            let _ = ended.send(());
        });
        Control { start, stop }
    }

    /// Executes the run. Calls `work` with the time at which the arrivals begin (CLOCK_MONOTONIC,
    /// ns). `work` returns how many messages it sent or processed. Returns after the experiment has
    /// sent `stop`, even if `stop` came before the start.
    pub fn run(&self, work: impl FnOnce(u64) -> Result<usize, String>) -> Result<(), String> {
        protocol::ready();
        let Ok(start_ns) = self.start.recv() else {
            return Ok(());
        };
        let began = used();
        let messages = work(start_ns)?;
        protocol::done(messages, &began);
        let _ = self.stop.recv();
        Ok(())
    }
}
