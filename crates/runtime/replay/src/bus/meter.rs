//! Measures the load of one CAN bus over time.

use super::{Bits, Speed};
use serde::Serialize;

const SLOT_NS: u64 = 10_000_000;
const SLOTS: usize = 10;
/// The length of the sliding window in which a meter finds the highest load of a bus, in ns.
pub const WINDOW_NS: u64 = SLOT_NS * SLOTS as u64;

/// Measures the load that played frames put on a CAN bus.
#[derive(Debug, Clone)]
pub struct Meter {
    interface: String,
    speed: Speed,
    frames: u64,
    fd_frames: u64,
    busy_ns: u64,
    ends: Option<(u64, u64)>,
    slots: [u64; SLOTS],
    slot: u64,
    window_ns: u64,
    peak: (u64, u64),
    free_ns: u64,
    most_wait_ns: u64,
}

/// The load of a CAN bus: on average, and in the busiest window of 100 ms. Times count from the
/// first item of the replay.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BusFigures {
    pub interface: String,
    /// The bitrate in bits per second.
    pub bitrate: u64,
    /// The bitrate of the data phase of CAN FD, in bits per second.
    pub data_bitrate: u64,
    /// The number of played frames, without error frames.
    pub frames: u64,
    pub fd_frames: u64,
    /// The time that all frames take on the wire, in ns.
    pub busy_ns: u64,
    /// The time that all frames take on the wire, as a share of the time from the first frame to
    /// the last. `None` if all frames have the same time.
    pub load: Option<f64>,
    /// The share of the busiest 100 ms in which the bus is busy. The window of 100 ms moves in
    /// steps of 10 ms. The share is above 1 if the bus cannot transmit the frames in time.
    pub peak_load: f64,
    /// The end of the busiest 100 ms, in ns since the first item of the replay.
    pub peak_at_ns: u64,
    /// The longest time that a frame would have to wait for earlier frames on the bus, in ns.
    pub most_wait_ns: u64,
}

impl Meter {
    /// Creates a meter of a bus that has no frames yet.
    pub fn new(interface: &str, speed: Speed) -> Meter {
        Meter {
            interface: interface.into(),
            speed,
            frames: 0,
            fd_frames: 0,
            busy_ns: 0,
            ends: None,
            slots: [0; SLOTS],
            slot: 0,
            window_ns: 0,
            peak: (0, 0),
            free_ns: 0,
            most_wait_ns: 0,
        }
    }

    /// Adds a frame that is sent at `at_ns`. `frame` has the layout of Linux's `struct can_frame`
    /// or `struct canfd_frame`. If `at_ns` is before the time of an earlier frame, the frame counts
    /// at the latest time of all earlier frames. Real-time safe.
    pub fn add(&mut self, at_ns: u64, frame: &[u8]) {
        let Some(bits) = Bits::of(frame) else {
            return;
        };
        let time_ns = self.speed.time_ns(bits);
        self.frames += 1;
        self.fd_frames += u64::from(frame.len() > 16);
        self.busy_ns = self.busy_ns.saturating_add(time_ns);
        let first_ns = self.ends.map_or(at_ns, |ends| ends.0);
        let at_ns = self.ends.map_or(at_ns, |ends| ends.1.max(at_ns));
        self.ends = Some((first_ns, at_ns));
        let slot = at_ns / SLOT_NS;
        for next in (self.slot + 1..=slot).take(SLOTS) {
            let old = &mut self.slots[(next % SLOTS as u64) as usize];
            self.window_ns -= std::mem::take(old);
        }
        self.slot = slot;
        self.slots[(slot % SLOTS as u64) as usize] += time_ns;
        self.window_ns += time_ns;
        if self.window_ns > self.peak.0 {
            self.peak = (self.window_ns, at_ns);
        }
        self.most_wait_ns = self.most_wait_ns.max(self.free_ns.saturating_sub(at_ns));
        self.free_ns = self.free_ns.max(at_ns).saturating_add(time_ns);
    }

    /// Returns the load that the frames added so far put on the bus.
    pub fn figures(&self) -> BusFigures {
        let length_ns = self.ends.map_or(0, |(first, last)| last - first);
        BusFigures {
            interface: self.interface.clone(),
            bitrate: self.speed.nominal,
            data_bitrate: self.speed.data,
            frames: self.frames,
            fd_frames: self.fd_frames,
            busy_ns: self.busy_ns,
            load: (length_ns > 0).then(|| self.busy_ns as f64 / length_ns as f64),
            peak_load: self.peak.0 as f64 / WINDOW_NS as f64,
            peak_at_ns: self.peak.1,
            most_wait_ns: self.most_wait_ns,
        }
    }
}

impl BusFigures {
    /// Returns the bitrates of the bus.
    pub fn speed(&self) -> Speed {
        Speed {
            nominal: self.bitrate,
            data: self.data_bitrate,
        }
    }

    /// Returns true if the bus is too slow for the frames of its busiest 100 ms.
    pub fn is_too_slow(&self) -> bool {
        self.peak_load > 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEED: Speed = Speed {
        nominal: 1_000_000,
        data: 1_000_000,
    };

    fn zeros() -> [u8; 16] {
        [0; 16]
    }

    #[test]
    fn a_burst_on_a_can_bus_shows_in_the_busiest_window_and_not_in_the_average() {
        // A frame of zeros has 53 bits: 53 us.
        let mut meter = Meter::new("can0", SPEED);
        for n in 0..10u64 {
            meter.add(n * 1_000_000_000, &zeros());
        }
        for n in 0..3000 {
            meter.add(20_000_000_000 + n, &zeros());
        }
        meter.add(100_000_000_000, &zeros());
        let figures = meter.figures();
        assert_eq!((figures.frames, figures.busy_ns), (3011, 3011 * 53_000));
        assert_eq!(figures.peak_load, 3000.0 * 53_000.0 / WINDOW_NS as f64);
        assert!(
            figures.is_too_slow() && figures.load < Some(0.01),
            "{figures:?}"
        );
        assert_eq!(figures.most_wait_ns, 2999 * 53_000 - 2999);
        assert_eq!(figures.peak_at_ns, 20_000_002_999);
    }

    #[test]
    fn a_can_bus_that_is_nearly_full_is_not_reported_as_too_slow() {
        let mut meter = Meter::new("can0", SPEED);
        for n in 0..100_000u64 {
            meter.add(n * 54_000, &zeros());
        }
        let figures = meter.figures();
        assert!(
            !figures.is_too_slow() && figures.peak_load > 0.97,
            "{figures:?}"
        );
        assert!(figures
            .load
            .is_some_and(|load| (load - 53.0 / 54.0).abs() < 1e-3));
        assert_eq!(figures.most_wait_ns, 0);
        meter.add(0, &zeros());
        meter.add(u64::MAX, &zeros());
        assert_eq!(Meter::new("can0", SPEED).figures().load, None);
    }
}
