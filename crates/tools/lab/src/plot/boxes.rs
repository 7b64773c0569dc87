//! Box plots over categories with a logarithmic axis.

use super::axis::{number_axis, Ticks};
use super::{chart, colour, draw, entry, mesh, with_legend};
use crate::frame::Result;
use crate::measure::stats::Sorted;
use plotters::prelude::*;

const WHISKER: f64 = 1.5;

/// Draws one box for each category of each series, side by side. Each box shows the quartiles and
/// the median. The whiskers end at the last samples within 1.5 box heights, and all other samples
/// are dots.
pub fn boxes(
    title: &str,
    (x, y): (&str, &str),
    categories: &[String],
    series: &[(String, Vec<Sorted>)],
) -> Result<String> {
    let log = |v: f64| v.max(1e-9).log10();
    let values = || series.iter().flat_map(|s| &s.1).flat_map(|s| s.values());
    let (low, high) = values().fold((f64::MAX, f64::MIN), |(l, h), v| {
        (l.min(log(*v)), h.max(log(*v)))
    });
    let range = if low > high {
        0.0..1.0
    } else {
        low - 0.1..high + 0.1
    };
    let names = categories.iter().enumerate();
    let axis = Ticks {
        range: -0.6..categories.len().max(1) as f64 - 0.4,
        ticks: names.map(|(i, name)| (i as f64, name.clone())).collect(),
    };
    let width = 0.8 / series.len().max(1) as f64;
    draw(title, |area| {
        let (left, right) = with_legend(area, series.iter().map(|s| &*s.0));
        let mut chart = chart(&left, title).build_cartesian_2d(axis, number_axis(range, true))?;
        mesh!(chart, x_desc(x), y_desc(y));
        for (i, (name, all)) in series.iter().enumerate() {
            let paint = colour(i);
            entry(&right, i, name, paint, false)?;
            for (category, sorted) in all.iter().enumerate() {
                let Some(five) = BoxNumbers::of(sorted) else {
                    continue;
                };
                let from = category as f64 - 0.4 + i as f64 * width;
                let (to, middle) = (from + width * 0.86, from + width * 0.43);
                let corners = [(from, log(five.quartiles.0)), (to, log(five.quartiles.1))];
                chart.draw_series([Rectangle::new(corners, paint.mix(0.35).filled())])?;
                chart.draw_series([Rectangle::new(corners, paint.stroke_width(1))])?;
                let line = |a: (f64, f64), b: (f64, f64), thick| {
                    PathElement::new(
                        [(a.0, log(a.1)), (b.0, log(b.1))],
                        paint.stroke_width(thick),
                    )
                };
                let ends = five.whiskers;
                chart.draw_series([
                    line((from, five.median), (to, five.median), 2),
                    line((middle, ends.0), (middle, five.quartiles.0), 1),
                    line((middle, five.quartiles.1), (middle, ends.1), 1),
                ])?;
                let outside = sorted
                    .values()
                    .iter()
                    .filter(|v| **v < ends.0 || **v > ends.1);
                let dot = |v: &f64| Circle::new((middle, log(*v)), 2, paint.stroke_width(1));
                chart.draw_series(outside.map(dot))?;
            }
        }
        Ok(())
    })
}

struct BoxNumbers {
    whiskers: (f64, f64),
    quartiles: (f64, f64),
    median: f64,
}

impl BoxNumbers {
    fn of(sorted: &Sorted) -> Option<BoxNumbers> {
        let values = sorted.values();
        let (first, last) = (values.first()?, values.last()?);
        let quartiles = (sorted.quantile(0.25), sorted.quantile(0.75));
        let reach = WHISKER * (quartiles.1 - quartiles.0);
        let low = values.iter().find(|v| **v >= quartiles.0 - reach);
        let high = values.iter().rfind(|v| **v <= quartiles.1 + reach);
        Some(BoxNumbers {
            whiskers: (*low.unwrap_or(first), *high.unwrap_or(last)),
            quartiles,
            median: sorted.quantile(0.5),
        })
    }
}
