//! `onbeat model --join`: makes one run of traces that several hosts recorded at the same time.

use onbeat_document::schema::Run;
use onbeat_document::Model;
use onbeat_synth::hosts::{clocks, Clock, Exchange};
use onbeat_synth::{Synth, SynthOptions};
use onbeat_terminal::files;
use onbeat_terminal::progress::Progress;
use onbeat_terminal::traces::{run_of, warn};
use onbeat_terminal::CliError;
use onbeat_trace::Reader;
use std::collections::BTreeSet;
use std::path::PathBuf;

pub fn model(
    traces: &[PathBuf],
    mode: Option<&str>,
    options: &impl Fn(Run) -> SynthOptions,
) -> Result<Model, CliError> {
    let hint = "; merge models with `onbeat merge`";
    let mut readers = Vec::new();
    for path in traces {
        readers.push(files::open_trace(path, "`onbeat model --join`", hint)?);
    }
    let names = names(&readers);
    let exchanges: Vec<Exchange> = readers
        .iter_mut()
        .zip(&names)
        .map(|(reader, name)| exchange(reader, name))
        .collect();
    let clocks = clocks(&exchanges).map_err(CliError::failed)?;
    let mut options = options(run(&readers, &names, mode));
    options.shortened = readers.iter().any(|r| !r.has_beginning());
    let synth = pass(&mut readers, &clocks, options);
    readers.iter().for_each(|r| warn(r.path(), r.warnings()));
    let mut model = synth.finish();
    for (host, (reader, name)) in readers.iter().zip(&names).enumerate() {
        let manifest = reader.manifest().clone();
        let said = manifest.coverage.into_iter().chain(manifest.not_recovered);
        model.coverage.extend(said.map(|s| format!("{name}: {s}")));
        let damaged = reader.stats().damaged_blocks;
        if damaged > 0 {
            let said =
                format!("{name}: {damaged} blocks of the trace were damaged and are missing.");
            model.coverage.push(said);
        }
        if host > 0 {
            model
                .assumptions
                .push(clocks[host].sentence(host, &exchanges));
        }
    }
    model.coverage.sort();
    model.coverage.dedup();
    model.assumptions.sort();
    Ok(model)
}

fn names(readers: &[Reader]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for reader in readers {
        let name = &reader.manifest().machine.hostname;
        let base = if name.is_empty() { "host" } else { name };
        let mut name = base.to_string();
        let mut n = 2;
        while names.contains(&name) {
            name = format!("{base}#{n}");
            n += 1;
        }
        names.push(name);
    }
    names
}

/// Returns one description of the run on all hosts. Leaves the duration and the losses of the run
/// at 0, because synthesis computes them from the events.
fn run(readers: &[Reader], names: &[String], mode: Option<&str>) -> Run {
    let runs: Vec<Run> = readers.iter().map(|r| run_of(r, mode)).collect();
    let joined = |of: fn(&Run) -> &str| {
        let parts: BTreeSet<&str> = runs.iter().map(of).filter(|p| !p.is_empty()).collect();
        parts.into_iter().collect::<Vec<_>>().join("+")
    };
    let distribution: BTreeSet<String> = runs.iter().flat_map(|r| r.distribution.clone()).collect();
    Run {
        id: joined(|r| &r.id),
        host: names.join("+"),
        boot: joined(|r| &r.boot),
        mode: runs[0].mode.clone(),
        distribution: distribution.into_iter().collect(),
        start: runs[0].start,
        duration_ns: 0,
        lost: Default::default(),
        events: 0,
    }
}

fn exchange(reader: &mut Reader, name: &str) -> Exchange {
    let written = reader.manifest().written.clone();
    let boot = reader.manifest().machine.boot_id.clone();
    let mut progress = Progress::new(format!("{}, messages", reader.path().display()));
    let mut exchange = Exchange::new(name, &boot);
    for (i, event) in reader.events().enumerate() {
        exchange.push(&event);
        if i % 8192 == 0 {
            progress.update(i as u64, written.events, written.bytes);
        }
    }
    exchange
}

fn pass(readers: &mut [Reader], clocks: &[Clock], options: SynthOptions) -> Synth {
    let sum = |of: fn(&Reader) -> u64| readers.iter().map(of).sum::<u64>();
    let (events, bytes) = (
        sum(|r| r.manifest().written.events),
        sum(|r| r.manifest().written.bytes),
    );
    let mut progress = Progress::new("all hosts");
    let mut synth = Synth::new(options);
    let mut streams: Vec<_> = readers
        .iter_mut()
        .zip(clocks)
        .enumerate()
        .map(|(host, (reader, clock))| {
            let events = reader.events();
            events.filter_map(move |e| clock.common(e, host)).peekable()
        })
        .collect();
    let mut count = 0;
    loop {
        let times = streams.iter_mut().enumerate();
        let times = times.filter_map(|(host, s)| Some((s.peek()?.time_ns, host)));
        let Some(event) = times.min().and_then(|(_, host)| streams[host].next()) else {
            return synth;
        };
        synth.push(&event);
        if count % 8192 == 0 {
            progress.update(count, events, bytes);
        }
        count += 1;
    }
}
