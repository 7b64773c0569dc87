//! The state that the threads of a replay share with their observer: requests one way, figures the
//! other way.

use crate::pace::Axis;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// The requests to a running replay, and its progress. Consists of atomics only, so that any thread may use
/// it at any time.
#[derive(Debug, Default)]
pub struct Control {
    stop: AtomicBool,
    paused: AtomicBool,
    steps: AtomicU32,
    pub(crate) loading: Loading,
    pub(crate) playing: Playing,
}

#[derive(Debug, Default)]
pub(crate) struct Loading {
    /// The buffer is full, or the source has ended. The player may start.
    pub(crate) ready: AtomicBool,
    pub(crate) read: AtomicU64,
    pub(crate) brought: AtomicU64,
    /// Counts how often the loader began or stopped waiting for room in the buffer. The number is odd while
    /// the loader waits, and after the loader's end.
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
    /// The time at which the first item is due, on the monotonic clock. Pauses move it.
    pub(crate) origin_ns: AtomicU64,
    /// The bits of the rate: recorded seconds per second. 0 if the consumer sets the pace.
    pub(crate) rate: AtomicU64,
}

impl Playing {
    /// Publishes the axis of time. Only the player calls it. Real-time safe.
    pub(crate) fn set_axis(&self, axis: &Axis, is_paced: bool) {
        let rate = if is_paced { axis.rate } else { 0.0 };
        self.rate.store(rate.to_bits(), Relaxed);
        self.origin_ns.store(axis.origin_ns, Release);
    }
}

/// The progress of a replay at one time: counts, lateness, fill level and position.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    pub read: u64,
    pub played: u64,
    /// The number of items that were missing in the buffer when they were due.
    pub starved: u64,
    /// The largest lateness of an item so far, in ns.
    pub max_late_ns: u64,
    /// The fill level of the buffer, in thousandths.
    pub fill: u32,
    /// The recorded time from the first item to the current one, in ns.
    pub position_ns: i64,
    /// The recorded time between the current item and the latest item in the buffer, in ns.
    pub ahead_ns: i64,
    /// The loader's delay against its service curve when it was first too late, in ns. 0 if the loader was
    /// never too late.
    pub behind_ns: u64,
    /// The replay is paused: no items leave until [`Control::go_on`] is called.
    pub paused: bool,
    /// The first item was due, so playback has begun.
    pub began: bool,
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

    /// Continues after [`Control::pause`]. The distances between the following items are the recorded ones.
    pub fn go_on(&self) {
        self.steps.store(0, Relaxed);
        self.paused.store(false, Relaxed);
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Relaxed)
    }

    /// Plays the next item only, while the replay is paused.
    pub fn step(&self) {
        self.steps.fetch_add(1, Relaxed);
    }

    pub(crate) fn take_step(&self) -> bool {
        self.steps
            .fetch_update(Relaxed, Relaxed, |steps| steps.checked_sub(1))
            .is_ok()
    }

    /// Returns the recorded time that a time of the monotonic clock corresponds to, in ns. If the consumer
    /// sets the pace, this is the time of the latest item. Returns `None` before the first item is due.
    pub fn recorded_ns(&self, monotonic_ns: u64) -> Option<i64> {
        let playing = &self.playing;
        if !playing.began.load(Acquire) {
            return None;
        }
        let origin_ns = playing.origin_ns.load(Acquire);
        let rate = f64::from_bits(playing.rate.load(Relaxed));
        if rate == 0.0 {
            return Some(playing.position_ns.load(Relaxed));
        }
        let axis = Axis::new(playing.first_ns.load(Relaxed), origin_ns, rate);
        Some(axis.recorded_ns(monotonic_ns))
    }

    /// Returns the recorded times of the first and of the latest item that was played, in ns. Returns `None`
    /// before the first item is due.
    pub fn played_ns(&self) -> Option<(i64, i64)> {
        let playing = &self.playing;
        let times = (
            playing.first_ns.load(Relaxed),
            playing.position_ns.load(Relaxed),
        );
        playing.began.load(Acquire).then_some(times)
    }

    /// Returns the progress so far. Any thread may call this at any time.
    pub fn state(&self) -> State {
        let (loading, playing) = (&self.loading, &self.playing);
        let began = playing.began.load(Relaxed);
        let first = playing.first_ns.load(Relaxed);
        let position = playing.position_ns.load(Relaxed);
        State {
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
