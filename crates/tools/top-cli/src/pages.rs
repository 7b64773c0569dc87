//! The rows of the four pages. Pure.

use crate::shared::Page;
use crate::table::{rate, time};
use onbeat_document::text;
use onbeat_live::view::{CallbackRow, ChainRow, ThreadRow, Times, TopicRow, View};
use onbeat_live::window::Span;

/// A column of a page: its head and its width in characters. The first column of a page takes the
/// remaining width.
pub type Column = (&'static str, u16);

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cell {
    pub text: String,
    pub value: f64,
    pub warns: bool,
}

/// A row of a page. Names in it come from traced processes and are not trusted.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The id of the chain, callback, topic or thread in this row. With the id, the selection finds
    /// the row again.
    pub key: String,
    pub name: String,
    pub cells: Vec<Cell>,
}

const CHAINS: &[Column] = &[
    ("chain", 0),
    ("now", 8),
    ("p50", 8),
    ("p99", 8),
    ("max", 8),
    ("limit", 8),
    ("late", 5),
    ("lost", 5),
];
const CALLBACKS: &[Column] = &[
    ("callback", 0),
    ("period", 7),
    ("Hz", 6),
    ("exec p50", 8),
    ("max", 8),
    ("load", 6),
    ("preempt", 8),
    ("waiting", 8),
];
const TOPICS: &[Column] = &[
    ("topic", 0),
    ("Hz", 6),
    ("taken", 8),
    ("trans p50", 9),
    ("trans p99", 9),
    ("lost", 6),
    ("overwr", 6),
];
const MACHINE: &[Column] = &[
    ("who", 0),
    ("cpu", 4),
    ("load", 7),
    ("waits", 7),
    ("held up", 8),
];

pub fn columns(page: Page) -> &'static [Column] {
    match page {
        Page::Chains => CHAINS,
        Page::Callbacks => CALLBACKS,
        Page::Topics => TOPICS,
        Page::Machine => MACHINE,
    }
}

pub fn listing(page: Page, view: &View, span: Span) -> Vec<Row> {
    match page {
        Page::Chains => view.chains.iter().map(|row| chain(row, span)).collect(),
        Page::Callbacks => view
            .callbacks
            .iter()
            .map(|row| callback(row, span))
            .collect(),
        Page::Topics => view.topics.iter().map(|row| topic(row, span)).collect(),
        Page::Machine => machine(view, span),
    }
}

fn cell(text: String, value: f64) -> Cell {
    Cell {
        text,
        value,
        warns: false,
    }
}

fn times(of: &Times, ns: u64) -> Cell {
    cell(time(of, ns), ns as f64)
}

fn number(n: u64) -> Cell {
    cell(n.to_string(), n as f64)
}

fn fault(n: u64) -> Cell {
    Cell {
        warns: n > 0,
        ..number(n)
    }
}

fn nothing() -> Cell {
    cell("-".into(), -1.0)
}

fn chain(row: &ChainRow, span: Span) -> Row {
    let latency = row.latency.get(span);
    let is_late = |ns: u64| row.deadline_ns.is_some_and(|limit| ns > limit);
    let now = row.latest_ns.map_or_else(nothing, |ns| Cell {
        warns: is_late(ns),
        ..cell(text::duration(ns as f64), ns as f64)
    });
    let limit = row.deadline_ns;
    Row {
        key: row.id.clone(),
        name: row.title.clone(),
        cells: vec![
            now,
            times(latency, latency.p50_ns),
            times(latency, latency.p99_ns),
            times(latency, latency.max_ns),
            limit.map_or_else(nothing, |ns| cell(text::duration(ns as f64), ns as f64)),
            row.late.map_or_else(nothing, |late| fault(*late.get(span))),
            fault(*row.lost.get(span)),
        ],
    }
}

fn callback(row: &CallbackRow, span: Span) -> Row {
    let (exec, hz) = (row.exec.get(span), *row.rate_hz.get(span));
    let (preempted, waiting) = (row.preempted.get(span), row.waiting.get(span));
    let load = *row.load.get(span);
    let period = row
        .period_ns
        .map(|ns| cell(text::duration(ns as f64), ns as f64));
    // A tenth of the executions is missing.
    let expected = row.period_ns.map(|ns| 1e9 / ns.max(1) as f64);
    Row {
        key: row.id.clone(),
        name: row.id.clone(),
        cells: vec![
            period.unwrap_or_else(nothing),
            Cell {
                warns: expected.is_some_and(|expected| hz < 0.9 * expected),
                ..cell(rate(hz), hz)
            },
            times(exec, exec.p50_ns),
            times(exec, exec.max_ns),
            cell(text::percent(load), load),
            times(preempted, preempted.max_ns),
            times(waiting, waiting.p99_ns),
        ],
    }
}

fn topic(row: &TopicRow, span: Span) -> Row {
    let transport = row.transport.get(span);
    let hz = row.rate_hz.map(|hz| *hz.get(span));
    Row {
        key: row.name.clone(),
        name: row.name.clone(),
        cells: vec![
            hz.map_or_else(nothing, |hz| cell(rate(hz), hz)),
            number(*row.taken.get(span)),
            times(transport, transport.p50_ns),
            times(transport, transport.p99_ns),
            fault(*row.lost.get(span)),
            fault(*row.overwritten.get(span)),
        ],
    }
}

fn is_shown(thread: &ThreadRow, span: Span) -> bool {
    *thread.load.get(span) > 0.0 || !thread.ended && !thread.callbacks.is_empty()
}

fn machine(view: &View, span: Span) -> Vec<Row> {
    let share = |share: f64| cell(text::percent(share), share);
    let cpus = view.cpus.iter().map(|row| Row {
        key: format!("cpu {}", row.cpu),
        name: "all observed threads".into(),
        cells: vec![
            number(row.cpu.into()),
            share(*row.load.get(span)),
            nothing(),
            nothing(),
        ],
    });
    let threads = view
        .threads
        .iter()
        .filter(|t| is_shown(t, span))
        .map(|row| Row {
            key: format!("thread {}", row.tid),
            name: match row.callbacks.is_empty() {
                true => format!("{} {}", row.tid, row.name),
                false => format!("{} {}: {}", row.tid, row.name, row.callbacks.join(", ")),
            },
            cells: vec![
                row.cpu.map_or_else(nothing, |cpu| number(cpu.into())),
                share(*row.load.get(span)),
                share(*row.waiting.get(span)),
                nothing(),
            ],
        });
    let holders = view.holders.iter().map(|row| Row {
        key: format!("holder {}", row.name),
        name: format!("waited for {}", row.name),
        cells: vec![nothing(), nothing(), nothing(), share(*row.held.get(span))],
    });
    cpus.chain(threads).chain(holders).collect()
}
