//! A watchdog that notices a hanging experiment.
//!
//! Tests and experiments assert no maximum time. The watchdog ends a step that exceeds its limit.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

#[derive(Debug)]
pub struct Watchdog {
    steps: Sender<(String, Duration)>,
}

impl Watchdog {
    /// Starts a watchdog. If a step exceeds its time limit, calls `on_hang` once with the step's
    /// name and limit, on the watchdog's thread.
    pub fn start(on_hang: impl FnOnce(&str, Duration) + Send + 'static) -> Self {
        let (steps, heard) = mpsc::channel::<(String, Duration)>();
        std::thread::spawn(move || {
            let Ok((mut name, mut limit)) = heard.recv() else {
                return;
            };
            loop {
                match heard.recv_timeout(limit) {
                    Ok(next) => (name, limit) = next,
                    Err(RecvTimeoutError::Timeout) => return on_hang(&name, limit),
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        });
        Watchdog { steps }
    }

    pub fn step(&self, name: &str, limit: Duration) {
        // The thread ends only after it has found a hang.
        let _ = self.steps.send((name.to_string(), limit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hanging_step_is_reported_by_name() {
        let (report, reported) = mpsc::channel();
        let dog = Watchdog::start(move |step, _| report.send(step.to_string()).unwrap());
        dog.step("quick", Duration::from_secs(3600));
        dog.step("slow", Duration::from_millis(1));
        assert_eq!(reported.recv().unwrap(), "slow");

        let (report, reported) = mpsc::channel::<()>();
        let dog = Watchdog::start(move |_, _| report.send(()).unwrap());
        dog.step("whole", Duration::from_secs(3600));
        drop(dog);
        assert!(reported.recv().is_err(), "the action was dropped unused");
    }
}
