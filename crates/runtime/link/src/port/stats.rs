//! What the transfers of a port have done, over all processes.

use super::meter;
use super::page::Mapped;
use super::page::SEATS;
use super::settings::Settings;
use crate::bound;
use std::sync::atomic::Ordering::Relaxed;

/// A port's transfers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortStats {
    /// What it was made for.
    pub settings: Settings,
    /// The rate that was measured, bit/s; `None` if it was never found to be another than given. At
    /// least a sixteenth of the given one.
    pub measured_bits_per_second: Option<u64>,
    /// Bytes of a chunk's content that are in force now.
    pub chunk_bytes: usize,
    /// Chunks that it has let go, of all transfers that there ever were.
    pub granted: u64,
    /// The transfers that there are now, by seat.
    pub transfers: Vec<TransferStats>,
}

/// A transfer: the sending side of a connection. Its counts come from its own process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferStats {
    /// Its process.
    pub pid: u32,
    /// Its peer, escaped.
    pub label: String,
    /// Larger is more urgent.
    pub priority: u8,
    /// It waits for the port now.
    pub waits: bool,
    /// What it has sent: bytes of content, chunks, complete messages.
    pub sent: Sent,
    /// How long its chunks have waited for the port, ns, in all.
    pub wait_ns: u64,
    /// The longest of these, ns.
    pub longest_wait_ns: u64,
    /// The most chunks of others that were let go while one of its own waited. Of the most urgent
    /// transfer: one for each other transfer at most, unless it was passed over.
    pub most_before: u64,
    /// How long its application has waited for credits, ns.
    pub credit_wait_ns: u64,
    /// Chunks within a message that more urgent ones went before.
    pub preemptions: u64,
    /// How often it could go and did not, so that others went.
    pub passed_over: u64,
    /// Shares of the window that were lent to others before its peer had acknowledged.
    pub expired: u64,
}

/// What a transfer has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sent {
    /// Bytes of content.
    pub bytes: u64,
    /// Chunks.
    pub chunks: u64,
    /// Messages and values, completely.
    pub messages: u64,
}

impl PortStats {
    /// A rate that the wire has at least, bit/s: the measured one and an eighth less, as much as
    /// another rate must differ to count; or the given one, if none was measured. `None` if the
    /// measured one is the least that is measured: the wire may be slower still.
    pub fn sure_bits_per_second(&self) -> Option<u64> {
        let given = self.settings.bits_per_second();
        match self.measured_bits_per_second {
            None => Some(given),
            Some(measured) if measured <= meter::least(given) => None,
            Some(measured) => Some(measured - measured / 8),
        }
    }

    /// The port as the analysis of its latencies sees it ([`Settings::model`]), at the rate that it is
    /// sure to have now ([`PortStats::sure_bits_per_second`]), with the chunk and the window that are
    /// in force. `None` if there is no such rate.
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

/// Reads the counts. Not real-time safe.
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
