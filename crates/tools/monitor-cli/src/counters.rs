//! Counts what the monitor has done.

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    pub incidents: u64,
    pub open: u64,
    pub late: u64,
    pub saved: u64,
    pub not_saved_rate: u64,
    pub not_saved_busy: u64,
    pub not_saved_failed: u64,
    pub removed: u64,
    pub programs_started: u64,
    pub programs_left_out: u64,
    pub reloads: u64,
    pub reloads_failed: u64,
    pub otlp: Exports,
}

/// The numbers of messages with metrics for an OpenTelemetry collector, by their result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exports {
    pub sent: u64,
    pub failed: u64,
    /// The number of messages that were never sent, because a newer message replaced them before
    /// they were sent.
    pub replaced: u64,
}
