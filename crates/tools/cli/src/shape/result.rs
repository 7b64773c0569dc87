//! Prints the result of `onbeat shape`: promises beside measurements, and the place of each thread.

use super::line::ms;
use onbeat_shape::judge::Figure;
use onbeat_shape::{PlacedThread, Summary};
use onbeat_terminal::term::{self, Align, Screen, Table};
use onbeat_terminal::CliError;
use std::collections::BTreeMap;
use std::io::{self, Write};

fn number(figure: &Figure, value: f64) -> String {
    match figure.unit {
        "" => format!("{value:.0}"),
        "%" => format!("{value:.2} %"),
        unit => format!("{value:.3} {unit}"),
    }
}

pub fn print(summary: &Summary, verify: bool, printed: usize) -> io::Result<()> {
    let mut out = io::stdout();
    // The first notes were printed during the session.
    for note in summary.notes.iter().skip(printed) {
        writeln!(out, "note: {}", term::one_line(note))?;
    }
    for plan in &summary.earlier {
        writeln!(out, "{}", term::one_line(&plan.sentence()))?;
    }
    if summary.judgements.is_empty() {
        writeln!(
            out,
            "No execution of the chain was recorded during shaping."
        )?;
    } else if verify {
        let kept = if summary.is_kept() {
            "kept"
        } else {
            "NOT kept"
        };
        writeln!(out, "The plan's promises were {kept}.")?;
    }
    Ok(())
}

pub fn tables(summary: &Summary) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    let mut out = io::stdout();
    let mut figures = Table::new()
        .names("figure", 3)
        .column("promised", Align::Right)
        .column("measured", Align::Right)
        .column("kept", Align::Left);
    for f in &summary.verdict.figures {
        let kept = f.kept.map_or("", |k| if k { "yes" } else { "NO" });
        figures.row(vec![
            f.name.clone(),
            f.promised.map_or(String::new(), |p| number(f, p)),
            number(f, f.measured),
            kept.into(),
        ]);
    }
    if let Some(stats) = &summary.stats {
        for (name, q) in [
            ("p50", 0.5),
            ("p99", 0.99),
            ("p99.9", 0.999),
            ("longest", 1.0),
        ] {
            let late = stats.lateness.quantile_ns(q) as f64 / 1e6;
            figures.row(vec![
                format!("dispatcher's lateness, {name}"),
                String::new(),
                format!("{late:.3} ms"),
                String::new(),
            ]);
        }
    }
    gates(summary).into_iter().for_each(|row| figures.row(row));
    figures.write(&mut out, &screen)?;
    if summary.placed.is_empty() {
        return Ok(());
    }
    writeln!(out).map_err(CliError::Stdout)?;
    let mut threads = Table::new()
        .column("server", Align::Left)
        .column("threads", Align::Right)
        .column("name", Align::Left)
        .names("for", 3);
    // The middleware has many threads with the same job, which share a row.
    let mut alike: BTreeMap<(&str, String, &str), usize> = BTreeMap::new();
    for PlacedThread {
        name, place, job, ..
    } in &summary.placed
    {
        let family = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        *alike.entry((place, family.to_owned(), job)).or_default() += 1;
    }
    for ((place, name, job), count) in alike {
        threads.row(vec![place.into(), count.to_string(), name, job.into()]);
    }
    threads.write(&mut out, &screen)
}

fn gates(summary: &Summary) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut row = |name: String, measured: String| {
        rows.push(vec![name, String::new(), measured, String::new()]);
    };
    let gates = summary.stats.iter().flat_map(|s| &s.gates);
    for gate in gates.filter(|g| g.ends > 0) {
        let (server, of) = (&gate.server, gate.ends);
        row(
            format!("{server}: ends of slots at which a thread worked"),
            format!("{} of {of}", gate.working),
        );
        let counts = [
            (
                "ends of slots at which a thread's state was unknown",
                gate.unknown,
            ),
            (
                "ends of slots at which a thread was frozen while it worked",
                gate.hard,
            ),
            (
                "ends of slots after which a thread worked until the next slot began",
                gate.unfinished,
            ),
        ];
        for (what, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            row(format!("{server}: {what}"), format!("{count} of {of}"));
        }
        for (name, q) in [("p50", 0.5), ("p99", 0.99), ("longest", 1.0)] {
            if gate.waited.count() > 0 {
                let waited = gate.waited.quantile_ns(q);
                row(
                    format!("{server}: time from the slot's end until its threads waited for work, {name}"),
                    format!("{} ms", ms(waited)),
                );
            }
        }
    }
    rows
}
