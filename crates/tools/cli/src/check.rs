//! `onbeat check`: checks a model against requirements.

use crate::late::{self, Wanted};
use crate::mode;
use onbeat_check::{Finding, Verdict};
use onbeat_terminal::term::{self, Align, Screen, Table};
use onbeat_terminal::units::parse_share;
use onbeat_terminal::CliError;
use onbeat_terminal::{files, ExitStatus};
use onbeat_why::lost::LossKind;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Check a model against requirements: figures, structure, and whether the sample suffices
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat check model.json requirements.yaml
  onbeat check model.json requirements.yaml --trace trace     says the causes
  onbeat check model.json requirements.yaml --junit check.xml --sarif check.sarif
  onbeat check model.json --init requirements.yaml --margin 30%

A requirement is *passed* or *violated* if the model has enough executions to decide, with 95 %
confidence. Otherwise it is *not known*, with the reason. docs/how-to/check.md has more.

Exit codes: 0 all passed; 1 failed; 2 wrong command line; 5 one violated; 6 none violated, one not
known.")]
pub struct Args {
    /// Model file, made by onbeat model
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Requirements file (YAML); --init writes a first one
    #[arg(value_name = "REQUIREMENTS", required_unless_present = "init")]
    requirements: Option<PathBuf>,
    /// Say below each violated latency what the late executions in this recording have in common,
    /// and below each violated limit of losses why items were lost. Name a trace from which the
    /// model was made
    #[arg(long, value_name = "TRACE")]
    trace: Option<PathBuf>,
    /// Write requirements that this model satisfies, for you to edit
    #[arg(long, value_name = "FILE", conflicts_with_all = ["requirements", "trace", "json", "junit", "sarif", "all"])]
    init: Option<PathBuf>,
    /// Let the written limits exceed the measured values by this share
    #[arg(long, value_name = "SHARE", requires = "init", value_parser = parse_share, default_value = "20%")]
    margin: f64,
    /// Write only limits of medians, which differ least from run to run. Use this option to compare
    /// builds
    #[arg(long, requires = "init")]
    medians: bool,
    /// Also list the requirements that the model satisfies
    #[arg(long)]
    all: bool,
    /// Print the result as JSON, for programs
    #[arg(long, conflicts_with = "all")]
    json: bool,
    /// Write the findings as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write the requirements that did not pass as SARIF
    #[arg(long, value_name = "FILE")]
    sarif: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    let model = files::load_model(&args.model, "`onbeat check`")?;
    if let Some(path) = &args.init {
        let limits = match args.medians {
            true => onbeat_check::Limits::Medians,
            false => onbeat_check::Limits::All,
        };
        let text =
            onbeat_check::initial(&model, args.margin, limits).map_err(CliError::in_file(path))?;
        files::write_whole(path, |out| out.write_all(text.as_bytes()))?;
        return Ok(ExitStatus::of_model(&model));
    }
    let path = args.requirements.clone().unwrap_or_default();
    let bytes = files::read_at_most(&path, onbeat_check::MAX_BYTES)?;
    let requirements = onbeat_check::read(&bytes).map_err(CliError::in_file(&path))?;
    mode::check(&model, requirements.mode.as_deref(), &args.model)?;
    let mut findings = onbeat_check::check(&model, &requirements);
    if let Some(trace) = &args.trace {
        explain(&mut findings, trace)?;
        explain_losses(&mut findings, trace)?;
    }
    if let Some(file) = &args.junit {
        let text = onbeat_check::junit(&findings, &args.model.display().to_string());
        files::write_whole(file, |out| out.write_all(text.as_bytes()))?;
    }
    if let Some(file) = &args.sarif {
        let value = onbeat_check::sarif(&findings, &path.display().to_string());
        files::write_whole(file, |out| {
            serde_json::to_writer_pretty(&mut *out, &value)?;
            out.write_all(b"\n")
        })?;
    }
    let mut out = BufWriter::new(io::stdout().lock());
    match args.json {
        true => term::write_json(&mut out, &onbeat_check::json(&findings))?,
        false => write(&mut out, &findings, &args)?,
    }
    out.flush().map_err(CliError::Stdout)?;
    Ok(match onbeat_check::verdict(&findings) {
        Verdict::Passed => ExitStatus::Success,
        Verdict::NotKnown => ExitStatus::NotKnown,
        Verdict::Violated => ExitStatus::PromiseBroken,
    })
}

fn is_late(finding: &Finding) -> bool {
    finding.verdict == Verdict::Violated && finding.late_above_ns.is_some()
}

fn is_lossy(finding: &Finding) -> bool {
    finding.verdict == Verdict::Violated && !finding.losses_at.is_empty()
}

fn explain_losses(findings: &mut [Finding], trace: &Path) -> Result<(), CliError> {
    if !findings.iter().any(is_lossy) {
        return Ok(());
    }
    let losses = late::losses(trace, "--trace")?;
    for finding in findings.iter_mut().filter(|f| is_lossy(f)) {
        let only_overwritten = finding.requirement.ends_with(".overwritten");
        let is_at = |topic: &str, to: &str| {
            let mut at = finding.losses_at.iter();
            at.any(|at| (at.0.as_str(), at.1.as_str()) == (topic, to))
        };
        let mut said = Vec::new();
        for topic in losses.topics.iter().filter(|t| is_at(&t.topic, &t.to)) {
            let is_meant = |kind: LossKind| (kind == LossKind::Overwritten) == only_overwritten;
            let causes = topic.causes.iter().filter(|c| is_meant(c.kind));
            said.extend(causes.map(|cause| topic.sentence(cause)));
        }
        finding.lost = (!said.is_empty()).then(|| said.join(" "));
    }
    Ok(())
}

fn explain(findings: &mut [Finding], trace: &Path) -> Result<(), CliError> {
    let late = || findings.iter().filter(|f| is_late(f));
    let wanted: Vec<Wanted> = late()
        .map(|f| Wanted {
            id: f.id.clone(),
            over_ns: f.late_above_ns,
            kept: 0,
        })
        .collect();
    let said = late::sentences(trace, "--trace", &wanted)?;
    let broken = findings.iter_mut().filter(|f| is_late(f));
    for (finding, said) in broken.zip(said) {
        finding.late = said;
    }
    Ok(())
}

fn cause(f: &Finding, trace: Option<&Path>) -> Option<String> {
    let over_ns = f.late_above_ns.filter(|_| is_late(f))?;
    let place = format!("{}, {}", f.requirement, f.subject);
    let over = over_ns as f64 / 1e6;
    Some(match (&f.late, trace) {
        (Some(said), _) => format!("{place}: {said}"),
        (None, Some(trace)) => format!(
            "{place}: {} does not show what distinguishes late executions of this chain from others",
            trace.display()
        ),
        (None, None) => format!(
            "{place}: `onbeat why TRACE --chain {} --over {over}ms` shows the causes",
            f.id
        ),
    })
}

fn loss(f: &Finding, trace: Option<&Path>) -> Option<String> {
    let (topic, _) = f.losses_at.first().filter(|_| is_lossy(f))?;
    let place = format!("{}, {}", f.requirement, f.subject);
    Some(match (&f.lost, trace) {
        (Some(said), _) => format!("{place}: {said}"),
        (None, Some(trace)) => format!(
            "{place}: the cause is unknown, because {} contains no lost item that this requirement counts",
            trace.display()
        ),
        (None, None) => {
            format!("{place}: `onbeat why TRACE --lost {topic}` shows the causes")
        }
    })
}

fn write(out: &mut dyn Write, findings: &[Finding], args: &Args) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    let mut shown: Vec<&Finding> = findings.iter().collect();
    shown.retain(|f| args.all || f.verdict != Verdict::Passed);
    shown.sort_by_key(|f| std::cmp::Reverse(f.verdict));
    if !shown.is_empty() {
        let mut table = Table::new()
            .column("verdict", Align::Left)
            .names("requirement", 3)
            .names("of", 3)
            .names("limit", 2)
            .names("measured", 2);
        for f in &shown {
            table.row(vec![
                f.verdict.text().into(),
                f.requirement.clone(),
                f.subject.clone(),
                f.limit.clone(),
                if f.measured.is_empty() {
                    "-".into()
                } else {
                    f.measured.clone()
                },
            ]);
        }
        table.write(out, &screen)?;
        writeln!(out).map_err(CliError::Stdout)?;
    }
    for f in shown.iter().filter(|f| !f.why.is_empty()) {
        let line = format!("{}, {}: {}", f.requirement, f.subject, f.why);
        writeln!(out, "{}", term::one_line(&line)).map_err(CliError::Stdout)?;
    }
    for line in shown.iter().filter_map(|f| cause(f, args.trace.as_deref())) {
        writeln!(out, "{}", term::one_line(&line)).map_err(CliError::Stdout)?;
    }
    for line in shown.iter().filter_map(|f| loss(f, args.trace.as_deref())) {
        writeln!(out, "{}", term::one_line(&line)).map_err(CliError::Stdout)?;
    }
    let count = |verdict| findings.iter().filter(|f| f.verdict == verdict).count();
    let (passed, open, broken) = (
        count(Verdict::Passed),
        count(Verdict::NotKnown),
        count(Verdict::Violated),
    );
    let text = format!("{passed} passed, {open} not known, {broken} violated");
    let text = if open + broken > 0 {
        screen.warn(&text)
    } else {
        text
    };
    writeln!(out, "{text}").map_err(CliError::Stdout)
}
