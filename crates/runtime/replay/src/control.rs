//! What the threads of a replay share with who watches it: requests one way, figures the other.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Requests to a running replay, and how far it is. Atomics only.
#[derive(Debug, Default)]
pub struct Control {
    stop: AtomicBool,
    paused: AtomicBool,
    steps: AtomicU32,
    pub(crate) loading: Loading,
    pub(crate) playing: Playing,
}

/// How far the loader is. Only the loader writes it.
#[derive(Debug, Default)]
pub(crate) struct Loading {
    /// The buffer is full, or the source has ended: playing can begin.
    pub(crate) ready: AtomicBool,
    pub(crate) read: AtomicU64,
    /// Packed bytes that the loader has brought.
    pub(crate) brought: AtomicU64,
    /// How often the loader has begun or ended to wait for room: odd while it waits, or when it has ended.
    pub(crate) holds: AtomicU64,
    /// Recorded time of the item that was read last.
    pub(crate) position_ns: AtomicI64,
}

/// How far the player is. Only the player writes it.
#[derive(Debug, Default)]
pub(crate) struct Playing {
    pub(crate) began: AtomicBool,
    pub(crate) played: AtomicU64,
    pub(crate) starved: AtomicU64,
    pub(crate) max_late_ns: AtomicU64,
    /// Fill level of the buffer, in thousandths.
    pub(crate) fill: AtomicU32,
    /// How far the loader is behind its curve, when it was so for the first time; 0: it never was.
    pub(crate) behind_ns: AtomicU64,
    /// Recorded time of the first item.
    pub(crate) first_ns: AtomicI64,
    /// Recorded time of the item that left last.
    pub(crate) position_ns: AtomicI64,
}

/// How far a replay is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// Items read from the source.
    pub read: u64,
    /// Items that left.
    pub played: u64,
    /// Items that were not in the buffer when they were due.
    pub starved: u64,
    /// The largest lateness, in ns.
    pub max_late_ns: u64,
    /// Fill level of the buffer, in thousandths.
    pub fill: u32,
    /// Recorded time since the first item, in ns.
    pub position_ns: i64,
    /// Recorded time that is in the buffer, in ns.
    pub ahead_ns: i64,
    /// By how much the loader was behind its curve when it left it, in ns; 0: it has not.
    pub behind_ns: u64,
    /// It waits for [`Control::go_on`].
    pub paused: bool,
    /// The first item was due.
    pub began: bool,
}

impl Control {
    /// Ends the replay: what is in the buffer does not leave any more.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Whether it is to end.
    pub fn is_stopping(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Holds the next items back.
    pub fn pause(&self) {
        self.paused.store(true, Relaxed);
    }

    /// Goes on after [`Control::pause`]: the distances of items are as recorded.
    pub fn go_on(&self) {
        self.steps.store(0, Relaxed);
        self.paused.store(false, Relaxed);
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Relaxed)
    }

    /// Lets one item go while it is paused.
    pub fn step(&self) {
        self.steps.fetch_add(1, Relaxed);
    }

    /// Takes a step, if there is one.
    pub(crate) fn take_step(&self) -> bool {
        self.steps
            .fetch_update(Relaxed, Relaxed, |steps| steps.checked_sub(1))
            .is_ok()
    }

    /// How far it is.
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
    /// The loader begins or ends to wait for room.
    pub(crate) fn hold(&self) {
        self.holds.fetch_add(1, Relaxed);
    }
}
