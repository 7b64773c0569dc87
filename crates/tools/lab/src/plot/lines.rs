//! Lines with dots over a quantity.

use super::axis::{label, number_axis, span};
use super::{chart, colour, draw, entry, legend, mesh, stroke, with_legend, MARK};
use crate::frame::Result;
use plotters::prelude::*;
use std::ops::Range;

#[derive(Debug, Clone)]
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

#[derive(Debug, Clone, Copy)]
pub struct Axes<'a> {
    pub x: &'a str,
    pub y: &'a str,
    pub log_x: bool,
    pub from_zero: bool,
    /// A dashed horizontal line for a target or for the paper's value: its position and its name.
    pub mark: Option<(f64, &'a str)>,
}

impl<'a> Axes<'a> {
    pub fn new(x: &'a str, y: &'a str) -> Self {
        Axes {
            x,
            y,
            log_x: false,
            from_zero: true,
            mark: None,
        }
    }

    fn place(&self, x: f64) -> f64 {
        if self.log_x {
            x.max(1e-12).log10()
        } else {
            x
        }
    }

    fn x_range(&self, lines: &[Line]) -> Range<f64> {
        let places = lines.iter().flat_map(|l| &l.points);
        let mut range = span(places.map(|p| self.place(p.0)), false);
        let spare = (range.end - range.start) * 0.13;
        range = range.start + spare..range.end - spare;
        if !self.log_x {
            range.start = range.start.max(0.0);
        }
        range
    }

    fn free_corner(&self, lines: &[Line], middle: f64) -> SeriesLabelPosition {
        let highest = |right: bool| {
            let points = lines.iter().flat_map(|l| &l.points);
            points
                .filter(|p| (self.place(p.0) > middle) == right)
                .map(|p| p.1)
                .fold(f64::MIN, f64::max)
        };
        if highest(true) > highest(false) {
            SeriesLabelPosition::UpperLeft
        } else {
            SeriesLabelPosition::UpperRight
        }
    }
}

pub fn lines(title: &str, axes: Axes<'_>, lines: &[Line]) -> Result<String> {
    let ys = lines.iter().flat_map(|l| &l.points).map(|p| p.1);
    let y_range = span(ys.chain(axes.mark.map(|m| m.0)), axes.from_zero);
    let x_range = axes.x_range(lines);
    let middle = (x_range.start + x_range.end) / 2.0;
    let x_axis = number_axis(x_range.clone(), axes.log_x);
    draw(title, |area| {
        // A legend with many entries would cover lines of the plot.
        let many = lines.len() > 3;
        let names = lines.iter().map(|l| &*l.name);
        let (left, right) = if many {
            with_legend(area, names.chain(axes.mark.iter().map(|m| m.1)))
        } else {
            (area.clone(), area.clone())
        };
        let mut chart = chart(&left, title).build_cartesian_2d(x_axis, y_range)?;
        mesh!(
            chart,
            x_desc(axes.x),
            y_desc(axes.y),
            y_label_formatter(&label)
        );
        if let Some((y, name)) = axes.mark {
            let style = MARK.stroke_width(2);
            if many {
                entry(&right, lines.len(), name, MARK, true)?;
            }
            let across = [(x_range.start, y), (x_range.end, y)];
            chart
                .draw_series(DashedLineSeries::new(across, 7, 5, style))?
                .label(name)
                .legend(stroke(style));
        }
        for (i, line) in lines.iter().enumerate() {
            let points = || line.points.iter().map(|&(x, y)| (axes.place(x), y));
            if many {
                entry(&right, i, &line.name, colour(i), false)?;
            }
            chart
                .draw_series(LineSeries::new(points(), colour(i).stroke_width(2)))?
                .label(&line.name)
                .legend(stroke(colour(i).stroke_width(3)));
            chart.draw_series(points().map(|p| Circle::new(p, 3, colour(i).filled())))?;
        }
        if !many {
            legend!(chart, axes.free_corner(lines, middle));
        }
        Ok(())
    })
}
