//! The table of modelling.

use super::run::Size;
use crate::frame::report::{number, Table};
use crate::measure::stats::median;

pub fn modelling(sizes: &[Size]) -> Table {
    let mut table = Table::new(
        "Time and memory of `onbeat model` on one core (medians)",
        "events | size of the trace, MB | bytes/event | CPU time, s | wall-clock time, s | million events/s | peak memory, MB",
    );
    for size in sizes {
        let (events, bytes) = (size.events as f64, size.bytes as f64);
        let seconds = median(&size.cpu_s());
        table.row([
            number(events),
            number(bytes / 1e6),
            number(bytes / events),
            number(seconds),
            number(size.wall_s()),
            number(events / seconds / 1e6),
            number(size.peak_mb()),
        ]);
    }
    table
}
