//! Makes tables and pictures of latencies over message sizes.

use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::size::{size_id, size_name};
use crate::frame::{Context, Result};
use crate::measure::stats::{mean_80, mean_replaced, over_blocks, Sorted};
use crate::plot::{boxes, curves, Curve};

pub struct Series {
    pub name: String,
    pub id: String,
    /// The message sizes in bytes, each with its latencies in us, in the order of measurement.
    pub by_size: Vec<(usize, Vec<f64>)>,
    pub lost: u64,
}

impl Series {
    pub fn new(name: impl Into<String>, id: impl Into<String>) -> Series {
        Series {
            name: name.into(),
            id: id.into(),
            by_size: vec![],
            lost: 0,
        }
    }

    /// Adds the latencies of one message size. `sent` is the number of sent messages. Messages
    /// without a latency count as lost.
    pub fn add(&mut self, bytes: usize, values: Vec<f64>, sent: u64) {
        self.lost += sent.saturating_sub(values.len() as u64);
        self.by_size.push((bytes, values));
    }
}

pub fn add(
    context: &mut Context,
    report: &mut Report,
    (part, title): (&str, &str),
    all: &[Series],
) -> Result<()> {
    let sizes: Vec<usize> = all
        .first()
        .map_or(vec![], |s| s.by_size.iter().map(|o| o.0).collect());
    let names: Vec<String> = sizes.iter().map(|b| size_name(*b)).collect();
    let mut tables = [
        "median, us",
        "mean with its 80 % confidence interval, us",
        "mean with outliers (more than 1.5 interquartile ranges outside of the box) replaced by the median, as in the paper, us",
    ]
    .map(|what| Table::over(format!("{title}: {what}"), "", names.clone()));
    for one in all {
        let mut rows = [
            vec![one.name.clone()],
            vec![one.name.clone()],
            vec![one.name.clone()],
        ];
        for (bytes, values) in &one.by_size {
            let sorted = Sorted::new(values.iter().copied());
            let mean = mean_80(values);
            let half = (mean.high - mean.low) / 2.0;
            rows[0].push(number(sorted.quantile(0.5)));
            rows[1].push(format!("{} ± {}", number(mean.value), number(half)));
            rows[2].push(number(mean_replaced(&sorted)));
            for (name, q) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
                let name = format!("{part}.{}.{}.{name}", one.id, size_id(*bytes));
                let of_run = over_blocks(values, |sorted| sorted.quantile(q));
                let figure = Figure::estimated(name, of_run, "us");
                report.figure(figure.samples(values.len() as u64));
            }
        }
        for (table, row) in tables.iter_mut().zip(rows) {
            table.row(row);
        }
        if one.lost > 0 {
            report.note(format!("{part}: {} lost {} messages", one.name, one.lost));
        }
    }
    report.tables.extend(tables);
    pictures(context, (part, title), &names, all)
}

fn pictures(
    context: &mut Context,
    (part, title): (&str, &str),
    names: &[String],
    all: &[Series],
) -> Result<()> {
    let mut raw = context.raw(&format!("{part}.csv"), "series,bytes,latency_us")?;
    for one in all {
        for (bytes, values) in &one.by_size {
            for value in values {
                raw.line(format_args!("{},{bytes},{value}", one.id))?;
            }
        }
    }
    raw.finish()?;
    let drawn: Vec<(String, Vec<Sorted>)> = all
        .iter()
        .map(|s| {
            let of = s
                .by_size
                .iter()
                .map(|(_, v)| Sorted::new(v.iter().copied()));
            (s.name.clone(), of.collect())
        })
        .collect();
    let svg = boxes(title, ("size", "us"), names, &drawn)?;
    context.plot(&format!("{part}.svg"), &svg)?;
    let ticks = all.first().map_or(vec![], |s| {
        s.by_size
            .iter()
            .map(|(b, _)| (*b as f64, size_name(*b)))
            .collect()
    });
    let means = all.iter().enumerate().map(|(i, s)| Curve {
        name: s.name.clone(),
        colour: i,
        dashed: false,
        points: s
            .by_size
            .iter()
            .map(|(b, v)| (*b as f64, mean_80(v).value))
            .collect(),
    });
    let svg = curves(
        &format!("{title}: means"),
        ("size", "us"),
        &ticks,
        &means.collect::<Vec<_>>(),
    )?;
    context.plot(&format!("{part}-means.svg"), &svg)
}
