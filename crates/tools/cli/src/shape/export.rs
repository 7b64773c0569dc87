//! Writes the result of `onbeat shape` for programs: a summary as JSON and each execution as CSV.

use super::bands;
use onbeat_plan::Plan;
use onbeat_shape::judge::{Figure, Verdict};
use onbeat_shape::observe::Fate;
use onbeat_shape::Summary;
use onbeat_terminal::files;
use onbeat_terminal::CliError;
use serde_json::{json, Value};
use std::io::{self, Write};
use std::path::Path;

fn figures(verdict: &Verdict) -> Vec<Value> {
    let figure = |f: &Figure| {
        json!({"name": f.name, "unit": f.unit, "promised": f.promised, "measured": f.measured,
               "kept": f.kept})
    };
    verdict.figures.iter().map(figure).collect()
}

pub fn print_json(summary: &Summary) -> Result<(), CliError> {
    let earlier: Vec<_> = summary
        .earlier
        .iter()
        .map(|e| {
            json!({"number": e.number, "strategy": e.strategy, "executions": e.executions, "late": e.late,
                   "discarded": e.discarded, "without_output": e.without, "kept": e.verdict.is_kept(),
                   "figures": figures(&e.verdict)})
        })
        .collect();
    let threads: Vec<_> = summary
        .placed
        .iter()
        .map(|p| json!({"tid": p.tid, "pid": p.pid, "name": p.name, "server": p.place, "job": p.job}))
        .collect();
    let dispatcher = summary.stats.as_ref().map(|s| {
        json!({"lateness_p50_ns": s.lateness.quantile_ns(0.5),
               "lateness_p99_ns": s.lateness.quantile_ns(0.99),
               "lateness_p999_ns": s.lateness.quantile_ns(0.999),
               "lateness_max_ns": s.lateness.quantile_ns(1.0),
               "cpu_ns": s.cpu_ns, "cycles": s.cycles})
    });
    let gates = summary.stats.iter().flat_map(|s| &s.gates);
    let gates: Vec<_> = gates
        .map(|g| {
            json!({"server": g.server, "ends": g.ends, "working": g.working, "unknown": g.unknown,
                   "frozen_working": g.hard, "taken_back": g.taken_back, "unfinished": g.unfinished,
                   "waited": g.waited.count(), "waited_p50_ns": g.waited.quantile_ns(0.5),
                   "waited_p99_ns": g.waited.quantile_ns(0.99), "waited_max_ns": g.waited.max_ns})
        })
        .collect();
    let late: Vec<_> = summary
        .late
        .iter()
        .map(|l| {
            let parts = l.parts.iter().map(|p| json!({"what": p.what, "ns": p.ns}));
            json!({"cycle": l.cycle, "start_ns": l.start_ns, "cause": l.cause,
                   "parts": parts.collect::<Vec<_>>(), "dump": l.dump})
        })
        .collect();
    let text = json!({"kept": summary.is_kept(), "executions": summary.judgements.len(),
                      "figures": figures(&summary.verdict), "earlier_plans": earlier, "threads": threads, "dispatcher": dispatcher, "gates": gates,
                      "adapted": summary.adapted.as_ref().map(bands::json), "late": late,
                      "notes": summary.notes});
    writeln!(io::stdout(), "{text:#}").map_err(CliError::Stdout)
}

pub fn samples(path: &Path, plan: &Plan, summary: &Summary) -> Result<(), CliError> {
    files::write_whole(path, |out| {
        writeln!(
            out,
            "chain,start_ns,left_ns,output_ns,latency_ns,offset_ns,band,late,dropped,refused"
        )?;
        for o in &summary.judgements {
            let e = &o.execution;
            let chain = plan.chains.get(e.chain).map_or("", |c| c.id.as_str());
            writeln!(
                out,
                "{},{},{},{},{},{},{},{},{},{}",
                chain,
                e.start_ns,
                e.left_ns,
                e.output_ns,
                e.latency_ns(),
                o.offset_ns,
                o.band.map_or(String::new(), |b| (b + 1).to_string()),
                u8::from(e.late),
                u8::from(e.fate == Fate::Discarded),
                u8::from(e.fate == Fate::Refused)
            )?;
        }
        Ok(())
    })
}
