//! This program's side of the protocol. Commands are read on a thread, so that `stop` can end a run
//! early.

use onbeat_peers::protocol::{self, Command};
use onbeat_peers::used;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};

static STOPPED: AtomicBool = AtomicBool::new(false);

/// True once the experiment has said `stop`.
pub fn stopped() -> bool {
    STOPPED.load(Ordering::Relaxed)
}

/// The commands of the one run that this program does.
pub struct Control {
    start: Receiver<u64>,
    stop: Receiver<()>,
}

impl Control {
    /// Begins to read commands.
    pub fn new() -> Control {
        let (started, start) = mpsc::channel();
        let (ended, stop) = mpsc::channel();
        std::thread::spawn(move || {
            while let Some(Command::Start(ns)) = Command::read() {
                let _ = started.send(ns as u64);
            }
            STOPPED.store(true, Ordering::Relaxed);
            // Whoever waits for the start waits in vain.
            drop(started);
            let _ = ended.send(());
        });
        Control { start, stop }
    }

    /// Does the run: `work` gets the time that all arrivals count from and returns how many
    /// messages it sent or processed. Returns when the experiment has said `stop`, also if before
    /// the start.
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
