//! The load of CAN buses: how long frames take on the wire, and what an interface can carry.

pub mod device;
mod meter;
pub mod offered;
mod wire;

pub use meter::{BusFigures, Meter, WINDOW_NS};
pub use wire::Bits;

use std::fmt;

/// The bitrates of a CAN bus, in bits per second. They are above 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speed {
    /// The bitrate of classic frames, and of the arbitration phase of CAN FD frames.
    pub nominal: u64,
    /// The bitrate of the data phase of CAN FD frames with the flag BRS.
    pub data: u64,
}

impl Speed {
    /// Returns how long `bits` take on a bus with these bitrates, in ns. Real-time safe.
    pub fn time_ns(&self, bits: Bits) -> u64 {
        let time = |bits: u32, rate: u64| u64::from(bits) * 1_000_000_000 / rate.max(1);
        time(bits.nominal, self.nominal) + time(bits.data, self.data)
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} kbit/s", self.nominal as f64 / 1e3)?;
        match self.data == self.nominal {
            true => Ok(()),
            false => write!(f, " (data {} kbit/s)", self.data as f64 / 1e3),
        }
    }
}

/// The bitrates that the user states. An entry with a name is for the interface of that name. An
/// entry without a name is for all other interfaces.
pub type Stated = Vec<(Option<String>, Speed)>;

/// Returns the bitrates that the user stated for an interface: those of the last entry with the
/// interface's name, or else those of the last entry without a name.
pub fn stated(all: &Stated, interface: &str) -> Option<Speed> {
    let named = |named: bool| {
        let about = all.iter().rev().find(|(name, _)| match name {
            Some(name) => named && name == interface,
            None => !named,
        });
        about.map(|(_, speed)| *speed)
    };
    named(true).or_else(|| named(false))
}
