//! The settings of a port: its rate, and the chunk and window that follow from it.

use super::arbiter::Rules;
use super::page::{SHARES, TERMS};
use crate::{bound, wire};
use std::time::Duration;
use thiserror::Error;

const CHUNK_SHARES: u64 = 16;
/// The smallest MTU (maximum packet size) that networks use, in bytes. The overhead of a chunk is
/// counted for this MTU.
const MTU: usize = 1500;
const LEAST_CHUNK: u64 = 1 << 10;
const MOST_CHUNK: u64 = 1 << 20;
const MOST_RATE: u64 = 10_000_000_000_000;
const MOST_NS: u64 = 10_000_000_000;

/// The rate, chunk size, window and limits of a port. All processes that share a port must give the
/// same settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    bits_per_second: u64,
    chunk_bytes: u64,
    window_chunks: u64,
    slack_ns: u64,
    patience_ns: u64,
    is_measured: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InForce {
    pub(super) chunk: usize,
    pub(super) shares: usize,
}

/// The reason why a port cannot have these settings.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Error)]
pub enum SettingsError {
    #[error("{what} is {value}. Give {least} to {most}.")]
    Number {
        what: &'static str,
        value: u64,
        least: u64,
        most: u64,
    },
    #[error("interface '{}' does not report its rate. Give the rate (Settings::of_rate).", name.escape_debug())]
    NoRate {
        /// The interface's name; untrusted.
        name: String,
    },
}

pub(super) fn wire_ns(bytes: u64, bits_per_second: u64) -> u64 {
    let ns = (u128::from(bytes) * 8 * 1_000_000_000).div_ceil(bits_per_second.max(1).into());
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// Returns the largest number of bytes on the wire that a chunk with `chunk` bytes of content can
/// need: encrypted, with the headers of all layers.
fn on_wire(chunk: u64) -> u64 {
    // Settings change before they are checked. No allowed chunk is as large as this.
    let content = chunk.min(1 << 40) as usize;
    chunk.saturating_add(wire::overhead_bytes(content, MTU, true) as u64)
}

impl Settings {
    /// Makes settings for a wire of at most this rate. The chunk size lets an urgent message wait
    /// at most 1 ms for less urgent ones. The window is two chunks; [`Settings::slack`] and
    /// [`Settings::patience`] are 20 ms each. The port measures its rate while transfers wait for
    /// it. If the measured rate is lower, chunks and window shrink in proportion, down to a
    /// sixteenth. So the 1 ms also holds on a slower wire.
    pub fn of_rate(bits_per_second: u64) -> Settings {
        let settings = Settings {
            bits_per_second,
            chunk_bytes: 0,
            window_chunks: 2,
            slack_ns: 20_000_000,
            patience_ns: 20_000_000,
            is_measured: true,
        };
        settings.blocking(Duration::from_millis(1))
    }

    /// Makes the settings for the rate that the network interface `name` reports. This is the rate
    /// of the interface's own wire. The network behind the wire may be slower.
    ///
    /// # Errors
    /// The interface does not exist or reports no rate: it is down, or is not a wire.
    pub fn of_interface(name: &str) -> Result<Settings, SettingsError> {
        let is_name = !name.is_empty() && name.len() < 16 && !name.contains('/') && name != "..";
        let read = || std::fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok();
        let megabits = is_name.then(read).flatten();
        let megabits = megabits.and_then(|text| text.trim().parse::<u64>().ok());
        match megabits.filter(|n| *n > 0) {
            Some(megabits) => Ok(Settings::of_rate(megabits.saturating_mul(1_000_000))),
            None => Err(SettingsError::NoRate { name: name.into() }),
        }
    }

    /// Sets how long less urgent messages may delay a more urgent one. Chooses the largest chunk
    /// size that meets this limit, between 1 KiB and 1 MiB. Call it after
    /// [`Settings::window_chunks`].
    pub fn blocking(mut self, most: Duration) -> Settings {
        let most_ns = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        let fits = |chunk: &u64| {
            let bytes = on_wire(*chunk).saturating_mul(self.window_chunks);
            wire_ns(bytes, self.bits_per_second) <= most_ns
        };
        let chunks = (LEAST_CHUNK..=MOST_CHUNK).rev().step_by(1 << 10);
        self.chunk_bytes = chunks.into_iter().find(fits).unwrap_or(LEAST_CHUNK);
        self
    }

    /// Sets the size of a chunk's content, in bytes. The measured rate then no longer changes the
    /// size.
    pub fn chunk_bytes(mut self, bytes: usize) -> Settings {
        self.chunk_bytes = bytes as u64;
        self.is_measured = false;
        self
    }

    /// Sets whether chunks and window follow the measured rate. They do by default, unless
    /// [`Settings::chunk_bytes`] sets their size.
    pub fn follow_measured_rate(mut self, follow: bool) -> Settings {
        self.is_measured = follow;
        self
    }

    /// Sets how many chunks may be posted and not acknowledged, over all connections: 1 to 16. The
    /// default is 2, so that the wire always has a next chunk.
    pub fn window_chunks(mut self, chunks: usize) -> Settings {
        self.window_chunks = chunks as u64;
        self
    }

    /// Sets how much longer the lease of a chunk lasts than the wire time of two windows; 20 ms by
    /// default. The lease is the chunk's right to its part of the window. When the lease of an
    /// unacknowledged chunk ends, other transfers may use this part. Choose more than the round
    /// trip.
    pub fn slack(mut self, time: Duration) -> Settings {
        self.slack_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self
    }

    /// Sets how long other transfers wait for the most urgent transfer if this transfer could send
    /// but does not send; 20 ms by default. The process of this transfer may be stopped, dead, or
    /// preempted.
    pub fn patience(mut self, time: Duration) -> Settings {
        self.patience_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self
    }

    /// Returns the rate that the port was given, bit/s.
    pub fn bits_per_second(&self) -> u64 {
        self.bits_per_second
    }

    /// Returns the size of a chunk's content, in bytes. Both ends of a connection need the same
    /// chunk size ([`Tcp::chunk_bytes`](crate::Tcp::chunk_bytes)).
    pub fn chunk(&self) -> usize {
        self.chunk_bytes as usize
    }

    fn share_bytes(&self) -> u64 {
        on_wire(self.chunk_bytes).div_ceil(CHUNK_SHARES)
    }

    /// Returns the size of the window: the bytes on the wire that may be posted and not
    /// acknowledged, over all connections.
    pub fn window_bytes(&self) -> u64 {
        self.share_bytes() * CHUNK_SHARES * self.window_chunks
    }

    /// Returns how long an unacknowledged chunk keeps its part of the window, in ns: the wire time
    /// of two windows, plus the slack.
    pub fn lease_ns(&self) -> u64 {
        let window_ns = wire_ns(self.window_bytes(), self.bits_per_second);
        (2 * window_ns).saturating_add(self.slack_ns)
    }

    /// Returns the longest time for which dead, stopped or stalled transfers can delay the others,
    /// in ns: until the leases of these transfers have ended, plus the time for which the others
    /// wait for them ([`Settings::patience`]).
    pub fn stall_ns(&self) -> u64 {
        self.lease_ns() + self.patience_ns
    }

    /// Builds the model of the port for the latency analysis. Packets have `mtu` bytes. `way_ns` is
    /// the time from the departure of a message's last byte until this byte is in the receiver's
    /// kernel.
    pub fn model(&self, mtu: usize, sealed: bool, way_ns: u64) -> bound::Port {
        self.model_at(self.bits_per_second, mtu, sealed, way_ns)
    }

    pub(super) fn model_at(
        &self,
        bits_per_second: u64,
        mtu: usize,
        sealed: bool,
        way_ns: u64,
    ) -> bound::Port {
        let in_force = self.at_rate(bits_per_second);
        bound::Port {
            bits_per_second,
            chunk_bytes: in_force.chunk,
            window_bytes: self.window_of(in_force, mtu, sealed),
            overhead_bytes: wire::overhead_bytes(in_force.chunk, mtu, sealed),
            way_ns,
            patience_ns: self.patience_ns,
        }
    }

    fn window_of(&self, in_force: InForce, mtu: usize, sealed: bool) -> usize {
        let window = |need: u64| {
            let most = self.most_content(need, in_force.chunk);
            let bytes = most + wire::overhead_bytes(most, mtu, sealed);
            (in_force.shares * bytes).div_ceil(need as usize)
        };
        // No chunk gets fewer shares than an empty chunk needs.
        let needs = self.shares_of(0)..=self.shares_of(in_force.chunk as u64);
        needs.map(window).max().unwrap_or(0)
    }

    fn most_content(&self, need: u64, chunk: usize) -> usize {
        let (mut fits, mut too_large) = (0, chunk as u64 + 1);
        while fits + 1 < too_large {
            let middle = fits + (too_large - fits) / 2;
            if self.shares_of(middle) <= need {
                fits = middle;
            } else {
                too_large = middle;
            }
        }
        fits as usize
    }

    pub(super) fn at_rate(&self, bits_per_second: u64) -> InForce {
        if !self.is_measured || bits_per_second >= self.bits_per_second {
            return InForce {
                chunk: self.chunk(),
                shares: self.rules().shares,
            };
        }
        let part = u128::from(self.chunk_bytes) * u128::from(bits_per_second)
            / u128::from(self.bits_per_second);
        let least = self.chunk_bytes.min(LEAST_CHUNK);
        let chunk = (part as u64).clamp(least, self.chunk_bytes);
        let shares = self.shares_of(chunk) * self.window_chunks;
        InForce {
            chunk: chunk as usize,
            shares: (shares as usize).min(self.rules().shares),
        }
    }

    pub(super) fn bytes_of(&self, shares: usize) -> u64 {
        self.share_bytes() * shares as u64
    }

    /// Returns the number of bytes on the wire for `bytes` bytes of content that leave in full
    /// chunks.
    pub(super) fn carried(&self, bytes: u64) -> u64 {
        let whole = on_wire(self.chunk_bytes);
        let carried = u128::from(bytes) * u128::from(whole) / u128::from(self.chunk_bytes.max(1));
        u64::try_from(carried).unwrap_or(u64::MAX)
    }

    pub(super) fn shares_of(&self, content: u64) -> u64 {
        on_wire(content).div_ceil(self.share_bytes()).max(1)
    }

    pub(super) fn rules(&self) -> Rules {
        Rules {
            shares: (CHUNK_SHARES * self.window_chunks) as usize,
            lease_ns: self.lease_ns(),
            patience_ns: self.patience_ns,
        }
    }

    pub(super) fn check(self) -> Result<Settings, SettingsError> {
        let most_window = SHARES as u64 / CHUNK_SHARES;
        let numbers = [
            ("the rate (bit/s)", self.bits_per_second, 1000, MOST_RATE),
            ("the chunk (bytes)", self.chunk_bytes, 1, MOST_CHUNK),
            ("the window (chunks)", self.window_chunks, 1, most_window),
            ("the slack (ns)", self.slack_ns, 0, MOST_NS),
            ("the patience (ns)", self.patience_ns, 1_000_000, MOST_NS),
        ];
        for (what, value, least, most) in numbers {
            if !(least..=most).contains(&value) {
                return Err(SettingsError::Number {
                    what,
                    value,
                    least,
                    most,
                });
            }
        }
        Ok(self)
    }

    pub(super) fn terms(&self) -> [u64; TERMS] {
        [
            self.bits_per_second,
            self.chunk_bytes,
            self.window_chunks,
            self.slack_ns,
            self.patience_ns,
            self.is_measured.into(),
        ]
    }

    pub(super) fn of_terms(terms: [u64; TERMS]) -> Settings {
        let [bits_per_second, chunk_bytes, window_chunks, slack_ns, patience_ns, measured] = terms;
        Settings {
            bits_per_second,
            chunk_bytes,
            window_chunks,
            slack_ns,
            patience_ns,
            is_measured: measured != 0,
        }
    }
}

impl std::fmt::Display for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (slack_us, patience_us) = (self.slack_ns / 1000, self.patience_ns / 1000);
        write!(
            f,
            "{} bit/s, chunks of {} bytes, a window of {} chunks, leases of the wire time of two windows plus {slack_us} us (slack), waits of up to {patience_us} us for the most urgent transfer (patience)",
            self.bits_per_second, self.chunk_bytes, self.window_chunks
        )?;
        f.write_str(if self.is_measured {
            ", smaller chunks and a smaller window when the port measures a lower rate"
        } else {
            ""
        })
    }
}
