//! Draws lateness and fill level over time as SVG, and writes an HTML page around the picture.
//! Pure.

use crate::ledger::{Figures, Lateness};
use crate::session::Played;
use crate::sink::RequestFigures;
use std::fmt::Write;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const LATE: (f64, f64) = (30.0, 260.0);
const FILL: (f64, f64) = (330.0, 90.0);
const HEIGHT: f64 = 470.0;
const LEAST_NS: f64 = 1000.0;

fn duration(ns: f64) -> String {
    for (unit, size) in [("s", 1e9), ("ms", 1e6), ("us", 1e3)] {
        if ns >= size {
            let value = ns / size;
            return match value >= 100.0 {
                true => format!("{value:.0} {unit}"),
                false => format!("{value:.1} {unit}"),
            };
        }
    }
    format!("{ns:.0} ns")
}

fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

struct Plot {
    slot: f64,
    decades: f64,
}

impl Plot {
    fn of(figures: &Figures) -> Plot {
        let most = figures.lateness_ns.extent.max.max(1_000_000) as f64;
        Plot {
            slot: (WIDTH - LEFT - RIGHT) / figures.over_time.len().max(1) as f64,
            decades: (most / LEAST_NS).log10().ceil(),
        }
    }

    fn x(&self, slot: usize) -> f64 {
        LEFT + self.slot * slot as f64
    }

    fn late(&self, ns: f64) -> f64 {
        let share = (ns.max(LEAST_NS) / LEAST_NS).log10() / self.decades;
        LATE.0 + LATE.1 * (1.0 - share.clamp(0.0, 1.0))
    }

    fn fill(level: u16) -> f64 {
        FILL.0 + FILL.1 * (1.0 - f64::from(level.min(1000)) / 1000.0)
    }
}

/// Returns an SVG picture of the largest and the mean lateness of items in each slot of time, and
/// of the buffer's fill level.
pub fn svg(figures: &Figures) -> String {
    let plot = Plot::of(figures);
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>"
    );
    axes(&mut out, &plot, figures);
    let (mut most, mut mean, mut fills) = (String::new(), String::new(), String::new());
    for (n, slot) in figures
        .over_time
        .iter()
        .enumerate()
        .filter(|(_, s)| s.items > 0)
    {
        let (x, width) = (plot.x(n), plot.slot.max(1.0));
        let top = plot.late(slot.max_ns as f64);
        let middle = plot.late(slot.sum_ns as f64 / slot.items as f64);
        let bottom = LATE.0 + LATE.1;
        let _ = write!(most, "M{x:.1} {bottom}V{top:.1}h{width:.2}V{bottom}z");
        let _ = write!(mean, "M{x:.1} {middle:.1}h{width:.2}");
        let (low, high) = (Plot::fill(slot.least_fill), Plot::fill(slot.most_fill));
        let height = (low - high).max(1.5);
        let _ = write!(
            fills,
            "M{x:.1} {high:.1}h{width:.2}v{height:.1}h-{width:.2}z"
        );
    }
    let _ = writeln!(
        out,
        "<path d=\"{most}\" fill=\"#9ecae1\"/>\n\
         <path d=\"{mean}\" stroke=\"#08519c\" stroke-width=\"2\" fill=\"none\"/>\n\
         <path d=\"{fills}\" fill=\"#74a57f\"/>\n</svg>"
    );
    out
}

fn axes(out: &mut String, plot: &Plot, figures: &Figures) {
    let end = WIDTH - RIGHT;
    let mut line = |y: f64, label: &str| {
        let below = y + 4.0;
        let _ = writeln!(
            out,
            "<path d=\"M{LEFT} {y:.1}H{end}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{below:.1}\" text-anchor=\"end\">{label}</text>",
            LEFT - 8.0
        );
    };
    for decade in 0..=plot.decades as i32 {
        let ns = LEAST_NS * 10f64.powi(decade);
        line(plot.late(ns), duration(ns).replace(".0 ", " ").as_str());
    }
    for (level, label) in [(0, "empty"), (500, "half"), (1000, "full")] {
        line(Plot::fill(level), label);
    }
    let total = figures.slot_ns as f64 * figures.over_time.len() as f64;
    for part in 0..=4 {
        let share = f64::from(part) / 4.0;
        let x = LEFT + (end - LEFT) * share;
        let anchor = ["start", "middle", "middle", "middle", "end"][part as usize];
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            FILL.0 + FILL.1 + 20.0,
            duration(total * share)
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"18\" font-weight=\"bold\">Lateness of outputs: largest (area) and mean \
         (line) of each {}</text>\n<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">Fill level of the \
         buffer</text>\n<text x=\"{end}\" y=\"{}\" text-anchor=\"end\">time since the first output</text>",
        duration(figures.slot_ns as f64),
        FILL.0 - 12.0,
        HEIGHT - 12.0,
    );
}

/// Returns an HTML page with the picture of the lateness and a table of streams.
pub fn html(played: &Played) -> String {
    let figures = &played.figures;
    let mut rows = String::new();
    let number = |ns: Option<u64>| ns.map_or("-".into(), |ns| duration(ns as f64));
    let cells = |of: &Lateness| {
        [of.p50, of.p99, of.p999, Some(of.extent.max)]
            .map(number)
            .join("</td><td>")
    };
    for s in &figures.streams {
        let _ = writeln!(
            rows,
            "<tr><td class=\"name\">{}</td><td class=\"name\">{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td>{:.0} B</td><td>{}</td><td>{}</td></tr>",
            escape(&s.name),
            escape(&s.sink),
            s.played,
            s.unsuitable,
            s.not_played,
            s.bytes.mean,
            duration(s.recorded_cycle_ns.mean),
            cells(&s.lateness_ns),
        );
    }
    let items = played.items;
    let mut notes: Vec<String> = played.damage.clone();
    notes.extend(played.failed.clone());
    let notes: String = notes
        .iter()
        .map(|n| format!("<p>{}</p>\n", escape(n)))
        .collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Replay</title>\n<style>\
         body{{font:15px sans-serif;max-width:1000px;margin:2em auto;padding:0 1em}}\
         table{{border-collapse:collapse}}td,th{{padding:.2em .7em;text-align:right;\
         border-bottom:1px solid #ddd}}.name{{text-align:left}}</style>\n<h1>Replay</h1>\n\
         <p>{} items played of {} read, {} lost, {} not suitable for their sink, {} not played; {} were \
         not in the buffer at their time. Player: {}; memory {}.</p>\n{notes}{}\
         <table><tr><th class=\"name\">stream</th><th class=\"name\">to</th><th>played</th>\
         <th>unsuitable</th><th>not played</th><th>size</th><th>interval</th><th>late p50</th><th>p99</th>\
         <th>p99.9</th><th>max</th></tr>\n{rows}</table>\n{}</html>\n",
        items.played,
        items.read,
        items.lost,
        items.unsuitable,
        items.not_played,
        items.starved,
        escape(&played.machine.scheduling),
        escape(&played.machine.memory),
        svg(figures),
        requests(&played.requests),
    )
}

fn requests(figures: &[RequestFigures]) -> String {
    let mut rows = String::new();
    for f in figures {
        let number = |ns: Option<u64>| ns.map_or("-".into(), |ns| duration(ns as f64));
        let times = &f.response_ns;
        let most = (times.extent.count > 0).then_some(times.extent.max);
        let _ = writeln!(
            rows,
            "<tr><td class=\"name\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&f.service),
            f.sent,
            f.answered,
            f.unanswered,
            f.without_server,
            [times.p50, times.p99, most].map(number).join("</td><td>"),
        );
    }
    match rows.is_empty() {
        true => rows,
        false => format!(
            "<h2>Requests</h2>\n<table><tr><th class=\"name\">service</th><th>sent</th><th>answered</th>\
             <th>never answered</th><th>no server</th><th>response p50</th><th>p99</th><th>max</th></tr>\n\
             {rows}</table>"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Slot, StreamFigures};
    use crate::session::{Items, Machine};

    #[test]
    fn stream_names_are_escaped_and_every_interval_with_items_is_drawn() {
        let slot = |max_ns| Slot {
            items: 2,
            sum_ns: max_ns,
            max_ns,
            least_fill: 0,
            most_fill: 2000,
        };
        let figures = Figures {
            streams: vec![StreamFigures {
                name: "</td><script>\n".into(),
                ..StreamFigures::default()
            }],
            over_time: vec![slot(0), Slot::default(), slot(u64::MAX)],
            slot_ns: 10_000_000,
            ..Figures::default()
        };
        let picture = svg(&figures);
        // Only slots in which an item left have an area and a line, and nothing lies outside the
        // plot.
        assert_eq!(picture.matches('V').count(), 4, "{picture}");
        assert!(!picture.contains("NaN") && !picture.contains("inf"));
        let page = html(&Played {
            buses: Vec::new(),
            requests: vec![RequestFigures {
                service: "<i>".into(),
                sent: 12_345,
                ..RequestFigures::default()
            }],
            figures,
            sizing: None,
            supply: Default::default(),
            items: Items::default(),
            machine: Machine::default(),
            damage: vec!["<b>".into()],
            failed: None,
            stopped: false,
        });
        assert!(
            !page.contains("<script>") && !page.contains("<b>") && !page.contains("<i>"),
            "{page}"
        );
        assert!(page.contains("<td>12345</td>"), "{page}");
        assert!(page.contains("&lt;script&gt;\\n"));
        assert!(svg(&Figures::default()).contains("</svg>"));
    }
}
