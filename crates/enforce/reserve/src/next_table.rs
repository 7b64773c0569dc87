//! The hand-over of a new table to the dispatcher. The owner gives the table, the dispatcher takes
//! it, and the owner frees the old one.

use crate::table::Table;
use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Mutex, PoisonError, TryLockError};

#[derive(Default)]
pub(crate) struct NextTable {
    is_given: AtomicBool,
    tables: Mutex<Tables>,
    taken: AtomicU64,
}

#[derive(Default)]
struct Tables {
    next: Option<Box<Table>>,
    /// The previous table. The dispatcher has replaced it, and the owner frees it. It is `None`
    /// while another table waits for the dispatcher.
    old: Option<Box<Table>>,
}

impl NextTable {
    /// Gives the dispatcher a table of slots, which it uses when its current round ends. Discards
    /// an earlier table that the dispatcher has not taken yet.
    pub(crate) fn give(&self, table: Table) {
        let table = Box::new(table);
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables.old = None;
        tables.next = Some(table);
        self.is_given.store(true, Release);
    }

    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Acquire)
    }

    pub(crate) fn is_given(&self) -> bool {
        self.is_given.load(Acquire)
    }

    /// Replaces the dispatcher's table by the table that waits, and returns whether one waited.
    /// Does nothing while the owner is giving a table. Real-time safe: it never waits, allocates or
    /// frees.
    pub(crate) fn take(&self, table: &mut Box<Table>) -> bool {
        let mut tables = match self.tables.try_lock() {
            Ok(tables) => tables,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let Some(next) = tables.next.take() else {
            return false;
        };
        tables.old = Some(std::mem::replace(table, next));
        self.is_given.store(false, Relaxed);
        self.taken.fetch_add(1, Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(cycle_ns: u64) -> Table {
        Table::new(cycle_ns, 0, &[]).unwrap()
    }

    #[test]
    fn the_dispatcher_takes_the_latest_table_of_slots_once_and_never_waits_for_it() {
        let next_table = NextTable::default();
        let mut current = Box::new(table(1000));
        assert!(!next_table.is_given() && !next_table.take(&mut current));
        next_table.give(table(2000));
        next_table.give(table(3000));
        assert!(next_table.is_given());
        let held = next_table.tables.lock().unwrap();
        assert!(!next_table.take(&mut current), "it would wait");
        drop(held);
        assert!(next_table.take(&mut current) && !next_table.is_given());
        assert_eq!((current.cycle_ns(), next_table.taken()), (3000, 1));
        assert!(!next_table.take(&mut current));
        // The owner frees the replaced table.
        assert!(next_table.tables.lock().unwrap().old.is_some());
        next_table.give(table(4000));
        assert!(next_table.tables.lock().unwrap().old.is_none());
    }
}
