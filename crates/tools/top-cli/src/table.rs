//! Prints figures as tables, for `--once`.

use onbeat_document::text;
use onbeat_live::view::{Times, View};
use onbeat_terminal::term::{Align, Screen, Table};
use onbeat_terminal::CliError;
use std::io::Write;

pub fn time(times: &Times, ns: u64) -> String {
    match times.count {
        0 => "-".into(),
        _ => text::duration(ns as f64),
    }
}

pub fn rate(hz: f64) -> String {
    text::significant(hz)
}

pub fn write(out: &mut dyn Write, view: &View) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    chains(view).write(out, &screen)?;
    for table in [callbacks(view), topics(view), machine(view)] {
        writeln!(out).map_err(CliError::Stdout)?;
        table.write(out, &screen)?;
    }
    let elapsed = text::duration(view.elapsed_ns as f64);
    let (events, lost) = (view.events.start, view.lost_events.start);
    writeln!(out, "\n{events} events in {elapsed}, {lost} lost").map_err(CliError::Stdout)?;
    out.flush().map_err(CliError::Stdout)
}

fn chains(view: &View) -> Table {
    let mut table = Table::new().names("chain", 1);
    for head in ["runs", "p50", "p99", "max", "deadline", "late", "lost"] {
        table = table.column(head, Align::Right);
    }
    for row in &view.chains {
        let latency = &row.latency.start;
        let deadline = row.deadline_ns.map(|ns| text::duration(ns as f64));
        let late = row.late.map(|late| late.start.to_string());
        table.row(vec![
            row.title.clone(),
            latency.count.to_string(),
            time(latency, latency.p50_ns),
            time(latency, latency.p99_ns),
            time(latency, latency.max_ns),
            deadline.unwrap_or_else(|| "-".into()),
            late.unwrap_or_else(|| "-".into()),
            row.lost.start.to_string(),
        ]);
    }
    table
}

fn callbacks(view: &View) -> Table {
    let mut table = Table::new().names("callback", 1);
    for head in [
        "period",
        "Hz",
        "exec p50",
        "exec max",
        "load",
        "preempted",
        "waiting",
    ] {
        table = table.column(head, Align::Right);
    }
    for row in &view.callbacks {
        let (exec, preempted) = (&row.exec.start, &row.preempted.start);
        let waiting = &row.waiting.start;
        table.row(vec![
            row.id.clone(),
            row.period_ns.map_or_else(|| "-".into(), text::period),
            rate(row.rate_hz.start),
            time(exec, exec.p50_ns),
            time(exec, exec.max_ns),
            text::percent(row.load.start),
            time(preempted, preempted.max_ns),
            time(waiting, waiting.p99_ns),
        ]);
    }
    table
}

fn topics(view: &View) -> Table {
    let mut table = Table::new().names("topic", 1);
    for head in [
        "Hz",
        "taken",
        "transport p50",
        "latency p99",
        "lost",
        "overwritten",
    ] {
        table = table.column(head, Align::Right);
    }
    for row in &view.topics {
        let (transport, latency) = (&row.transport.start, &row.latency.start);
        table.row(vec![
            row.name.clone(),
            row.rate_hz.map_or_else(|| "-".into(), |hz| rate(hz.start)),
            row.taken.start.to_string(),
            time(transport, transport.p50_ns),
            time(latency, latency.p99_ns),
            row.lost.start.to_string(),
            row.overwritten.start.to_string(),
        ]);
    }
    table
}

fn machine(view: &View) -> Table {
    let table = Table::new().names("who", 1).column("share", Align::Right);
    let mut table = table.names("callbacks", 1);
    for row in &view.cpus {
        let name = format!("CPU {}, observed threads", row.cpu);
        table.row(vec![name, text::percent(row.load.start), String::new()]);
    }
    for row in view.threads.iter().filter(|t| t.load.start > 0.0) {
        let name = format!("{} {}", row.tid, row.name);
        let callbacks = row.callbacks.join(", ");
        table.row(vec![name, text::percent(row.load.start), callbacks]);
    }
    for row in &view.holders {
        let name = format!("waited for: {}", row.name);
        table.row(vec![name, text::percent(row.held.start), String::new()]);
    }
    table
}
