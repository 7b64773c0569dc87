//! Individual values as points: several series in one plot or side by side.

use super::axis::label;
use super::{chart, colour, draw, entry, mesh, with_legend};
use crate::frame::Result;
use crate::measure::stats::Sorted;
use plotters::prelude::*;
use std::ops::Range;

pub type Points = (String, Vec<(f64, f64)>);

fn last<'p>(points: impl IntoIterator<Item = &'p (f64, f64)>) -> f64 {
    points.into_iter().fold(1.0, |m: f64, p| m.max(p.0))
}

/// Returns the largest x of all series, and a range of y from the smallest y to `high`. The range
/// is extended at each end by the share `room` of its length.
fn extent(series: &[Points], high: f64, room: f64) -> (f64, Range<f64>) {
    let points = || series.iter().flat_map(|s| &s.1);
    let last = last(points());
    let low = points().fold(f64::MAX, |l, p| l.min(p.1));
    if low > high {
        return (last, 0.0..1.0);
    }
    let room = ((high - low) * room).max(0.5);
    (last, (low - room).max(0.0)..high + room)
}

pub fn dots(title: &str, x: &str, y: &str, series: &[Points]) -> Result<String> {
    let high = series.iter().flat_map(|s| &s.1).map(|p| p.1);
    let (last, range) = extent(series, high.fold(f64::MIN, f64::max), 0.05);
    draw(title, |area| {
        let (left, right) = with_legend(area, series.iter().map(|s| &*s.0));
        let mut chart = chart(&left, title).build_cartesian_2d(0.0..last, range)?;
        mesh!(chart, x_desc(x), y_desc(y));
        for (i, (name, points)) in series.iter().enumerate() {
            let paint = colour(i);
            chart.draw_series(points.iter().map(|&p| Circle::new(p, 2, paint.filled())))?;
            entry(&right, i, name, paint, false)?;
        }
        Ok(())
    })
}

/// Draws each series as points in a panel of its own. All panels have the same range of y. Points
/// far above the usual ones are left out, and the panel's name states their number.
pub fn panels(title: &str, x: &str, y: &str, series: &[Points]) -> Result<String> {
    let usual = |s: &Points| Sorted::new(s.1.iter().map(|p| p.1)).quantile(0.95);
    let shown = series.iter().filter(|s| !s.1.is_empty());
    let (_, range) = extent(series, shown.map(usual).fold(f64::MIN, f64::max), 0.1);
    let rows = if series.len() > 4 { 2 } else { 1 };
    let columns = series.len().div_ceil(rows).max(1);
    draw(title, |area| {
        let below = area.titled(title, ("sans-serif", 20))?;
        let areas = below.split_evenly((rows, columns));
        for (i, (name, points)) in series.iter().enumerate() {
            let above = points.iter().filter(|p| p.1 > range.end).count();
            let name = match above {
                0 => name.clone(),
                _ => format!("{name} ({above} above)"),
            };
            let mut chart = ChartBuilder::on(&areas[i])
                .caption(name, ("sans-serif", 14))
                .margin(6)
                .margin_right(12)
                .x_label_area_size(36)
                .y_label_area_size(46)
                .build_cartesian_2d(0.0..last(points), range.clone())?;
            chart
                .configure_mesh()
                .x_desc(if i + columns >= series.len() { x } else { "" })
                .y_desc(if i % columns == 0 { y } else { "" })
                .x_labels(4)
                .x_label_formatter(&label)
                .y_label_formatter(&label)
                .light_line_style(WHITE)
                .label_style(("sans-serif", 12))
                .axis_desc_style(("sans-serif", 13))
                .draw()?;
            let paint = colour(i);
            let drawn = points.iter().filter(|p| p.1 <= range.end);
            chart.draw_series(drawn.map(|&p| Circle::new(p, 1, paint.filled())))?;
        }
        Ok(())
    })
}
