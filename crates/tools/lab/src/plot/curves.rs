//! Lines with dots over a quantity, with two logarithmic axes.

use super::axis::{number_axis, Ticks};
use super::{chart, colour, draw, entry, mesh, with_legend};
use crate::frame::Result;
use plotters::prelude::*;

#[derive(Debug, Clone)]
pub struct Curve {
    pub name: String,
    pub colour: usize,
    pub dashed: bool,
    pub points: Vec<(f64, f64)>,
}

pub fn curves(
    title: &str,
    (x, y): (&str, &str),
    ticks: &[(f64, String)],
    curves: &[Curve],
) -> Result<String> {
    let log = |v: f64| v.max(1e-9).log10();
    let points = || curves.iter().flat_map(|c| c.points.iter().copied());
    let around = |values: &mut dyn Iterator<Item = f64>| {
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
        let room = ((high - low) * 0.06).max(0.05);
        if low > high {
            0.0..1.0
        } else {
            low - room..high + room
        }
    };
    let x_axis = Ticks {
        range: around(&mut ticks.iter().map(|t| log(t.0))),
        ticks: ticks.iter().map(|(v, l)| (log(*v), l.clone())).collect(),
    };
    let y_axis = number_axis(around(&mut points().map(|p| log(p.1))), true);
    draw(title, |area| {
        let (left, right) = with_legend(area, curves.iter().map(|c| &*c.name));
        let mut chart = chart(&left, title).build_cartesian_2d(x_axis, y_axis)?;
        mesh!(chart, x_desc(x), y_desc(y));
        for (i, curve) in curves.iter().enumerate() {
            let points = || curve.points.iter().map(|&(x, y)| (log(x), log(y)));
            let paint = colour(curve.colour);
            if curve.dashed {
                let style = paint.stroke_width(2);
                chart.draw_series(DashedLineSeries::new(points(), 7, 4, style))?;
            } else {
                chart.draw_series(LineSeries::new(points(), paint.stroke_width(2)))?;
            }
            chart.draw_series(points().map(|p| Circle::new(p, 3, paint.filled())))?;
            entry(&right, i, &curve.name, paint, curve.dashed)?;
        }
        Ok(())
    })
}
