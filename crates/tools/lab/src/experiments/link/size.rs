//! Measures latency and CPU time over message size (Figures 5.6, 5.7 and 5.12).

use super::arms::{self, Arm, RATE};
use super::cell::{Outcome, Plan, Stream, Testbed};
use super::qperf;
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::rng::Rng;
use crate::frame::{Context, LabError, Result};
use crate::measure::arms::{interleave, ArmSamples};
use crate::plot::{self, curves, Axes, Curve, Line};
const THESIS_TRANSFERS_PER_SIZE: u64 = 150;
const THESIS_LATENCY: f64 = 58_000.0;
/// The highest CPU use in % that the thesis measured for a sender of 4 MB messages over TCP.
const THESIS_CPU: f64 = 48.1;
/// The latency that flow control added to the interface layer in the thesis, in %: at 64 KB, and
/// from 1 MB on.
const THESIS_ADDED: (f64, f64) = (100.0, 7.5);
/// The latency that onbeat's flow control may add, in % of the latency without flow control: at 64
/// KB, and from 1 MB on.
const ADDED: (f64, f64) = (10.0, 2.0);
/// The CPU use that onbeat's flow control may add for messages of up to 4 MB, in percentage points.
const ADDED_CPU: f64 = 1.0;

pub fn name_of(bytes: usize) -> String {
    match bytes {
        b if b >= 1 << 20 => format!("{} MB", b >> 20),
        b => format!("{} KB", b >> 10),
    }
}

pub fn id_of(bytes: usize) -> String {
    name_of(bytes).replace(' ', "").to_lowercase()
}

/// The samples of one message size: transfer times in us, and CPU use in % of all CPUs.
struct SizeSamples {
    bytes: usize,
    transfers: ArmSamples,
    cpu: ArmSamples,
    qperf: Option<f64>,
}
struct Part<'a> {
    testbed: &'a Testbed,
    arms: Vec<Arm>,
    limited: bool,
    link: &'static str,
}

pub fn limited(context: &mut Context, report: &mut Report, testbed: &Testbed) -> Result<()> {
    measure(context, report, testbed, true)
}

pub fn unlimited(context: &mut Context, report: &mut Report, testbed: &Testbed) -> Result<()> {
    measure(context, report, testbed, false)
}

fn measure(
    context: &mut Context,
    report: &mut Report,
    testbed: &Testbed,
    limited: bool,
) -> Result<()> {
    let part = Part {
        testbed,
        arms: testbed.arms.available_among(&arms::ALL),
        limited,
        link: if limited { "1gbit" } else { "unlimited" },
    };
    if !qperf::is_installed() {
        report.skip(
            "qperf",
            "qperf is not installed. Install the Debian package qperf",
        );
    }
    let mut measured = vec![];
    for bytes in sizes(context) {
        let (size, link) = (name_of(bytes), part.link);
        let what = format!("latency and CPU time of messages of {size}, link {link}");
        context.step(&what, 600);
        measured.push(part.of_size(context, bytes)?);
    }
    part.save(context, &measured)?;
    part.tables(report, &measured);
    part.plots(context, &measured)?;
    part.figures(report, &measured);
    part.targets(context, report, &measured);
    report.note(format!(
        "{}: latency is the time from when the sender has the complete message until the receiver can read it, with one message on \
         its way at a time. qperf reports half of a round trip. CPU is the CPU time of all threads of both programs and of the \
         kernel's threads, as a share of all CPUs. It comes from the kernel's accounts while messages are sent without pause",
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

fn runs(context: &Context, bytes: usize) -> (usize, u64) {
    let usual = match bytes {
        b if b > 8 << 20 => 3,
        b if b > 1 << 20 => 10,
        _ => THESIS_TRANSFERS_PER_SIZE / 3,
    };
    let count = context.pick_of_three(THESIS_TRANSFERS_PER_SIZE / 3, usual, 5);
    (context.pick(5, 3), count)
}

/// Reports whether CPU use is measured for a message size. A measurement of CPU use takes long, so
/// only some sizes have one.
fn counts_cpu(context: &Context, bytes: usize) -> bool {
    let few = [64 << 10, 1 << 20, 4 << 20, 32 << 20];
    context.pick_of_three(true, few.contains(&bytes), few[..3].contains(&bytes))
}

impl Part<'_> {
    fn of_size(&self, context: &Context, bytes: usize) -> Result<SizeSamples> {
        let names: Vec<&str> = self.arms.iter().map(|a| a.name).collect();
        let (rounds, count) = runs(context, bytes);
        let wire_ns = bytes as u64 * 8 * 1_000_000_000 / RATE;
        // A message has arrived before the next one is due.
        let takes_ns = if self.limited {
            wire_ns * 3 / 2
        } else {
            wire_ns
        };
        let turns = |what: &str| {
            let purpose = format!("{what} of {}, {}", name_of(bytes), self.link);
            context.turns(&purpose, names.len(), rounds)
        };
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
            self.testbed
                .try_run(context, &self.arms[arm], self.limited, &plan)
        };
        let transfers = interleave(turns("latency"), &names, |arm, _| {
            let outcome = run(arm, takes_ns.max(2_000_000), count)?;
            let samples = |o: Outcome| o.samples.iter().map(|s| s.transfer_us()).collect();
            Ok::<_, LabError>(outcome.map(samples).unwrap_or_default())
        })?;
        let cpu = match counts_cpu(context, bytes) {
            true => {
                // The start of a run costs CPU time, too, so many messages are sent in a row.
                let in_a_row = (400_000_000 / wire_ns.max(100_000)).clamp(3, 2000);
                interleave(turns("CPU"), &names, |arm, _| {
                    let used = run(arm, 0, in_a_row)?.map(|o| o.cpu);
                    Ok::<_, LabError>(used.into_iter().collect())
                })?
            }
            false => ArmSamples::new(&names, rounds),
        };
        let qperf = qperf::latency_us(self.testbed, self.limited, bytes)?;
        Ok(SizeSamples {
            bytes,
            transfers,
            cpu,
            qperf,
        })
    }

    fn save(&self, context: &mut Context, measured: &[SizeSamples]) -> Result<()> {
        type What = fn(&SizeSamples) -> &ArmSamples;
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

    fn tables(&self, report: &mut Report, measured: &[SizeSamples]) {
        let table = |what: &str, measured: &[&SizeSamples]| {
            let sizes = measured.iter().map(|o| name_of(o.bytes));
            Table::over(format!("{what}, {}", self.link), "", sizes)
        };
        let all: Vec<&SizeSamples> = measured.iter().collect();
        let mut latency = table("Latency (median), us (Figures 5.6 and 5.12a)", &all);
        let counted = |o: &&SizeSamples| !o.cpu.pooled(0).is_empty();
        let used: Vec<&SizeSamples> = measured.iter().filter(counted).collect();
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

    fn plots(&self, context: &mut Context, measured: &[SizeSamples]) -> Result<()> {
        let ticks: Vec<(f64, String)> = measured
            .iter()
            .map(|o| (o.bytes as f64, name_of(o.bytes)))
            .collect();
        let lines = |of: &dyn Fn(&SizeSamples) -> &ArmSamples, q: f64, scale: f64| -> Vec<Curve> {
            let curve = |(i, arm): (usize, &Arm)| Curve {
                name: arm.name.into(),
                colour: arm.colour,
                dashed: !arm.is_plaintext,
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
            ..Axes::new("KB", "CPU, %: highest of the rounds")
        };
        let svg = plot::lines(&title, axes, &cpu)?;
        context.plot(&format!("fig5.7.{link}.svg"), &svg)
    }

    fn figures(&self, report: &mut Report, measured: &[SizeSamples]) {
        for one in measured {
            let thesis = self.limited && one.bytes == 4 << 20;
            for (i, arm) in self.arms.iter().enumerate() {
                let name = format!("size.{}.{}.{}", self.link, id_of(one.bytes), arm.id);
                let all = [
                    (&one.transfers, "p50", 0.5, "us", THESIS_LATENCY),
                    (&one.cpu, "cpu", 1.0, "%", THESIS_CPU),
                ];
                for (of, what, q, unit, baseline) in all {
                    let samples = of.pooled(i);
                    if samples.is_empty() {
                        continue;
                    }
                    let value = of.quantile(i, q, &mut Rng::new(1));
                    let baseline = (thesis && *arm == arms::TCP).then_some(baseline);
                    report.figure(
                        Figure::estimated(format!("{name}.{what}"), value, unit)
                            .baseline(baseline, "thesis, TCP")
                            .samples(samples.len() as u64),
                    );
                }
            }
        }
    }

    fn targets(&self, context: &Context, report: &mut Report, measured: &[SizeSamples]) {
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
            if at <= 4 << 20 && !one.cpu.pooled(alone).is_empty() {
                let points = one.cpu.added_mean(alone, ours, &mut rng);
                let figure = Figure::estimated(format!("added.{name}.cpu"), points, "points");
                report.figure(figure.at_most(ADDED_CPU));
            }
        }
    }
}
