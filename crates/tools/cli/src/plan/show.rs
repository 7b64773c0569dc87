//! Prints plans and comparisons of strategies.

use onbeat_document::text::percent;
use onbeat_plan::schema::{LeftOut, Miss, Ms, Promises, Server, Slot};
use onbeat_plan::{Plan, PlanError};
use onbeat_terminal::term::{self, fit, Align, Screen, Table};
use onbeat_terminal::CliError;
use serde_json::json;
use std::io::Write;

fn ms(ms: Ms) -> String {
    let text = format!("{:.3}", ms.0 as f64 / 1e6);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

fn slot(slot: &Slot) -> String {
    format!("[{}, {}]", ms(slot.0), ms(slot.1))
}

pub fn plan(out: &mut dyn Write, plan: &Plan, for_programs: bool) -> Result<(), CliError> {
    if for_programs {
        return term::write_json(out, plan);
    }
    let screen = Screen::of_stdout();
    let chains: Vec<&str> = plan.chains.iter().map(|c| c.id.as_str()).collect();
    let head = format!(
        "{} for {}, every {}",
        plan.strategy,
        chains.join(", "),
        plan.cycle_ms
    );
    writeln!(out, "{}", screen.bold(&fit(&head, screen.width))).map_err(CliError::Stdout)?;
    for chain in plan.chains.iter().filter(|c| !c.title.is_empty()) {
        let name = term::one_line(&format!("{}: {}", chain.id, chain.title));
        writeln!(out, "{}", fit(&name, screen.width)).map_err(CliError::Stdout)?;
    }
    servers(plan).write(out, &screen)?;
    for line in promises(plan) {
        writeln!(out, "{line}").map_err(CliError::Stdout)?;
    }
    if let Some(left_out) = &plan.promises.left_out {
        for line in wrap(&left_out_of(left_out, plan.promises.miss), screen.width) {
            writeln!(out, "{line}").map_err(CliError::Stdout)?;
        }
    }
    for sentence in &plan.assumes {
        let text = format!("assumes: {}", term::one_line(sentence));
        for line in wrap(&text, screen.width) {
            writeln!(out, "{}", screen.dim(&line)).map_err(CliError::Stdout)?;
        }
    }
    out.flush().map_err(CliError::Stdout)
}

pub fn servers(plan: &Plan) -> Table {
    let mut table = Table::new()
        .names("server", 1)
        .column("cpu", Align::Right)
        .column("priority", Align::Right)
        .names("slots, ms", 2)
        .names("callbacks and outputs", 3);
    for server in &plan.servers {
        let contents = contents(plan, server);
        let slots: Vec<String> = server.slots_ms.iter().map(slot).collect();
        for i in 0..contents.len().max(slots.len()).max(1) {
            let first = |text: String| if i == 0 { text } else { String::new() };
            table.row(vec![
                first(server.name.clone()),
                first(server.cpu.to_string()),
                first(server.priority.to_string()),
                match slots.get(i) {
                    Some(slot) => slot.clone(),
                    None => first("any time".into()),
                },
                contents.get(i).cloned().unwrap_or_default(),
            ]);
        }
    }
    table
}

fn contents(plan: &Plan, server: &Server) -> Vec<String> {
    let inputs = plan.inputs.iter().filter(|i| i.server == server.name);
    let outputs = plan.outputs.iter().filter(|o| o.server == server.name);
    let mut contents = server.callbacks.clone();
    contents.extend(inputs.map(|i| format!("{} in", i.topic)));
    contents.extend(outputs.map(|o| format!("{} out", o.topic)));
    contents
}

fn promises(plan: &Plan) -> Vec<String> {
    let p = &plan.promises;
    let mut lines = vec![format!(
        "promised latency: average {} ms, worst {} ms, jitter {} ms{}",
        ms(p.average_ms),
        ms(p.worst_ms),
        ms(p.jitter_ms),
        if p.bands.len() > 1 { " per band" } else { "" }
    )];
    lines.extend(p.bands.iter().map(|band| {
        format!(
            "  {:>6} of executions have a latency within {} ms",
            match percent(band.share) {
                // Rounding must not hide the executions that are in no band.
                all if all == percent(1.0) && band.share < 1.0 => exact(band.share),
                share => share,
            },
            slot(&band.latency_ms)
        )
    }));
    if p.left_out.is_none() {
        lines.extend(p.miss.map(miss));
    }
    lines.extend(p.cost.map(|cost| {
        format!(
            "  shaping adds to the average latency: {} in the recorded starts, at most {} in later ones ({} allowed)",
            percent(cost.measured),
            percent(cost.bound),
            percent(cost.asked)
        )
    }));
    lines.extend(p.utilisation.iter().map(|(cpu, share)| {
        format!(
            "  CPU {cpu} used for at most {} of the time",
            percent(*share)
        )
    }));
    lines.push(format!(
        "middleware on CPU {}, priority {}",
        plan.middleware.cpu, plan.middleware.priority
    ));
    lines
}

fn exact(share: f64) -> String {
    format!("{} %", (share * 1e4).round() / 100.0)
}

fn left_out_of(left_out: &LeftOut, miss: Option<Miss>) -> String {
    let Slot(shortest, longest) = &left_out.latency_ms;
    let took = match (ms(*shortest), ms(*longest)) {
        (shortest, longest) if shortest == longest => longest,
        (shortest, longest) => format!("{shortest} to {longest}"),
    };
    let executions = match left_out.executions {
        1 => "the slowest execution".to_string(),
        n => format!("the {n} slowest executions"),
    };
    let promise = miss.map_or_else(String::new, |miss| {
        format!(
            ". At most {} of later executions miss the last slot ({} confidence; {} executions measured)",
            exact(miss.rate),
            percent(miss.confidence),
            miss.executions
        )
    });
    format!(
        "left out of the plan: {executions} ({} of all; took {took} ms, the other executions at most {} ms): {}{promise}",
        percent(left_out.share),
        ms(left_out.kept_ms),
        term::one_line(&left_out.cause)
    )
}

fn miss(miss: Miss) -> String {
    let tail = match miss.shape {
        Some(shape) => format!("generalised Pareto tail of shape {shape:.2}"),
        None => "order statistic".into(),
    };
    format!(
        "  at most {} of later executions take longer than {} ms and miss the last slot ({} confidence; \
         measured: {} executions in {} starts, worth {} independent executions; {tail})",
        miss.rate,
        ms(miss.limit_ms),
        percent(miss.confidence),
        miss.executions,
        miss.starts,
        miss.independent
    )
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        let line = &mut lines[last];
        if !line.trim().is_empty() && term::width(line) + 1 + term::width(word) > width {
            lines.push(format!("  {word}"));
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    // A single word may be longer than a line.
    lines
        .into_iter()
        .map(|l| {
            if term::width(&l) > width {
                fit(&l, width)
            } else {
                l
            }
        })
        .collect()
}

pub fn comparison(
    out: &mut dyn Write,
    rows: &[(String, Result<Promises, PlanError>)],
    for_programs: bool,
) -> Result<(), CliError> {
    if for_programs {
        let rows: Vec<_> = rows
            .iter()
            .map(|(name, row)| match row {
                Ok(promises) => json!({ "strategy": name, "promises": promises }),
                Err(e) => json!({ "strategy": name, "refused": e.to_string() }),
            })
            .collect();
        return term::write_json(out, &json!({ "strategies": rows }));
    }
    let mut table = Table::new()
        .column("strategy", Align::Left)
        .column("average ms", Align::Right)
        .column("worst ms", Align::Right)
        .column("jitter ms", Align::Right)
        .names("", 1);
    for (name, row) in rows {
        table.row(match row {
            Ok(p) => vec![
                name.clone(),
                ms(p.average_ms),
                ms(p.worst_ms),
                ms(p.jitter_ms),
                if p.bands.len() > 1 {
                    "per band".into()
                } else {
                    String::new()
                },
            ],
            Err(e) => vec![
                name.clone(),
                "-".into(),
                "-".into(),
                "-".into(),
                e.to_string(),
            ],
        });
    }
    table.write(out, &Screen::of_stdout())?;
    out.flush().map_err(CliError::Stdout)
}
