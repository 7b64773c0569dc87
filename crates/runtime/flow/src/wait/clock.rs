//! The clock of deadlines, schedules and items: CLOCK_MONOTONIC in ns.

pub use onbeat_time::clock::monotonic_ns as now_ns;
