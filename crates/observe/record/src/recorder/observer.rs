//! The caller's view of a recording: its events, its progress, and the summary at its end.

use super::RecordError;
use crate::kernel::{Kernel, Lineage, WaitTable};
use onbeat_trace::Event;
use std::sync::Arc;
use std::time::Duration;

/// A caller that follows a recording while it runs. The recording thread makes all calls.
pub trait Observer {
    /// Receives complete events in the order of time, about four times a second.
    fn events(&mut self, events: &[Event], control: &Control<'_>);
    /// Receives the reason why BPF programs were refused. The recording goes on with the preloaded
    /// library.
    fn refused(&mut self, why: &RecordError) {
        let _ = why;
    }
    /// Receives the progress about once a second.
    fn progress(&mut self, progress: &Progress) {
        let _ = progress;
    }
    /// Returns whether the recorder writes `event` to the trace. Events that it does not write are
    /// dropped after [`Observer::events`].
    fn is_kept(&self, event: &Event) -> bool {
        let _ = event;
        true
    }
    /// Returns whether the recording ends now. The recorder asks about four times a second.
    fn is_over(&self) -> bool {
        false
    }
    /// Informs the observer that the recorder is about to ask the command to end. Events are
    /// recorded until the command has ended.
    fn ending(&mut self) {}
}

/// The part of a recording that an [`Observer`] may change.
pub struct Control<'a> {
    pub(super) kernel: Option<&'a Kernel>,
}

impl Control<'_> {
    /// Observes the process `pid`, and all processes that it starts from now on, in addition to the
    /// target of the recording.
    pub fn observe(&self, pid: u32) {
        if let Some(kernel) = self.kernel {
            kernel.mark(pid);
        }
    }

    /// Returns the table of threads that wait for work. Returns `None` if the kernel is older than
    /// 5.15.
    pub fn waits(&self) -> Option<Arc<WaitTable>> {
        self.kernel?.waits()
    }

    /// Returns the maps that give, for an item, the start time of its execution.
    ///
    /// Returns `None` if [`RecordOptions::lineage`](super::RecordOptions::lineage) is not set, or
    /// if the kernel cannot provide the maps.
    pub fn lineage(&self) -> Option<Arc<Lineage>> {
        self.kernel?.lineage()
    }
}

pub(super) struct ProgressOnly<F>(pub F);

impl<F: FnMut(&Progress)> Observer for ProgressOnly<F> {
    fn events(&mut self, _: &[Event], _: &Control<'_>) {}
    fn progress(&mut self, progress: &Progress) {
        (self.0)(progress);
    }
}

/// The figures of a recording so far.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Progress {
    /// The time since all probes were attached.
    pub elapsed: Duration,
    /// The number of ROS 2 processes that the recording has seen so far.
    pub processes: usize,
    /// The number of ROS 2 processes outside of the [`Limits`](crate::Limits), which are not
    /// recorded.
    pub outside: u64,
    pub nodes: usize,
    /// The number of callbacks that were called at least once, counted by their handles.
    pub callbacks: usize,
    /// The number of recorded events, without lost ones.
    pub events: u64,
    /// The rate of events since the last report, in events per second.
    pub events_per_s: f64,
    pub bytes: u64,
    /// The number of events that were lost so far. They are missing in the trace.
    pub lost: u64,
}

impl Progress {
    pub(super) fn since(self, earlier: &Progress) -> Progress {
        let seconds = (self.elapsed - earlier.elapsed).as_secs_f64();
        let events = (self.events - earlier.events) as f64;
        Progress {
            events_per_s: events / seconds.max(1e-9),
            ..self
        }
    }
}

/// The result of a recording that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The final progress. Its rate of events is the rate over the whole recording.
    pub progress: Progress,
    /// The exit status of the recorded command: its exit code, or 128 plus the number of the signal
    /// that ended the command.
    pub command_status: Option<i32>,
    /// The sentences that the user should read: gaps in coverage, names that were not recovered,
    /// losses.
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reported_event_rate_counts_events_since_the_last_report() {
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
