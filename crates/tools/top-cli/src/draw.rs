//! Draws the screen into a buffer.

use crate::app::App;
use crate::pages::{columns, Column, Row};
use crate::shared::Page;
use onbeat_document::text;
use onbeat_live::view::ChainRow;
use onbeat_live::window::Span;
use onbeat_terminal::term::{fit, width};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};

const NAMES: [&str; 4] = ["1 chains", "2 callbacks", "3 topics", "4 machine"];
const KEYS: &str = "1-4 page / find <> sort r reverse w span space freeze Enter parts t save q end";

const WIDE: u16 = 96;
const SPARK: usize = 30;

fn plain() -> Style {
    Style::default()
}

fn bold() -> Style {
    Style::default().add_modifier(Modifier::BOLD)
}

fn dim() -> Style {
    Style::default().add_modifier(Modifier::DIM)
}

fn warning() -> Style {
    bold().fg(Color::Yellow)
}

fn line(buffer: &mut Buffer, (x, y): (u16, u16), text: &str, style: Style) {
    let area = buffer.area;
    if y < area.bottom() && x < area.right() {
        let room = usize::from(area.right() - x);
        let mut shown = text::visible(text);
        // `fit` keeps both ends, and a line is cut at its end.
        while width(&shown) > room {
            shown.pop();
        }
        buffer.set_stringn(x, y, shown, room, style);
    }
}

pub fn draw(app: &App, buffer: &mut Buffer) {
    let area = buffer.area;
    if area.width < 20 || area.height < 5 {
        line(buffer, (area.x, area.y), "too small", plain());
        return;
    }
    head(app, buffer);
    let body = Rect {
        y: area.y + 2,
        height: area.height - 3,
        ..area
    };
    let opened = app.view.chains.iter();
    let mut opened = opened.filter(|row| app.is_open && Some(&row.id) == app.selected.as_ref());
    match opened.next() {
        Some(chain) => parts(chain, buffer, body),
        None => table(app, buffer, body),
    }
    let last = area.bottom() - 1;
    match app.message.is_empty() {
        true => line(buffer, (area.x, last), KEYS, dim()),
        false => line(buffer, (area.x, last), &app.message, bold()),
    }
}

fn span_name(span: Span) -> &'static str {
    match span {
        Span::TenSeconds => "last 10 s",
        Span::Minute => "last 1 min",
        Span::Start => "since start",
    }
}

fn head(app: &App, buffer: &mut Buffer) {
    let area = buffer.area;
    let mut x = area.x;
    for (i, name) in NAMES.iter().enumerate() {
        let is_shown = app.page as usize == i;
        let style = if is_shown {
            bold().add_modifier(Modifier::REVERSED)
        } else {
            plain()
        };
        line(buffer, (x, area.y), name, style);
        x += name.len() as u16 + 2;
    }
    let view = &app.view;
    let seconds = view.elapsed_ns / 1_000_000_000;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let state = format!(
        "{hours:02}:{minutes:02}:{:02}  {}",
        seconds % 60,
        span_name(app.span)
    );
    line(buffer, (x, area.y), &state, plain());
    x += state.len() as u16 + 2;
    let lost = *view.lost_events.get(app.span);
    if lost > 0 {
        line(
            buffer,
            (x, area.y),
            &format!("{lost} events lost"),
            warning(),
        );
        x += 24;
    }
    if app.is_frozen {
        line(buffer, (x, area.y), "FROZEN", warning());
    }
    let mut second = String::new();
    if app.is_typing || !app.filter.is_empty() {
        second = format!(
            "filter: {}{}",
            app.filter,
            if app.is_typing { "_" } else { "" }
        );
    } else if view.left_out_processes > 0 {
        let n = view.left_out_processes;
        let processes = if n == 1 { "process" } else { "processes" };
        second = format!("left out: {n} {processes} that created too many names and callbacks");
    } else if view.left_out > 0 {
        second = format!(
            "not counted: {} values of new names, because a table holds at most 4096 names",
            view.left_out
        );
    } else if view.forgotten > 0 {
        second = format!(
            "removed: {} table entries without events for 10 min",
            view.forgotten
        );
        if view.forgotten_nodes > 0 {
            second += &format!("; {} nodes that ended over 1 h ago", view.forgotten_nodes);
        } else if view.forgotten_callbacks > 0 {
            second += &format!(
                "; {} callbacks that ended over 1 h ago",
                view.forgotten_callbacks
            );
        }
    }
    line(buffer, (area.x, area.y + 1), &second, dim());
}

fn places(columns: &[Column], area: Rect) -> Vec<(u16, u16)> {
    let fixed: u16 = columns.iter().skip(1).map(|c| c.1 + 1).sum();
    let first = area.width.saturating_sub(fixed).max(8);
    let mut x = area.x;
    let place = |(i, column): (usize, &Column)| {
        let width = if i == 0 { first } else { column.1 };
        let place = (x, width);
        x += width + 1;
        place
    };
    columns.iter().enumerate().map(place).collect()
}

fn right(buffer: &mut Buffer, (x, width): (u16, u16), y: u16, text: &str, style: Style) {
    let shown = fit(text, usize::from(width));
    let pad = usize::from(width).saturating_sub(onbeat_terminal::term::width(&shown));
    line(buffer, (x + pad as u16, y), &shown, style);
}

fn table(app: &App, buffer: &mut Buffer, mut area: Rect) {
    let has_spark = app.page == Page::Chains && area.width >= WIDE;
    let whole = area;
    if has_spark {
        area.width -= SPARK as u16 + 1;
    }
    let columns = columns(app.page);
    let places = places(columns, area);
    let (sorted, is_reversed) = app.sort[app.page as usize];
    for (i, (column, place)) in columns.iter().zip(&places).enumerate() {
        let mark = if is_reversed { "^" } else { "v" };
        let text = match i == sorted {
            true => format!("{}{mark}", column.0),
            false => column.0.to_string(),
        };
        match i {
            0 => line(buffer, (place.0, area.y), &text, bold()),
            _ => right(buffer, *place, area.y, &text, bold()),
        }
    }
    if has_spark {
        line(
            buffer,
            (area.right() + 1, area.y),
            "largest latency in each second",
            bold(),
        );
    }
    let rows = app.rows();
    if rows.is_empty() {
        let why = match app.filter.is_empty() {
            true => "Nothing to show yet. Callbacks appear when they run.",
            false => "No name contains the filter. Esc clears it.",
        };
        line(buffer, (area.x, area.y + 1), why, dim());
        return;
    }
    let room = usize::from(area.height.saturating_sub(1)).max(1);
    let selected = app.position(&rows);
    let first = (selected + 1).saturating_sub(room);
    for (i, row) in rows.iter().enumerate().skip(first).take(room) {
        let y = area.y + 1 + (i - first) as u16;
        row_at(row, buffer, &places, y);
        if let Some(chain) = app
            .view
            .chains
            .iter()
            .find(|c| has_spark && c.id == row.key)
        {
            let spark = sparkline(chain, SPARK);
            line(buffer, (area.right() + 1, y), &spark, plain());
        }
        if i == selected {
            let over = Rect {
                y,
                height: 1,
                ..whole
            };
            buffer.set_style(over, Style::default().add_modifier(Modifier::REVERSED));
        }
    }
}

fn row_at(row: &Row, buffer: &mut Buffer, places: &[(u16, u16)], y: u16) {
    let Some((name, rest)) = places.split_first() else {
        return;
    };
    let shown = fit(&row.name, usize::from(name.1));
    line(buffer, (name.0, y), &shown, plain());
    for (cell, place) in row.cells.iter().zip(rest) {
        let style = if cell.warns { warning() } else { plain() };
        right(buffer, *place, y, &cell.text, style);
    }
}

fn sparkline(chain: &ChainRow, n: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let history = &chain.history_ns;
    let latest = &history[history.len().saturating_sub(n)..];
    let most = latest.iter().flatten().max().copied().unwrap_or(0).max(1);
    let bar = |value: &Option<u64>| match value {
        Some(ns) => BARS[(*ns as u128 * 7 / u128::from(most)) as usize % BARS.len()],
        None => ' ',
    };
    latest.iter().map(bar).collect()
}

fn parts(chain: &ChainRow, buffer: &mut Buffer, area: Rect) {
    let mut y = area.y;
    let mut put = |text: &str, style: Style| {
        if y < area.bottom() {
            line(buffer, (area.x, y), text, style);
        }
        y += 1;
    };
    put(&format!("{} ({})", chain.title, chain.id), bold());
    let deadline = chain.deadline_ns.map(|ns| text::duration(ns as f64));
    for span in Span::ALL {
        let latency = chain.latency.get(span);
        let time = |ns: u64| crate::table::time(latency, ns);
        let late = chain.late.map(|late| format!(" {} late", late.get(span)));
        put(
            &format!(
                "{:<11}{:>6} runs p50 {:>8} p99 {:>8} max {:>8} {} lost{}",
                span_name(span),
                latency.count,
                time(latency.p50_ns),
                time(latency.p99_ns),
                time(latency.max_ns),
                chain.lost.get(span),
                late.unwrap_or_default(),
            ),
            plain(),
        );
    }
    if let Some(deadline) = deadline {
        put(&format!("deadline     {deadline}"), plain());
    }
    put(&sparkline(chain, 60), plain());
    if let Some(late) = &chain.late_execution {
        let (took, ago) = (late.latency_ns as f64, late.ago_ns as f64);
        put(
            &format!(
                "late execution {} ago: {}",
                text::duration(ago),
                text::duration(took)
            ),
            warning(),
        );
        for cause in &late.causes {
            let (ns, usual) = (cause.ns as f64, cause.usual_ns as f64);
            let times = format!(
                "{:>8}, usually {:>8}",
                text::duration(ns),
                text::duration(usual)
            );
            let room = usize::from(area.width).saturating_sub(width(&times) + 6);
            let name = fit(&cause.callback, room / 2);
            let what = fit(&cause.what, room.saturating_sub(width(&name)));
            put(&format!("  {times}  {name} {what}"), plain());
        }
    }
    put("mean over the last 10 s", bold());
    let total: u64 = chain.parts.iter().map(|p| p.mean_ns).sum();
    for part in &chain.parts {
        let share = part.mean_ns as f64 / total.max(1) as f64;
        let what = if part.is_edge { "  over " } else { "" };
        let room = usize::from(area.width).saturating_sub(24 + what.len());
        let name = fit(&part.name, room);
        let pad = " ".repeat(room.saturating_sub(width(&name)));
        let mean = text::duration(part.mean_ns as f64);
        put(
            &format!("{what}{name}{pad} {mean:>9} {:>7}", text::percent(share)),
            plain(),
        );
    }
}
