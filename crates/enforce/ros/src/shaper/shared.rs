//! The state that the shaper's threads share: schedules, reports, and whether items pass at once.

use super::ShaperError;
use crate::config::Config;
use crate::lineage::LineageTable;
use crate::page::PageReader;
use crate::report::Reporter;
use crate::schedule::SlotSchedule;
use onbeat_time::Overshoot;
use std::sync::atomic::{AtomicBool, Ordering};

/// The source of the schedules.
pub(crate) enum Slots {
    Page(PageReader),
    Fixed(Vec<SlotSchedule>),
}

impl Slots {
    pub(super) fn of(config: &Config) -> Result<Slots, ShaperError> {
        match (config.page_fd, &config.table) {
            (Some(fd), None) => {
                PageReader::open(fd)
                    .map(Slots::Page)
                    .map_err(|reason| ShaperError::Descriptor {
                        fd,
                        what: "the shared page",
                        reason,
                    })
            }
            (None, Some(table)) => {
                let schedules = config.outputs.iter().enumerate().map(|(i, output)| {
                    let wrong = |reason: String| ShaperError::Table {
                        topic: output.topic.clone(),
                        reason,
                    };
                    let own = table
                        .outputs
                        .get(i)
                        .ok_or_else(|| wrong("it has none: give one per output".into()))?;
                    SlotSchedule::new(table.cycle_ns, table.origin_ns, own.earliest_ns, &own.slots)
                        .map_err(|e| wrong(e.to_string()))
                });
                schedules.collect::<Result<_, _>>().map(Slots::Fixed)
            }
            _ => Err(ShaperError::NoTable),
        }
    }

    /// The schedule of an output; `None` while a new one is being written. Real-time safe.
    pub(crate) fn schedule(&self, output: usize) -> Option<SlotSchedule> {
        match self {
            Slots::Page(page) => page.schedule(output),
            Slots::Fixed(schedules) => schedules.get(output).copied(),
        }
    }

    /// Whether late items leave in a later slot, whatever the policy. Real-time safe.
    pub(crate) fn settles(&self) -> bool {
        match self {
            Slots::Page(page) => page.settles(),
            Slots::Fixed(_) => false,
        }
    }
}

/// The state that all threads share.
pub(crate) struct Shared {
    pub(crate) slots: Slots,
    /// When executions began. `None`: nobody can tell.
    pub(crate) lineage: Option<LineageTable>,
    pub(crate) reporter: Reporter,
    pub(crate) overshoot: Overshoot,
    /// Everything passes at once: the owner asked for it, or is gone.
    pub(crate) passing: AtomicBool,
    /// The same, for good: an item was late under [`Overshoot::Stop`].
    pub(crate) stopped: AtomicBool,
    /// The process ends.
    pub(crate) ending: AtomicBool,
}

impl Shared {
    pub(crate) fn passes(&self) -> bool {
        self.passing.load(Ordering::Relaxed)
            || self.stopped.load(Ordering::Relaxed)
            || self.ending.load(Ordering::Relaxed)
    }
}

impl Shared {
    pub(super) fn new(config: &Config) -> Result<Shared, ShaperError> {
        let reporter =
            Reporter::new(config.report_fd).map_err(|reason| ShaperError::Descriptor {
                fd: config.report_fd.unwrap_or(-1),
                what: "the pipe for reports",
                reason,
            })?;
        // Without it, cycles are inferred from arrivals, which each report says.
        let lineage = config.lineage_fd.and_then(|fd| LineageTable::open(fd).ok());
        Ok(Shared {
            slots: Slots::of(config)?,
            lineage,
            reporter,
            overshoot: config.overshoot,
            passing: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            ending: AtomicBool::new(false),
        })
    }
}
