//! The state that the threads of a replay share with their observer: requests one way, figures the
//! other way.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The requests to a running replay, and its progress. It consists of atomics only.
#[derive(Debug, Default)]
pub struct Control {
    stop: AtomicBool,
    paused: AtomicBool,
    steps: AtomicU32,
    pub(crate) loading: Loading,
    pub(crate) playing: Playing,
}

/// The progress of the loader. Only the loader writes it.
#[derive(Debug, Default)]
pub(crate) struct Loading {
    /// The buffer is full, or the source has ended. The player may start.
    pub(crate) ready: AtomicBool,
    pub(crate) read: AtomicU64,
    pub(crate) brought: AtomicU64,
    /// Counts how often the loader began or stopped waiting for room. It is odd while the loader
    /// waits, and after its end.
    pub(crate) holds: AtomicU64,
    /// Recorded time of the item that was read last.
    pub(crate) position_ns: AtomicI64,
}

/// The progress of the player. Only the player writes it.
#[derive(Debug, Default)]
pub(crate) struct Playing {
    pub(crate) began: AtomicBool,
    pub(crate) played: AtomicU64,
    pub(crate) starved: AtomicU64,
    pub(crate) max_late_ns: AtomicU64,
    /// Fill level of the buffer, in thousandths.
    pub(crate) fill: AtomicU32,
    /// How far the loader was behind its curve when it first left the curve, or 0 if it never did.
    pub(crate) behind_ns: AtomicU64,
    pub(crate) first_ns: AtomicI64,
    /// Recorded time of the item that left last.
    pub(crate) position_ns: AtomicI64,
}

/// The progress of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// The number of items that were read from the source.
    pub read: u64,
    /// The number of items that left.
    pub played: u64,
    /// The number of items that were not yet in the buffer when they were due.
    pub starved: u64,
    /// The largest lateness so far, in ns.
    pub max_late_ns: u64,
    /// The fill level of the buffer, in thousandths.
    pub fill: u32,
    /// The recorded time since the first item, in ns.
    pub position_ns: i64,
    /// The recorded time that the buffer holds, in ns.
    pub ahead_ns: i64,
    /// The delay of the loader when it first left its curve, in ns. It is 0 if the loader never
    /// did.
    pub behind_ns: u64,
    /// The replay is paused until [`Control::go_on`] is called.
    pub paused: bool,
    /// The first item has become due.
    pub began: bool,
}

impl Control {
    /// Ends the replay. Items that are still in the buffer are not played.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Reports whether [`Control::stop`] was called.
    pub fn is_stopping(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Pauses the replay: no further items leave.
    pub fn pause(&self) {
        self.paused.store(true, Relaxed);
    }

    /// Continues after [`Control::pause`]. The following items keep their recorded distances.
    pub fn go_on(&self) {
        self.steps.store(0, Relaxed);
        self.paused.store(false, Relaxed);
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Relaxed)
    }

    /// Plays a single item while the replay is paused.
    pub fn step(&self) {
        self.steps.fetch_add(1, Relaxed);
    }

    pub(crate) fn take_step(&self) -> bool {
        self.steps
            .fetch_update(Relaxed, Relaxed, |steps| steps.checked_sub(1))
            .is_ok()
    }

    /// Returns the progress of the replay.
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
