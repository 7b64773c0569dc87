//! The slots of all servers as one list of instants at which gates open and close. The functions
//! are pure.

use crate::server::Server;
use onbeat_time::{Cycle, MAX_CYCLE_NS};
use thiserror::Error;

#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TableError {
    #[error("a cycle of {0} ns is out of range. Give a cycle between 1 us and 24 h.")]
    Cycle(u64),
    #[error("gates would open {lead_ns} ns before their slots (the lead), which is too long for a cycle of {cycle_ns} ns. Give a lead of less than half the cycle.")]
    Lead { lead_ns: u64, cycle_ns: u64 },
    #[error("server {server:?}: slot {slot}, [{start_ns}, {end_ns}) ns, does not fit the cycle of {cycle_ns} ns. Let it start within the cycle, and end after its start, at most one cycle later.")]
    Slot {
        server: String,
        slot: usize,
        start_ns: u64,
        /// The end of the slot, in ns from the start of the cycle.
        end_ns: u64,
        cycle_ns: u64,
    },
}

/// An opening or closing of a gate.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// The time from the start of a round (one pass through the table) to this event, in ns. A
    /// round starts earlier than its cycle, by the lead time.
    pub offset_ns: u64,
    /// Is true if the gate opens. Gates that close at the same instant close first.
    pub open: bool,
    pub server: usize,
}

/// The slots of all servers within a cycle, as the openings and closings of gates in time order.
/// One pass through them is a *round*, which begins earlier than its cycle, by the lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    cycle: Cycle,
    lead_ns: u64,
    servers: usize,
    events: Box<[Event]>,
}

impl Table {
    /// Compiles the slots into a table. Gates open `lead_ns` before their slots. Slots of a server
    /// that touch or overlap, including the lead, become one. A server without slots, or with slots
    /// that cover the cycle, has no events: its gate is always open.
    pub fn new(cycle_ns: u64, lead_ns: u64, servers: &[Server]) -> Result<Table, TableError> {
        let cycle = Cycle::new(cycle_ns, 0)
            .filter(|c| (1_000..=MAX_CYCLE_NS).contains(&c.period_ns()))
            .ok_or(TableError::Cycle(cycle_ns))?;
        if lead_ns >= cycle_ns / 2 {
            return Err(TableError::Lead { lead_ns, cycle_ns });
        }
        let mut events = Vec::new();
        for (index, server) in servers.iter().enumerate() {
            for (start, end) in open_intervals(cycle_ns, lead_ns, server)? {
                for (at, open) in [(start, true), (end, false)] {
                    events.push(Event {
                        offset_ns: at % cycle_ns,
                        open,
                        server: index,
                    });
                }
            }
        }
        events.sort_unstable();
        Ok(Table {
            cycle,
            lead_ns,
            servers: servers.len(),
            events: events.into(),
        })
    }

    /// Returns the length of the cycle in ns, after which the slots repeat.
    pub fn cycle_ns(&self) -> u64 {
        self.cycle.period_ns()
    }

    /// Returns the time in ns by which a gate opens before its slot.
    pub fn lead_ns(&self) -> u64 {
        self.lead_ns
    }

    /// Returns the number of servers, including servers without a gate.
    pub fn servers(&self) -> usize {
        self.servers
    }

    /// Returns the openings and closings of a round in time order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns whether the server's gate ever closes. It does not close if the server has no slots,
    /// or if its slots cover the cycle.
    pub fn is_gated(&self, server: usize) -> bool {
        self.events.iter().any(|e| e.server == server)
    }

    /// Returns the longest time in ns for which a server's gate stays closed, or 0 for a server
    /// without a gate.
    pub(crate) fn longest_closed_ns(&self, server: usize) -> u64 {
        let own: Vec<&Event> = self.events.iter().filter(|e| e.server == server).collect();
        let until_next = |(i, e): (usize, &&Event)| {
            let next = own[(i + 1) % own.len()].offset_ns;
            (next + self.cycle_ns() - e.offset_ns - 1) % self.cycle_ns() + 1
        };
        let closes = own.iter().enumerate().filter(|(_, e)| !e.open);
        closes.map(until_next).max().unwrap_or(0)
    }

    /// Sets `open` for each gate to its state before the event with the index `next`.
    pub(crate) fn open_before(&self, next: usize, open: &mut [bool]) {
        open.fill(true);
        // The last event of each gate counts. The previous round ended as this one will.
        for event in self.events[next..].iter().chain(&self.events[..next]) {
            open[event.server] = event.open;
        }
    }

    fn rounds(&self, origin_ns: u64) -> Cycle {
        // The origin is reduced first, because it has no upper limit.
        let origin_ns = (origin_ns % self.cycle_ns()) as i64;
        self.cycle.with_origin(origin_ns - self.lead_ns as i64)
    }

    pub(crate) fn gap_ns(&self) -> u64 {
        match (self.events.first(), self.events.last()) {
            (Some(first), Some(last)) => self.cycle_ns() - last.offset_ns + first.offset_ns,
            _ => self.cycle_ns(),
        }
    }
}

/// Returns the intervals [start, end) in which the server's gate is open, as times since the start
/// of a round. The intervals are disjoint and ascending, and start within the cycle. The list is
/// empty if the gate is always open.
fn open_intervals(
    cycle_ns: u64,
    lead_ns: u64,
    server: &Server,
) -> Result<Vec<(u64, u64)>, TableError> {
    let mut intervals = Vec::new();
    for (slot, s) in server.slots.iter().enumerate() {
        if !s.fits(cycle_ns) || s.start_ns >= cycle_ns {
            return Err(TableError::Slot {
                server: server.name.clone(),
                slot,
                start_ns: s.start_ns,
                end_ns: s.end_ns,
                cycle_ns,
            });
        }
        // The round begins before the cycle by the lead. The start keeps its number, and the end
        // moves later.
        let end = s.end_ns + lead_ns;
        if end - s.start_ns >= cycle_ns {
            return Ok(Vec::new());
        }
        // An interval beyond the end of the cycle is split there.
        if end > cycle_ns {
            intervals.push((s.start_ns, cycle_ns));
            intervals.push((0, end - cycle_ns));
        } else {
            intervals.push((s.start_ns, end));
        }
    }
    Ok(joined(cycle_ns, intervals))
}

/// Joins intervals that touch or overlap, also around the end of the cycle. Returns an empty list
/// if they cover the cycle.
fn joined(cycle_ns: u64, mut intervals: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    intervals.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, end) in intervals {
        match joined.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    if joined == [(0, cycle_ns)] {
        return Vec::new();
    }
    if let [first, .., last] = joined[..] {
        if first.0 == 0 && last.1 == cycle_ns {
            joined.remove(0);
            joined.last_mut().expect("two at least").1 = cycle_ns + first.1;
        }
    }
    joined
}

/// A position in the sequence of the table's events, which repeats in each round.
///
/// Real-time safe: no method allocates or loops over more than the table's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    base_ns: i64,
    next: usize,
    behind_ns: i64,
}

impl Walk {
    /// Creates a walk at the position of `now_ns` in cycles that begin at `origin_ns`. Sets `open`
    /// for each gate to its state at `now_ns`.
    pub fn new(table: &Table, origin_ns: u64, now_ns: u64, open: &mut [bool]) -> Walk {
        let since = table.rounds(origin_ns).offset_ns(now_ns) as i64;
        let next = table
            .events
            .partition_point(|e| (e.offset_ns as i64) <= since);
        table.open_before(next, open);
        let mut walk = Walk {
            base_ns: now_ns as i64 - since,
            next,
            behind_ns: 0,
        };
        if next == table.events.len() {
            walk.begin_next_round(table, origin_ns);
        }
        walk
    }

    /// Returns the instant of the next event, or of the end of the round if the table is empty.
    pub fn next_ns(&self, table: &Table) -> u64 {
        let offset = table
            .events
            .get(self.next)
            .map_or(table.cycle_ns(), |e| e.offset_ns);
        self.at_ns(offset)
    }

    /// Returns the instant at which to wake up for the next event: `early_ns` (a function of the
    /// event's index) before the event. The walk stays before this event. Events of servers that
    /// `concerns` rejects are skipped, except the last event of the round.
    pub fn wake_ns(
        &self,
        table: &Table,
        concerns: impl Fn(usize) -> bool,
        early_ns: impl Fn(usize) -> u64,
    ) -> u64 {
        let last = table.events.len().saturating_sub(1);
        let coming = table.events.iter().enumerate().skip(self.next);
        let next = coming
            .filter(|(i, e)| *i == last || concerns(e.server))
            .map(|(i, e)| self.at_ns(e.offset_ns).saturating_sub(early_ns(i)))
            .next();
        next.unwrap_or_else(|| self.next_ns(table))
    }

    /// Returns the index in the table of the event that comes next.
    pub fn next_event(&self) -> usize {
        self.next
    }

    fn at_ns(&self, offset_ns: u64) -> u64 {
        (self.base_ns + offset_ns as i64).max(0) as u64
    }

    /// Takes the next event, and returns whether a round ended with it. Between two rounds, the
    /// starts of the cycles shift towards `origin_ns` in the shorter direction, by at most half the
    /// gap between the last event of one round and the first of the next. The order and the number
    /// of events therefore stay the same, and no slot loses more than half its length.
    pub fn advance(&mut self, table: &Table, origin_ns: u64) -> (Option<Event>, bool) {
        let event = table.events.get(self.next).copied();
        self.next += 1;
        let ended = self.next >= table.events.len();
        if ended {
            self.begin_next_round(table, origin_ns);
        }
        (event, ended)
    }

    /// Skips the whole rounds that lie before `now_ns`, and returns their number.
    pub fn catch_up(&mut self, table: &Table, now_ns: u64) -> u64 {
        let late = (now_ns as i64 - self.next_ns(table) as i64).max(0);
        let rounds = late / table.cycle_ns() as i64;
        self.base_ns += rounds * table.cycle_ns() as i64;
        rounds as u64
    }

    /// Returns the shift of the cycles in ns that was asked for last and that is not done yet.
    pub fn behind_ns(&self) -> i64 {
        self.behind_ns
    }

    /// Returns the start of the current round in ns (CLOCK_MONOTONIC).
    pub fn base_ns(&self) -> u64 {
        self.base_ns.max(0) as u64
    }

    /// Replaces the table by another one with the same cycle. The next event is the first of the
    /// new table in the current round. Sets `open` for each gate to its state at the start of this
    /// round.
    pub fn swap(&mut self, table: &Table, open: &mut [bool]) {
        table.open_before(0, open);
        self.next = 0;
    }

    fn begin_next_round(&mut self, table: &Table, origin_ns: u64) {
        let wanted = table.rounds(origin_ns);
        let nominal = self.base_ns + table.cycle_ns() as i64;
        let shift = wanted.with_origin(nominal).deviation_ns(wanted.origin_ns());
        let most = table.gap_ns() as i64 / 2;
        let step = shift.clamp(-most, most);
        self.behind_ns = shift - step;
        self.base_ns = nominal + step;
        self.next = 0;
    }
}
