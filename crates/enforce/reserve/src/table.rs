//! Servers' slots as one list of instants at which gates open and close. Pure.

use crate::server::Server;
use onbeat_time::{Cycle, MAX_CYCLE_NS};
use thiserror::Error;

/// Why slots and cycle do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TableError {
    /// The cycle is too short or too long.
    #[error("the cycle is {0} ns long: give a cycle between 1 us and 24 h")]
    Cycle(u64),
    /// The lead is half the cycle or longer.
    #[error("gates would open {lead_ns} ns before their slots in a cycle of {cycle_ns} ns: the lead must be shorter than half the cycle")]
    Lead {
        /// The refused lead.
        lead_ns: u64,
        /// Length of the cycle.
        cycle_ns: u64,
    },
    /// A slot ends before it starts, starts beyond the cycle or is longer than it.
    #[error("server {server:?}: slot {slot} is [{start_ns}, {end_ns}) ns in a cycle of {cycle_ns} ns: a slot starts within the cycle and ends after its start, at most a cycle later")]
    Slot {
        /// The server's name.
        server: String,
        /// Index of the slot.
        slot: usize,
        /// Its start within the cycle.
        start_ns: u64,
        /// Its end within the cycle.
        end_ns: u64,
        /// Length of the cycle.
        cycle_ns: u64,
    },
}

/// A gate opens or closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// Time from the start of the round, which is the lead before the start of the cycle.
    pub offset_ns: u64,
    /// Whether the gate opens. At one instant, gates close before others open.
    pub open: bool,
    /// Index of the server.
    pub server: usize,
}

/// All servers' slots within a cycle. One run through its events is a *round*: it begins the lead
/// before its cycle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Cycles of which one begins at 0.
    cycle: Cycle,
    lead_ns: u64,
    servers: usize,
    events: Box<[Event]>,
}

impl Table {
    /// Compiles the slots. Gates open `lead_ns` before their slots. Slots of a server that touch or
    /// overlap (with the lead) become one. A server without slots, or whose slots cover the cycle,
    /// has no events: its gate is always open.
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

    /// Length of the cycle.
    pub fn cycle_ns(&self) -> u64 {
        self.cycle.period_ns()
    }

    /// How long before its slot a gate opens.
    pub fn lead_ns(&self) -> u64 {
        self.lead_ns
    }

    /// Number of servers.
    pub fn servers(&self) -> usize {
        self.servers
    }

    /// The events of a round, in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Whether the server has a gate that ever closes.
    pub fn is_gated(&self, server: usize) -> bool {
        self.events.iter().any(|e| e.server == server)
    }

    /// The longest time that a server's gate is closed at a stretch; 0 for one without a gate.
    pub(crate) fn longest_closed_ns(&self, server: usize) -> u64 {
        let own: Vec<&Event> = self.events.iter().filter(|e| e.server == server).collect();
        let until_next = |(i, e): (usize, &&Event)| {
            let next = own[(i + 1) % own.len()].offset_ns;
            (next + self.cycle_ns() - e.offset_ns - 1) % self.cycle_ns() + 1
        };
        let closes = own.iter().enumerate().filter(|(_, e)| !e.open);
        closes.map(until_next).max().unwrap_or(0)
    }

    /// Sets `open` for each gate that is open before this event.
    pub(crate) fn open_before(&self, next: usize, open: &mut [bool]) {
        open.fill(true);
        // The last event of each gate: the round before ended as this one will.
        for event in self.events[next..].iter().chain(&self.events[..next]) {
            open[event.server] = event.open;
        }
    }

    /// The rounds of cycles of which one begins at `origin_ns`.
    fn rounds(&self, origin_ns: u64) -> Cycle {
        // Reduced first: an origin has no upper limit.
        let origin_ns = (origin_ns % self.cycle_ns()) as i64;
        self.cycle.with_origin(origin_ns - self.lead_ns as i64)
    }

    /// Time between a round's last event and the next round's first.
    pub(crate) fn gap_ns(&self) -> u64 {
        match (self.events.first(), self.events.last()) {
            (Some(first), Some(last)) => self.cycle_ns() - last.offset_ns + first.offset_ns,
            _ => self.cycle_ns(),
        }
    }
}

/// When the server's gate is open, as [start, end) since the start of a round: disjoint, ascending,
/// starts within the cycle. Empty if it is always open.
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
        // The round begins the lead before the cycle: the start keeps its number, the end is later.
        let end = s.end_ns + lead_ns;
        if end - s.start_ns >= cycle_ns {
            return Ok(Vec::new());
        }
        // Cut at the end of the cycle.
        if end > cycle_ns {
            intervals.push((s.start_ns, cycle_ns));
            intervals.push((0, end - cycle_ns));
        } else {
            intervals.push((s.start_ns, end));
        }
    }
    Ok(joined(cycle_ns, intervals))
}

/// Joins intervals that touch or overlap, also around the end of the cycle. Empty if they cover it.
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

/// A position in the table and in time. Events come in the table's order for ever, each once in a
/// round.
///
/// Real-time safe: no method allocates or loops over more than the table's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    /// Start of the current round.
    base_ns: i64,
    /// Index of the next event.
    next: usize,
    /// How far the current round is from the wanted phase.
    behind_ns: i64,
}

impl Walk {
    /// The position at the instant `now_ns`, in phase with cycles of which one begins at
    /// `origin_ns`. Sets
    /// `open` for each gate that is open then.
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
            walk.turn(table, origin_ns);
        }
        walk
    }

    /// Instant of the next event; of the round's end if the table is empty.
    pub fn next_ns(&self, table: &Table) -> u64 {
        let offset = table
            .events
            .get(self.next)
            .map_or(table.cycle_ns(), |e| e.offset_ns);
        self.at_ns(offset)
    }

    /// When the next of these events is due, without taking one, this much before its instant: the
    /// events of servers that `concerns` leaves out wait for the next one that it does not, or for
    /// the last of the round.
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

    /// Index of the next event.
    pub fn next_event(&self) -> usize {
        self.next
    }

    fn at_ns(&self, offset_ns: u64) -> u64 {
        (self.base_ns + offset_ns as i64).max(0) as u64
    }

    /// Takes the next event. Also returns whether a round ended with it. Between two rounds the
    /// phase moves towards `origin_ns`, in the shorter direction, by at most half the time between
    /// their events. So order and number of events stay the same, and no slot loses more than half
    /// its length.
    pub fn advance(&mut self, table: &Table, origin_ns: u64) -> (Option<Event>, bool) {
        let event = table.events.get(self.next).copied();
        self.next += 1;
        let ended = self.next >= table.events.len();
        if ended {
            self.turn(table, origin_ns);
        }
        (event, ended)
    }

    /// Skips the whole rounds that lie before `now_ns`, and returns how many.
    pub fn catch_up(&mut self, table: &Table, now_ns: u64) -> u64 {
        let late = (now_ns as i64 - self.next_ns(table) as i64).max(0);
        let rounds = late / table.cycle_ns() as i64;
        self.base_ns += rounds * table.cycle_ns() as i64;
        rounds as u64
    }

    /// How far the current round is from the phase of the origin that was given last, ns.
    pub fn behind_ns(&self) -> i64 {
        self.behind_ns
    }

    /// Start of the current round.
    pub fn base_ns(&self) -> u64 {
        self.base_ns.max(0) as u64
    }

    /// Goes on with another table of the same cycle, from the start of the current round. Sets `open`
    /// for each gate that is open then.
    pub fn swap(&mut self, table: &Table, open: &mut [bool]) {
        table.open_before(0, open);
        self.next = 0;
    }

    /// Begins the next round.
    fn turn(&mut self, table: &Table, origin_ns: u64) {
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
