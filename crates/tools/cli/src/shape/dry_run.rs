//! `onbeat shape --dry-run`: prints what a session would do.

use onbeat_plan::Plan;
use onbeat_shape::preflight::{Grade, Line};
use onbeat_shape::{Destination, DryRun, ShapeError, ShapeOptions};
use onbeat_terminal::term::{self, Align, Screen, Table};
use onbeat_terminal::CliError;
use onbeat_terminal::ExitStatus;
use serde_json::{json, Value};
use std::io::{self, Write};

pub fn run(plan: &Plan, options: &ShapeOptions, as_json: bool) -> Result<ExitStatus, CliError> {
    let found = onbeat_shape::dry_run(plan, options).map_err(|e| match e {
        e if e.is_refusal() => CliError::Refused(e.to_string()),
        e @ ShapeError::Record(onbeat_record::RecordError::NoProcess(_)) => {
            CliError::Usage(e.to_string())
        }
        e => CliError::failed(e),
    })?;
    match as_json {
        true => print_json(plan, &found)?,
        false => print(plan, &found)?,
    }
    Ok(ExitStatus::Success)
}

fn print(plan: &Plan, found: &DryRun) -> Result<(), CliError> {
    let (screen, mut out) = (Screen::of_stdout(), io::stdout());
    crate::plan::show::servers(plan).write(&mut out, &screen)?;
    let heading = |out: &mut io::Stdout, text: &str| {
        writeln!(out, "\n{}", screen.bold(text)).map_err(CliError::Stdout)
    };
    if found.threads.is_empty() {
        let why = found.not_looked.as_deref().unwrap_or(
            "no thread ran a callback of the plan. Check that the application is running",
        );
        let text = term::one_line(&format!("Only the plan is shown: {why}"));
        writeln!(out, "\n{text}").map_err(CliError::Stdout)?;
    } else {
        heading(&mut out, "Threads")?;
        threads(plan, found).write(&mut out, &screen)?;
    }
    for sentence in sentences(found) {
        for line in wrap(&term::one_line(&sentence), screen.width) {
            writeln!(out, "{line}").map_err(CliError::Stdout)?;
        }
    }
    heading(&mut out, "Settings of this machine")?;
    settings(&found.preflight, &screen, &mut out)?;
    writeln!(out, "\nNothing was changed.").map_err(CliError::Stdout)
}

fn place<'a>(plan: &'a Plan, to: &Destination) -> (&'a str, u16, u8) {
    match *to {
        Destination::Server(index) => {
            let server = &plan.servers[index];
            (&server.name, server.cpu, server.priority)
        }
        Destination::Middleware => ("middleware", plan.middleware.cpu, plan.middleware.priority),
    }
}

fn threads(plan: &Plan, found: &DryRun) -> Table {
    let mut table = Table::new()
        .column("thread", Align::Right)
        .names("name", 1)
        .column("policy now", Align::Left)
        .column("CPUs", Align::Left)
        .names("goes to", 1)
        .column("CPU", Align::Right)
        .column("priority", Align::Right)
        .names("for", 3);
    for thread in &found.threads {
        let (name, cpu, priority) = place(plan, &thread.to);
        for (i, job) in thread.jobs.iter().enumerate() {
            let first = |text: String| if i == 0 { text } else { String::new() };
            table.row(vec![
                first(thread.tid.to_string()),
                first(thread.name.clone()),
                first(thread.scheduling.replace("SCHED_", "")),
                first(thread.cpus.clone()),
                first(name.to_owned()),
                first(cpu.to_string()),
                first(priority.to_string()),
                job.clone(),
            ]);
        }
    }
    table
}

fn sentences(found: &DryRun) -> Vec<String> {
    let mut said = Vec::new();
    if found.untouched > 0 {
        said.push(format!(
            "{} other threads of the listed processes stay unchanged.",
            found.untouched
        ));
    }
    said.extend(found.sharing.iter().map(|u| {
        format!(
            "shares: {} is not in the plan, but runs on thread {}, which a server would get. The callback would then run only in the server's slots (it ran {} times while onbeat watched).",
            u.id, u.tid, u.runs
        )
    }));
    said.extend(found.started.iter().map(|s| {
        format!(
            "child: process {} ({}) was started by {}. A process that a shaped thread starts inherits the thread's CPU affinity and keeps it until the process ends.",
            s.pid, s.name, s.by
        )
    }));
    if !found.threads.is_empty() {
        said.extend(
            found.missing.iter().map(|c| {
                format!("risk: {c} did not run, and shaping begins only after it has run.")
            }),
        );
    }
    said.extend(found.risks.iter().map(|r| format!("risk: {r}")));
    said
}

fn settings(lines: &[Line], screen: &Screen, out: &mut io::Stdout) -> Result<(), CliError> {
    for line in lines {
        let grade = match line.grade {
            Grade::Ok => "ok  ".to_owned(),
            Grade::Note => screen.warn("note"),
            Grade::Risk => screen.warn("risk"),
        };
        let mut texts = vec![format!("{}: {}", line.about, line.found)];
        texts.extend(line.way_out.iter().map(|way| format!("  way out: {way}")));
        let parts = texts
            .iter()
            .flat_map(|t| wrap(&term::one_line(t), screen.width.saturating_sub(6)));
        for (i, part) in parts.enumerate() {
            let head = if i == 0 { grade.as_str() } else { "    " };
            writeln!(out, "{head}  {part}").map_err(CliError::Stdout)?;
        }
    }
    Ok(())
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let indent = " ".repeat(text.len() - text.trim_start().len());
    let mut lines = vec![indent.clone()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is one");
        let is_empty = last.trim().is_empty();
        if !is_empty && term::width(last) + 1 + term::width(word) > width {
            lines.push(format!("{indent}  {word}"));
        } else {
            if !is_empty {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

fn print_json(plan: &Plan, found: &DryRun) -> Result<(), CliError> {
    let servers: Vec<Value> = found
        .servers
        .iter()
        .map(|s| {
            let slots: Vec<[u64; 2]> = s.slots.iter().map(|s| [s.start_ns, s.end_ns]).collect();
            json!({"name": s.name, "cpu": s.cpu, "priority": s.priority, "slots_ns": slots})
        })
        .collect();
    let threads: Vec<Value> = found
        .threads
        .iter()
        .map(|t| {
            let (server, cpu, priority) = place(plan, &t.to);
            json!({"tid": t.tid, "pid": t.pid, "name": t.name, "scheduling": t.scheduling, "cpus": t.cpus,
                   "server": server, "cpu": cpu, "priority": priority, "for": t.jobs})
        })
        .collect();
    let sharing: Vec<Value> = found
        .sharing
        .iter()
        .map(|u| json!({"callback": u.id, "tid": u.tid, "pid": u.pid, "runs": u.runs}))
        .collect();
    let started: Vec<Value> = found
        .started
        .iter()
        .map(|s| json!({"pid": s.pid, "name": s.name, "by": s.by}))
        .collect();
    let preflight: Vec<Value> = found
        .preflight
        .iter()
        .map(|l| json!({"grade": l.grade.name(), "about": l.about, "found": l.found, "way_out": l.way_out}))
        .collect();
    let text = json!({"servers": servers, "threads": threads, "untouched": found.untouched, "sharing": sharing,
                      "started": started, "missing": found.missing, "risks": found.risks,
                      "preflight": preflight, "not_looked": found.not_looked});
    writeln!(io::stdout(), "{text:#}").map_err(CliError::Stdout)
}

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn long_lines_are_wrapped_between_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "  three"]);
        assert_eq!(wrap("  way out: x", 80), ["  way out: x"]);
        assert_eq!(
            wrap("a-word-that-is-too-long", 5),
            ["a-word-that-is-too-long"]
        );
    }
}
