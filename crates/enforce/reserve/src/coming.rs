//! The hand-over of a new table to the dispatcher. The owner gives the table, the dispatcher takes
//! it, and the owner frees the old one.

use crate::table::Table;
use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Mutex, PoisonError, TryLockError};

/// Holds the next table, and the table that it replaced until the owner frees it.
#[derive(Default)]
pub(crate) struct Coming {
    /// Can be read without the lock.
    is_there: AtomicBool,
    tables: Mutex<Tables>,
    taken: AtomicU64,
}

#[derive(Default)]
struct Tables {
    next: Option<Box<Table>>,
    /// Only the owner frees it. It is empty while there is a next table.
    old: Option<Box<Table>>,
}

impl Coming {
    /// Gives the dispatcher a table for its next round. A table given before and not yet taken is
    /// discarded.
    pub(crate) fn give(&self, table: Table) {
        let table = Box::new(table);
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables.old = None;
        tables.next = Some(table);
        self.is_there.store(true, Release);
    }

    /// Counts the tables that the dispatcher has taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Acquire)
    }

    /// Real-time safe: one load.
    pub(crate) fn is_there(&self) -> bool {
        self.is_there.load(Acquire)
    }

    /// Replaces the dispatcher's table by the one that was given, and returns whether it did. It
    /// does not while the owner is giving a table. Real-time safe: it never waits, allocates or
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
        self.is_there.store(false, Relaxed);
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
    fn the_last_given_table_is_taken_once_without_waiting() {
        let coming = Coming::default();
        let mut current = Box::new(table(1000));
        assert!(!coming.is_there() && !coming.take(&mut current));
        coming.give(table(2000));
        coming.give(table(3000));
        assert!(coming.is_there());
        let held = coming.tables.lock().unwrap();
        assert!(!coming.take(&mut current), "it would wait");
        drop(held);
        assert!(coming.take(&mut current) && !coming.is_there());
        assert_eq!((current.cycle_ns(), coming.taken()), (3000, 1));
        assert!(!coming.take(&mut current));
        // The owner frees the replaced table.
        assert!(coming.tables.lock().unwrap().old.is_some());
        coming.give(table(4000));
        assert!(coming.tables.lock().unwrap().old.is_none());
    }
}
