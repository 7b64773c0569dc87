//! What a caller sees of a recording: events, progress and the summary at its end.

use super::RecordError;
use crate::kernel::{Kernel, Lineage, WaitTable};
use onbeat_trace::Event;
use std::sync::Arc;
use std::time::Duration;

/// Sees a recording as it is made. All calls come from the thread that records.
pub trait Observer {
    /// Complete events in the order of time: about four times a second, those of the last 250 ms.
    fn events(&mut self, events: &[Event], control: &Control<'_>);
    /// Recording goes on in another way, because this one is refused.
    fn refused(&mut self, why: &RecordError) {
        let _ = why;
    }
    /// Called about once a second.
    fn progress(&mut self, progress: &Progress) {
        let _ = progress;
    }
    /// Whether this event is written to the trace.
    fn is_kept(&self, event: &Event) -> bool {
        let _ = event;
        true
    }
    /// Whether the recording ends now. Asked about four times a second.
    fn is_over(&self) -> bool {
        false
    }
    /// The command is about to be asked to end; its events are recorded until it has ended.
    fn ending(&mut self) {}
}

/// What an [`Observer`] may change about a recording.
pub struct Control<'a> {
    /// Not of a recording without BPF.
    pub(super) kernel: Option<&'a Kernel>,
}

impl Control<'_> {
    /// Observes one more process, and what it starts from now on.
    pub fn observe(&self, pid: u32) {
        if let Some(kernel) = self.kernel {
            kernel.mark(pid);
        }
    }

    /// Which threads wait for work; `None` where this kernel cannot tell (before 5.15).
    pub fn waits(&self) -> Option<Arc<WaitTable>> {
        self.kernel?.waits()
    }

    /// When the execution began that an item belongs to; `None` where it was not asked for
    /// ([`RecordOptions::lineage`](super::RecordOptions::lineage)) or cannot be told.
    pub fn lineage(&self) -> Option<Arc<Lineage>> {
        self.kernel?.lineage()
    }
}

/// An observer that wants progress alone.
pub(super) struct ProgressOnly<F>(pub F);

impl<F: FnMut(&Progress)> Observer for ProgressOnly<F> {
    fn events(&mut self, _: &[Event], _: &Control<'_>) {}
    fn progress(&mut self, progress: &Progress) {
        (self.0)(progress);
    }
}

/// What a recording contains so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Progress {
    /// Since the probes were in place.
    pub elapsed: Duration,
    /// ROS 2 processes seen.
    pub processes: usize,
    /// ROS 2 processes that were left alone: outside of [`Limits`](crate::Limits).
    pub outside: u64,
    /// Nodes seen.
    pub nodes: usize,
    /// Callbacks seen, by the handles for which they were called.
    pub callbacks: usize,
    /// Events recorded.
    pub events: u64,
    /// Events per second since the last report.
    pub events_per_s: f64,
    /// Bytes written.
    pub bytes: u64,
    /// Events lost.
    pub lost: u64,
}

impl Progress {
    /// The same, with the rate of events since an earlier report.
    pub(super) fn since(self, earlier: &Progress) -> Progress {
        let seconds = (self.elapsed - earlier.elapsed).as_secs_f64();
        let events = (self.events - earlier.events) as f64;
        Progress {
            events_per_s: events / seconds.max(1e-9),
            ..self
        }
    }
}

/// A finished recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// As at the end; the rate of events is that of the whole recording.
    pub progress: Progress,
    /// Exit status of the recorded command: its code, or 128 plus the signal that ended it.
    pub command_status: Option<i32>,
    /// Sentences for the user: gaps in coverage, names that were not recovered, losses.
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_since_the_last_report() {
        let at = |seconds, events| Progress {
            elapsed: Duration::from_secs(seconds),
            events,
            ..Progress::default()
        };
        let now = at(10, 500).since(&at(8, 400));
        assert!((now.events_per_s - 50.0).abs() < 1e-9);
        assert_eq!((now.events, now.elapsed), (500, Duration::from_secs(10)));
        assert!(at(8, 400).since(&at(8, 400)).events_per_s.abs() < 1e-9);
    }
}
