//! `onbeat advise`: shows what costs chains their time, and how to improve it.

use onbeat_advise::{Advice, ChainBound, Options, Priorities, Report, Rule};
use onbeat_document::text::{duration, percent};
use onbeat_document::titles::titles;
use onbeat_document::Model;
use onbeat_terminal::term::{self, fit, Align, Screen, Table};
use onbeat_terminal::units::parse_share;
use onbeat_terminal::CliError;
use onbeat_terminal::{files, ExitStatus};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Show what makes chains slow, with the evidence, and how to improve it
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat advise
  onbeat advise model.json --chain 664e --chain d060     the first one is the most important
  onbeat advise model.json --priorities                  and priorities for the chains' threads
  onbeat advise model.json --isolated threads.yaml       these, for the Callback Isolated Executor
  onbeat advise model.json --bounds                      and how late chains can be
  onbeat plan model.json --chain 664e --strategy fifo    these, for `onbeat shape`

A cost is shown if it is at least --min-share of a chain's mean latency and 0.1 ms, or one in 200
items, or if a CPU or an executor is used for more than 80 %. Costs are upper limits and may
overlap. docs/how-to/advise.md explains each rule.

Exit codes: 0 done, with or without advice; 1 failed; 2 wrong command line; 3 no chain has an
execution.")]
pub struct Args {
    /// Model file, made by onbeat model
    #[arg(value_name = "MODEL", default_value = "model.json")]
    model: PathBuf,
    /// Advise on this chain: its id, or the beginning of the id. Repeat the option for several
    /// chains, the most important first
    #[arg(long = "chain", value_name = "ID")]
    chains: Vec<String>,
    /// Ignore costs below this share of a chain's mean latency
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "5%")]
    min_share: f64,
    /// Also show priorities for the threads of all chains
    #[arg(long)]
    priorities: bool,
    /// Also show bounds of the chains' latencies beside the measured ones
    #[arg(long)]
    bounds: bool,
    /// Write the suggested priorities to this file, as a configuration of the Callback Isolated
    /// Executor
    #[arg(long, value_name = "FILE")]
    isolated: Option<PathBuf>,
    /// Print the result as JSON, for programs
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    let model = files::load_model(&args.model, "`onbeat advise`")?;
    let order = args.chains.iter().map(|c| place(&model, c, &args.model));
    let options = Options {
        order: order.collect::<Result<_, _>>()?,
        min_share: args.min_share,
        ..Options::default()
    };
    let report = onbeat_advise::advise(&model, &options);
    let priorities = Priorities::of(&model, &report.order);
    if let Some(file) = &args.isolated {
        let text = onbeat_advise::isolated(&model, &priorities)
            .map_err(|why| CliError::Refused(format!("{}: {why}", args.model.display())))?;
        files::write_whole(file, |out| out.write_all(text.as_bytes()))?;
    }
    let bounds = onbeat_advise::bounds(&model, &report.order);
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        let json = onbeat_advise::json(&model, &report, &priorities, &bounds);
        term::write_json(&mut out, &json)?;
    } else {
        write(&mut out, &model, &report)?;
        if args.priorities {
            write_priorities(&mut out, &priorities)?;
        }
        if args.bounds {
            write_bounds(&mut out, &model, &bounds)?;
        }
    }
    out.flush().map_err(CliError::Stdout)?;
    Ok(match report.order.is_empty() {
        true => ExitStatus::NothingFound,
        false => ExitStatus::Success,
    })
}

fn place(model: &Model, asked: &str, path: &Path) -> Result<usize, CliError> {
    let fits = |id: &str| {
        let short = id.strip_prefix("chain-").unwrap_or(id);
        id.starts_with(asked) || short.starts_with(asked)
    };
    let all = model.chains.iter().enumerate();
    let found: Vec<usize> = all.filter(|(_, c)| fits(&c.id)).map(|(i, _)| i).collect();
    match found[..] {
        [one] => Ok(one),
        [] => Err(CliError::Refused(format!(
            "{}: no chain has the id '{}'. `onbeat chains` lists the chains",
            path.display(),
            term::one_line(asked)
        ))),
        _ => Err(CliError::Refused(format!(
            "{}: the ids of {} chains begin with '{}'. Write more of the id",
            path.display(),
            found.len(),
            term::one_line(asked)
        ))),
    }
}

fn write(out: &mut dyn Write, model: &Model, report: &Report) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    let titles = titles(model);
    let mut table = Table::new()
        .column("", Align::Right)
        .names("chain, most important first", 1)
        .column("executions", Align::Right)
        .column("mean", Align::Right)
        .column("p99", Align::Right)
        .column("callbacks", Align::Right);
    for (n, &i) in report.order.iter().enumerate() {
        let figures = &model.chains[i].figures;
        let own = figures.shares.iter().filter(|s| s.element == "callback");
        let own: f64 = own.map(|s| s.fraction).sum();
        table.row(vec![
            (n + 1).to_string(),
            titles[i].clone(),
            figures.executions.to_string(),
            duration(figures.latency_ns.mean()),
            duration(figures.latency_ns.quantile(0.99) as f64),
            percent(own),
        ]);
    }
    if report.order.is_empty() {
        writeln!(out, "The model has no chain.").map_err(CliError::Stdout)?;
    } else {
        table.write(out, &screen)?;
    }
    for (n, advice) in report.advices.iter().enumerate() {
        let chain = advice.chain.map(|i| titles[i].as_str());
        block(out, &screen, n + 1, advice, chain).map_err(CliError::Stdout)?;
    }
    writeln!(out).map_err(CliError::Stdout)?;
    for sentence in &report.not_judged {
        writeln!(out, "not judged: {sentence}").map_err(CliError::Stdout)?;
    }
    let found = match report.advices.len() {
        0 => "no advice".to_owned(),
        1 => "1 advice".to_owned(),
        n => format!("{n} advices"),
    };
    writeln!(out, "{}", screen.bold(&found)).map_err(CliError::Stdout)
}

fn block(
    out: &mut dyn Write,
    screen: &Screen,
    number: usize,
    advice: &Advice,
    chain: Option<&str>,
) -> io::Result<()> {
    let cost = match (advice.cost_ns, chain) {
        (Some(ns), Some(chain)) => {
            format!(
                "saves up to {} ({}) of the latency of {chain}",
                duration(ns),
                percent(advice.share)
            )
        }
        // Here `share` is the share of lost items, or the delay divided by the period.
        (None, Some(chain)) => match advice.rule {
            Rule::Queue => format!("{} of items lost in {chain}", percent(advice.share)),
            Rule::Release => format!(
                "starts late by {} of the period (p99) in {chain}",
                percent(advice.share)
            ),
            _ => format!("{} of the latency of {chain}", percent(advice.share)),
        },
        (_, None) => format!(
            "{} is busy for {} of the time",
            advice.subject,
            percent(advice.share)
        ),
    };
    let head = format!(
        "{number}. {}: {}",
        advice.rule.name(),
        term::one_line(&cost)
    );
    writeln!(out, "\n{}", screen.bold(&fit(&head, screen.width)))?;
    wrap(out, screen, &term::one_line(&advice.finding))?;
    wrap(out, screen, &format!("To do: {}", advice.remedy))
}

/// Prints a sentence on indented lines that fit the screen. A word that is wider than the screen
/// gets a line of its own.
pub(crate) fn wrap(out: &mut dyn Write, screen: &Screen, text: &str) -> io::Result<()> {
    const INDENT: &str = "   ";
    let room = screen.width.saturating_sub(INDENT.len()).max(20);
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && term::width(&line) + 1 + term::width(word) > room {
            writeln!(out, "{INDENT}{line}")?;
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    writeln!(out, "{INDENT}{line}")
}

fn write_priorities(out: &mut dyn Write, priorities: &Priorities) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    let mut table = Table::new()
        .column("priority", Align::Right)
        .column("before", Align::Right)
        .names("callback", 1)
        .column("CPUs", Align::Left)
        .column("thread", Align::Left);
    for assigned in &priorities.assigned {
        let cpus: Vec<String> = assigned.cpus.iter().map(u16::to_string).collect();
        table.row(vec![
            assigned.priority.to_string(),
            assigned.before.map_or("normal".into(), |p| p.to_string()),
            assigned.callback.clone(),
            cpus.join(","),
            if assigned.shared { "shared" } else { "its own" }.to_owned(),
        ]);
    }
    writeln!(out).map_err(CliError::Stdout)?;
    table.write(out, &screen)?;
    if priorities.crowded {
        writeln!(
            out,
            "note: there are more threads than priorities, so the last threads share a priority"
        )
        .map_err(CliError::Stdout)?;
    }
    Ok(())
}

fn write_bounds(out: &mut dyn Write, model: &Model, bounds: &[ChainBound]) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    let titles = titles(model);
    let mut table = Table::new()
        .names("chain", 1)
        .column("longest measured", Align::Right)
        .column("bound", Align::Right)
        .column("caused by others", Align::Right);
    for of in bounds {
        let steps = of.steps.as_ref().map_or(&[][..], |s| s);
        let others: u64 = steps.iter().map(|s| s.others_ns).sum();
        let bound = of.bound_ns();
        table.row(vec![
            titles[of.chain].clone(),
            duration(of.measured_ns as f64),
            bound.map_or("none".into(), |ns| duration(ns as f64)),
            bound.map_or(String::new(), |_| duration(others as f64)),
        ]);
    }
    writeln!(out).map_err(CliError::Stdout)?;
    table.write(out, &screen)?;
    for of in bounds {
        if let Err(why) = &of.steps {
            let text = format!("no bound of {}: {}", titles[of.chain], why.sentence());
            writeln!(out, "{}", term::one_line(&text)).map_err(CliError::Stdout)?;
        }
    }
    for sentence in [
        "note: bounds hold for executors that collect all ready callbacks, and run all of them before",
        "      they collect again. No callback or message may take longer, or come more often, than",
        "      measured",
    ] {
        writeln!(out, "{sentence}").map_err(CliError::Stdout)?;
    }
    Ok(())
}
