//! Figures 5.6, 5.7 and 5.12: latency and CPU time against a message's size.

use super::arms::{self, Arm, RATE};
use super::cell::{Field, Outcome, Plan, Stream};
use super::qperf;
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::{Context, LabError, Result};
use crate::measure::arms::{interleave, schedule, ArmSamples};
use crate::plot::{self, curves, Axes, Curve, Line};

/// Transfers of each size in the thesis.
const THESIS_RUNS: u64 = 150;
/// Latency of 4 MB with TCP in the thesis, us.
const THESIS_LATENCY: f64 = 58_000.0;
/// Highest use of CPUs by the sender of 4 MB with TCP in the thesis, %.
const THESIS_CPU: f64 = 48.1;
/// What flow control added to the interface layer in the thesis, %: at 64 KB, and from 1 MB on.
const THESIS_ADDED: (f64, f64) = (100.0, 7.5);
/// What it may add here, %: at 64 KB, and from 1 MB on.
const ADDED: (f64, f64) = (10.0, 2.0);
/// How much more of the CPUs it may use up to 4 MB, points of %.
const ADDED_CPU: f64 = 1.0;

/// A size as people write it.
pub fn name_of(bytes: usize) -> String {
    match bytes {
        b if b >= 1 << 20 => format!("{} MB", b >> 20),
        b => format!("{} KB", b >> 10),
    }
}

/// A size as a part of a figure's name.
pub fn id_of(bytes: usize) -> String {
    name_of(bytes).replace(' ', "").to_lowercase()
}

/// What was measured for a size: transfers in us, and CPU use in % of all CPUs.
struct Of {
    bytes: usize,
    transfers: ArmSamples,
    cpu: ArmSamples,
    /// As qperf tells it, us.
    qperf: Option<f64>,
}

/// What all of a part share.
struct Part<'a> {
    field: &'a Field,
    arms: Vec<Arm>,
    limited: bool,
    link: &'static str,
}

/// The measurement over the link of 1 Gbit/s.
pub fn limited(context: &mut Context, report: &mut Report, field: &Field) -> Result<()> {
    measure(context, report, field, true)
}

/// The measurement over the link without a limit.
pub fn free(context: &mut Context, report: &mut Report, field: &Field) -> Result<()> {
    measure(context, report, field, false)
}

fn measure(context: &mut Context, report: &mut Report, field: &Field, limited: bool) -> Result<()> {
    let part = Part {
        field,
        arms: field.arms.of(&arms::ALL),
        limited,
        link: if limited { "1gbit" } else { "unlimited" },
    };
    if !qperf::there() {
        report.skip("qperf", "not installed: Debian has it as qperf");
    }
    let mut measured = vec![];
    for bytes in sizes(context) {
        let (size, link) = (name_of(bytes), part.link);
        let what = format!("latency and CPU of {size} over the link, {link}");
        context.step(&what, 600);
        measured.push(part.of_size(context, bytes)?);
    }
    part.save(context, &measured)?;
    part.tables(report, &measured);
    part.plots(context, &measured)?;
    part.figures(report, &measured);
    part.targets(context, report, &measured);
    report.note(format!(
        "{}: latency is from the message's content being complete at the sender to its being readable at the receiver, one message on \
         its way at a time; qperf tells half of a round trip. CPU: all CPUs, by whomever, while one message after the other is sent \
         without pause; the highest of the rounds",
        part.link
    ));
    Ok(())
}

fn sizes(context: &Context) -> Vec<usize> {
    let kb = [1, 4, 16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 32 << 10];
    let few = [1, 64, 1 << 10, 4 << 10];
    let sizes = context.pick(kb.to_vec(), few.to_vec());
    sizes.into_iter().map(|kb| kb << 10).collect()
}

/// Rounds, and transfers in each: together as many as in the thesis, fewer where each takes long
/// unless longer runs are wanted.
fn runs(context: &Context, bytes: usize) -> (usize, u64) {
    let usual = match bytes {
        b if b > 8 << 20 => 3,
        b if b > 1 << 20 => 10,
        _ => THESIS_RUNS / 3,
    };
    let count = context.pick_of_three(THESIS_RUNS / 3, usual, 5);
    (context.pick(3, 2), count)
}

/// Whether the use of CPUs is measured for a size: it takes long.
fn counts_cpu(context: &Context, bytes: usize) -> bool {
    let few = [64 << 10, 1 << 20, 4 << 20, 32 << 20];
    context.pick_of_three(true, few.contains(&bytes), few[..3].contains(&bytes))
}

impl Part<'_> {
    fn of_size(&self, context: &Context, bytes: usize) -> Result<Of> {
        let names: Vec<&str> = self.arms.iter().map(|a| a.name).collect();
        let (rounds, count) = runs(context, bytes);
        let wire_ns = bytes as u64 * 8 * 1_000_000_000 / RATE;
        // Long enough that a message has arrived before the next one is due.
        let takes_ns = if self.limited {
            wire_ns * 3 / 2
        } else {
            wire_ns
        };
        let mut rng = context.rng(&format!("size {bytes} {}", self.link));
        let run = |arm: usize, period_ns, count| {
            let stream = Stream {
                priority: 1,
                bytes,
                period_ns,
                count,
                offset_ns: 0,
            };
            let plan = Plan {
                streams: vec![stream],
                credits: 2,
                ..Plan::default()
            };
            self.field
                .try_run(context, &self.arms[arm], self.limited, &plan)
        };
        let transfers = interleave(&names, rounds, &mut rng, |arm, _| {
            let outcome = run(arm, takes_ns.max(2_000_000), count)?;
            let samples = |o: Outcome| o.samples.iter().map(|s| s.transfer_us()).collect();
            Ok::<_, LabError>(outcome.map(samples).unwrap_or_default())
        })?;
        let mut cpu = ArmSamples::new(&names, rounds);
        if counts_cpu(context, bytes) {
            // So many in a row that the counters of the kernel, of 10 ms, tell their use.
            let in_a_row = (400_000_000 / wire_ns.max(100_000)).clamp(3, 2000);
            for (round, arm) in schedule(names.len(), rounds, &mut rng) {
                cpu.extend(round, arm, run(arm, 0, in_a_row)?.map(|o| o.cpu));
            }
        }
        let qperf = qperf::latency_us(self.field, self.limited, bytes)?;
        Ok(Of {
            bytes,
            transfers,
            cpu,
            qperf,
        })
    }

    fn save(&self, context: &mut Context, measured: &[Of]) -> Result<()> {
        type What = fn(&Of) -> &ArmSamples;
        let both: [(&str, What); 2] = [("transfers", |o| &o.transfers), ("cpu", |o| &o.cpu)];
        for (what, of) in both {
            let name = format!("size.{}.{what}.csv", self.link);
            let mut raw = context.raw(&name, "bytes,arm,round,value")?;
            for one in measured {
                of(one).write(&mut raw, &format!("{},", one.bytes))?;
            }
            raw.finish()?;
        }
        Ok(())
    }

    fn tables(&self, report: &mut Report, measured: &[Of]) {
        let table = |what: &str, measured: &[&Of]| {
            let sizes = measured.iter().map(|o| name_of(o.bytes));
            Table::over(format!("{what}, {}", self.link), "", sizes)
        };
        let all: Vec<&Of> = measured.iter().collect();
        let mut latency = table("Latency (median), us (Figures 5.6 and 5.12a)", &all);
        let counted = |o: &&Of| !o.cpu.pooled(0).is_empty();
        let used: Vec<&Of> = measured.iter().filter(counted).collect();
        let mut cpu = table("Use of all CPUs, % (Figures 5.7 and 5.12b)", &used);
        for (i, arm) in self.arms.iter().enumerate() {
            let cells = all.iter().map(|o| o.transfers.pooled(i).shown(0.5));
            latency.row_of(arm.name, cells);
            let cells = used.iter().map(|o| o.cpu.pooled(i).shown(1.0));
            cpu.row_of(arm.name, cells);
        }
        let qperf = all.iter().map(|o| o.qperf.map_or("-".into(), number));
        latency.row_of("qperf", qperf);
        report.tables.extend([latency, cpu]);
    }

    fn plots(&self, context: &mut Context, measured: &[Of]) -> Result<()> {
        let ticks: Vec<(f64, String)> = measured
            .iter()
            .map(|o| (o.bytes as f64, name_of(o.bytes)))
            .collect();
        let lines = |of: &dyn Fn(&Of) -> &ArmSamples, q: f64, scale: f64| -> Vec<Curve> {
            let curve = |(i, arm): (usize, &Arm)| Curve {
                name: arm.name.into(),
                colour: arm.colour,
                dashed: !arm.in_clear,
                points: measured
                    .iter()
                    .map(|o| (o.bytes as f64, of(o).pooled(i)))
                    .filter(|(_, samples)| !samples.is_empty())
                    .map(|(x, samples)| (x, (samples.quantile(q) / scale).max(0.001)))
                    .collect(),
            };
            self.arms.iter().enumerate().map(curve).collect()
        };
        let link = self.link;
        let latency = lines(&|o| &o.transfers, 0.5, 1000.0);
        let title = format!("Latency against size, {link} (Figure 5.6)");
        let svg = curves(&title, ("size", "ms, median"), &ticks, &latency)?;
        context.plot(&format!("fig5.6.{link}.svg"), &svg)?;
        let cpu: Vec<Line> = lines(&|o| &o.cpu, 1.0, 1.0)
            .into_iter()
            .map(|c| Line {
                name: c.name,
                points: c.points.iter().map(|p| (p.0 / 1024.0, p.1)).collect(),
            })
            .collect();
        let title = format!("Use of all CPUs, {link} (Figure 5.7)");
        let axes = Axes {
            log_x: true,
            ..Axes::new("KB", "%, highest of the rounds")
        };
        let svg = plot::lines(&title, axes, &cpu)?;
        context.plot(&format!("fig5.7.{link}.svg"), &svg)
    }

    fn figures(&self, report: &mut Report, measured: &[Of]) {
        for one in measured {
            let thesis = self.limited && one.bytes == 4 << 20;
            for (i, arm) in self.arms.iter().enumerate() {
                let name = format!("size.{}.{}.{}", self.link, id_of(one.bytes), arm.id);
                let all = [
                    (one.transfers.pooled(i), "p50", 0.5, "us", THESIS_LATENCY),
                    (one.cpu.pooled(i), "cpu", 1.0, "%", THESIS_CPU),
                ];
                for (samples, what, q, unit, baseline) in all {
                    if samples.is_empty() {
                        continue;
                    }
                    let baseline = (thesis && *arm == arms::TCP).then_some(baseline);
                    report.figure(
                        Figure::new(format!("{name}.{what}"), samples.quantile(q), unit)
                            .baseline(baseline, "thesis, TCP")
                            .samples(samples.len() as u64),
                    );
                }
            }
        }
    }

    /// What flow control adds to the interface layer alone.
    fn targets(&self, context: &Context, report: &mut Report, measured: &[Of]) {
        let place = |wanted: Arm| self.arms.iter().position(|a| *a == wanted);
        let (Some(alone), Some(ours)) = (place(arms::INTERFACE), place(arms::OURS)) else {
            return;
        };
        for one in measured
            .iter()
            .filter(|o| self.limited && o.bytes >= 64 << 10)
        {
            let (name, at) = (id_of(one.bytes), one.bytes);
            let mut rng = context.rng(&format!("added {at}"));
            let ratio = one.transfers.quantile_ratio(alone, ours, 0.5, &mut rng);
            let added = ratio.map(|ratio| (ratio - 1.0) * 100.0);
            let figure = Figure::estimated(format!("added.{name}.latency"), added, "%");
            report.figure(match at {
                b if b >= 1 << 20 => figure
                    .at_most(ADDED.1)
                    .baseline(THESIS_ADDED.1, "thesis, at most"),
                b if b == 64 << 10 => figure.at_most(ADDED.0).baseline(THESIS_ADDED.0, "thesis"),
                _ => figure,
            });
            let [alone, ours] = [alone, ours].map(|arm| one.cpu.pooled(arm));
            if at <= 4 << 20 && !alone.is_empty() && !ours.is_empty() {
                // Of medians: the highest of few rounds is anybody's.
                let points = ours.quantile(0.5) - alone.quantile(0.5);
                let figure = Figure::new(format!("added.{name}.cpu"), points, "points");
                report.figure(figure.at_most(ADDED_CPU));
            }
        }
    }
}
