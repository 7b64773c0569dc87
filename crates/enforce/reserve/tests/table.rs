//! The table and the walk through it, compared with what the slots themselves define.

use onbeat_reserve::table::{Table, Walk};
use onbeat_reserve::Server;
use onbeat_time::Slot;
use proptest::prelude::*;

fn server(index: usize, slots: &[(u64, u64)]) -> Server {
    Server {
        name: index.to_string(),
        cpu: 0,
        priority: 1,
        slots: slots.iter().map(|s| Slot::new(s.0, s.1)).collect(),
    }
}

fn is_open(server: &Server, cycle: u64, lead: u64, origin: u64, at: u64) -> bool {
    let since = (at as i64 - origin as i64).rem_euclid(cycle as i64) as u64;
    server.slots.is_empty()
        || server.slots.iter().any(|s| {
            let (start, end) = (s.start_ns, s.end_ns);
            [since, since + cycle, since + 2 * cycle]
                .iter()
                .any(|&t| t + lead >= start + cycle && t < end + cycle)
                || end - start + lead >= cycle
        })
}

const CYCLE: u64 = 1_000;

fn servers() -> impl Strategy<Value = Vec<Server>> {
    let slot = (0..CYCLE, 1..=CYCLE).prop_map(|(start, length)| (start, start + length));
    let short = (0..CYCLE, 1..=60u64).prop_map(|(start, length)| (start, start + length));
    let slots = proptest::collection::vec(prop_oneof![1 => slot, 4 => short], 0..5);
    proptest::collection::vec(slots, 1..5)
        .prop_map(|all| all.iter().enumerate().map(|(i, s)| server(i, s)).collect())
}

proptest! {
    #[test]
    fn a_gate_is_open_exactly_in_its_slots(
        servers in servers(),
        lead in 0..50u64,
        origin in 0..5 * CYCLE,
        start in 10 * CYCLE..12 * CYCLE,
    ) {
        let table = Table::new(CYCLE, lead, &servers).unwrap();
        let mut open = vec![false; servers.len()];
        let mut walk = Walk::new(&table, origin, start, &mut open);
        for at in start..start + 3 * CYCLE {
            let mut moved = vec![false; servers.len()];
            while !table.events().is_empty() && walk.next_ns(&table) <= at {
                let event = walk.advance(&table, origin).0.unwrap();
                let again = std::mem::replace(&mut moved[event.server], true);
                prop_assert!(!again, "a gate does not close and open at once");
                prop_assert_ne!(open[event.server], event.open, "nothing happens twice");
                open[event.server] = event.open;
            }
            for (i, server) in servers.iter().enumerate() {
                let truth = is_open(server, CYCLE, lead, origin, at);
                prop_assert_eq!(open[i], truth, "server {} at {}", i, at);
                prop_assert!(table.is_gated(i) || truth);
            }
        }
    }

    #[test]
    fn a_shifted_cycle_start_neither_skips_nor_repeats_a_slot(
        servers in servers(),
        lead in 0..50u64,
        origins in proptest::collection::vec(0..20 * CYCLE, 1..40),
    ) {
        let table = Table::new(CYCLE, lead, &servers).unwrap();
        prop_assume!(!table.events().is_empty());
        let mut open = vec![false; servers.len()];
        let mut walk = Walk::new(&table, origins[0], 50 * CYCLE, &mut open);
        let mut last_ns = 50 * CYCLE;
        let mut taken = Vec::new();
        for i in 0.. {
            let Some(&origin) = origins.get(i / 3) else { break };
            let at = walk.next_ns(&table);
            prop_assert!(at >= last_ns, "time goes on");
            taken.push(walk.advance(&table, origin).0.unwrap());
            last_ns = at;
        }
        // The events follow the table's order from the first one taken.
        let events = table.events();
        let first = events.iter().position(|e| *e == taken[0]).unwrap();
        for (i, event) in taken.iter().enumerate() {
            prop_assert_eq!(event, &events[(first + i) % events.len()]);
        }
        // The phase reaches an origin that no longer moves.
        let origin = *origins.last().unwrap();
        let mut settles = (0..100_000).map(|_| walk.advance(&table, origin).1 && walk.behind_ns() == 0);
        let settled = settles.any(|settled| settled);
        let gap = table.cycle_ns() - events[events.len() - 1].offset_ns + events[0].offset_ns;
        if gap > 1 {
            prop_assert!(settled);
            let begin = walk.next_ns(&table) - events[0].offset_ns + lead;
            prop_assert_eq!(begin % CYCLE, origin % CYCLE);
        }
    }

    #[test]
    fn gates_follow_a_new_table_of_slots_after_the_tables_are_swapped(
        (old, new) in (servers(), servers()),
        lead in 0..50u64,
        origin in 0..5 * CYCLE,
        start in 10 * CYCLE..12 * CYCLE,
    ) {
        let count = old.len().min(new.len());
        let [old, new] = [&old[..count], &new[..count]];
        let tables = [old, new].map(|s| Table::new(CYCLE, lead, s).unwrap());
        let mut open = vec![false; count];
        let mut walk = Walk::new(&tables[0], origin, start, &mut open);
        while !walk.advance(&tables[0], origin).1 {}
        let round = walk.base_ns();
        prop_assert_eq!((round + lead) % CYCLE, origin % CYCLE);
        let before = open.clone();
        walk.swap(&tables[1], &mut open);
        for (i, (before, after)) in before.iter().zip(&open).enumerate() {
            let is_same = old[i].slots == new[i].slots;
            prop_assert!(!is_same || before == after, "a gate of both tables moves: {}", i);
        }
        for at in round..round + 2 * CYCLE {
            while !tables[1].events().is_empty() && walk.next_ns(&tables[1]) <= at {
                let event = walk.advance(&tables[1], origin).0.unwrap();
                open[event.server] = event.open;
            }
            for (i, server) in new.iter().enumerate() {
                prop_assert_eq!(open[i], is_open(server, CYCLE, lead, origin, at), "{} at {}", i, at);
            }
        }
    }

    #[test]
    fn a_dispatcher_that_was_delayed_skips_whole_cycles(
        servers in servers(),
        late in 0..100 * CYCLE,
    ) {
        let table = Table::new(CYCLE, 10, &servers).unwrap();
        prop_assume!(!table.events().is_empty());
        let mut open = vec![false; servers.len()];
        let mut walk = Walk::new(&table, 0, 50 * CYCLE, &mut open);
        let due = walk.next_ns(&table);
        let rounds = walk.catch_up(&table, due + late);
        prop_assert_eq!(rounds, late / CYCLE);
        prop_assert_eq!(walk.next_ns(&table), due + rounds * CYCLE);
    }
}

#[test]
fn slots_that_do_not_fit_the_cycle_are_refused() {
    for slot in [(5, 5), (6, 5), (CYCLE, CYCLE + 1), (0, CYCLE + 1)] {
        let error = Table::new(CYCLE, 0, &[server(0, &[slot])]).unwrap_err();
        assert!(!error.to_string().contains('\n'));
    }
    assert!(Table::new(0, 0, &[]).is_err());
    assert!(Table::new(CYCLE, CYCLE, &[]).is_err());
}

#[test]
fn gates_open_and_close_at_the_times_of_the_thesis_example() {
    // Thesis, section 4.5.2: gamma [0, 59], delta [59, 60], the rest [0, 100] of 100.
    let servers = [
        server(0, &[(0, 590)]),
        server(1, &[(590, 600)]),
        server(2, &[(0, 1000)]),
    ];
    let table = Table::new(CYCLE, 1, &servers).unwrap();
    assert!(!table.is_gated(2));
    let events: Vec<_> = table
        .events()
        .iter()
        .map(|e| (e.offset_ns, e.server, e.open))
        .collect();
    assert_eq!(
        events,
        [
            (0, 0, true),
            (590, 1, true),
            (591, 0, false),
            (601, 1, false)
        ]
    );
}
