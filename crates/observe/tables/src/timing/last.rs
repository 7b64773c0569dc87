//! Makes the rows of the tables that are known only at the end: those of the model, of the processes
//! and of the recording.

use super::columns::Table;
use super::convert::Cell;
use super::system::Process;
use onbeat_document::schema::{Bracket, Callback, Chain, Run};
use onbeat_document::Model;
use onbeat_trace::manifest::{Manifest, State};

/// Returns whether the rows of `table` are known only at the end of the events. These rows come
/// from [`rows`].
pub(crate) fn is_last(table: Table) -> bool {
    matches!(
        table,
        Table::Callbacks | Table::Chains | Table::Processes | Table::Runs
    )
}

pub(crate) fn rows(
    table: Table,
    model: &Model,
    manifest: &Manifest,
    processes: &[Process],
) -> Vec<Vec<Cell>> {
    match table {
        Table::Callbacks => model.callbacks.iter().map(callback).collect(),
        Table::Chains => {
            let titles = onbeat_document::titles::titles(model);
            let chains = model.chains.iter().zip(&titles);
            chains
                .map(|(chain, title)| chain_row(chain, title))
                .collect()
        }
        Table::Processes => processes.iter().map(|p| process(p, manifest)).collect(),
        Table::Runs => {
            let row = |run| run_row(run, model, manifest);
            model.runs.iter().take(1).map(row).collect()
        }
        _ => Vec::new(),
    }
}

fn word(value: impl serde::Serialize) -> Cell {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => Cell::Text(word),
        _ => Cell::Null,
    }
}

fn callback(callback: &Callback) -> Vec<Cell> {
    let has_run = callback.figures.observed_ns > 0;
    vec![
        callback.id.as_str().into(),
        callback.node.as_str().into(),
        callback.identity.is_known().into(),
        word(callback.kind),
        callback.input.as_str().into(),
        callback.caller.as_deref().into(),
        callback.period_ns.into(),
        callback.outputs.as_slice().into(),
        callback.symbol.as_deref().into(),
        (callback.bracket == Bracket::Inferred).into(),
        match has_run && !callback.figures.is_untimed() {
            true => Cell::Share(callback.figures.load),
            false => Cell::Null,
        },
    ]
}

fn chain_row(chain: &Chain, title: &str) -> Vec<Cell> {
    vec![
        chain.id.as_str().into(),
        chain.callbacks.first().map(String::as_str).into(),
        chain.callbacks.last().map(String::as_str).into(),
        chain.callbacks.as_slice().into(),
        chain.topics.as_slice().into(),
        title.into(),
        chain.assumed.into(),
        chain.ambiguous.into(),
    ]
}

fn process(process: &Process, manifest: &Manifest) -> Vec<Cell> {
    let mut of_it = manifest.observed.processes.iter();
    let info = of_it.find(|info| info.pid == process.pid);
    vec![
        u64::from(process.pid).into(),
        process.program.as_str().into(),
        process.distribution.as_str().into(),
        process.middleware.as_str().into(),
        info.map(|info| info.nodes.as_slice()).into(),
        process.late.into(),
        process.start.into(),
        process.end.into(),
    ]
}

fn run_row(run: &Run, model: &Model, manifest: &Manifest) -> Vec<Cell> {
    let known = |time: u64| Some(time).filter(|time| *time > 0);
    let lost = run.lost.values().fold(0u64, |a, n| a.saturating_add(*n));
    let notes = [&model.coverage, &manifest.coverage, &manifest.not_recovered];
    let mut coverage: Vec<String> = notes.into_iter().flatten().cloned().collect();
    coverage.sort();
    coverage.dedup();
    vec![
        run.boot.as_str().into(),
        run.mode.as_str().into(),
        run.distribution.as_slice().into(),
        manifest.machine.kernel.as_str().into(),
        manifest.machine.recorder_version.as_str().into(),
        (manifest.state == State::Complete).into(),
        known(run.start).into(),
        known(manifest.span.start_monotonic_ns).into(),
        known(run.duration_ns).into(),
        run.events.into(),
        lost.into(),
        coverage.as_slice().into(),
    ]
}
