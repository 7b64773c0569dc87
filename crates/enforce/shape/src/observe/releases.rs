//! Derives the grid of a chain's releases from the starts of its first callback. Pure.
//!
//! A start is never before its release. How much later it comes depends on the kind of release:
//!
//! - A timer releases exactly on the grid of its clock. If its thread runs other callbacks, most
//!   starts are late, and some are on time. The earliest starts show the grid. It moves to a later
//!   phase only if all starts are later than they ever spread.
//! - A message may arrive late, and the clock of its sensor drifts. The grid lies at the earliest
//!   tenth of the starts and moves with it.

/// A timer's grid moves to a later time if no start comes before the grid in this number of
/// consecutive windows. A window is a group of consecutive starts. The grid then moves to the
/// earliest start in these windows.
const WINDOWS: u32 = 8;

/// The limit in ns below which the distance of a window from the grid of releases is mostly noise.
/// A window is a group of consecutive starts. The origin moves only by a part of such a distance:
/// the distance divided by [`NEAR_PART`]. Outputs then do not show the noise.
const NEAR_NS: i64 = 100_000;

const NEAR_PART: i64 = 4;

/// The kind of event that releases a chain's first callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Releases {
    /// A timer releases the callback, so its releases are exactly periodic.
    Timer,
    /// A message or an unknown event releases the callback.
    Other,
}

impl Releases {
    /// Returns the kind of release, which onbeat reads from the callback's id.
    pub fn of(callback: &str) -> Releases {
        match callback.split_once(':') {
            Some((_, kind)) if kind.starts_with("timer(") => Releases::Timer,
            _ => Releases::Other,
        }
    }
}

/// The position of a window relative to the grid of releases, in ns. A window is a group of
/// consecutive starts of the first callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The position of the start that shows the grid, in ns after the grid. If a timer releases the
    /// callback, this start is the earliest one of the window. Starts that are nearly a cycle late
    /// look early and do not count. With other releases, a tenth of the window's starts are earlier
    /// than this start.
    pub(super) early: i64,
    tenth: i64,
    pub(super) late: i64,
}

#[derive(Debug, Clone)]
pub(super) struct Grid {
    releases: Releases,
    widest_ns: i64,
    least_ns: i64,
    windows: u32,
}

impl Grid {
    pub(super) fn new(releases: Releases) -> Grid {
        Grid {
            releases,
            widest_ns: 0,
            least_ns: i64::MAX,
            windows: 0,
        }
    }

    pub(super) fn anew(&self) -> Grid {
        Grid::new(self.releases)
    }

    /// Returns the position of a window of starts relative to the grid. `sorted` contains the
    /// distances of the starts from the grid in ns, sorted, and must not be empty. `most_ns` is the
    /// widest spread of starts that still shows a grid.
    pub(super) fn bounds(&self, sorted: &[i64], most_ns: i64) -> Bounds {
        let tenth = sorted[sorted.len() / 10];
        let late = sorted[sorted.len() - 1 - sorted.len() / 10];
        let early = match self.releases {
            Releases::Other => tenth,
            Releases::Timer => {
                // A start that is nearly a whole cycle late looks early.
                let middle = sorted[sorted.len() / 2];
                let mut near = sorted.iter().filter(|&&s| s >= middle - most_ns);
                near.next().copied().unwrap_or(middle)
            }
        };
        Bounds { early, tenth, late }
    }

    pub(super) fn step(&mut self, window: Bounds) -> i64 {
        let early = window.early;
        let follow = match early {
            near if near.abs() <= NEAR_NS => near / NEAR_PART,
            far => far,
        };
        if self.releases == Releases::Other {
            return follow;
        }
        self.widest_ns = self.widest_ns.max(window.late - early);
        if early > self.widest_ns.max(NEAR_NS) {
            // The timer was set again. The first starts of this window may have been before that.
            *self = self.anew();
            return window.tenth;
        }
        if early < 0 {
            self.windows = 0;
            self.least_ns = i64::MAX;
            return follow;
        }
        self.least_ns = self.least_ns.min(early);
        self.windows += 1;
        if self.windows < WINDOWS {
            return 0;
        }
        self.windows = 0;
        std::mem::replace(&mut self.least_ns, i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_callback_id_shows_whether_a_timer_releases_the_callback() {
        assert_eq!(Releases::of("/a:timer(100ms)#2"), Releases::Timer);
        for other in ["/a:subscription(/timer()", "/timer(1ms)", ""] {
            assert_eq!(Releases::of(other), Releases::Other, "{other}");
        }
    }

    #[test]
    fn late_starts_do_not_move_the_phase_of_a_timer() {
        let mut timer = Grid::new(Releases::Timer);
        // In most windows even the earliest start waited for other callbacks.
        let from = |early: i64, late: i64| Bounds {
            early,
            tenth: early + 1000,
            late,
        };
        let mut moved = |early| timer.step(from(early, 4_000_000));
        let late: Vec<i64> = (0..7).map(|n| moved(600_000 + n)).collect();
        assert_eq!((late, moved(10_000)), (vec![0; 7], 10_000));
        assert_eq!(moved(-700_000), -700_000, "never before its release");
        let anew = timer.step(from(30_000_000, 33_000_000));
        assert_eq!(anew, 30_001_000, "set anew");
        assert_eq!((timer.widest_ns, timer.windows), (0, 0));
        let other = Grid::new(Releases::Other).step(from(600_000, 4_000_000));
        assert_eq!(other, 600_000);
    }

    #[test]
    fn a_start_that_is_nearly_a_cycle_late_does_not_count_as_early() {
        let starts = [-40_000_000, 20, 30, 700, 900];
        let timer = Grid::new(Releases::Timer);
        let bounds = timer.bounds(&starts, 12_500_000);
        assert_eq!((bounds.early, bounds.late), (20, 900));
    }
}
