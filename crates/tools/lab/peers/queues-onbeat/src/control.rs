//! What is said to and heard from the experiment: "ready", "start T", "done", "stop".

use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};

static STOPPED: AtomicBool = AtomicBool::new(false);

/// The experiment does not want to wait any longer.
pub fn stopped() -> bool {
    STOPPED.load(Ordering::Relaxed)
}

/// The other end of the pipes.
pub struct Control {
    start: Receiver<u64>,
    stop: Receiver<()>,
}

impl Control {
    /// Begins to listen.
    pub fn new() -> Control {
        let (tell_start, start) = mpsc::channel();
        let (tell_stop, stop) = mpsc::channel();
        std::thread::spawn(move || {
            for line in io::stdin().lock().lines().map_while(Result::ok) {
                if let Some(ns) = line.strip_prefix("start ").and_then(|t| t.parse().ok()) {
                    let _ = tell_start.send(ns);
                } else if line == "stop" {
                    break;
                }
            }
            STOPPED.store(true, Ordering::Relaxed);
            let _ = tell_stop.send(());
        });
        Control { start, stop }
    }

    /// Says a word.
    pub fn say(&self, word: &str) -> Result<(), String> {
        writeln!(io::stdout(), "{word}").map_err(|e| format!("standard output: {e}"))
    }

    /// The time that all arrivals count from; `None` if it was stopped before.
    pub fn wait_start(&self) -> Option<u64> {
        self.start.recv().ok()
    }

    /// Returns when it is time to end.
    pub fn wait_stop(&self) {
        let _ = self.stop.recv();
    }
}
