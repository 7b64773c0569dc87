//! Timelines: a row for each actor, with a bar for each of its states over time.

use super::axis::{label, span};
use super::{colour, draw, mesh, with_legend, Area, Drawn};
use crate::frame::Result;
use plotters::prelude::*;

pub type Row = (String, Vec<(f64, f64, usize)>);

const BAR: f64 = 0.62;
const SHORTEST: f64 = 0.0022;

pub fn timeline(
    title: &str,
    x: &str,
    states: &[&str],
    rows: &[Row],
    range: (f64, f64),
) -> Result<String> {
    let count = rows.len().max(1) as f64;
    let range = if range.0 < range.1 {
        range.0..range.1
    } else {
        span([0.0, 1.0].into_iter(), true)
    };
    let row_name = |y: &f64| {
        let i = (count - 1.0 - y).round();
        let is_row = (count - 1.0 - y - i).abs() < 0.01 && i >= 0.0;
        let found = is_row.then(|| rows.get(i as usize)).flatten();
        found.map_or(String::new(), |r| r.0.clone())
    };
    let longest = rows.iter().map(|r| r.0.chars().count()).max().unwrap_or(0) as u32;
    draw(title, |area| {
        let (left, right) = with_legend(area, states.iter().copied());
        let mut builder = ChartBuilder::on(&left);
        builder
            .caption(title, ("sans-serif", 20))
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size((longest * 7 + 16).max(40));
        let mut chart = builder.build_cartesian_2d(range.clone(), -0.5..count - 0.5)?;
        mesh!(
            chart,
            x_desc(x),
            disable_y_mesh(),
            x_label_formatter(&label),
            y_label_formatter(&row_name),
            y_labels(rows.len().max(1) * 2 + 1)
        );
        for (i, (_, stretches)) in rows.iter().enumerate() {
            let middle = count - 1.0 - i as f64;
            let shown = stretches
                .iter()
                .filter(|s| s.1 > range.start && s.0 < range.end);
            let least = (range.end - range.start) * SHORTEST;
            let bar = |&(from, to, state): &(f64, f64, usize)| {
                let corners = [
                    (from.max(range.start), middle - BAR / 2.0),
                    (to.max(from + least).min(range.end), middle + BAR / 2.0),
                ];
                Rectangle::new(corners, colour(state).filled())
            };
            // Shorter bars are drawn last, because longer ones would cover them.
            let mut sorted: Vec<_> = shown.collect();
            sorted.sort_by(|a, b| (b.1 - b.0).total_cmp(&(a.1 - a.0)));
            chart.draw_series(sorted.into_iter().map(bar))?;
        }
        key(&right, states)
    })
}

fn key(area: &Area<'_>, states: &[&str]) -> Drawn {
    for (i, state) in states.iter().enumerate() {
        let y = 60 + 24 * i as i32;
        let box_ = Rectangle::new([(0, y - 7), (22, y + 7)], colour(i).filled());
        area.draw(&box_)?;
        area.draw(&Text::new(
            (*state).to_owned(),
            (30, y - 8),
            ("sans-serif", 14),
        ))?;
    }
    Ok(())
}
