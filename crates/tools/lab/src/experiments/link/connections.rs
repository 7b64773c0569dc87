//! Compares one connection for each class of messages, as onbeat has it, with one connection for
//! all classes.

use super::arms::{Arm, MULTIPLEXED, OURS};
use super::cell::{Outcome, Plan, Testbed};
use super::judge::in_place;
use super::order::orders_of;
use super::priority::urgent_plan;
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::{Context, Result};
use crate::measure::stats::Sorted;
const ORDER_MESSAGE_BYTES: usize = 64 << 10;

#[derive(Default)]
struct Measured {
    latencies_us: Vec<f64>,
    cpu: Vec<f64>,
    bytes: (u64, u64),
    in_place: f64,
}

impl Measured {
    fn add(&mut self, plan: &Plan, outcome: &Outcome) {
        self.latencies_us
            .extend(outcome.of(0).map(|s| s.latency_us()));
        self.cpu.push(outcome.cpu);
        let arrived = outcome.samples.iter();
        self.bytes.0 += outcome.sent_bytes;
        self.bytes.1 += arrived
            .map(|s| plan.streams[s.stream as usize].bytes as u64)
            .sum::<u64>();
    }
}

pub fn measure(context: &mut Context, report: &mut Report, testbed: &Testbed) -> Result<()> {
    let count = context.pick_of_three(3_000, 1_000, 200);
    let (rounds, experiments) = (context.pick(3, 2), context.pick(100, 10));
    let plan = Plan {
        apart: false,
        real_time: true,
        ..urgent_plan(count, true)
    };
    let mut measured = [OURS, MULTIPLEXED].map(|arm| (arm, Measured::default()));
    for round in 0..rounds {
        for (arm, of) in &mut measured {
            let what = format!("connections: {}, round {}", arm.name, round + 1);
            context.step(&what, 100);
            of.add(&plan, &testbed.run(context, arm, true, &plan)?);
        }
    }
    for (arm, of) in &mut measured {
        context.step(format!("connections: order, {}", arm.name), 100);
        let orders = orders_of(context, testbed, arm, ORDER_MESSAGE_BYTES, experiments)?;
        of.in_place = orders.map_or(0.0, |o| in_place(&o, 100, None));
    }
    add_results(report, &measured);
    Ok(())
}

fn add_results(report: &mut Report, measured: &[(Arm, Measured)]) {
    let title =
        "Latency of urgent 1 KB messages with one connection for each of three priority classes, and with one connection for all priority classes, us";
    let head =
        "| p50 | p99 | p99.9 | max | CPU, % | bytes on the wire / content | messages on the wire in the order of sending, %";
    let mut table = Table::new(title, head);
    for (arm, of) in measured {
        let latency = Sorted::new(of.latencies_us.iter().copied());
        let cpu = Sorted::new(of.cpu.iter().copied()).quantile(0.5);
        let wire = of.bytes.0 as f64 / of.bytes.1.max(1) as f64;
        let mut row = vec![arm.name.to_string()];
        row.extend([0.5, 0.99, 0.999, 1.0].map(|q| number(latency.quantile(q))));
        row.extend([number(cpu), format!("{wire:.4}"), number(of.in_place)]);
        table.row(row);
        let samples = of.latencies_us.len() as u64;
        for (name, value, unit) in [
            ("p50", latency.quantile(0.5), "us"),
            ("p99_9", latency.quantile(0.999), "us"),
            ("max", latency.quantile(1.0), "us"),
            ("cpu", cpu, "%"),
            ("wire_over_content", wire, "1"),
            ("in_place", of.in_place, "%"),
        ] {
            let name = format!("connections.{}.{name}", arm.id);
            report.figure(Figure::new(name, value, unit).samples(samples));
        }
    }
    report.tables.push(table);
    report.note("connections: in this part, one process sends both the load and the urgent stream, since processes cannot share a connection. All threads of this process run under SCHED_FIFO");
}
