//! The state that the threads of a replay share with their observer: requests one way, figures the
//! other way.

use crate::pace::Axis;
use std::sync::atomic::{
    fence, AtomicBool, AtomicI64, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// The requests to a running replay, and its progress. The fields are atomics, so any thread may
/// use them at any time.
#[derive(Debug, Default)]
pub struct Control {
    stop: AtomicBool,
    paused: AtomicBool,
    steps: AtomicU32,
    /// The rate that the user chose during playback, as the bits of an `f64`. 0 if the user chose
    /// none.
    rate: AtomicU64,
    seeking: Seeking,
    pub(crate) loading: Loading,
    pub(crate) playing: Playing,
}

#[derive(Debug, Default)]
struct Seeking {
    is_possible: AtomicBool,
    to_ns: AtomicI64,
    /// The number of the latest seek request, or [`CLOSED`] after the end of the replay.
    number: AtomicU32,
    /// The number of the latest seek request that the player has carried out.
    done: AtomicU32,
}

/// The request number that marks the end of the replay. After it, no seek request is accepted.
const CLOSED: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seek {
    pub(crate) number: u32,
    pub(crate) to_ns: i64,
}

/// The allowed rates of playback, in recorded seconds per second.
pub const RATES: std::ops::RangeInclusive<f64> = 1e-6..=1e6;

#[derive(Debug, Default)]
pub(crate) struct Loading {
    /// Set once the buffer is full or the source has ended. The player may then start.
    pub(crate) ready: AtomicBool,
    pub(crate) read: AtomicU64,
    pub(crate) brought: AtomicU64,
    /// The number of times that the loader began or stopped waiting for room in the buffer. The
    /// number is odd while the loader waits, and after the loader's end.
    pub(crate) holds: AtomicU64,
    pub(crate) position_ns: AtomicI64,
}

#[derive(Debug, Default)]
pub(crate) struct Playing {
    pub(crate) began: AtomicBool,
    pub(crate) played: AtomicU64,
    pub(crate) starved: AtomicU64,
    pub(crate) max_late_ns: AtomicU64,
    pub(crate) fill: AtomicU32,
    pub(crate) behind_ns: AtomicU64,
    pub(crate) first_ns: AtomicI64,
    pub(crate) position_ns: AtomicI64,
    /// The number of changes of the axis of time, which maps recorded times to CLOCK_MONOTONIC. The
    /// number is odd while the player writes the axis.
    axis_version: AtomicU32,
    axis_first_ns: AtomicI64,
    /// The time at which an item with the recorded time `axis_first_ns` is due (CLOCK_MONOTONIC). A
    /// pause moves this time to a later one.
    origin_ns: AtomicU64,
    /// The rate in recorded seconds per second, as the bits of an `f64`. 0 if the consumer sets the
    /// pace.
    pub(crate) rate: AtomicU64,
}

impl Playing {
    /// Stores the axis of time, which maps recorded times to CLOCK_MONOTONIC, for other threads to
    /// read. Only the player calls this function. Real-time safe.
    pub(crate) fn set_axis(&self, axis: &Axis, is_paced: bool) {
        let rate = if is_paced { axis.rate } else { 0.0 };
        // Only the player writes, so plain loads and stores suffice here.
        let version = self.axis_version.load(Relaxed);
        self.axis_version.store(version | 1, Relaxed);
        fence(Release);
        self.rate.store(rate.to_bits(), Relaxed);
        self.axis_first_ns.store(axis.first_ns, Relaxed);
        self.origin_ns.store(axis.origin_ns, Relaxed);
        self.axis_version
            .store((version | 1).wrapping_add(1), Release);
    }

    /// Returns the axis of time, which maps recorded times to CLOCK_MONOTONIC. Its rate is 0 if the
    /// consumer sets the pace.
    fn axis(&self) -> Axis {
        loop {
            let before = self.axis_version.load(Acquire);
            let axis = Axis::new(
                self.axis_first_ns.load(Relaxed),
                self.origin_ns.load(Relaxed),
                f64::from_bits(self.rate.load(Relaxed)),
            );
            fence(Acquire);
            if before.is_multiple_of(2) && self.axis_version.load(Relaxed) == before {
                return axis;
            }
            std::hint::spin_loop();
        }
    }
}

/// The progress of a replay at one time: counts, lateness, fill level and position.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct State {
    pub read: u64,
    pub played: u64,
    /// The number of items that were missing in the buffer when they were due.
    pub starved: u64,
    pub max_late_ns: u64,
    /// The fill level of the playback buffer, in thousandths.
    pub fill: u32,
    /// The recorded time from the first item to the current one, in ns.
    pub position_ns: i64,
    /// The recorded time between the current item and the latest item in the buffer, in ns.
    pub ahead_ns: i64,
    /// The loader's delay against its service curve, in ns, when this delay first exceeded its
    /// limit. 0 if the delay never exceeded it.
    pub behind_ns: u64,
    pub paused: bool,
    /// True once the first item was due, so that playback has begun.
    pub began: bool,
    /// The rate in recorded seconds per second. `None` if the consumer sets the pace, and before
    /// playback begins.
    pub rate: Option<f64>,
    /// True while the player has not yet reached the recorded time that the user has sought.
    pub seeks: bool,
}

impl Control {
    /// Ends the replay. Items that are still in the buffer are not played.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Returns whether [`Control::stop`] was called.
    pub fn is_stopping(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Pauses the replay. No item leaves until [`Control::go_on`] or [`Control::step`] is called.
    pub fn pause(&self) {
        self.paused.store(true, Relaxed);
    }

    /// Continues after [`Control::pause`]. The times between the following items are the recorded
    /// ones again.
    pub fn go_on(&self) {
        self.steps.store(0, Relaxed);
        self.paused.store(false, Relaxed);
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Relaxed)
    }

    /// Plays only the next item while the replay is paused. Each call adds one item.
    pub fn step(&self) {
        self.steps.fetch_add(1, Relaxed);
    }

    pub(crate) fn take_step(&self) -> bool {
        self.steps
            .fetch_update(Relaxed, Relaxed, |steps| steps.checked_sub(1))
            .is_ok()
    }

    /// Changes the rate of a running replay from the current item on. Returns `false` if `rate` is
    /// not within [`RATES`]. Has no effect if the consumer sets the pace.
    pub fn set_rate(&self, rate: f64) -> bool {
        let is_valid = RATES.contains(&rate);
        if is_valid {
            self.rate.store(rate.to_bits(), Relaxed);
        }
        is_valid
    }

    pub(crate) fn chosen_rate(&self) -> Option<f64> {
        match self.rate.load(Relaxed) {
            0 => None,
            bits => Some(f64::from_bits(bits)),
        }
    }

    /// Continues the replay at another recorded time, in ns since the first item. Returns `false`
    /// if the source can only be read from its beginning, or if the replay has not begun or has
    /// ended.
    pub fn seek(&self, since_ns: i64) -> bool {
        let (seeking, playing) = (&self.seeking, &self.playing);
        if !seeking.is_possible.load(Relaxed) || !playing.began.load(Acquire) {
            return false;
        }
        let first_ns = playing.first_ns.load(Relaxed);
        let to_ns = first_ns.saturating_add(since_ns.max(0));
        seeking.to_ns.store(to_ns, Relaxed);
        let next = |number| match number {
            CLOSED => None,
            number => Some(if number + 1 == CLOSED { 0 } else { number + 1 }),
        };
        seeking.number.fetch_update(Release, Relaxed, next).is_ok()
    }

    pub(crate) fn allow_seeking(&self) {
        self.seeking.is_possible.store(true, Relaxed);
    }

    /// Returns the latest seek request. Returns `None` if the number of this request is `done`,
    /// because the player has then carried it out, or if the replay has ended. Real-time safe.
    pub(crate) fn sought(&self, done: u32) -> Option<Seek> {
        let number = self.seeking.number.load(Acquire);
        (number != done && number != CLOSED).then(|| Seek {
            number,
            to_ns: self.seeking.to_ns.load(Relaxed),
        })
    }

    pub(crate) fn has_sought(&self, done: u32) {
        self.seeking.done.store(done, Relaxed);
    }

    /// Refuses later seek requests, because the replay ends. `done` is the number of the last
    /// request that the player has carried out. If a newer request has already come, changes
    /// nothing and returns `false`, because the replay then continues. Real-time safe.
    pub(crate) fn close(&self, done: u32) -> bool {
        let number = &self.seeking.number;
        number
            .compare_exchange(done, CLOSED, Relaxed, Relaxed)
            .is_ok()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.seeking.number.load(Relaxed) == CLOSED
    }

    /// Returns the recorded time in ns at the instant `monotonic_ns` of CLOCK_MONOTONIC. If the
    /// consumer sets the pace, returns the recorded time of the latest item. Returns `None` before
    /// the first item is due.
    pub fn recorded_ns(&self, monotonic_ns: u64) -> Option<i64> {
        let playing = &self.playing;
        if !playing.began.load(Acquire) {
            return None;
        }
        let axis = playing.axis();
        Some(match axis.rate == 0.0 {
            true => playing.position_ns.load(Relaxed),
            false => axis.recorded_ns(monotonic_ns),
        })
    }

    /// Returns the recorded times in ns of the first and of the latest played item. Returns `None`
    /// before the first item is due.
    pub fn played_ns(&self) -> Option<(i64, i64)> {
        let playing = &self.playing;
        let times = (
            playing.first_ns.load(Relaxed),
            playing.position_ns.load(Relaxed),
        );
        playing.began.load(Acquire).then_some(times)
    }

    /// Returns the progress of the replay so far. Any thread may call this function at any time.
    pub fn state(&self) -> State {
        let (loading, playing) = (&self.loading, &self.playing);
        let began = playing.began.load(Relaxed);
        let first = playing.first_ns.load(Relaxed);
        let position = playing.position_ns.load(Relaxed);
        let number = self.seeking.number.load(Relaxed);
        State {
            rate: began
                .then(|| playing.axis().rate)
                .filter(|rate| *rate != 0.0),
            seeks: number != CLOSED && number != self.seeking.done.load(Relaxed),
            read: loading.read.load(Relaxed),
            played: playing.played.load(Relaxed),
            starved: playing.starved.load(Relaxed),
            max_late_ns: playing.max_late_ns.load(Relaxed),
            fill: playing.fill.load(Relaxed),
            position_ns: position.saturating_sub(first),
            ahead_ns: match began {
                true => loading.position_ns.load(Relaxed).saturating_sub(position),
                false => 0,
            },
            behind_ns: playing.behind_ns.load(Relaxed),
            paused: self.is_paused(),
            began,
        }
    }
}

impl Loading {
    pub(crate) fn hold(&self) {
        self.holds.fetch_add(1, Relaxed);
    }
}
