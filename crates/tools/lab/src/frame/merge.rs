//! `onbeat-lab merge`: several runs of an experiment in one table, for a document.

use super::files;
use super::report::{number, Figure};
use super::{LabError, Result, Results, Verdict};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const MARKS: [&str; 2] = ["<!-- runs: begin -->\n", "<!-- runs: end -->\n"];
/// The prefix of the names of figures that the table of runs shows even if they have no target.
const ALWAYS: &str = "target.";

pub fn read(dirs: &[PathBuf]) -> Result<Vec<Results>> {
    let mut runs: Vec<Results> = Vec::new();
    for dir in dirs {
        let path = dir.join("results.json");
        let run: Results = files::json(&path)?;
        if let Some(first) = runs.first().filter(|f| f.experiment != run.experiment) {
            let why = format!(
                "the file holds results of {}, but the first directory holds results of {}",
                run.experiment, first.experiment
            );
            return Err(LabError::in_file(&path, why));
        }
        runs.push(run);
    }
    Ok(runs)
}

pub fn markdown(runs: &[Results]) -> String {
    let mut out = String::new();
    for (i, run) in runs.iter().enumerate() {
        let quick = if run.run.quick {
            ", a quick run, whose figures must not be quoted"
        } else {
            ""
        };
        let _ = writeln!(
            out,
            "Run {}: `{}`, {:.0} s, {} cores, Linux {}; {:.0} % busy, {:.1} % steal{quick}.",
            i + 1,
            run.run.command,
            run.run.duration_s,
            run.machine.cores,
            run.machine.kernel,
            run.load.busy * 100.0,
            run.load.steal * 100.0
        );
    }
    table(runs, &mut out);
    let (mut met, mut all) = (0, 0);
    for figure in runs.iter().flat_map(|r| &r.report.figures) {
        let verdict = figure.judgement.as_ref().map(|j| j.verdict);
        met += usize::from(verdict == Some(Verdict::Met));
        all += usize::from(verdict.is_some());
    }
    let _ = writeln!(out, "\n{met} of {all} targets met.");
    for (i, run) in runs.iter().enumerate() {
        let skipped = run.report.skipped.iter();
        let skipped = skipped.map(|s| format!("skipped: {}: {}", s.what, s.why));
        let lines: Vec<String> = run.report.notes.iter().cloned().chain(skipped).collect();
        notes(&lines, i + 1, &mut out);
    }
    out
}

fn notes(lines: &[String], run: usize, out: &mut String) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "\n<details>\n<summary>Notes of run {run}: {} lines</summary>\n\n```text",
        lines.len()
    );
    for line in lines {
        let _ = writeln!(out, "{}", line.trim());
    }
    let _ = writeln!(out, "```\n\n</details>");
}

fn table(runs: &[Results], out: &mut String) {
    let heads: Vec<String> = (1..=runs.len()).map(|n| format!(" run {n} |")).collect();
    let _ = writeln!(out, "\n| figure | unit |{}", heads.concat());
    let _ = writeln!(out, "|---|---|{}", "---:|".repeat(runs.len()));
    let mut names: Vec<&Figure> = Vec::new();
    for figure in runs.iter().flat_map(|r| &r.report.figures) {
        let is_wanted = figure.target.is_some() || figure.name.starts_with(ALWAYS);
        if is_wanted && names.iter().all(|n| n.name != figure.name) {
            names.push(figure);
        }
    }
    for name in names {
        let cell = |run: &Results| {
            let mut figures = run.report.figures.iter();
            let found = figures.find(|f| f.name == name.name);
            found.map_or(" - |".to_owned(), |f| format!(" {} |", value(f)))
        };
        let cells: String = runs.iter().map(cell).collect();
        let shown = name.name.strip_prefix(ALWAYS).unwrap_or(&name.name);
        let _ = writeln!(out, "| {shown} | {} |{cells}", name.unit);
    }
}

fn value(figure: &Figure) -> String {
    let Some(target) = figure.target else {
        return number(figure.value);
    };
    let sign = figure.sign();
    let verdict = match figure.judgement.as_ref().map(|j| j.verdict) {
        Some(Verdict::Missed) => "**missed**",
        Some(verdict) => verdict.name(),
        None => "not judged",
    };
    format!(
        "{} ({sign} {}: {verdict})",
        number(figure.value),
        number(target)
    )
}

/// Replaces the text between the two mark lines of a document.
///
/// # Errors
///
/// Fails if the document has no marks, or if it cannot be read or written.
pub fn into_document(document: &Path, text: &str) -> Result<()> {
    let old = files::text(document)?;
    let parts = old
        .split_once(MARKS[0])
        .and_then(|(before, rest)| Some((before, rest.split_once(MARKS[1])?.1)));
    let Some((before, after)) = parts else {
        let why = format!(
            "the document has no lines {} and {} around the table",
            MARKS[0].trim(),
            MARKS[1].trim()
        );
        return Err(LabError::in_file(document, why));
    };
    let new = format!("{before}{}{text}{}{after}", MARKS[0], MARKS[1]);
    super::raw::write_whole(document, new.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::disturbance::{Disturbance, RULE};
    use crate::frame::machine::{LoadMeter, Machine};
    use crate::frame::results::RunFacts;
    use crate::frame::Report;

    fn run(value: f64) -> Results {
        let mut report = Report::new();
        report.figure(Figure::exact("target.a.jitter", value, "ms").at_most(0.1));
        report.value("target.a.late", 1.0, "1");
        report.value("other", 1.0, "1");
        report.note("a: cycle 7: late");
        report.skip("b", "nothing there");
        report.judge();
        Results {
            schema: "s".into(),
            experiment: "e".into(),
            about: "x".into(),
            run: RunFacts {
                command: "./dev bench e".into(),
                quick: false,
                seed: 1,
                version: "1".into(),
                started: 0,
                duration_s: 2.0,
            },
            machine: Machine::here(),
            load: LoadMeter::start().finish(),
            rule: RULE,
            disturbance: Disturbance::default(),
            rounds: vec![],
            files: vec![],
            report,
        }
    }

    #[test]
    fn merged_runs_show_targets_and_notes_side_by_side() {
        let text = markdown(&[run(0.05), run(0.2)]);
        let wanted = "| a.jitter | ms | 0.05 (<= 0.1: met) | 0.2 (<= 0.1: **missed**) |\n";
        assert!(text.contains(wanted), "{text}");
        assert!(
            text.contains("| a.late | 1 | 1 | 1 |\n") && !text.contains("other"),
            "{text}"
        );
        assert!(
            text.contains("1 of 2 targets met.") && text.contains("Notes of run 2:"),
            "{text}"
        );
        assert!(
            text.contains("a: cycle 7: late\nskipped: b: nothing there\n"),
            "{text}"
        );
    }

    #[test]
    fn a_merge_keeps_the_document_text_around_the_marks() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("d.md");
        std::fs::write(
            &file,
            format!("before\n{}old\n{}after\n", MARKS[0], MARKS[1]),
        )
        .unwrap();
        into_document(&file, "new\n").unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(
            text,
            format!("before\n{}new\n{}after\n", MARKS[0], MARKS[1])
        );
        std::fs::write(&file, "nothing").unwrap();
        assert!(into_document(&file, "new")
            .unwrap_err()
            .to_string()
            .contains("no lines"));
        let other = [
            run(1.0),
            Results {
                experiment: "f".into(),
                ..run(1.0)
            },
        ];
        let dirs: Vec<PathBuf> = (0..2).map(|i| dir.path().join(i.to_string())).collect();
        for (dir, run) in dirs.iter().zip(&other) {
            std::fs::create_dir(dir).unwrap();
            let text = serde_json::to_vec(run).unwrap();
            std::fs::write(dir.join("results.json"), text).unwrap();
        }
        assert_eq!(read(&dirs[..1]).unwrap().len(), 1);
        assert!(read(&dirs)
            .unwrap_err()
            .to_string()
            .contains("results of e"));
    }
}
