//! The counts of a port's transfers, over all processes.

use super::meter;
use super::page::Mapped;
use super::page::SEATS;
use super::settings::Settings;
use crate::bound;
use std::sync::atomic::Ordering::Relaxed;

/// The counts of a port and of its transfers.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortStats {
    pub settings: Settings,
    /// The measured rate, bit/s: at least a sixteenth of the given rate. `None` if the port has
    /// never used a rate other than the given one.
    pub measured_bits_per_second: Option<u64>,
    pub chunk_bytes: usize,
    /// The number of chunks that the port has granted, to present and former transfers.
    pub granted: u64,
    /// The present transfers, ordered by their places on the port.
    pub transfers: Vec<TransferStats>,
}

/// The counts of a transfer, which is the sending side of a connection. The transfer's own process
/// writes them.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferStats {
    pub pid: u32,
    /// The name of the transfer's peer, with control characters escaped.
    pub label: String,
    /// The transfer's priority; larger is more urgent.
    pub priority: u8,
    pub waits: bool,
    pub sent: Sent,
    /// The total time that the transfer's chunks have waited for the port, ns.
    pub wait_ns: u64,
    pub longest_wait_ns: u64,
    /// The largest number of chunks that the port granted to other transfers while one chunk of
    /// this transfer waited. For the most urgent transfer this is at most one chunk per other
    /// transfer, unless the others went first because this transfer did not send.
    pub most_before: u64,
    pub credit_wait_ns: u64,
    /// The number of times that a message was preempted: more urgent chunks left between two of its
    /// chunks.
    pub preemptions: u64,
    /// The number of times that other transfers went first because this transfer could send and did
    /// not.
    pub passed_over: u64,
    /// The number of shares of the window that this transfer lost to others: the lease of a chunk
    /// ended before the peer had acknowledged the chunk's bytes.
    pub expired: u64,
}

/// The numbers of content bytes, of chunks, and of complete messages and values that a transfer has
/// sent through the port.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sent {
    pub bytes: u64,
    pub chunks: u64,
    pub messages: u64,
}

impl PortStats {
    /// Returns a rate that the wire certainly reaches, bit/s. This is the given rate, or seven
    /// eighths of the measured rate, because the port ignores smaller changes. `None` if the
    /// measured rate is the smallest possible one: the wire may be slower still.
    pub fn sure_bits_per_second(&self) -> Option<u64> {
        let given = self.settings.bits_per_second();
        match self.measured_bits_per_second {
            None => Some(given),
            Some(measured) if measured <= meter::least_rate(given) => None,
            Some(measured) => Some(measured - measured / 8),
        }
    }

    /// Builds the model of the port for the latency analysis ([`Settings::model`]) with the present
    /// chunk and window. Returns `None` if the rate is not certain
    /// ([`PortStats::sure_bits_per_second`]).
    pub fn model(&self, mtu: usize, sealed: bool, way_ns: u64) -> Option<bound::Port> {
        let sure = self.sure_bits_per_second()?;
        let in_force = self.measured_bits_per_second;
        let rate = in_force.unwrap_or(self.settings.bits_per_second());
        Some(bound::Port {
            bits_per_second: sure,
            ..self.settings.model_at(rate, mtu, sealed, way_ns)
        })
    }
}

pub fn of(mapped: &Mapped, settings: Settings) -> PortStats {
    let page = mapped.page();
    let taken = (0..SEATS).filter(|&seat| mapped.is_taken(seat));
    let transfers = taken.map(|seat| transfer(mapped, seat)).collect();
    let given = settings.bits_per_second();
    PortStats {
        settings,
        measured_bits_per_second: page.meter.measured(given),
        chunk_bytes: settings.at_rate(page.meter.rate(given)).chunk,
        granted: page.granted.load(Relaxed),
        transfers,
    }
}

fn transfer(mapped: &Mapped, seat: usize) -> TransferStats {
    let seat = &mapped.page().seats[seat];
    let counts = &seat.counts;
    TransferStats {
        pid: seat.pid.load(Relaxed),
        label: seat.label(),
        priority: seat.priority.load(Relaxed) as u8,
        waits: seat.want.load(Relaxed) != 0,
        sent: Sent {
            bytes: counts.bytes.load(Relaxed),
            chunks: counts.chunks.load(Relaxed),
            messages: counts.messages.load(Relaxed),
        },
        wait_ns: counts.wait_ns.load(Relaxed),
        longest_wait_ns: counts.longest_wait_ns.load(Relaxed),
        most_before: counts.most_before.load(Relaxed),
        credit_wait_ns: counts.credit_wait_ns.load(Relaxed),
        preemptions: counts.preemptions.load(Relaxed),
        passed_over: counts.passed_over.load(Relaxed),
        expired: counts.expired.load(Relaxed),
    }
}
