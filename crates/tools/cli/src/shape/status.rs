//! `onbeat shape --status`: asks the sessions of this machine.

use crate::error::CliError;
use crate::term::{self, Align, Screen, Table};
use crate::ExitStatus;
use onbeat_shape::status::{ask, Answer};
use serde_json::{json, Value};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

/// How long a session's answer is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// In which form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Text,
    Json,
    Prometheus,
}

/// Prints the status of the sessions in `dir`.
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
            .map_err(|e| CliError::Record(format!("session {pid} answered no JSON: {e}")))?;
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

/// The words of each session that answers.
fn answers(dir: &Path, only: Option<u32>, request: &[u8]) -> Result<Vec<(u32, String)>, CliError> {
    if !onbeat_rights::is_root() || onbeat_rights::is_elevated() {
        let how = "only root asks sessions: sudo onbeat shape --status";
        return Err(CliError::Refused(how.into()));
    }
    let asked = ask(dir, only, request, PATIENCE).map_err(|e| {
        CliError::Record(format!(
            "cannot read {}: {e}: it must belong to root, and nobody else may write to it",
            dir.display()
        ))
    })?;
    let text = |answer: Answer| match answer.text {
        Ok(text) => Ok((answer.pid, text)),
        Err(e) => Err(CliError::Record(format!(
            "session {} does not answer: {e}: is it stopped?",
            answer.pid
        ))),
    };
    asked.into_iter().map(text).collect()
}

fn print(status: &Value, out: &mut io::Stdout) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let plan = &status["plan"];
    let chains: Vec<String> = list(&plan["chains"]).iter().map(text).collect();
    let since = status["shaping_ns"]
        .as_u64()
        .map_or(String::new(), |ns| format!(" for {} s", ns / 1_000_000_000));
    let head = format!(
        "session {}: {}{since}: {} for {}, every {} ms",
        status["pid"],
        text(&status["state"]),
        text(&plan["strategy"]),
        chains.join(", "),
        number(&plan["cycle_ns"]) as f64 / 1e6
    );
    writeln!(out, "{}", screen.bold(&term::fit(&head, screen.width))).map_err(CliError::Stdout)?;
    let mut figures = Table::new()
        .names("figure", 3)
        .column("promised", Align::Right)
        .column("so far", Align::Right);
    for promise in list(&status["promises"]) {
        let with_unit = |v: &Value| {
            v.as_f64().map_or(String::new(), |v| {
                format!("{v:.3} {}", text(&promise["unit"]))
            })
        };
        figures.row(vec![
            text(&promise["name"]),
            with_unit(&promise["promised"]),
            with_unit(&promise["measured"]),
        ]);
    }
    let counts = [
        ("executions", &status["counts"]["executions"]),
        ("late outputs", &status["counts"]["late"]),
        ("discarded outputs", &status["counts"]["discarded"]),
        (
            "cycles without an output",
            &status["counts"]["without_output"],
        ),
        (
            "slots that had passed before the dispatcher came",
            &status["counts"]["skipped_slots"],
        ),
        ("slips of throttled inputs", &status["counts"]["slips"]),
        ("all slots opened by the guard", &status["guard"]["opened"]),
        (
            "all slots opened without the guard",
            &status["guard"]["silent"],
        ),
    ];
    for (name, count) in counts {
        figures.row(vec![name.into(), String::new(), number(count).to_string()]);
    }
    let late = number(&status["dispatcher"]["p99_ns"]) as f64 / 1e6;
    figures.row(vec![
        "dispatcher's lateness, p99".into(),
        String::new(),
        format!("{late:.3} ms"),
    ]);
    figures.write(out, &screen)?;
    let mut servers = Table::new()
        .names("server", 1)
        .column("CPU", Align::Right)
        .column("priority", Align::Right)
        .names("threads", 3);
    for server in list(&status["servers"]) {
        let threads: Vec<String> = list(&server["threads"])
            .iter()
            .map(|t| format!("{} ({})", text(&t[1]), t[0]))
            .collect();
        servers.row(vec![
            text(&server["name"]),
            number(&server["cpu"]).to_string(),
            number(&server["priority"]).to_string(),
            threads.join(", "),
        ]);
    }
    writeln!(out).map_err(CliError::Stdout)?;
    servers.write(out, &screen)?;
    let missing = list(&status["missing"]);
    let lines = missing.iter().map(|m| format!("looking for {}", text(m)));
    let guard_lost = status["guard"]["lost"].as_bool() == Some(true);
    let lines = lines.chain(guard_lost.then(|| "The guard has ended.".to_owned()));
    let notes = list(&status["notes"]);
    for line in lines.chain(notes.iter().map(|n| format!("note: {}", text(n)))) {
        writeln!(out, "{}", term::one_line(&line)).map_err(CliError::Stdout)?;
    }
    Ok(())
}
