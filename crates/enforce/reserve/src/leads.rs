//! Decides how long before its instant the dispatcher begins to open or close a gate, from the
//! delays of its earlier moves.
//!
//! A delay is the time from the requested wake-up until the gate has moved: the lateness plus the
//! cost of the move. The lead covers nine of ten of the last 128 delays, so that a gate has moved
//! at its instant and not long before. The lead is limited. A slot ends early by at most a
//! sixteenth of its length. Real-time safe: nothing allocates after the creation.

use crate::table::{Event, Table};
use onbeat_time::Lead;

pub(crate) const CAP_NS: u64 = 100_000;
const COVERED_DELAYS_PER_MILLE: usize = 900;
/// The dispatcher ends a slot early by at most 1 / `PART` of the slot's length.
const PART: u64 = 16;

pub(crate) struct Leads {
    opening: Lead,
    closing: Lead,
    given_ns: u64,
}

impl Leads {
    pub(crate) fn new(given_ns: u64) -> Leads {
        Leads {
            opening: Lead::new(COVERED_DELAYS_PER_MILLE, given_ns, (0, CAP_NS)),
            closing: Lead::new(COVERED_DELAYS_PER_MILLE, 0, (0, CAP_NS)),
            given_ns,
        }
    }

    /// Returns how many ns before an event's instant the dispatcher begins this event. The run time
    /// of the call grows with the number of events in the table.
    pub(crate) fn early_ns(&self, table: &Table, event: usize) -> u64 {
        match table.events().get(event) {
            None => 0,
            Some(Event { open: true, .. }) => self.opening.ns().saturating_sub(self.given_ns),
            Some(_) => self.closing.ns().min(length_ns(table, event) / PART),
        }
    }

    pub(crate) fn moved(&mut self, open: bool, delay_ns: u64) {
        match open {
            true => self.opening.record(delay_ns),
            false => self.closing.record(delay_ns),
        }
    }

    pub(crate) fn now_ns(&self) -> (u64, u64) {
        (self.opening.ns().max(self.given_ns), self.closing.ns())
    }
}

fn length_ns(table: &Table, at: usize) -> u64 {
    let events = table.events();
    let end = events[at];
    let begins = events.iter().filter(|e| e.open && e.server == end.server);
    let lengths = begins.map(|b| match b.offset_ns < end.offset_ns {
        true => end.offset_ns - b.offset_ns,
        false => table.cycle_ns() - b.offset_ns + end.offset_ns,
    });
    lengths.min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;
    use onbeat_time::Slot;

    const US: u64 = 1_000;

    fn leads(slots: &[(u64, u64)]) -> (Table, Leads) {
        let server = Server {
            name: "s".into(),
            cpu: 0,
            priority: 1,
            slots: slots.iter().map(|s| Slot::new(s.0, s.1)).collect(),
        };
        let table = Table::new(100_000 * US, 50 * US, &[server]).unwrap();
        let leads = Leads::new(50 * US);
        (table, leads)
    }

    #[test]
    fn a_gate_opens_and_closes_early_by_its_usual_delay_up_to_a_limit() {
        let (table, mut leads) = leads(&[(10_000 * US, 20_000 * US)]);
        assert_eq!(
            (leads.early_ns(&table, 0), leads.early_ns(&table, 1)),
            (0, 0)
        );
        for _ in 0..10 {
            leads.moved(true, 40 * US);
            leads.moved(false, 40 * US);
        }
        // The table opens 50 us early anyway.
        assert_eq!(
            (leads.early_ns(&table, 0), leads.early_ns(&table, 1)),
            (0, 40 * US)
        );
        for _ in 0..200 {
            leads.moved(true, 70 * US);
            leads.moved(false, 5_000 * US);
        }
        assert_eq!(
            (leads.early_ns(&table, 0), leads.early_ns(&table, 1)),
            (20 * US, CAP_NS)
        );
        assert_eq!(leads.now_ns(), (70 * US, CAP_NS));
    }

    #[test]
    fn closing_a_gate_early_takes_little_from_a_short_slot() {
        let (table, mut leads) = leads(&[(0, 500 * US), (50_000 * US, 50_050 * US)]);
        (0..200).for_each(|_| leads.moved(false, 90 * US));
        let early: Vec<u64> = (0..4).map(|i| leads.early_ns(&table, i)).collect();
        // Gates are open 50 us longer than the slots.
        assert_eq!(early, [0, 550 * US / PART, 0, 100 * US / PART]);
    }
}
