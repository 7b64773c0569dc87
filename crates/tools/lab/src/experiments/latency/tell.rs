//! Tables and pictures of latencies over sizes.

use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::size::{size_id, size_name};
use crate::frame::{Context, Result};
use crate::measure::stats::{mean_80, mean_replaced, Sorted};
use crate::plot::{boxes, curves, Curve};

/// Latencies (us) of one condition, by size.
pub struct Series {
    /// In tables and pictures.
    pub name: String,
    /// In names of figures.
    pub id: String,
    /// Of each size.
    pub of: Vec<(usize, Vec<f64>)>,
    /// Messages that did not arrive.
    pub lost: u64,
}

impl Series {
    /// Without samples yet.
    pub fn new(name: impl Into<String>, id: impl Into<String>) -> Series {
        Series {
            name: name.into(),
            id: id.into(),
            of: vec![],
            lost: 0,
        }
    }

    /// Adds what was measured of a size, of so many messages.
    pub fn add(&mut self, bytes: usize, values: Vec<f64>, sent: u64) {
        self.lost += sent.saturating_sub(values.len() as u64);
        self.of.push((bytes, values));
    }
}

/// A document's part: medians, means with intervals, what replacing outliers does, and a box plot.
pub fn series(
    context: &mut Context,
    report: &mut Report,
    (part, title): (&str, &str),
    all: &[Series],
) -> Result<()> {
    let sizes: Vec<usize> = all
        .first()
        .map_or(vec![], |s| s.of.iter().map(|o| o.0).collect());
    let names: Vec<String> = sizes.iter().map(|b| size_name(*b)).collect();
    let mut tables = [
        "median, us",
        "mean, us, and its interval at 80 %",
        "mean where samples beyond 1.5 of the box are replaced by the median, as in the paper, us",
    ]
    .map(|what| Table::over(format!("{title}: {what}"), "", names.clone()));
    for one in all {
        let mut rows = [
            vec![one.name.clone()],
            vec![one.name.clone()],
            vec![one.name.clone()],
        ];
        for (bytes, values) in &one.of {
            let sorted = Sorted::new(values.iter().copied());
            let mean = mean_80(values);
            let half = (mean.high - mean.low) / 2.0;
            rows[0].push(number(sorted.quantile(0.5)));
            rows[1].push(format!("{} ± {}", number(mean.value), number(half)));
            rows[2].push(number(mean_replaced(&sorted)));
            for (name, q) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
                let name = format!("{part}.{}.{}.{name}", one.id, size_id(*bytes));
                let figure = Figure::new(name, sorted.quantile(q), "us");
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
        for (bytes, values) in &one.of {
            for value in values {
                raw.line(format_args!("{},{bytes},{value}", one.id))?;
            }
        }
    }
    raw.finish()?;
    let drawn: Vec<(String, Vec<Sorted>)> = all
        .iter()
        .map(|s| {
            let of = s.of.iter().map(|(_, v)| Sorted::new(v.iter().copied()));
            (s.name.clone(), of.collect())
        })
        .collect();
    let svg = boxes(title, ("size", "us"), names, &drawn)?;
    context.plot(&format!("{part}.svg"), &svg)?;
    let ticks = all.first().map_or(vec![], |s| {
        s.of.iter()
            .map(|(b, _)| (*b as f64, size_name(*b)))
            .collect()
    });
    let means = all.iter().enumerate().map(|(i, s)| Curve {
        name: s.name.clone(),
        colour: i,
        dashed: false,
        points: s
            .of
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
