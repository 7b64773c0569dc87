//! Keeps the readings of threads' CPU clocks, which the library takes where callbacks begin and end.
//!
//! For kernels that do not show context switches, [`Clocks`] estimates when threads were off their
//! CPU. Time missing between two readings is time off the CPU. The missing time is placed in the
//! longest pauses between the thread's calls: the sum is right, and the place is likely.

use std::collections::HashMap;

/// The measuring error of a reading of a CPU clock, in ns. A time off the CPU that is shorter than
/// this is not reported at once, but added to the next reading.
const MIN_NS: u64 = 10_000;
const PAUSES: usize = 32;
const THREADS_MAX: usize = 1 << 16;

pub type Off = (u64, u64);

#[derive(Default)]
pub struct Readings(HashMap<u32, u64>);

impl Readings {
    /// Stores a reading of a thread's CPU clock. Returns the CPU time since the last reading, or 0
    /// for a first one.
    pub fn used_ns(&mut self, tid: u32, cpu_ns: u64) -> u64 {
        match self.0.get_mut(&tid) {
            Some(last) => cpu_ns.saturating_sub(std::mem::replace(last, cpu_ns)),
            None => {
                // A new thread may have the id of one whose end was not seen.
                if self.0.len() >= THREADS_MAX {
                    self.0.clear();
                }
                self.0.insert(tid, cpu_ns);
                0
            }
        }
    }

    pub fn forget(&mut self, tid: u32) {
        self.0.remove(&tid);
    }
}

struct Reading {
    time_ns: u64,
    cpu_ns: u64,
    last_call_ns: u64,
    pauses: Vec<Off>,
}

#[derive(Default)]
pub struct Clocks(HashMap<u32, Reading>);

impl Clocks {
    pub fn note_call(&mut self, tid: u32, time_ns: u64) {
        if let Some(reading) = self.0.get_mut(&tid) {
            reading.note_call(time_ns);
        }
    }

    /// Stores a reading of a thread's CPU clock. Returns the times off the CPU since the last
    /// reading, in order.
    pub fn note_reading(&mut self, tid: u32, time_ns: u64, cpu_ns: u64) -> Vec<Off> {
        let begin = || Reading {
            time_ns,
            cpu_ns,
            last_call_ns: time_ns,
            pauses: Vec::new(),
        };
        if !self.0.contains_key(&tid) {
            if self.0.len() < THREADS_MAX {
                self.0.insert(tid, begin());
            }
            return Vec::new();
        }
        let Some(reading) = self.0.get_mut(&tid) else {
            return Vec::new();
        };
        reading.note_call(time_ns);
        let used_ns = cpu_ns.saturating_sub(reading.cpu_ns);
        let off_ns = time_ns
            .saturating_sub(reading.time_ns)
            .saturating_sub(used_ns);
        if off_ns < MIN_NS {
            return Vec::new();
        }
        let off = reading.place_off_times(off_ns);
        *reading = begin();
        off
    }

    pub fn forget(&mut self, tid: u32) {
        self.0.remove(&tid);
    }
}

impl Reading {
    fn note_call(&mut self, time_ns: u64) {
        let pause = (self.last_call_ns, time_ns);
        self.last_call_ns = time_ns.max(self.last_call_ns);
        if length(pause) < MIN_NS {
            return;
        }
        if self.pauses.len() < PAUSES {
            self.pauses.push(pause);
            return;
        }
        let shortest = self.pauses.iter_mut().min_by_key(|p| length(**p));
        if let Some(shortest) = shortest.filter(|p| length(**p) < length(pause)) {
            *shortest = pause;
        }
    }

    /// Places `off_ns` of time off the CPU into the longest pauses between the thread's calls, each
    /// time at the end of a pause.
    fn place_off_times(&mut self, mut off_ns: u64) -> Vec<Off> {
        self.pauses.sort_by_key(|p| std::cmp::Reverse(length(*p)));
        let mut off = Vec::new();
        for &(begin, end) in &self.pauses {
            // The ends stay within the pause, so that the calls around it happen on a CPU.
            let length = off_ns.min(end - begin - 2);
            off.push((end - 1 - length, end - 1));
            off_ns -= length;
            if off_ns < MIN_NS {
                break;
            }
        }
        off.sort_unstable();
        off
    }
}

fn length((begin, end): Off) -> u64 {
    end.saturating_sub(begin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_off_the_cpu_is_placed_in_the_longest_pauses() {
        let mut clocks = Clocks::default();
        assert!(clocks.note_reading(7, 1_000_000, 50).is_empty());
        clocks.note_call(7, 2_000_000);
        clocks.note_call(7, 5_000_000);
        clocks.note_call(7, 5_000_500);
        // Since the reading 5 ms passed, and the thread ran for 1 ms of them. The longest pause
        // takes 3 ms.
        let off = clocks.note_reading(7, 6_000_000, 1_000_050);
        assert_eq!(off.len(), 2);
        assert_eq!(off[1], (2_000_001, 4_999_999).min(off[1]));
        let sum: u64 = off.iter().map(|o| length(*o)).sum();
        assert!((3_990_000..=4_000_000).contains(&sum), "{off:?}");
        // Almost nothing is missing: it counts with the next reading.
        assert!(clocks.note_reading(7, 7_000_000, 1_995_050).is_empty());
        assert_eq!(clocks.note_reading(7, 9_000_000, 2_000_050).len(), 1);
    }

    #[test]
    fn nonsensical_clock_readings_cause_no_panic_and_no_growth() {
        let mut clocks = Clocks::default();
        let _ = clocks.note_reading(7, 5_000_000, u64::MAX);
        let _ = clocks.note_reading(7, 1, 0);
        let _ = clocks.note_reading(7, u64::MAX, 3);
        for time_ns in (0..1_000).map(|n| n * 20_000) {
            clocks.note_call(7, time_ns);
        }
        let _ = clocks.note_reading(7, 1 << 60, 7);
        assert!(clocks.0[&7].pauses.len() <= PAUSES);
    }
}
