//! Figures of a setting: lost messages, wake-ups, polling.

use super::{Cell, Measured, SIZES};
use crate::experiments::transport::session::Place;
use crate::frame::report::{Figure, Report};
use crate::frame::rng::Rng;
use crate::frame::size::size_id;
use crate::frame::Context;
use crate::measure::stats::{bootstrap, Sorted};
use crate::measure::transport::{self as peers, Program};

pub fn lost(report: &mut Report, measured: &Measured<'_>) {
    let setting = measured.setting;
    // Channels with credits lose nothing. Peers drop messages when a reader is too slow.
    for ours in [true, false] {
        let of = |value: &dyn Fn(&Cell) -> u64| -> u64 {
            let cells = measured.cells.iter();
            cells
                .flat_map(|cells| cells.iter().zip(&measured.arms))
                .filter(|(_, arm)| (arm.program == Program::Onbeat) == ours)
                .map(|(cell, _)| value(cell))
                .sum()
        };
        let name = if ours { "onbeat" } else { "peers" };
        let figure = Figure::exact(
            format!("lost.{}.{name}", setting.id),
            of(&|c| c.lost) as f64,
            "messages",
        )
        .samples(of(&|c| c.sent));
        report.figure(figure.at_most(ours.then_some(0.0)));
    }
}

pub fn medians(report: &mut Report, measured: &Measured<'_>) {
    let arms = [
        ("cyclone", peers::CYCLONE),
        ("cyclone_iceoryx", peers::CYCLONE_ICEORYX),
        ("onbeat", peers::ONBEAT),
        ("onbeat_chain", peers::ONBEAT_CHAIN),
    ];
    for (id, arm) in arms {
        let Some(arm) = measured.arm(&arm) else {
            continue;
        };
        for s in [0, SIZES.len() - 1] {
            let median = measured.samples[s].quantile(arm, 0.5, &mut Rng::new(1));
            let (setting, size) = (measured.setting.id, size_id(SIZES[s]));
            let name = format!("latency.{setting}.{id}.{size}.p50");
            report.figure(Figure::estimated(name, median, "us"));
        }
    }
}

pub fn wake_ups(context: &Context, report: &mut Report, measured: &Measured<'_>) {
    let (Some(futex), Some(ours)) = (measured.arm(&peers::FUTEX), measured.arm(&peers::ONBEAT))
    else {
        return;
    };
    let id = measured.setting.id;
    let both = measured.over_sizes(futex, ours);
    let n = both.pooled(1).len() as u64;
    if n == 0 {
        return;
    }
    let mut rng = context.rng("wake-up");
    for (name, q) in [("p50", 0.5), ("p99", 0.99)] {
        let ratio = both.quantile_ratio(0, 1, q, &mut rng);
        report.figure(
            Figure::estimated(format!("wakeup.{id}.{name}_ratio"), ratio, "1")
                .at_most(1.2)
                .samples(n),
        );
    }
    // The futex has no payload. Its spread shows the influence of the machine.
    let mut spread = |arm: usize| {
        bootstrap(measured.samples[0].kept(), 200, &mut rng, |pick| {
            let medians = measured.samples.iter().map(|samples| {
                Sorted::new(
                    pick.iter()
                        .flat_map(|round| samples.of(*round, arm).iter().copied()),
                )
                .quantile(0.5)
            });
            let (low, high) = medians.fold((f64::MAX, 0.0), |(l, h): (f64, f64), v| {
                (l.min(v), h.max(v))
            });
            high / low
        })
    };
    let (floor, flat) = (spread(futex), spread(ours));
    report.figure(
        Figure::estimated(format!("flat.{id}.p50_spread"), flat, "1")
            .at_most(1.1)
            .baseline(floor.value, "futex, which has no payload"),
    );
}

pub fn busy(context: &Context, report: &mut Report, measured: &Measured<'_>) {
    let (Some(theirs), Some(ours)) = (
        measured.arm(&peers::ICEORYX2_BUSY),
        measured.arm(&peers::ONBEAT_BUSY),
    ) else {
        return;
    };
    let mut rng = context.rng("busy");
    for (s, bytes) in SIZES.into_iter().enumerate() {
        let samples = &measured.samples[s];
        let (v, w) = (samples.pooled(ours), samples.pooled(theirs));
        if v.is_empty() || w.is_empty() {
            continue;
        }
        let ratio = samples.quantile_ratio(theirs, ours, 0.5, &mut rng);
        let name = format!("busy.{}.{}.p50_ratio", measured.setting.id, size_id(bytes));
        let figure = Figure::estimated(name, ratio, "1").samples(v.len() as u64);
        // The target is for processes only.
        let is_judged = matches!(measured.setting.place, Place::Processes(_));
        report.figure(figure.at_most(is_judged.then_some(1.0)));
    }
}
