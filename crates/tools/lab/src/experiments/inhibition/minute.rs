//! Measures one condition for as long as the paper does: a minute of loops beside a minute of the
//! inhibitor.

use super::condition::{Condition, Layout, Order, Threads};
use super::programs::{Programs, MIDDLEWARES};
use super::run::{Bench, Length};
use crate::frame::report::{number, Report, Table};
use crate::frame::{Context, Result};

const LOOPS: u32 = 6000;
pub fn measure(context: &mut Context, report: &mut Report, programs: &Programs) -> Result<()> {
    let mut table = Table::new(
        "Runs of a minute: two processes, middleware threads under time-sharing (RR-TS), inhibitor started later on the same core",
        "middleware | M1 (whole run), s | M2 (sending) max, ms | M3 (answer) max, ms | \
M4 (between wake-ups) max, ms | late answers, %",
    );
    let mut rng = context.rng("minute");
    let later = |c: &Condition| {
        (c.layout, c.threads, c.order) == (Layout::TwoProcesses, Threads::TimeSharing, Order::Later)
    };
    for middleware in MIDDLEWARES.into_iter().filter(|m| programs.has(*m)) {
        let title = format!("{}: a minute", middleware.name());
        context.step(&title, 400);
        let bench = Bench {
            context,
            programs,
            middleware,
            length: Length::of_loops(LOOPS),
        };
        for condition in Condition::all().into_iter().filter(later) {
            let m = bench.run(condition, &mut rng)?.measures;
            table.row([
                middleware.name().to_owned(),
                number(m.whole_s),
                number(m.send_max() / 1000.0),
                number(m.answer_max() / 1000.0),
                number(m.gap_max() / 1000.0),
                number(100.0 * m.late_share()),
            ]);
        }
    }
    report.tables.push(table);
    Ok(())
}
