//! Plots as SVG text: latency by percentile, lines over a quantity, bars per category.

use crate::experiment::LabError;
use crate::stats::Sorted;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use std::ops::Range;

const SIZE: (u32, u32) = (860, 480);

/// Told apart also by people who see fewer colours (Okabe and Ito's palette).
const COLOURS: [RGBColor; 9] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    // For more than those, darker than the palette's own.
    RGBColor(60, 60, 60),
    RGBColor(136, 34, 85),
    RGBColor(153, 153, 51),
];

fn colour(i: usize) -> RGBColor {
    COLOURS[i % COLOURS.len()]
}

/// The legend, alike in every plot. A macro, since a chart's type names its axes.
macro_rules! legend {
    ($chart:expr, $position:expr) => {
        $chart
            .configure_series_labels()
            .position($position)
            .background_style(WHITE.mix(0.85))
            .border_style(RGBColor(200, 200, 200))
            .label_font(("sans-serif", 14))
            .draw()?
    };
}

/// How wide the area left of a legend is, so that these names fit beside it.
fn beside<'a>(names: impl Iterator<Item = &'a str>) -> u32 {
    let longest = names.map(|n| n.chars().count()).max().unwrap_or(0) as u32;
    SIZE.0 - (longest * 7 + 50).clamp(150, SIZE.0 / 2)
}

/// An entry of a legend beside the plot.
fn entry(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    number: usize,
    name: &str,
    paint: RGBColor,
    dashed: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let y = 60 + 24 * number as i32;
    let style = paint.stroke_width(3);
    let dashes: &[(i32, i32)] = if dashed {
        &[(0, 9), (14, 23)]
    } else {
        &[(0, 23)]
    };
    for &(from, to) in dashes {
        area.draw(&PathElement::new([(from, y), (to, y)], style))?;
    }
    let text = Text::new(name.to_string(), (30, y - 8), ("sans-serif", 14));
    area.draw(&text)?;
    Ok(())
}

/// Draws into a string.
fn draw(
    title: &str,
    body: impl FnOnce(
        &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    ) -> Result<(), Box<dyn std::error::Error>>,
) -> Result<String, LabError> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let drawn = area.fill(&WHITE).map_err(|e| e.to_string()).and_then(|()| {
            body(&area)
                .map_err(|e| e.to_string())
                .and_then(|()| area.present().map_err(|e| e.to_string()))
        });
        drawn.map_err(|why| LabError::Plot {
            name: title.to_string(),
            why,
        })?;
    }
    Ok(svg)
}

/// A range that shows `values` with room above; from 0 unless `from_zero` is off.
fn span(values: impl Iterator<Item = f64>, from_zero: bool) -> Range<f64> {
    let (low, high) = values
        .filter(|v| v.is_finite())
        .fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
    if low > high {
        return 0.0..1.0;
    }
    let low = if from_zero { low.min(0.0) } else { low };
    // A quarter more than needed: the legend is there.
    let room = ((high - low) * 0.25).max(high.abs() * 0.01).max(1e-9);
    (if low < 0.0 || !from_zero {
        low - room
    } else {
        low
    })..(high + room)
}

/// Numbers at an axis: short.
fn label(v: &f64) -> String {
    let a = v.abs();
    if a >= 1e6 {
        format!("{} M", crate::report::number(v / 1e6))
    } else if a >= 1e4 {
        format!("{} k", crate::report::number(v / 1e3))
    } else {
        crate::report::number(*v)
    }
}

/// An axis whose ticks are given, with their labels.
struct Ticks {
    range: Range<f64>,
    ticks: Vec<(f64, String)>,
}

impl Ranged for Ticks {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;
    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        limit.0 + (f64::from(limit.1 - limit.0) * share) as i32
    }
    fn key_points<H: KeyPointHint>(&self, _: H) -> Vec<f64> {
        self.ticks.iter().map(|t| t.0).collect()
    }
    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Ticks {
    fn format_ext(&self, value: &f64) -> String {
        self.ticks
            .iter()
            .find(|t| t.0 == *value)
            .map(|t| t.1.clone())
            .unwrap_or_default()
    }
}

/// Where a share below 1 lies on the axis of percentiles: each step to the right is a nine more,
/// as HdrHistogram draws them.
fn nines(share: f64) -> f64 {
    -(1.0 - share).log10()
}

/// The axis of percentiles up to the last of `count` samples.
fn percentile_axis(count: f64) -> Ticks {
    let ticks = [
        (0.0, "0"),
        (0.5, "50"),
        (0.9, "90"),
        (0.99, "99"),
        (0.999, "99.9"),
        (0.9999, "99.99"),
        (0.99999, "99.999"),
    ];
    let end = count.log10();
    Ticks {
        range: 0.0..end,
        ticks: ticks
            .into_iter()
            .map(|(q, t)| (nines(q), format!("{t} %")))
            .filter(|t| t.0 <= end)
            .collect(),
    }
}

/// Ticks at round numbers: 1, 2, 5 and their tens, each of them where the axis is logarithmic
/// (`range` then holds exponents), about eight otherwise.
fn number_axis(range: Range<f64>, log: bool) -> Ticks {
    let steps = [1.0, 2.0, 5.0];
    let ticks: Vec<f64> = if log {
        let decades = range.start.floor() as i32..=range.end.ceil() as i32;
        decades
            .flat_map(|d| steps.map(|s: f64| s.log10() + f64::from(d)))
            .collect()
    } else {
        let rough = ((range.end - range.start) / 8.0).max(1e-12);
        let decade = 10f64.powf(rough.log10().floor());
        let step = steps
            .into_iter()
            .chain([10.0])
            .map(|s| s * decade)
            .find(|s| *s >= rough)
            .unwrap_or(rough);
        let first = (range.start / step).ceil() as i64;
        (first..first + 20).map(|i| i as f64 * step).collect()
    };
    let ticks = ticks
        .into_iter()
        .filter(|t| range.contains(t))
        .map(|t| (t, label(&if log { 10f64.powf(t) } else { t })))
        .collect();
    Ticks { range, ticks }
}

/// The value at each percentile, logarithmic, one line per series.
pub fn percentiles(title: &str, unit: &str, series: &[(&str, Sorted)]) -> Result<String, LabError> {
    let count = series
        .iter()
        .map(|s| s.1.values().len())
        .max()
        .unwrap_or(0)
        .max(10);
    let positive = |v: &f64| v.max(1e-3);
    let low = series
        .iter()
        .filter_map(|s| s.1.values().first())
        .map(positive)
        .fold(f64::MAX, f64::min);
    let high = series
        .iter()
        .filter_map(|s| s.1.values().last())
        .map(positive)
        .fold(1e-3, f64::max);
    let (low, high) = if low > high {
        (1.0, 10.0)
    } else {
        (low * 0.8, high * 1.25)
    };
    draw(title, |area| {
        // Within the plot the legend of many would lie over their lines.
        let many = series.len() > 2;
        let (left, right) = if many {
            area.split_horizontally(beside(series.iter().map(|s| s.0)))
        } else {
            (area.clone(), area.clone())
        };
        let mut chart = ChartBuilder::on(&left)
            .caption(title, ("sans-serif", 20))
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(70)
            .build_cartesian_2d(percentile_axis(count as f64), (low..high).log_scale())?;
        chart
            .configure_mesh()
            .x_desc("percentile")
            .y_desc(unit)
            .y_label_formatter(&label)
            .light_line_style(WHITE)
            .label_style(("sans-serif", 13))
            .axis_desc_style(("sans-serif", 14))
            .draw()?;
        for (i, (name, sorted)) in series.iter().enumerate() {
            // 40 points per nine are more than the picture can show.
            let n = sorted.values().len();
            let last = (n.max(1) as f64).log10();
            let points: Vec<(f64, f64)> = (0..=(last * 40.0) as usize)
                .map(|k| k as f64 / 40.0)
                .chain([last])
                .map(|x| (x, positive(&sorted.quantile(1.0 - 10f64.powf(-x)))))
                .collect();
            let points = if n == 0 { vec![] } else { points };
            let line = chart.draw_series(LineSeries::new(points, colour(i).stroke_width(2)))?;
            if many {
                entry(&right, i, name, colour(i), false)?;
                continue;
            }
            line.label(*name).legend(move |(x, y)| {
                PathElement::new([(x, y), (x + 18, y)], colour(i).stroke_width(3))
            });
        }
        if !many {
            // Lines rise to the right, so that the corner below them is free.
            legend!(chart, SeriesLabelPosition::LowerRight);
        }
        Ok(())
    })
}

/// A line of [`lines`].
#[derive(Debug, Clone)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Points, by ascending x.
    pub points: Vec<(f64, f64)>,
}

/// Axes of [`lines`].
#[derive(Debug, Clone, Copy)]
pub struct Axes<'a> {
    /// What x is, with its unit.
    pub x: &'a str,
    /// What y is, with its unit.
    pub y: &'a str,
    /// Logarithmic x.
    pub log_x: bool,
    /// Begin y at zero.
    pub from_zero: bool,
    /// A dashed line across, with its name: a target or the paper's value.
    pub mark: Option<(f64, &'a str)>,
}

/// Lines with dots over a quantity.
pub fn lines(title: &str, axes: Axes<'_>, lines: &[Line]) -> Result<String, LabError> {
    let points = || lines.iter().flat_map(|l| l.points.iter().copied());
    let ys = points().map(|p| p.1).chain(axes.mark.map(|m| m.0));
    let y_range = span(ys, axes.from_zero);
    let x_of = |x: f64| if axes.log_x { x.max(1e-12).log10() } else { x };
    let mut x_range = span(points().map(|p| x_of(p.0)), false);
    let spare = (x_range.end - x_range.start) * 0.13;
    x_range = x_range.start + spare..x_range.end - spare;
    if !axes.log_x {
        x_range.start = x_range.start.max(0.0);
    }
    let x_axis = number_axis(x_range.clone(), axes.log_x);
    draw(title, |area| {
        // Within the plot the legend of many would lie over some of them.
        let many = lines.len() > 3;
        let names = lines.iter().map(|l| &*l.name);
        let (left, right) = if many {
            area.split_horizontally(beside(names.chain(axes.mark.iter().map(|m| m.1))))
        } else {
            (area.clone(), area.clone())
        };
        let mut chart = ChartBuilder::on(&left)
            .caption(title, ("sans-serif", 20))
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(70)
            .build_cartesian_2d(x_axis, y_range)?;
        chart
            .configure_mesh()
            .x_desc(axes.x)
            .y_desc(axes.y)
            .y_label_formatter(&label)
            .light_line_style(WHITE)
            .label_style(("sans-serif", 13))
            .axis_desc_style(("sans-serif", 14))
            .draw()?;
        if let Some((y, name)) = axes.mark {
            let paint = RGBColor(110, 110, 110);
            let style = paint.stroke_width(2);
            if many {
                entry(&right, lines.len(), name, paint, true)?;
            }
            chart
                .draw_series(DashedLineSeries::new(
                    [(x_range.start, y), (x_range.end, y)],
                    7,
                    5,
                    style,
                ))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        }
        for (i, line) in lines.iter().enumerate() {
            let points: Vec<_> = line.points.iter().map(|&(x, y)| (x_of(x), y)).collect();
            if many {
                entry(&right, i, &line.name, colour(i), false)?;
            }
            chart
                .draw_series(LineSeries::new(
                    points.iter().copied(),
                    colour(i).stroke_width(2),
                ))?
                .label(&line.name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 18, y)], colour(i).stroke_width(3))
                });
            chart.draw_series(
                points
                    .iter()
                    .map(|&p| Circle::new(p, 3, colour(i).filled())),
            )?;
        }
        // In the corner where the lines are lower.
        let middle = (x_range.start + x_range.end) / 2.0;
        let highest = |right: bool| {
            points()
                .filter(|p| (x_of(p.0) > middle) == right)
                .map(|p| p.1)
                .fold(f64::MIN, f64::max)
        };
        let corner = if highest(true) > highest(false) {
            SeriesLabelPosition::UpperLeft
        } else {
            SeriesLabelPosition::UpperRight
        };
        if !many {
            legend!(chart, corner);
        }
        Ok(())
    })
}

/// A series: its name and its points.
pub type Points = (String, Vec<(f64, f64)>);

/// The last x.
fn last<'p>(points: impl IntoIterator<Item = &'p (f64, f64)>) -> f64 {
    points.into_iter().fold(1.0, |m: f64, p| m.max(p.0))
}

/// The last x of several series, and a range of y up to `high`, with room around by this part.
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

/// Points of several series over a common x, with the legend beside them: values one by one.
pub fn dots(title: &str, x: &str, y: &str, series: &[Points]) -> Result<String, LabError> {
    let high = series.iter().flat_map(|s| &s.1).map(|p| p.1);
    let (last, range) = extent(series, high.fold(f64::MIN, f64::max), 0.05);
    draw(title, |area| {
        let (left, right) = area.split_horizontally(beside(series.iter().map(|s| &*s.0)));
        let mut chart = ChartBuilder::on(&left)
            .caption(title, ("sans-serif", 20))
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..last, range)?;
        chart
            .configure_mesh()
            .x_desc(x)
            .y_desc(y)
            .light_line_style(WHITE)
            .label_style(("sans-serif", 13))
            .axis_desc_style(("sans-serif", 14))
            .draw()?;
        for (i, (name, points)) in series.iter().enumerate() {
            let paint = colour(i);
            chart.draw_series(points.iter().map(|&p| Circle::new(p, 2, paint.filled())))?;
            entry(&right, i, name, paint, false)?;
        }
        Ok(())
    })
}

/// Points of several series, each in a panel of its own, as wide as it needs and with the same y: values
/// one by one, where side by side tells more than on top of each other. What few values lie far above are
/// counted in the panel's name, not drawn.
pub fn panels(title: &str, x: &str, y: &str, series: &[Points]) -> Result<String, LabError> {
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

/// A line of [`curves`].
#[derive(Debug, Clone)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// Number of its colour, so that it can be the same in every plot.
    pub colour: usize,
    /// Drawn dashed: another kind of the same.
    pub dashed: bool,
    /// Points, by ascending x.
    pub points: Vec<(f64, f64)>,
}

/// Lines with dots over a quantity, both logarithmic, with the legend beside them. `ticks` are the
/// values of x with their labels.
pub fn curves(
    title: &str,
    (x, y): (&str, &str),
    ticks: &[(f64, String)],
    curves: &[Curve],
) -> Result<String, LabError> {
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
        let (left, right) = area.split_horizontally(beside(curves.iter().map(|c| &*c.name)));
        let mut chart = ChartBuilder::on(&left)
            .caption(title, ("sans-serif", 20))
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(70)
            .build_cartesian_2d(x_axis, y_axis)?;
        chart
            .configure_mesh()
            .x_desc(x)
            .y_desc(y)
            .light_line_style(WHITE)
            .label_style(("sans-serif", 13))
            .axis_desc_style(("sans-serif", 14))
            .draw()?;
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

/// Groups of bars: one group per category, one bar in it per series, with the value above. An
/// interval is drawn as a whisker.
pub fn bars(
    title: &str,
    unit: &str,
    categories: &[String],
    series: &[(String, Vec<Bar>)],
    mark: Option<(f64, &str)>,
) -> Result<String, LabError> {
    let values = series
        .iter()
        .flat_map(|s| s.1.iter())
        .flat_map(|b| [b.value, b.low, b.high]);
    let y_range = span(values.chain(mark.map(|m| m.0)), true);
    let room = (y_range.end - y_range.start) * 0.015;
    let n = categories.len().max(1);
    let width = 0.8 / series.len().max(1) as f64;
    let axis = Ticks {
        range: -0.6..n as f64 - 0.4,
        ticks: categories
            .iter()
            .enumerate()
            .map(|(i, name)| (i as f64, name.clone()))
            .collect(),
    };
    draw(title, |area| {
        let mut chart = ChartBuilder::on(area)
            .caption(title, ("sans-serif", 20))
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(70)
            .build_cartesian_2d(axis, y_range)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .y_desc(unit)
            .y_label_formatter(&label)
            .light_line_style(WHITE)
            .label_style(("sans-serif", 13))
            .axis_desc_style(("sans-serif", 14))
            .draw()?;
        for (i, (series_name, bars)) in series.iter().enumerate() {
            let left = |c: usize| c as f64 - 0.4 + i as f64 * width;
            chart
                .draw_series(bars.iter().enumerate().map(|(c, b)| {
                    Rectangle::new(
                        [(left(c), 0.0), (left(c) + width * 0.92, b.value)],
                        colour(i).mix(0.85).filled(),
                    )
                }))?
                .label(series_name)
                .legend(move |(x, y)| {
                    Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour(i).filled())
                });
            for (c, bar) in bars.iter().enumerate() {
                let middle = left(c) + width * 0.46;
                if bar.low < bar.high {
                    chart.draw_series([PathElement::new(
                        [(middle, bar.low), (middle, bar.high)],
                        BLACK,
                    )])?;
                }
                let style = ("sans-serif", 11).into_font().into_text_style(area).pos(
                    plotters::style::text_anchor::Pos::new(
                        plotters::style::text_anchor::HPos::Center,
                        plotters::style::text_anchor::VPos::Bottom,
                    ),
                );
                let top = bar.value.max(bar.high).max(0.0) + room;
                chart.draw_series([Text::new(
                    crate::report::number(bar.value),
                    (middle, top),
                    style,
                )])?;
            }
        }
        if let Some((y, name)) = mark {
            let style = RGBColor(110, 110, 110).stroke_width(2);
            chart
                .draw_series(DashedLineSeries::new(
                    [(-0.6, y), (n as f64 - 0.4, y)],
                    7,
                    5,
                    style,
                ))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        }
        legend!(chart, SeriesLabelPosition::UpperRight);
        Ok(())
    })
}

/// A bar of [`bars`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bar {
    /// Its height.
    pub value: f64,
    /// Lower end of the whisker; equal to `high` for none.
    pub low: f64,
    /// Upper end of the whisker.
    pub high: f64,
}

impl Bar {
    /// A bar without whisker.
    pub fn plain(value: f64) -> Self {
        Bar {
            value,
            low: value,
            high: value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Set ONBEAT_PLOTS to a directory to look at them.
    fn keep(name: &str, svg: &str) {
        assert!(
            svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"),
            "{name}"
        );
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name}");
        if let Some(dir) = std::env::var_os("ONBEAT_PLOTS") {
            std::fs::write(std::path::Path::new(&dir).join(name), svg).unwrap();
        }
    }

    #[test]
    fn panels_hold_their_data() {
        let wave = |k: f64| (0..200).map(move |i| (f64::from(i), 30.0 + k * f64::from(i).sin()));
        let mut series: Vec<(String, Vec<(f64, f64)>)> = (1..=7)
            .map(|k| (format!("arm {k}"), wave(f64::from(k)).collect()))
            .collect();
        series[2].1[77].1 = 500.0;
        let svg = panels("Latency", "execution", "ms", &series).unwrap();
        keep("panels.svg", &svg);
        assert_eq!(svg.matches("<circle").count(), 7 * 200 - 1);
        assert!(svg.contains("arm 3 (1 above)") && svg.contains("arm 7"));
        keep(
            "panels-none.svg",
            &panels("Latency", "x", "y", &[]).unwrap(),
        );
    }

    #[test]
    fn plots_hold_their_data() {
        let a = Sorted::new((1..10_000).map(|i| 40.0 + 1000.0 / f64::from(i)));
        let b = Sorted::new((1..10_000).map(|i| 45.0 + 1500.0 / f64::from(i)));
        keep(
            "percentiles.svg",
            &percentiles("End-to-end latency", "us", &[("off", a), ("onbeat", b)]).unwrap(),
        );
        let axes = Axes {
            x: "events",
            y: "s",
            log_x: true,
            from_zero: true,
            mark: Some((12.0, "target")),
        };
        let line = |name: &str, k: f64| Line {
            name: name.into(),
            points: [1e6, 5e6, 1e7, 5e7].map(|n| (n, n * k)).to_vec(),
        };
        let svg = lines(
            "Modelling time",
            axes,
            &[line("model", 3e-7), line("generate", 1e-7)],
        )
        .unwrap();
        assert_eq!(svg.matches("<circle").count(), 8);
        keep("lines.svg", &svg);
        let bars = bars(
            "Added latency",
            "us",
            &["100 Hz".into(), "2000 Hz".into()],
            &[
                (
                    "1 KiB".into(),
                    vec![
                        Bar {
                            value: 3.0,
                            low: 2.5,
                            high: 3.4,
                        },
                        Bar::plain(-1.0),
                    ],
                ),
                ("64 KiB".into(), vec![Bar::plain(4.0), Bar::plain(4.4)]),
            ],
            Some((5.0, "target 5 us")),
        )
        .unwrap();
        keep("bars.svg", &bars);
    }

    #[test]
    fn curves_hold_their_points_and_their_names() {
        let curve = |name: &str, dashed| Curve {
            name: name.into(),
            colour: usize::from(dashed),
            dashed,
            points: vec![(64.0, 12.0), (4194304.0, 3900.0)],
        };
        let ticks = [(64.0, "64 B".into()), (4194304.0, "4 MiB".into())];
        let both = [curve("copies", false), curve("busy", true)];
        let svg = curves("Latency", ("size", "us"), &ticks, &both).unwrap();
        assert_eq!(svg.matches("<circle").count(), 4);
        for text in ["copies", "busy", "64 B", "4 MiB"] {
            assert!(svg.contains(text), "{text}");
        }
        keep("curves.svg", &svg);
        // The names of many stand beside the plot as well.
        let many: Vec<(&str, Sorted)> = ["a", "b", "c", "d", "e", "f"]
            .map(|n| (n, Sorted::new((1..100).map(f64::from))))
            .to_vec();
        let svg = percentiles("Latency of many", "us", &many).unwrap();
        assert!(many
            .iter()
            .all(|(name, _)| svg.contains(&format!("\n{name}\n"))));
        keep("percentiles-many.svg", &svg);
        curves("nothing", ("x", "y"), &[], &[]).unwrap();
    }

    #[test]
    fn plots_without_data_are_empty_not_errors() {
        percentiles("nothing", "us", &[("off", Sorted::new([]))]).unwrap();
        let axes = Axes {
            x: "x",
            y: "y",
            log_x: false,
            from_zero: true,
            mark: None,
        };
        lines("nothing", axes, &[]).unwrap();
        bars("nothing", "us", &[], &[], None).unwrap();
    }
}
