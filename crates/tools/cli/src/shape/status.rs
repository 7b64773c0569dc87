//! `onbeat shape --status`: prints the status of the sessions on this machine.

use onbeat_shape::status::{ask, Answer};
use onbeat_terminal::term::{self, Align, Screen, Table};
use onbeat_terminal::CliError;
use onbeat_terminal::ExitStatus;
use serde_json::{json, Value};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Text,
    Json,
    Prometheus,
}

pub fn status(dir: &Path, only: Option<u32>, form: Form) -> Result<ExitStatus, CliError> {
    let request: &[u8] = if form == Form::Prometheus {
        b"metrics"
    } else {
        b"status"
    };
    let answers = answers(dir, only, request)?;
    let mut out = io::stdout();
    let mut found = Vec::new();
    for (pid, text) in &answers {
        if form == Form::Prometheus {
            out.write_all(text.as_bytes()).map_err(CliError::Stdout)?;
            continue;
        }
        let value: Value = serde_json::from_str(text)
            .map_err(|e| CliError::Failed(format!("session {pid} gave an invalid answer: {e}")))?;
        match form {
            Form::Json => found.push(value),
            _ => print(&value, &mut out)?,
        }
    }
    match (answers.is_empty(), form) {
        (_, Form::Json) => {
            writeln!(out, "{:#}", json!({"sessions": found})).map_err(CliError::Stdout)?
        }
        (true, Form::Text) => writeln!(out, "No session runs.").map_err(CliError::Stdout)?,
        _ => {}
    }
    Ok(match answers.is_empty() {
        true => ExitStatus::NothingFound,
        false => ExitStatus::Success,
    })
}

pub fn answers(
    dir: &Path,
    only: Option<u32>,
    request: &[u8],
) -> Result<Vec<(u32, String)>, CliError> {
    if !onbeat_rights::is_root() || onbeat_rights::is_elevated() {
        let how = "only root can ask sessions: sudo onbeat shape --status";
        return Err(CliError::Refused(how.into()));
    }
    let asked = ask(dir, only, request, PATIENCE).map_err(|e| {
        CliError::Failed(format!(
            "cannot read {}: {e}. The directory must belong to root, and nobody else may write to it",
            dir.display()
        ))
    })?;
    let text = |answer: Answer| match answer.text {
        Ok(text) => Ok((answer.pid, text)),
        Err(e) => Err(CliError::Failed(format!(
            "session {} does not answer: {e}. Check whether this process is stopped",
            answer.pid
        ))),
    };
    asked.into_iter().map(text).collect()
}

fn print(status: &Value, out: &mut io::Stdout) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    let head = screen.bold(&term::fit(&headline(status), screen.width));
    writeln!(out, "{head}").map_err(CliError::Stdout)?;
    figures(status).write(out, &screen)?;
    writeln!(out).map_err(CliError::Stdout)?;
    servers(status).write(out, &screen)?;
    for line in lines(status) {
        writeln!(out, "{}", term::one_line(&line)).map_err(CliError::Stdout)?;
    }
    Ok(())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn headline(status: &Value) -> String {
    let plan = &status["plan"];
    let chains: Vec<String> = list(&plan["chains"]).iter().map(text).collect();
    let since = status["shaping_ns"].as_u64();
    let since = since.map_or(String::new(), |ns| format!(" for {} s", ns / 1_000_000_000));
    let nth = match number(&plan["number"]) {
        0 | 1 => String::new(),
        n => format!(" (plan {n})"),
    };
    format!(
        "session {pid}: {state}{since}: {strategy}{nth} for {chains}, every {cycle_ms} ms",
        pid = status["pid"],
        state = text(&status["state"]),
        strategy = text(&plan["strategy"]),
        chains = chains.join(", "),
        cycle_ms = number(&plan["cycle_ns"]) as f64 / 1e6
    )
}

fn figures(status: &Value) -> Table {
    let mut figures = Table::new()
        .names("figure", 3)
        .column("promised", Align::Right)
        .column("so far", Align::Right);
    for promise in list(&status["promises"]) {
        let unit = text(&promise["unit"]);
        let with_unit = |v: &Value| v.as_f64().map(|v| format!("{v:.3} {unit}"));
        figures.row(vec![
            text(&promise["name"]),
            with_unit(&promise["promised"]).unwrap_or_default(),
            with_unit(&promise["measured"]).unwrap_or_default(),
        ]);
    }
    let (counts, guard) = (&status["counts"], &status["guard"]);
    let passed = "slots that passed before the dispatcher woke up";
    for (name, count) in [
        ("executions", &counts["executions"]),
        ("late outputs", &counts["late"]),
        ("discarded outputs", &counts["discarded"]),
        ("cycles without an output", &counts["without_output"]),
        (passed, &counts["skipped_slots"]),
        ("slips of throttled inputs", &counts["slips"]),
        ("how often the guard opened all gates", &guard["opened"]),
        (
            "how often the dispatcher opened all gates",
            &guard["silent"],
        ),
        ("new plans that were refused", &status["plan"]["refused"]),
    ] {
        figures.row(vec![name.into(), String::new(), number(count).to_string()]);
    }
    let late = number(&status["dispatcher"]["p99_ns"]) as f64 / 1e6;
    let late = format!("{late:.3} ms");
    figures.row(vec![
        "dispatcher's lateness, p99".into(),
        String::new(),
        late,
    ]);
    figures
}

fn servers(status: &Value) -> Table {
    let mut servers = Table::new()
        .names("server", 1)
        .column("CPU", Align::Right)
        .column("priority", Align::Right)
        .names("threads", 3);
    for server in list(&status["servers"]) {
        let thread = |t: &Value| format!("{} ({})", text(&t[1]), t[0]);
        let threads: Vec<String> = list(&server["threads"]).iter().map(thread).collect();
        servers.row(vec![
            text(&server["name"]),
            number(&server["cpu"]).to_string(),
            number(&server["priority"]).to_string(),
            threads.join(", "),
        ]);
    }
    servers
}

fn lines(status: &Value) -> Vec<String> {
    let earlier = |p: &Value| {
        let [executions, late, without] =
            ["executions", "late", "without_output"].map(|name| number(&p[name]));
        format!(
            "Plan {} ({}) had {executions} executions, {late} late, {without} cycles without an output.",
            number(&p["number"]),
            text(&p["strategy"])
        )
    };
    let mut lines: Vec<String> = list(&status["plan"]["earlier"])
        .iter()
        .map(earlier)
        .collect();
    let missing = list(&status["missing"]).iter();
    lines.extend(missing.map(|m| format!("looking for {}", text(m))));
    if status["guard"]["lost"].as_bool() == Some(true) {
        lines.push("The guard has ended.".into());
    }
    let notes = list(&status["notes"]).iter();
    lines.extend(notes.map(|n| format!("note: {}", text(n))));
    lines
}
