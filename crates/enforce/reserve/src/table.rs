//! Servers' slots as one list of instants at which gates open and close. Pure: values in, values out.

use onbeat_plan::schema::Server;
use thiserror::Error;

/// Why servers make no table.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TableError {
    /// A cycle without length.
    #[error("the cycle is {0} ns long: give a cycle between 1 us and 24 h")]
    Cycle(u64),
    /// A gate would open too early.
    #[error("gates would open {lead_ns} ns before their slots in a cycle of {cycle_ns} ns: the lead must be shorter than half the cycle")]
    Lead {
        /// As it was given.
        lead_ns: u64,
        /// As it was given.
        cycle_ns: u64,
    },
    /// A slot that ends before it starts, or starts beyond the cycle.
    #[error("server {server:?}: slot {slot} is [{start_ns}, {end_ns}) ns in a cycle of {cycle_ns} ns: a slot starts within the cycle and ends after its start, at most a cycle later")]
    Slot {
        /// The server's name.
        server: String,
        /// Its number, from 0.
        slot: usize,
        /// As it was given.
        start_ns: u64,
        /// As it was given.
        end_ns: u64,
        /// As it was given.
        cycle_ns: u64,
    },
}

const DAY_NS: u64 = 24 * 3600 * 1_000_000_000;

/// A gate opens or closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// Since the beginning of the round, which lies the lead before the cycle's origin.
    pub offset_ns: u64,
    /// Whether the gate opens. What closes at an instant comes before what opens at it.
    pub open: bool,
    /// Index of the server.
    pub server: usize,
}

/// All servers' slots within a cycle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    cycle_ns: u64,
    lead_ns: u64,
    servers: usize,
    events: Box<[Event]>,
}

impl Table {
    /// Compiles the slots. Gates open `lead_ns` before their slots. Slots of a server that touch or
    /// overlap (with the lead) are one slot. A server without slots, or whose slots cover the cycle,
    /// has no events: its gate is always open.
    pub fn new(cycle_ns: u64, lead_ns: u64, servers: &[Server]) -> Result<Table, TableError> {
        if !(1_000..=DAY_NS).contains(&cycle_ns) {
            return Err(TableError::Cycle(cycle_ns));
        }
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
            cycle_ns,
            lead_ns,
            servers: servers.len(),
            events: events.into(),
        })
    }

    /// Length of the cycle.
    pub fn cycle_ns(&self) -> u64 {
        self.cycle_ns
    }

    /// Number of servers.
    pub fn servers(&self) -> usize {
        self.servers
    }

    /// What happens in a round, in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Whether the server has a gate that ever closes.
    pub fn is_gated(&self, server: usize) -> bool {
        self.events.iter().any(|e| e.server == server)
    }

    /// Time between a round's last event and the next round's first.
    fn gap_ns(&self) -> u64 {
        match (self.events.first(), self.events.last()) {
            (Some(first), Some(last)) => self.cycle_ns - last.offset_ns + first.offset_ns,
            _ => self.cycle_ns,
        }
    }
}

/// When the server's gate is open, as [start, end) since the round's beginning: disjoint, ascending,
/// starts within the cycle. Empty where it is always open.
fn open_intervals(
    cycle_ns: u64,
    lead_ns: u64,
    server: &Server,
) -> Result<Vec<(u64, u64)>, TableError> {
    let mut intervals = Vec::new();
    for (slot, s) in server.slots_ms.iter().enumerate() {
        let (start_ns, end_ns) = (s.0 .0, s.1 .0);
        let fits = start_ns < end_ns && start_ns < cycle_ns && end_ns - start_ns <= cycle_ns;
        if !fits {
            return Err(TableError::Slot {
                server: server.name.clone(),
                slot,
                start_ns,
                end_ns,
                cycle_ns,
            });
        }
        // The round begins the lead before the cycle: the start keeps its number, the end is later.
        let end = end_ns + lead_ns;
        if end - start_ns >= cycle_ns {
            return Ok(Vec::new());
        }
        if end > cycle_ns {
            intervals.push((start_ns, cycle_ns));
            intervals.push((0, end - cycle_ns));
        } else {
            intervals.push((start_ns, end));
        }
    }
    intervals.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, end) in intervals {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    if merged == [(0, cycle_ns)] {
        return Ok(Vec::new());
    }
    // What was cut at the cycle's end is one again.
    if let [first, .., last] = merged[..] {
        if first.0 == 0 && last.1 == cycle_ns {
            merged.remove(0);
            merged.last_mut().expect("two at least").1 = cycle_ns + first.1;
        }
    }
    Ok(merged)
}

/// A place in the table and in time. Events come in the table's order for ever, each once in a round.
///
/// No method allocates or loops over more than the table's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    /// Instant at which the current round began.
    base_ns: i64,
    /// Index of the next event.
    next: usize,
    /// What the last boundary left of the way to the wanted phase.
    behind_ns: i64,
}

impl Walk {
    /// The place of the instant `now_ns`, in phase with cycles of which one begins at `origin_ns`.
    /// Says through `open` which gates are open then.
    pub fn new(table: &Table, origin_ns: u64, now_ns: u64, open: &mut [bool]) -> Walk {
        let cycle = table.cycle_ns as i64;
        let since = (now_ns as i64 - phase(table, origin_ns)).rem_euclid(cycle);
        let next = table
            .events
            .partition_point(|e| (e.offset_ns as i64) <= since);
        open.fill(true);
        // The last thing that happened to each: the round before ends as this one will.
        for event in table.events[next..].iter().chain(&table.events[..next]) {
            open[event.server] = event.open;
        }
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

    /// Instant of the next event (of the round's end where the table is empty).
    pub fn next_ns(&self, table: &Table) -> u64 {
        let offset = table
            .events
            .get(self.next)
            .map_or(table.cycle_ns, |e| e.offset_ns);
        (self.base_ns + offset as i64).max(0) as u64
    }

    /// Takes the next event, and says whether a round ended with it. Between two rounds the phase
    /// moves towards `origin_ns`, the shorter way, by at most half the time between their events: so
    /// order and number of events stay as they are, and no slot loses more than half its length.
    pub fn advance(&mut self, table: &Table, origin_ns: u64) -> (Option<Event>, bool) {
        let event = table.events.get(self.next).copied();
        self.next += 1;
        let ended = self.next >= table.events.len();
        if ended {
            self.turn(table, origin_ns);
        }
        (event, ended)
    }

    /// Leaves out as many whole rounds as lie before `now_ns`, and says how many.
    pub fn catch_up(&mut self, table: &Table, now_ns: u64) -> u64 {
        let late = (now_ns as i64 - self.next_ns(table) as i64).max(0);
        let rounds = late / table.cycle_ns as i64;
        self.base_ns += rounds * table.cycle_ns as i64;
        rounds as u64
    }

    /// How far the phase still is from the origin that was last given, after the last boundary.
    pub fn behind_ns(&self) -> i64 {
        self.behind_ns
    }

    fn turn(&mut self, table: &Table, origin_ns: u64) {
        let cycle = table.cycle_ns as i64;
        let nominal = self.base_ns + cycle;
        let mut shift = (phase(table, origin_ns) - nominal).rem_euclid(cycle);
        if shift > cycle / 2 {
            shift -= cycle;
        }
        let most = table.gap_ns() as i64 / 2;
        let step = shift.clamp(-most, most);
        self.behind_ns = shift - step;
        self.base_ns = nominal + step;
        self.next = 0;
    }
}

/// Where rounds begin, as an instant within the cycle.
fn phase(table: &Table, origin_ns: u64) -> i64 {
    let cycle = table.cycle_ns as i64;
    ((origin_ns % table.cycle_ns) as i64 - table.lead_ns as i64).rem_euclid(cycle)
}
