//! Cuts executions of chains into stretches on a separate thread. Synthesis continues meanwhile.

use super::columns::Table;
use super::pass::{chain_row, steps, stretch_row, Batch, OfChain, Report, Take};
use arrow_schema::ArrowError;
use onbeat_synth::followed::ChainEnd;
use onbeat_synth::named::Components;
use onbeat_synth::Synth;
use onbeat_trace::Event;
use onbeat_why::every::{Copied, Every};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::hash_map::Entry;
use std::sync::mpsc::Sender;

/// Makes the rows of the tables of chain executions and of their stretches.
pub(crate) struct Chains {
    every: Option<Every<OfChain>>,
    facts: Copied,
    executions: i64,
    found: Found,
    spare: Spare,
}

/// The channels that bring used lists of events and reports back to the thread that fills them. A
/// new list for each batch would cost page faults. The lists come back with their content. If the
/// sender emptied them, it would free memory that another thread has allocated, and both threads
/// would wait for the allocator's lock.
pub(crate) struct Spare {
    pub(crate) events: Sender<Vec<Event>>,
    pub(crate) reports: Sender<Vec<(usize, Report)>>,
}

/// The topics, paths and threads whose numbers stand in rows of chains.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) topics: FxHashSet<u32>,
    /// Each path on which executions of chains ended, with the steps of one of these executions.
    pub(crate) paths: FxHashMap<u32, ChainEnd>,
    pub(crate) components: Components,
}

impl Chains {
    pub(crate) fn new(synth: &Synth, with_stretches: bool, spare: Spare) -> Chains {
        Chains {
            every: with_stretches.then(Every::default),
            facts: Copied::new(synth),
            executions: 0,
            found: Found::default(),
            spare,
        }
    }

    /// Makes the rows of all batches.
    ///
    /// # Errors
    ///
    /// Stops at the first error of `rows` and returns it.
    pub(crate) fn run(
        mut self,
        batches: impl IntoIterator<Item = Batch>,
        rows: &mut impl Take,
    ) -> Result<Found, ArrowError> {
        for batch in batches {
            self.batch(batch, rows);
            rows.failed().map_or(Ok(()), Err)?;
        }
        self.cut(true, rows);
        rows.failed().map_or(Ok(()), Err)?;
        self.found.components = self.facts.into_components();
        Ok(self.found)
    }

    fn batch(&mut self, batch: Batch, rows: &mut impl Take) {
        self.facts.update(batch.news);
        let mut reports = batch.reports.iter().peekable();
        for (place, event) in batch.events.iter().enumerate() {
            if let Some(every) = &mut self.every {
                every.push(event);
            }
            while let Some((_, report)) = reports.next_if(|(at, _)| *at == place) {
                self.take(report, rows);
            }
            if self.every.as_ref().is_some_and(Every::is_due) {
                self.cut(false, rows);
            }
        }
        reports.for_each(|(_, report)| self.take(report, rows));
        self.cut(false, rows);
        let _ = self.spare.events.send(batch.events);
        let _ = self.spare.reports.send(batch.reports);
    }

    fn take(&mut self, report: &Report, rows: &mut impl Take) {
        match (report, &mut self.every) {
            (Report::Ended(end), _) => self.ended(end, rows),
            (_, None) => {}
            (Report::Named(named), _) => self.facts.named(named),
            (Report::Held(held), Some(every)) => every.held(*held),
            (Report::Joined(joined), Some(every)) => every.joined(joined.clone()),
            (Report::Asked(asked), Some(every)) => every.asked(*asked),
            (Report::Shaped(shaped), Some(every)) => every.shaped(*shaped),
            (Report::Ran(seen), Some(every)) => every.ran(seen),
        }
    }

    fn ended(&mut self, end: &ChainEnd, rows: &mut impl Take) {
        // Executions on one path can end at a cut or at the end of the chain.
        let path = end.path << 1 | u32::from(end.cut);
        let of = (i64::from(path), self.executions);
        self.executions += 1;
        rows.row(Table::ChainExecutions, &chain_row(end, of));
        if let Entry::Vacant(vacant) = self.found.paths.entry(path) {
            self.found
                .topics
                .extend(steps(end).iter().filter_map(|s| s.name));
            vacant.insert(end.clone());
        }
        if let (Some(every), false) = (&mut self.every, end.reread) {
            every.ended_like(end, of);
        }
    }

    fn cut(&mut self, all: bool, rows: &mut impl Take) {
        let Some(every) = &mut self.every else {
            return;
        };
        every.cut_apart(&mut self.facts, all, |of, cuts| {
            for (number, cut) in (0..).zip(cuts) {
                rows.row(Table::Stretches, &stretch_row(of, cut, number));
            }
        });
    }
}
