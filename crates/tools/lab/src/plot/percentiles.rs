//! Latency by percentile.

use super::axis::{label, percentile_axis};
use super::{chart, colour, draw, entry, legend, mesh, stroke, with_legend};
use crate::frame::Result;
use crate::measure::stats::Sorted;
use plotters::prelude::*;
use std::ops::Range;

/// Returns `v` or 0.001, whichever is larger, because a logarithmic axis cannot show zero.
fn positive(v: f64) -> f64 {
    v.max(1e-3)
}

fn extent(series: &[(&str, Sorted)]) -> Range<f64> {
    let values = || series.iter().map(|s| s.1.values());
    let least = values().filter_map(|v| v.first().copied().map(positive));
    let greatest = values().filter_map(|v| v.last().copied().map(positive));
    let (low, high) = (
        least.fold(f64::MAX, f64::min),
        greatest.fold(1e-3, f64::max),
    );
    if low > high {
        1.0..10.0
    } else {
        low * 0.8..high * 1.25
    }
}

fn points(sorted: &Sorted) -> Vec<(f64, f64)> {
    let n = sorted.len();
    if n == 0 {
        return vec![];
    }
    let last = (n as f64).log10();
    (0..=(last * 40.0) as usize)
        .map(|k| k as f64 / 40.0)
        .chain([last])
        .map(|x| (x, positive(sorted.quantile(1.0 - 10f64.powf(-x)))))
        .collect()
}

pub fn percentiles(title: &str, unit: &str, series: &[(&str, Sorted)]) -> Result<String> {
    let count = series.iter().map(|s| s.1.len()).max();
    let x_axis = percentile_axis(count.unwrap_or(0).max(10) as f64);
    let range = extent(series);
    draw(title, |area| {
        // A legend with many entries would cover lines of the plot.
        let many = series.len() > 2;
        let (left, right) = if many {
            with_legend(area, series.iter().map(|s| s.0))
        } else {
            (area.clone(), area.clone())
        };
        let mut chart = chart(&left, title).build_cartesian_2d(x_axis, range.log_scale())?;
        mesh!(
            chart,
            x_desc("percentile"),
            y_desc(unit),
            y_label_formatter(&label)
        );
        for (i, (name, sorted)) in series.iter().enumerate() {
            let style = colour(i).stroke_width(2);
            let line = chart.draw_series(LineSeries::new(points(sorted), style))?;
            if many {
                entry(&right, i, name, colour(i), false)?;
            } else {
                line.label(*name).legend(stroke(colour(i).stroke_width(3)));
            }
        }
        if !many {
            // Lines rise to the right, so the corner below them is free.
            legend!(chart, SeriesLabelPosition::LowerRight);
        }
        Ok(())
    })
}
