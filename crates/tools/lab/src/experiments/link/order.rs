//! Measures whether messages appear on the wire in the order of sending (Figure 5.13).

use super::arms;
use super::cell::{Plan, Stream, Testbed};
use super::judge::{in_place, times_at, wire_orders, WireMessage};
use super::size::{id_of, name_of};
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::{Context, LabError, Result};
use crate::plot::{lines, Axes, Line};

const TASKS: u64 = 3;
const TURN: u64 = 4;
/// The number of turns that each sending task has in one repetition of the experiment. The peer
/// programs use the same number.
const ROUNDS: u64 = 9;
const FIRST: usize = 100;
/// The share of messages, in %, that the thesis measured with the same position on the wire as in
/// the order of sending. The thesis used standard Soft-RoCE.
const THESIS: f64 = 30.0;

pub fn measure(context: &mut Context, report: &mut Report, testbed: &Testbed) -> Result<()> {
    let experiments = context.pick(100, 10);
    let arms = testbed.arms.plaintext();
    let mut table = Table::new(
        format!("Share of the first {FIRST} messages whose position on the wire equals their position in the order of sending, %, over {experiments} experiments (Figure 5.13)"),
        "| 1 KB | 64 KB",
    );
    let mut shown = vec![];
    for arm in &arms {
        let mut row = vec![arm.name.to_string()];
        for bytes in [1 << 10, 64 << 10] {
            context.step(
                format!(
                    "order of messages on the wire: {}, {}",
                    arm.name,
                    name_of(bytes)
                ),
                200,
            );
            let Some(orders) = orders_of(context, testbed, arm, bytes, experiments)? else {
                row.push("-".into());
                continue;
            };
            let share = in_place(&orders, FIRST, None);
            let name = format!("order.{}.{}.in_place", id_of(bytes), arm.id);
            let figure = Figure::exact(name, share, "%").samples(experiments * FIRST as u64);
            let figure = figure.baseline(THESIS, "thesis, standard Soft-RoCE");
            report.figure(figure.at_least(arm.is_ours().then_some(100.0)));
            row.push(number(share));
            if bytes == 64 << 10 {
                shown.push(line(arm.name, &orders));
            }
        }
        table.row(row);
    }
    report.tables.push(table);
    let axes = Axes::new(
        "position of a message of 64 KB on the wire (0: first)",
        "experiments with a message of the first task at this position",
    );
    let svg = lines("Order on the wire (Figure 5.13)", axes, &shown)?;
    context.plot("fig5.13.svg", &svg)?;
    report.note(format!(
        "order: {TASKS} tasks take turns and send {TURN} messages per turn, all with the same priority, over 1 Gbit/s. The position of a message on the wire is the position of its first packet"
    ));
    Ok(())
}

fn line(name: &str, orders: &[Vec<WireMessage>]) -> Line {
    let times = times_at(orders, FIRST, 0);
    let points = times.iter().enumerate();
    Line {
        name: name.into(),
        points: points.map(|(n, t)| (n as f64, *t as f64)).collect(),
    }
}

pub fn orders_of(
    context: &Context,
    testbed: &Testbed,
    arm: &arms::Arm,
    bytes: usize,
    experiments: u64,
) -> Result<Option<Vec<Vec<WireMessage>>>> {
    let per_experiment = TASKS * TURN * ROUNDS;
    let wire_ns = per_experiment * bytes as u64 * 8 * 1_000_000_000 / arms::RATE;
    let stream = Stream {
        priority: 2,
        bytes,
        // This is the period of experiments: each one is over before the next begins.
        period_ns: wire_ns * 3 / 2 + 5_000_000,
        count: experiments * TURN * ROUNDS,
        offset_ns: 0,
    };
    let plan = Plan {
        streams: vec![stream; TASKS as usize],
        credits: 8,
        turn: Some(TURN),
        captured: true,
        ..Plan::default()
    };
    let Some(outcome) = testbed.try_run(context, arm, true, &plan)? else {
        return Ok(None);
    };
    let orders = wire_orders(&outcome.packets, per_experiment);
    let whole = orders.iter().filter(|o| o.len() as u64 == per_experiment);
    match whole.count() as u64 {
        n if n == experiments && orders.len() as u64 == n => Ok(Some(orders)),
        n => Err(LabError::unexpected(
            "the capture",
            format!("the capture shows {n} of {experiments} experiments completely"),
        )),
    }
}
