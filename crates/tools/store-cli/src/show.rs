//! Prints the results of `onbeat store`.

use onbeat_document::text::duration;
use onbeat_store::{Found, Merged, Put};
use onbeat_terminal::date;
use onbeat_terminal::term::{Align, Screen, Table};
use onbeat_terminal::CliError;
use std::io::{self, BufWriter, Write};
use std::path::Path;

pub fn put(paths: &[&Path], all: &[Put]) -> Result<(), CliError> {
    let mut table = Table::new()
        .names("file", 1)
        .column("object", Align::Left)
        .column("kind", Align::Left)
        .column("runs", Align::Right)
        .column("bytes", Align::Right)
        .column("", Align::Left);
    for (path, put) in paths.iter().zip(all) {
        table.row(vec![
            path.display().to_string(),
            put.object.short(),
            put.kind.word().into(),
            put.runs.to_string(),
            put.bytes.to_string(),
            if put.known { "already there" } else { "new" }.into(),
        ]);
    }
    table.write(&mut io::stdout().lock(), &Screen::of_stdout())
}

pub fn found(found: &Found) -> Result<(), CliError> {
    let mut table = Table::new()
        .column("object", Align::Left)
        .column("kind", Align::Left)
        .names("build", 1)
        .names("mode", 1)
        .names("host", 1)
        .column("start (UTC)", Align::Left)
        .column("length", Align::Right)
        .names("run", 2)
        .column("lost", Align::Right);
    for row in &found.rows {
        table.row(vec![
            row.object.short(),
            row.kind.word().into(),
            row.build.clone(),
            row.mode.clone(),
            row.host.clone(),
            date::minute(row.start_ns),
            duration(row.duration_ns as f64),
            row.run.clone(),
            row.lost.to_string(),
        ]);
    }
    let mut out = BufWriter::new(io::stdout().lock());
    table.write(&mut out, &Screen::of_stdout())?;
    partly(&mut out, found)
        .and_then(|()| out.flush())
        .map_err(CliError::Stdout)
}

fn partly(out: &mut dyn Write, found: &Found) -> io::Result<()> {
    match found.partly.len() {
        0 => Ok(()),
        n => writeln!(
            out,
            "{n} objects left out, because only some of their runs fit the query"
        ),
    }
}

/// Prints the result of a merge to standard error, because the merged model may go to standard
/// output.
pub fn merged(found: &Found, merged: &Merged) -> Result<(), CliError> {
    let mut err = io::stderr();
    let _ = writeln!(
        err,
        "{} models merged: {} models read, {} earlier merges read, {} merges made; {} damaged models left out",
        merged.models,
        merged.models_read,
        merged.merges_read,
        merged.merges_made,
        merged.damaged.len()
    );
    let _ = partly(&mut err, found);
    Ok(())
}
