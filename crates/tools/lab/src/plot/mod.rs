//! Plots as SVG text: latency by percentile, lines over a quantity, bars per category.
//!
//! This module holds what all plots share: size, colours, legends, and the frame around a chart.
//! Each kind of plot has its own module. Axes are in [`axis`].
mod axis;
mod bars;
mod boxes;
mod curves;
mod lines;
mod percentiles;
mod points;
mod timeline;

pub use bars::bars;
pub use boxes::boxes;
pub use curves::{curves, Curve};
pub use lines::{lines, Axes, Line};
pub use percentiles::percentiles;
pub use points::{dots, panels};
pub use timeline::{timeline, Row};

use crate::frame::{LabError, Result};
use plotters::coord::Shift;
use plotters::prelude::*;

const SIZE: (u32, u32) = (860, 480);

type Area<'b> = DrawingArea<SVGBackend<'b>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// The colours of lines, which colour-blind people can distinguish (Okabe and Ito's palette).
const COLOURS: [RGBColor; 9] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    // These three are not in that palette.
    RGBColor(60, 60, 60),
    RGBColor(136, 34, 85),
    RGBColor(153, 153, 51),
];

fn colour(i: usize) -> RGBColor {
    COLOURS[i % COLOURS.len()]
}

const MARK: RGBColor = RGBColor(110, 110, 110);

/// Draws the legend within a plot. It is a macro, because a function would have to name the type of
/// the chart, which contains the types of its axes.
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

macro_rules! mesh {
    ($chart:expr $(, $set:ident($($value:expr)?))*) => {
        $chart
            .configure_mesh()
            $(.$set($($value)?))*
            .light_line_style(WHITE)
            .label_style(("sans-serif", 13))
            .axis_desc_style(("sans-serif", 14))
            .draw()?
    };
}
use {legend, mesh};

fn chart<'a, 'b>(area: &'a Area<'b>, title: &str) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut builder = ChartBuilder::on(area);
    builder
        .caption(title, ("sans-serif", 20))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(70);
    builder
}

fn stroke(style: ShapeStyle) -> impl Fn((i32, i32)) -> PathElement<(i32, i32)> {
    move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style)
}

fn with_legend<'b, 'n>(
    area: &Area<'b>,
    names: impl Iterator<Item = &'n str>,
) -> (Area<'b>, Area<'b>) {
    let longest = names.map(|n| n.chars().count()).max().unwrap_or(0) as u32;
    area.split_horizontally(SIZE.0 - (longest * 7 + 50).clamp(150, SIZE.0 / 2))
}

fn entry(area: &Area<'_>, number: usize, name: &str, paint: RGBColor, dashed: bool) -> Drawn {
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

fn draw(title: &str, body: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Estimate;
    use crate::measure::stats::Sorted;

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
    fn plot_panels_count_the_points_above_their_range() {
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
    fn plots_contain_no_invalid_numbers() {
        let a = Sorted::new((1..10_000).map(|i| 40.0 + 1000.0 / f64::from(i)));
        let b = Sorted::new((1..10_000).map(|i| 45.0 + 1500.0 / f64::from(i)));
        keep(
            "percentiles.svg",
            &percentiles("End-to-end latency", "us", &[("off", a), ("onbeat", b)]).unwrap(),
        );
        let axes = Axes {
            log_x: true,
            mark: Some((12.0, "target")),
            ..Axes::new("events", "s")
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
                    vec![Estimate::within(3.0, (2.5, 3.4)), Estimate::exact(-1.0)],
                ),
                (
                    "64 KiB".into(),
                    vec![Estimate::exact(4.0), Estimate::exact(4.4)],
                ),
            ],
            Some((5.0, "target 5 us")),
        )
        .unwrap();
        keep("bars.svg", &bars);
    }

    #[test]
    fn curves_show_their_points_and_names() {
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
        // With many series, the names also stand beside the plot.
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
    fn box_plots_show_outliers_as_dots() {
        let mut values: Vec<f64> = (1..=99).map(f64::from).collect();
        values.push(5000.0);
        let series = |name: &str, k: f64| {
            let all = Sorted::new(values.iter().map(|v| v * k));
            (name.to_string(), vec![all, Sorted::new([])])
        };
        let both = [series("quiet", 1.0), series("loaded", 3.0)];
        let svg = boxes(
            "Latency",
            ("size", "us"),
            &["1 KiB".into(), "4 MiB".into()],
            &both,
        );
        let svg = svg.unwrap();
        assert_eq!(svg.matches("<circle").count(), 2, "one outlier each");
        assert!(svg.contains("loaded") && svg.contains("4 MiB"));
        keep("boxes.svg", &svg);
        boxes("nothing", ("x", "y"), &[], &[]).unwrap();
    }

    #[test]
    fn a_timeline_has_a_bar_for_each_state_within_its_range() {
        let rows = vec![
            ("ping: main".to_owned(), vec![(0.0, 4.0, 0), (4.0, 9.0, 2)]),
            (
                "pong: dds.shm.29161".to_owned(),
                vec![(1.0, 2.0, 0), (2.0, 8.0, 1), (20.0, 21.0, 0)],
            ),
            ("inhibitor".to_owned(), vec![(2.0, 8.0, 0)]),
        ];
        let states = ["runs", "ready, no CPU", "waits for a lock"];
        let svg = timeline("A lock", "ms", &states, &rows, (0.0, 10.0)).unwrap();
        // Five visible bars, three of the key, and the background.
        assert_eq!(svg.matches("<rect").count(), 5 + 3 + 1);
        for text in [
            "ping: main",
            "pong: dds.shm.29161",
            "inhibitor",
            "waits for a lock",
        ] {
            assert!(svg.contains(&format!("\n{text}\n")), "{text}");
        }
        keep("timeline.svg", &svg);
        timeline("nothing", "ms", &[], &[], (0.0, 0.0)).unwrap();
    }

    #[test]
    fn plots_without_data_are_empty_not_errors() {
        percentiles("nothing", "us", &[("off", Sorted::new([]))]).unwrap();
        let axes = Axes::new("x", "y");
        lines("nothing", axes, &[]).unwrap();
        bars("nothing", "us", &[], &[], None).unwrap();
    }
}
