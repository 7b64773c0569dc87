//! Bar charts.

use super::axis::{label, span, Ticks};
use super::{chart, colour, draw, legend, mesh, stroke, MARK};
use crate::frame::report::number;
use crate::frame::{Estimate, Result};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub fn bars(
    title: &str,
    unit: &str,
    categories: &[String],
    series: &[(String, Vec<Estimate>)],
    mark: Option<(f64, &str)>,
) -> Result<String> {
    let all = || series.iter().flat_map(|s| &s.1);
    let values = all().flat_map(|b| [b.value, b.low, b.high]);
    let y_range = span(values.chain(mark.map(|m| m.0)), true);
    let room = (y_range.end - y_range.start) * 0.015;
    let end = categories.len().max(1) as f64 - 0.4;
    let width = 0.8 / series.len().max(1) as f64;
    let names = categories.iter().enumerate();
    let axis = Ticks {
        range: -0.6..end,
        ticks: names.map(|(i, name)| (i as f64, name.clone())).collect(),
    };
    draw(title, |area| {
        let mut chart = chart(area, title).build_cartesian_2d(axis, y_range)?;
        mesh!(
            chart,
            disable_x_mesh(),
            y_desc(unit),
            y_label_formatter(&label)
        );
        for (i, (series_name, bars)) in series.iter().enumerate() {
            let left = |c: usize| c as f64 - 0.4 + i as f64 * width;
            chart
                .draw_series(bars.iter().enumerate().map(|(c, b)| {
                    let corners = [(left(c), 0.0), (left(c) + width * 0.92, b.value)];
                    Rectangle::new(corners, colour(i).mix(0.85).filled())
                }))?
                .label(series_name)
                .legend(move |(x, y)| {
                    Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour(i).filled())
                });
            for (c, bar) in bars.iter().enumerate() {
                let middle = left(c) + width * 0.46;
                if bar.low < bar.high {
                    let whisker = [(middle, bar.low), (middle, bar.high)];
                    chart.draw_series([PathElement::new(whisker, BLACK)])?;
                }
                let anchor = Pos::new(HPos::Center, VPos::Bottom);
                let style = ("sans-serif", 11).into_font().into_text_style(area);
                let top = bar.value.max(bar.high).max(0.0) + room;
                let text = Text::new(number(bar.value), (middle, top), style.pos(anchor));
                chart.draw_series([text])?;
            }
        }
        if let Some((y, name)) = mark {
            let style = MARK.stroke_width(2);
            chart
                .draw_series(DashedLineSeries::new([(-0.6, y), (end, y)], 7, 5, style))?
                .label(name)
                .legend(stroke(style));
        }
        legend!(chart, SeriesLabelPosition::UpperRight);
        Ok(())
    })
}
