//! Moves the bands of a plan while it is enforced, so that they follow the load (the thesis's
//! future work, section 6.2).
//!
//! The input is the time at which the output of each execution was ready, counted from the start of
//! its cycle. This time is known although the output is held back: without the plan the output
//! would have left then.
//!
//! - **The last slot** begins one buffer after the longest of the last executions. With a miss
//!   rate, it begins at the latency limit that the last executions give for this rate.
//! - **Raising** happens at once, when an output is ready within half of the buffer before the last
//!   slot (a near miss). After a miss, the slot also moves up by the range of the last executions
//!   (longest minus shortest): when the load grew by a step, its longest execution is at most that
//!   much longer.
//! - **Lowering** is slow. Each placement lowers the last slot by a quarter of the way, and only if
//!   2000 executions (6400 for a miss rate) support it.
//! - **The slots before the last one** are placed again every [`EVERY`] executions, where the
//!   average of the last [`RECENT`] ones is least ([`crate::bands`]). They move only if that makes
//!   the average shorter by [`LEAST_GAIN`]. Each half of the executions must confirm this with the
//!   slots placed for the other half, so a steady load moves nothing. If the last [`EVERY`]
//!   executions alone gain [`CLEAR_GAIN`], the earlier ones belong to another load and no longer
//!   count.
//! - **The plan's limits hold.** No slot begins after the end of the chain's slot, or ends after
//!   the deadline or the cycle. No slot is closer to its neighbour than its length. Every change
//!   passes [`crate::validate`].
//!
//! The memory is constant: a ring holds the last executions.

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

/// The number of executions of the chain between two placements of the bands.
pub const EVERY: usize = 200;

/// The number of the chain's latest executions whose times decide where the bands are placed.
pub const RECENT: usize = 4 * EVERY;

/// The number of latest blocks whose longest execution decides where the last slot begins, in plans
/// without a miss rate. A block has [`EVERY`] executions.
const LONGEST_BLOCKS: usize = 10;

/// The number of latest blocks whose executions decide where the last slot begins, in plans with a
/// miss rate. A block has [`EVERY`] executions.
const MISS_BLOCKS: usize = 32;

/// The smallest reduction of the average latency for which the slots move, as a share of the
/// present average latency.
pub const LEAST_GAIN: f64 = 0.02;

/// The load counts as changed if other slots would have made the average latency of the last
/// [`EVERY`] executions shorter by at least this share.
pub const CLEAR_GAIN: f64 = 0.1;

const LOWERING_PARTS: u64 = 4;

/// The last slot moves to an earlier time only if it moves by at least its start time divided by
/// this number.
const LEAST_LOWERING_PARTS: u64 = 50;

/// A plan whose slots for outputs move when the chain's execution times change.
#[derive(Debug, Clone)]
pub struct Adapt {
    plan: Plan,
    room: Room,
    window: Window,
    until_placed: usize,
    full_was_reported: bool,
}

impl Adapt {
    /// Starts to adapt the bands of `plan`. No slot will end later than `deadline_ns` after the
    /// start of its cycle.
    ///
    /// # Errors
    /// Fails if the plan has no bands that can move, or if a slot ends after the deadline.
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
            until_placed: EVERY,
            full_was_reported: false,
        })
    }

    /// Returns the plan with its current slots and bands.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the current slots of the outputs.
    pub fn slots(&self) -> &[Slot] {
        &self.plan.servers[self.room.server].slots_ms
    }

    /// Returns the latest end that any slot may get, in ns after the start of its cycle.
    pub fn latest_ns(&self) -> u64 {
        self.room.last_start_ns + self.room.slot_ns
    }

    /// Counts an execution whose output was ready `ready_ns` after the start of its cycle. Returns
    /// the change of the slots that this execution causes, if any.
    pub fn completed(&mut self, ready_ns: u64) -> Option<Change> {
        let last = self.last();
        let change = match ready_ns {
            r if r > last.1 .0 => self.raise_last_slot(ready_ns, true),
            r if r.saturating_add(self.half_buffer_ns()) > last.0 .0 => {
                self.raise_last_slot(ready_ns, false)
            }
            _ => None,
        };
        self.window.push(ready_ns);
        self.until_placed = self.until_placed.saturating_sub(1);
        if change.is_some() {
            return change;
        }
        if self.until_placed > 0 {
            return None;
        }
        self.until_placed = EVERY;
        self.place()
    }

    fn last(&self) -> Slot {
        self.slots().last().copied().unwrap_or(Slot(Ms(0), Ms(0)))
    }

    fn half_buffer_ns(&self) -> u64 {
        let start = self.last().0 .0;
        (buffered(start) - start) / 2
    }

    fn raise_last_slot(&mut self, ready_ns: u64, is_missed: bool) -> Option<Change> {
        let range = if is_missed { self.window.range() } else { 0 };
        let wanted = buffered(ready_ns.saturating_add(range));
        let start = wanted.min(self.room.last_start_ns);
        if start <= self.last().0 .0 {
            let is_new = !std::mem::replace(&mut self.full_was_reported, true);
            return is_new.then(|| self.unchanged(Reason::Full { ready_ns }));
        }
        let mut ends = self.ends();
        *ends.last_mut()? = start + self.room.slot_ns;
        if self.room.allowed_slots(&ends).is_none() {
            // The last slot is too far from its neighbour, so all slots move.
            ends = self.best_ends(&self.window.recent(), start)?;
        }
        let change = self.move_slots(&ends, Reason::raised(ready_ns, is_missed))?;
        if is_missed {
            // The earlier executions belong to another load.
            self.window.start_new_load();
            self.until_placed = EVERY;
        }
        Some(change)
    }

    fn place(&mut self) -> Option<Change> {
        let now = self.last().0 .0;
        let wanted = self.wanted_start_ns();
        let start = match wanted {
            Some(wanted) if wanted > now + self.half_buffer_ns() => {
                wanted.min(self.room.last_start_ns)
            }
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
        let is_possible = self.room.allowed_slots(&kept).is_some();
        let newest = self.window.halves_of(EVERY);
        if self.gain_of(newest, &kept, start) >= CLEAR_GAIN {
            self.window.keep_recent(EVERY);
        }
        let gain = self.gain_of(self.window.halves_of(RECENT), &kept, start);
        if gain < LEAST_GAIN && is_possible {
            return self.move_slots(&kept, reason?);
        }
        let ends = self.best_ends(&self.window.recent(), start)?;
        self.move_slots(&ends, reason.unwrap_or(Reason::Average { gain }))
    }

    fn wanted_start_ns(&self) -> Option<u64> {
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

    /// Returns the slot ends for which the average latency of the samples is the smallest if the
    /// last slot begins at `start_ns`. Returns `None` if the slots do not fit.
    fn best_ends(&self, samples: &Samples, start_ns: u64) -> Option<Vec<u64>> {
        let samples = samples.floored(self.room.first_start_ns).capped(start_ns);
        let limits = Constraints {
            slot_ns: self.room.slot_ns,
            epsilon_ns: start_ns.checked_sub(samples.worst_ns())?,
            liveliness_ns: self.room.liveliness_ns,
        };
        optimal(&samples, self.slots().len(), &limits).ok()
    }

    /// Returns the gain of the best slot ends over the slot ends `kept`, as a share of the average
    /// latency. Computes the best ends from one half of the samples and measures their gain in the
    /// other half, then exchanges the halves. Returns the smaller gain, so that ends that are
    /// better only by chance do not count.
    fn gain_of(&self, halves: (Samples, Samples), kept: &[u64], start_ns: u64) -> f64 {
        let (first, second) = halves;
        let of = |placed: &Samples, of: &Samples| {
            let ends = self.best_ends(placed, start_ns)?;
            Some(1.0 - average_ns(of, &ends) / average_ns(of, kept).max(1.0))
        };
        let both = of(&first, &second).zip(of(&second, &first));
        both.map_or(0.0, |(a, b)| a.min(b))
    }

    fn ends(&self) -> Vec<u64> {
        self.slots().iter().map(|slot| slot.1 .0).collect()
    }

    fn move_slots(&mut self, ends: &[u64], reason: Reason) -> Option<Change> {
        let slots = self.room.allowed_slots(ends)?;
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
        self.full_was_reported &= slots.last() >= before.last();
        Some(Change {
            slots,
            before,
            reason,
        })
    }

    fn unchanged(&self, reason: Reason) -> Change {
        Change {
            slots: self.slots().to_vec(),
            before: self.slots().to_vec(),
            reason,
        }
    }
}

fn lowered(now: u64, wanted: u64) -> u64 {
    let way = now.saturating_sub(wanted);
    let least = (now / LEAST_LOWERING_PARTS).max(buffered(wanted) - wanted);
    match way {
        way if way < least => now,
        way => now - (way / LOWERING_PARTS).max(least).min(way),
    }
}

#[cfg(test)]
mod tests;
