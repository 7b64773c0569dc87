//! What the starts of a chain's first callback say of the grid of its releases. Pure.
//!
//! A start is never before its release, but for how long it comes behind depends on what releases it.
//!
//! - A timer's releases are on its clock's grid, exactly. Where its thread runs other callbacks, most
//!   starts are late, some not at all: the earliest show the grid, and a grid that seems to lie later
//!   is starts that are late. It moves only if all starts are later than they ever spread.
//! - A message's arrival is late by itself, and a sensor's clock drifts: the grid is where the early
//!   tenth is, and it moves with it.

/// A timer's grid lies where the earliest start of so many windows is.
const WINDOWS: u32 = 8;

/// A difference this small is mostly the delay of the early starts. It moves the origin by a
/// [`NEAR_PART`]th only: the origin is the reference for outputs, which would show the noise.
const NEAR_NS: i64 = 100_000;

/// See [`NEAR_NS`].
const NEAR_PART: i64 = 4;

/// What releases a chain's first callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Releases {
    /// A timer.
    Timer,
    /// A message, or what is not known.
    Other,
}

impl Releases {
    /// Those of a callback, by its id.
    pub fn of(callback: &str) -> Releases {
        match callback.split_once(':') {
            Some((_, kind)) if kind.starts_with("timer(") => Releases::Timer,
            _ => Releases::Other,
        }
    }
}

/// Where a window of starts lies, in ns behind the grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The earliest that shows the grid.
    pub(super) early: i64,
    /// A tenth is earlier.
    tenth: i64,
    /// A tenth is later.
    pub(super) late: i64,
}

/// Follows a grid through windows of starts.
#[derive(Debug, Clone)]
pub(super) struct Grid {
    releases: Releases,
    /// The widest spread of a window since the timer was set anew, ns.
    widest_ns: i64,
    /// The earliest start of the last windows, ns behind the grid.
    least_ns: i64,
    /// Number of these windows.
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

    /// As if nothing had been seen.
    pub(super) fn anew(&self) -> Grid {
        Grid::new(self.releases)
    }

    /// Early and late ones of sorted starts, which are never empty. Starts that spread over more than
    /// `most_ns` show no grid.
    pub(super) fn bounds(&self, sorted: &[i64], most_ns: i64) -> Bounds {
        let tenth = sorted[sorted.len() / 10];
        let late = sorted[sorted.len() - 1 - sorted.len() / 10];
        let early = match self.releases {
            Releases::Other => tenth,
            Releases::Timer => {
                // One that is nearly a whole cycle late looks early.
                let middle = sorted[sorted.len() / 2];
                let mut near = sorted.iter().filter(|&&s| s >= middle - most_ns);
                near.next().copied().unwrap_or(middle)
            }
        };
        Bounds { early, tenth, late }
    }

    /// By how much the grid moves for a window.
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
            // Set anew. The first of this window may have been before that.
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
    fn an_id_says_what_releases_a_callback() {
        assert_eq!(Releases::of("/a:timer(100ms)#2"), Releases::Timer);
        for other in ["/a:subscription(/timer()", "/timer(1ms)", ""] {
            assert_eq!(Releases::of(other), Releases::Other, "{other}");
        }
    }

    #[test]
    fn starts_that_are_late_move_no_timers_grid() {
        let mut timer = Grid::new(Releases::Timer);
        // In most windows even the earliest start waited for others.
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
    fn a_start_that_is_nearly_a_cycle_late_is_not_early() {
        let starts = [-40_000_000, 20, 30, 700, 900];
        let timer = Grid::new(Releases::Timer);
        let bounds = timer.bounds(&starts, 12_500_000);
        assert_eq!((bounds.early, bounds.late), (20, 900));
    }
}
