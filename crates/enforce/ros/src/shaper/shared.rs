//! The state that the shaper's threads share: schedules, reports, and whether items pass at once.

use super::ShaperError;
use crate::config::Config;
use crate::lineage::LineageTable;
use crate::page::PageReader;
use crate::report::Reporter;
use crate::schedule::SlotSchedule;
use onbeat_time::Overshoot;
use std::sync::atomic::{AtomicBool, Ordering};

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
                    let own = table.outputs.get(i).ok_or_else(|| {
                        wrong("the configuration has no slots for this output. Give slots for each output".into())
                    })?;
                    SlotSchedule::new(table.cycle_ns, table.origin_ns, own.earliest_ns, &own.slots)
                        .map_err(|e| wrong(e.to_string()))
                });
                schedules.collect::<Result<_, _>>().map(Slots::Fixed)
            }
            _ => Err(ShaperError::NoTable),
        }
    }

    /// Returns the schedule of the output with this index, or `None` while the owner writes a new
    /// one. Real-time safe.
    pub(crate) fn schedule(&self, output: usize) -> Option<SlotSchedule> {
        match self {
            Slots::Page(page) => page.schedule(output),
            Slots::Fixed(schedules) => schedules.get(output).copied(),
        }
    }

    pub(crate) fn settles(&self) -> bool {
        match self {
            Slots::Page(page) => page.settles(),
            Slots::Fixed(_) => false,
        }
    }
}

pub(crate) struct Shared {
    pub(crate) slots: Slots,
    /// The table with the start of each item's execution. `None` if the kernel does not provide it.
    pub(crate) lineage: Option<LineageTable>,
    pub(crate) reporter: Reporter,
    pub(crate) overshoot: Overshoot,
    /// Whether items pass at once, because the owner requested it or is gone.
    pub(crate) passing: AtomicBool,
    pub(crate) stopped: AtomicBool,
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
        // Without the table, cycles are inferred from arrivals, and each report shows it.
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
