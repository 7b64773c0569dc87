//! Bands that follow the load (the thesis's future work, section 6.2): the edges of a plan's bands are
//! placed again from the executions that run now. Values in, values out: no clock, no thread.
//!
//! What comes in is when each execution's output was ready, counted from the start of its cycle. It
//! is known although the output is held back: without the plan it would have left then.
//!
//! - **The last slot** begins behind the longest of the last executions and the plan's buffer, or at
//!   their limit for the plan's miss rate. It is *raised at once* when an output is ready within half of
//!   the buffer before it (a near miss). After a miss it is raised by the range of the last executions
//!   too: a load that got longer by a step has its longest execution no further behind any other. It is
//!   *lowered slowly*, by a quarter of the way each time the bands are placed, and not before 2000
//!   executions (6400 for a miss rate) say so.
//! - **The other edges** are placed again every [`EVERY`] executions, where the average is least for the
//!   last [`RECENT`] ones ([`crate::bands`]). They stay unless that makes the average shorter by
//!   [`LEAST_GAIN`], in each half of these executions with the edges of the other half: a load that
//!   stays as it is moves nothing. If the last [`EVERY`] alone ask for it by [`CLEAR_GAIN`], those before
//!   them were another load, and no longer count.
//! - **Never beyond what the plan gives:** no slot begins after the end of the chain's slot or ends after
//!   the deadline or the cycle, or closer to its neighbour than its length; and every change passes
//!   [`crate::validate`].
//!
//! The memory is constant: the last executions in a ring.

mod change;
mod room;
mod window;

pub use change::{Change, Reason};
pub use room::AdaptError;

use crate::bands::{average_ns, optimal, shares, Constraints, Samples};
use crate::make::{buffered, millionths};
use crate::schema::{Band, Ms, Plan, Slot};
use room::Room;
use window::Window;

/// The bands are placed again after so many executions.
pub const EVERY: usize = 200;

/// From so many last executions.
pub const RECENT: usize = 4 * EVERY;

/// The longest counts of so many times [`EVERY`] executions.
const LONGEST_BLOCKS: usize = 10;

/// As many for a miss rate, which fewer do not carry.
const MISS_BLOCKS: usize = 32;

/// Edges move if the average gets shorter by this share.
pub const LEAST_GAIN: f64 = 0.02;

/// By this share the last [`EVERY`] executions show another load.
pub const CLEAR_GAIN: f64 = 0.1;

/// The last slot is lowered by one in so many parts of the way at a time.
const SLOWLY: u64 = 4;

/// It is lowered if the way is this part of it at least.
const LEAST_WAY: u64 = 50;

/// A plan whose bands follow the load.
#[derive(Debug, Clone)]
pub struct Adapt {
    /// With the slots of now.
    plan: Plan,
    room: Room,
    window: Window,
    /// Executions until the bands are placed again.
    left: usize,
    /// Whether it was told that there is no room above.
    is_full: bool,
}

impl Adapt {
    /// Begins with the plan's slots. No slot ends after `deadline_ns` in its cycle.
    ///
    /// # Errors
    /// If the plan has no bands that could move, or the deadline lies before its slots.
    pub fn new(plan: &Plan, deadline_ns: Option<u64>) -> Result<Adapt, AdaptError> {
        let room = Room::of(plan, deadline_ns)?;
        let blocks = match room.miss {
            Some(_) => MISS_BLOCKS,
            None => LONGEST_BLOCKS,
        };
        Ok(Adapt {
            plan: plan.clone(),
            room,
            window: Window::new(blocks * EVERY, RECENT),
            left: EVERY,
            is_full: false,
        })
    }

    /// The plan with the slots and bands of now.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The slots of the outputs now.
    pub fn slots(&self) -> &[Slot] {
        &self.plan.servers[self.room.server].slots_ms
    }

    /// No slot ever ends later than this in its cycle, ns.
    pub fn latest_ns(&self) -> u64 {
        self.room.last_start_ns + self.room.slot_ns
    }

    /// An execution's output was ready `ready_ns` after the start of its cycle. The change that
    /// follows; the slots are the new ones then.
    pub fn completed(&mut self, ready_ns: u64) -> Option<Change> {
        let last = self.last();
        let change = match ready_ns {
            r if r > last.1 .0 => self.raise(ready_ns, true),
            r if r.saturating_add(self.guard_ns()) > last.0 .0 => self.raise(ready_ns, false),
            _ => None,
        };
        self.window.push(ready_ns);
        self.left = self.left.saturating_sub(1);
        if change.is_some() {
            return change;
        }
        if self.left > 0 {
            return None;
        }
        self.left = EVERY;
        self.place()
    }

    fn last(&self) -> Slot {
        self.slots().last().copied().unwrap_or(Slot(Ms(0), Ms(0)))
    }

    /// Half of the buffer before the last slot.
    fn guard_ns(&self) -> u64 {
        let start = self.last().0 .0;
        (buffered(start) - start) / 2
    }

    /// The last slot moves behind an output that was ready too late, or nearly.
    fn raise(&mut self, ready_ns: u64, is_missed: bool) -> Option<Change> {
        let range = if is_missed { self.window.range() } else { 0 };
        let wanted = buffered(ready_ns.saturating_add(range));
        let start = wanted.min(self.room.last_start_ns);
        if start <= self.last().0 .0 {
            let is_new = !std::mem::replace(&mut self.is_full, true);
            return is_new.then(|| self.stays(Reason::Full { ready_ns }));
        }
        let mut ends = self.ends();
        *ends.last_mut()? = start + self.room.slot_ns;
        if self.room.slots(&ends).is_none() {
            // Too far from its neighbour: all of them move.
            ends = self.optimum(&self.window.recent(), start)?;
        }
        let change = self.set(&ends, Reason::raised(ready_ns, is_missed))?;
        if is_missed {
            // What ran before was another load.
            self.window.begin_anew();
            self.left = EVERY;
        }
        Some(change)
    }

    /// Places the bands for the last executions.
    fn place(&mut self) -> Option<Change> {
        let now = self.last().0 .0;
        let wanted = self.wanted_ns();
        let start = match wanted {
            Some(wanted) if wanted > now + self.guard_ns() => wanted.min(self.room.last_start_ns),
            Some(wanted) => lowered(now, wanted),
            None => now,
        };
        let reason = match (start, wanted) {
            (s, Some(wanted)) if s != now => Some(Reason::Longest {
                wanted_ns: wanted,
                by_miss_rate: self.room.miss.is_some(),
            }),
            _ => None,
        };
        let mut kept = self.ends();
        *kept.last_mut()? = start + self.room.slot_ns;
        let is_possible = self.room.slots(&kept).is_some();
        let newest = self.window.halves_of(EVERY);
        if self.gain_of(newest, &kept, start) >= CLEAR_GAIN {
            self.window.keep_recent(EVERY);
        }
        let gain = self.gain_of(self.window.halves_of(RECENT), &kept, start);
        if gain < LEAST_GAIN && is_possible {
            return self.set(&kept, reason?);
        }
        let ends = self.optimum(&self.window.recent(), start)?;
        self.set(&ends, reason.unwrap_or(Reason::Average { gain }))
    }

    /// Where the last slot should begin for the last executions. `None`: they are too few to say so.
    fn wanted_ns(&self) -> Option<u64> {
        if !self.window.is_full() {
            return None;
        }
        let longest = buffered(self.window.longest());
        match self.room.miss {
            None => Some(longest),
            Some(rate) => {
                let limit = self.window.profile(EVERY).limit(rate).ok()?;
                Some(buffered(limit.ns).max(longest))
            }
        }
    }

    /// The best ends for these executions, the last slot beginning at `start_ns`. `None`: they do not
    /// fit.
    fn optimum(&self, samples: &Samples, start_ns: u64) -> Option<Vec<u64>> {
        let samples = samples.floored(self.room.first_start_ns).capped(start_ns);
        let limits = Constraints {
            slot_ns: self.room.slot_ns,
            epsilon_ns: start_ns.checked_sub(samples.worst_ns())?,
            liveliness_ns: self.room.liveliness_ns,
        };
        optimal(&samples, self.slots().len(), &limits).ok()
    }

    /// By which share the best ends make the average shorter than these: of each half of executions,
    /// with the ends that are best for the other half, the smaller one. Ends that are best for the
    /// executions that they were placed for by chance alone gain nothing there.
    fn gain_of(&self, halves: (Samples, Samples), kept: &[u64], start_ns: u64) -> f64 {
        let (first, second) = halves;
        let of = |placed: &Samples, of: &Samples| {
            let ends = self.optimum(placed, start_ns)?;
            Some(1.0 - average_ns(of, &ends) / average_ns(of, kept).max(1.0))
        };
        let both = of(&first, &second).zip(of(&second, &first));
        both.map_or(0.0, |(a, b)| a.min(b))
    }

    fn ends(&self) -> Vec<u64> {
        self.slots().iter().map(|slot| slot.1 .0).collect()
    }

    /// Moves the slots, if the plan's own checks let them.
    fn set(&mut self, ends: &[u64], reason: Reason) -> Option<Change> {
        let slots = self.room.slots(ends)?;
        let before = self.slots().to_vec();
        if slots == before {
            return None;
        }
        let mut plan = self.plan.clone();
        plan.servers[self.room.server].slots_ms.clone_from(&slots);
        let shares = shares(&self.window.recent(), ends);
        let band = |(&latency_ms, share): (&Slot, f64)| Band {
            latency_ms,
            share: millionths(share.clamp(0.0, 1.0)),
        };
        plan.promises.bands = slots.iter().zip(shares).map(band).collect();
        crate::validate(&plan).ok()?;
        self.plan = plan;
        self.is_full &= slots.last() >= before.last();
        Some(Change {
            slots,
            before,
            reason,
        })
    }

    /// Nothing moves, and that is worth telling.
    fn stays(&self, reason: Reason) -> Change {
        Change {
            slots: self.slots().to_vec(),
            before: self.slots().to_vec(),
            reason,
        }
    }
}

/// Where the last slot begins next on its way down.
fn lowered(now: u64, wanted: u64) -> u64 {
    let way = now.saturating_sub(wanted);
    let least = (now / LEAST_WAY).max(buffered(wanted) - wanted);
    match way {
        way if way < least => now,
        way => now - (way / SLOWLY).max(least).min(way),
    }
}

#[cfg(test)]
mod tests;
