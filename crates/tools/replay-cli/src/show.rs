//! Formats the output of `onbeat replay`: the live line and the final table.

use super::bus::load;
use super::list::length;
use onbeat_document::text::duration;
use onbeat_replay::control::State;
use onbeat_replay::ledger::{Lateness, StreamFigures};
use onbeat_replay::session::Played;
use onbeat_replay::sink::RequestFigures;
use onbeat_terminal::term::{one_line, Align, Screen, Table};
use onbeat_terminal::CliError;
use std::io::Write;

pub fn progress(state: &State) -> String {
    if !state.began {
        return format!("{} items read ahead", state.read);
    }
    let rate = match state.rate {
        Some(rate) if rate != 1.0 => format!(", rate {rate}"),
        _ => String::new(),
    };
    let mut text = format!(
        "{} at {}{rate}: buffer {} % full, {} read ahead; largest lateness {}",
        match (state.seeks, state.paused) {
            (true, _) => "seeking",
            (false, true) => "paused",
            (false, false) => "playing",
        },
        length(state.position_ns.max(0).unsigned_abs()),
        state.fill / 10,
        length(state.ahead_ns.max(0).unsigned_abs()),
        duration(state.max_late_ns as f64),
    );
    if state.starved > 0 {
        text += &format!("; {} items missing from the buffer when due", state.starved);
    }
    text
}

fn time(ns: Option<u64>) -> String {
    ns.map_or("-".into(), |ns| duration(ns as f64))
}

fn lateness(of: &Lateness) -> [String; 4] {
    [
        of.p50,
        of.p99,
        of.p999,
        (of.extent.count > 0).then_some(of.extent.max),
    ]
    .map(time)
}

pub fn table(out: &mut dyn Write, played: &Played) -> Result<(), CliError> {
    let mut table = Table::new()
        .names("stream", 2)
        .names("to", 2)
        .column("played", Align::Right)
        .column("bytes", Align::Right)
        .column("interval", Align::Right)
        .column("late p50", Align::Right)
        .column("p99", Align::Right)
        .column("p99.9", Align::Right)
        .column("max", Align::Right)
        .column("jitter", Align::Right);
    for s in &played.figures.streams {
        table.row(row(s));
    }
    if played.figures.streams.len() > 1 {
        let all = &played.figures.lateness_ns;
        let mut cells = vec!["all".into(), String::new(), played.items.played.to_string()];
        cells.extend([String::new(), String::new()]);
        cells.extend(lateness(all));
        cells.push(String::new());
        table.row(cells);
    }
    table.write(out, &Screen::of_stdout())?;
    if !played.requests.is_empty() {
        writeln!(out).map_err(CliError::Stdout)?;
        requests(&played.requests).write(out, &Screen::of_stdout())?;
    }
    for note in notes(played) {
        writeln!(out, "{}", one_line(&note)).map_err(CliError::Stdout)?;
    }
    Ok(())
}

fn requests(figures: &[RequestFigures]) -> Table {
    let mut table = Table::new()
        .names("requests to", 2)
        .column("sent", Align::Right)
        .column("answered", Align::Right)
        .column("never answered", Align::Right)
        .column("response p50", Align::Right)
        .column("p99", Align::Right)
        .column("max", Align::Right);
    for f in figures {
        let times = &f.response_ns;
        let most = (times.extent.count > 0).then_some(times.extent.max);
        let mut cells = vec![f.service.clone()];
        cells.extend([f.sent, f.answered, f.unanswered].map(|n| n.to_string()));
        cells.extend([times.p50, times.p99, most].map(time));
        table.row(cells);
    }
    table
}

fn request_notes(figures: &RequestFigures) -> Vec<String> {
    let mut notes = Vec::new();
    for (n, what) in [
        (figures.without_server, "requests not sent, because the service had no server"),
        (
            figures.without_contents,
            "requests not sent, because they were recorded without contents (introspection of metadata only)",
        ),
        (
            figures.damaged,
            "requests not sent, because they are damaged or have another type than the service",
        ),
        (
            figures.additional_responses,
            "requests answered more than once. Check whether the service has several servers",
        ),
    ] {
        if n > 0 {
            notes.push(format!("{}: {n} {what}", figures.service));
        }
    }
    let fault = figures.fault.iter();
    notes.extend(
        fault.map(|fault| format!("{}: responses were not received: {fault}", figures.service)),
    );
    notes
}

fn row(s: &StreamFigures) -> Vec<String> {
    let some = |n: u64, text: String| if n > 0 { text } else { "-".into() };
    let mut cells = vec![
        s.name.clone(),
        s.sink.clone(),
        s.played.to_string(),
        some(s.bytes.count, format!("{:.0}", s.bytes.mean)),
        some(
            s.recorded_cycle_ns.count,
            duration(s.recorded_cycle_ns.mean),
        ),
    ];
    cells.extend(lateness(&s.lateness_ns));
    cells.push(some(
        s.lateness_ns.extent.count,
        duration(s.jitter_ns as f64),
    ));
    cells
}

fn notes(played: &Played) -> Vec<String> {
    let (items, machine) = (played.items, &played.machine);
    let share = |ns: u64| 100.0 * ns as f64 / machine.wall_ns.max(1) as f64;
    let mut notes = vec![format!(
        "items: {} read, {} played, {} lost, in {}; CPU {:.1} % (player {:.1} %), peak memory {:.0} MB of which buffer {:.0} MB",
        items.read,
        items.played,
        items.lost,
        duration(machine.wall_ns as f64),
        share(machine.process_cpu_ns),
        share(machine.player_cpu_ns),
        machine.peak_memory_bytes as f64 / 1e6,
        machine.buffer_bytes as f64 / 1e6,
    )];
    let buses = played.buses.iter();
    notes.extend(buses.filter(|bus| bus.frames > 0).map(load));
    notes.extend(played.sizing.as_ref().map(super::size::sentence));
    let supply = &played.supply;
    if let Some(after_ns) = supply.warned_after_ns {
        notes.push(format!(
            "the loader fell {} behind the schedule that follows from its measured speed, first seen {} after the start of playback; first item that was not in the buffer when due: {}",
            duration(supply.behind_ns as f64),
            duration(after_ns as f64),
            supply.starved_after_ns.map_or("none".into(), |ns| format!("after {}", duration(ns as f64))),
        ));
    }
    let mut some = |n: u64, what: &str| {
        if n > 0 {
            notes.push(format!("{n} {what}"));
        }
    };
    some(
        items.not_played,
        "items read but not played, because the replay was ended earlier",
    );
    some(
        items.skipped,
        "items skipped, because the user continued at another time of the recording",
    );
    let skipped = |f: &RequestFigures| f.without_server + f.without_contents + f.damaged;
    let skipped: u64 = played.requests.iter().map(skipped).sum();
    some(
        items.unsuitable.saturating_sub(skipped),
        "items not played, because the sink cannot play them (no UDP payload, a fragment without the others, a wrong length)",
    );
    some(items.starved, "items not in the buffer when due: the recording is read too slowly. Give a larger --stall or --memory");
    some(
        items.retries,
        "repeated attempts to send, because a sink was busy",
    );
    notes.extend(played.requests.iter().flat_map(request_notes));
    notes.extend(played.damage.iter().cloned());
    for (what, fine) in [
        (&machine.scheduling, "SCHED_FIFO"),
        (&machine.memory, "locked"),
    ] {
        if !what.starts_with(fine) {
            notes.push(format!("restriction of the player: {what}"));
        }
    }
    notes
}
