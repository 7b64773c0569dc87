//! `onbeat chains`: prints a model's chains with their latencies.

use crate::mode;
use onbeat_document::schema::{Chain, ChainFigures, EndToEnd, EndToEndFigures, Share};
use onbeat_document::text::{duration, percent};
use onbeat_document::titles::titles;
use onbeat_document::Model;
use onbeat_terminal::term::{self, fit, Screen};
use onbeat_terminal::CliError;
use onbeat_terminal::{files, ExitStatus};
use serde_json::json;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// Show the chains of a model: latency, jitter, losses, and the parts of the latency
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat chains
  onbeat chains model.json --mode urban
  onbeat chains model.json --json | jq '.chains[] | [.id, .latency_ns.p99]'

Latency is the time from the start of the first callback to the publication of the chain's output.
Jitter is half of the difference between the largest and the smallest latency.
If several paths lead from a source to a sink, the latency over all paths counts from the newest
start of the source on which an output depends, and the data age from the oldest.

Exit codes: 0 done; 1 failed; 2 wrong command line; 3 done, but the model has no chain.")]
pub struct Args {
    /// Model file, made by onbeat model
    #[arg(value_name = "MODEL", default_value = "model.json")]
    pub model: PathBuf,
    /// Show only the figures of the runs in this mode, for example urban
    #[arg(long, value_name = "NAME")]
    pub mode: Option<String>,
    /// Print the result as JSON, for programs
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    let model = files::load_model(&args.model, "`onbeat chains`")?;
    let mode = args.mode.as_deref();
    mode::check(&model, mode, &args.model)?;
    let mut chains: Vec<_> = model
        .chains
        .iter()
        .zip(titles(&model))
        .filter_map(|(c, title)| Some((c, model.figures_of(mode, &c.figures, &c.modes)?, title)))
        .collect();
    let status = if chains.is_empty() {
        ExitStatus::NothingFound
    } else {
        ExitStatus::Success
    };
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        let value = json!({ "mode": mode, "chains": chains.iter().map(|(c, f, title)| {
            let mut c = (*c).clone();
            c.figures = (*f).clone();
            c.modes.clear();
            Titled { title, chain: c }
        }).collect::<Vec<_>>(), "end_to_end": pairs(&model, mode).map(|(e, f)| EndToEnd {
            figures: f.clone(),
            modes: Default::default(),
            ..e.clone()
        }).collect::<Vec<_>>() });
        term::write_json(&mut out, &value)?;
        return Ok(status);
    }
    let screen = Screen::of_stdout();
    if chains.is_empty() {
        writeln!(out, "The model has no chain.").map_err(CliError::Stdout)?;
    }
    chains.sort_by(|a, b| {
        b.1.latency_ns
            .max()
            .cmp(&a.1.latency_ns.max())
            .then(a.0.id.cmp(&b.0.id))
    });
    for (i, (chain, figures, title)) in chains.iter().enumerate() {
        if i > 0 {
            writeln!(out).map_err(CliError::Stdout)?;
        }
        write_chain(&mut out, &screen, (chain, title), figures).map_err(CliError::Stdout)?;
    }
    let several = pairs(&model, mode).filter(|(e, _)| e.paths != Some(1));
    write_pairs(&mut out, &screen, several).map_err(CliError::Stdout)?;
    out.flush().map_err(CliError::Stdout)?;
    Ok(status)
}

type Pair<'m> = (&'m EndToEnd, &'m EndToEndFigures);

fn pairs<'m>(model: &'m Model, mode: Option<&'m str>) -> impl Iterator<Item = Pair<'m>> {
    let all = model.end_to_end.iter();
    all.filter_map(move |e| Some((e, model.figures_of(mode, &e.figures, &e.modes)?)))
}

fn write_pairs<'m>(
    out: &mut dyn Write,
    screen: &Screen,
    pairs: impl Iterator<Item = Pair<'m>>,
) -> io::Result<()> {
    let mut pairs: Vec<Pair<'_>> = pairs.collect();
    if pairs.is_empty() {
        return Ok(());
    }
    pairs.sort_by_key(|(_, f)| std::cmp::Reverse(f.data_age_ns().max()));
    let title = "Times from source to sink, over all paths between them";
    writeln!(out, "\n{}", screen.bold(title))?;
    for (e, f) in pairs {
        let cut = if e.cut {
            screen.dim("  (part)")
        } else {
            String::new()
        };
        writeln!(out, "\n    {}{cut}", fit(&e.from, screen.width - 12))?;
        writeln!(out, "  → {}", fit(&e.to, screen.width - 4))?;
        let paths = match e.paths {
            Some(paths) => format!("{paths} paths"),
            None => "paths through a loop".into(),
        };
        let listed = match e.listed {
            0 => "none of these paths is a chain of this list".into(),
            1 => "1 of these paths is a chain of this list".into(),
            n => format!("{n} of these paths are chains of this list"),
        };
        writeln!(out, "  {} outputs over {paths}, {listed}", f.outputs)?;
        for (name, dist) in [
            ("latency ", &f.latency_ns),
            ("data age", f.data_age_ns()),
            ("reaction", &f.reaction_ns),
        ] {
            let time = |v: u64| duration(v as f64);
            let (p50, p99) = (time(dist.quantile(0.5)), time(dist.quantile(0.99)));
            let max = time(dist.max());
            if dist.count() > 0 {
                writeln!(out, "  {name}  p50 {p50}  p99 {p99}  max {max}")?;
            }
        }
    }
    Ok(())
}

#[derive(serde::Serialize)]
struct Titled<'a> {
    title: &'a str,
    #[serde(flatten)]
    chain: Chain,
}

const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz";

fn write_chain(
    out: &mut dyn Write,
    screen: &Screen,
    (chain, title): (&Chain, &str),
    f: &ChainFigures,
) -> io::Result<()> {
    let mut assumed = match chain.cut {
        true => screen.dim("  (part)"),
        false => String::new(),
    };
    if chain.assumed {
        assumed += &screen.warn("  (assumed link)");
    }
    writeln!(
        out,
        "{}{assumed}",
        screen.bold(&fit(&chain.id, screen.width - 16))
    )?;
    writeln!(out, "  {}", fit(title, screen.width - 2))?;
    for (i, id) in chain.callbacks.iter().enumerate() {
        let arrow = if i == 0 { "  " } else { "→ " };
        writeln!(out, "  {arrow}{}", fit(id, screen.width - 4))?;
    }
    if f.executions == 0 {
        return writeln!(
            out,
            "  no execution was followed to its end; {} executions lost an item on the way",
            f.lost
        );
    }
    writeln!(
        out,
        "  {} executions, {} lost",
        f.executions,
        if f.lost > 0 {
            screen.warn(&f.lost.to_string())
        } else {
            "0".into()
        }
    )?;
    write_latency(out, screen, f)?;
    write_reaction(out, f)?;
    write_shares(out, screen, &f.shares)
}

fn write_latency(out: &mut dyn Write, screen: &Screen, f: &ChainFigures) -> io::Result<()> {
    let l = &f.latency_ns;
    let time = |v: u64| duration(v as f64);
    let figures = [
        ("min", time(l.min())),
        ("p50", time(l.quantile(0.5))),
        ("mean", duration(l.mean())),
        ("p99", time(l.quantile(0.99))),
        ("max", time(l.max())),
        ("jitter", time(f.jitter_ns)),
    ];
    let mut line = String::from("  latency");
    for (name, value) in figures {
        let part = format!("  {name} {value}");
        if term::width(&line) + term::width(&part) > screen.width {
            writeln!(out, "{line}")?;
            line = " ".repeat("  latency".len());
        }
        line.push_str(&part);
    }
    writeln!(out, "{line}")
}

fn write_reaction(out: &mut dyn Write, f: &ChainFigures) -> io::Result<()> {
    let (reaction, age) = (&f.reaction_ns, f.data_age_ns());
    let time = |v: u64| duration(v as f64);
    if reaction.count() > 0 {
        let (p50, max) = (time(reaction.quantile(0.5)), time(reaction.max()));
        writeln!(out, "  reaction  p50 {p50}  max {max}")?;
    }
    if f.age_ns.is_some() {
        let (p50, max) = (time(age.quantile(0.5)), time(age.max()));
        let outputs = age.count();
        writeln!(
            out,
            "  data age  p50 {p50}  max {max}  over {outputs} outputs"
        )?;
    }
    Ok(())
}

fn write_shares(out: &mut dyn Write, screen: &Screen, shares: &[Share]) -> io::Result<()> {
    if shares.is_empty() {
        return Ok(());
    }
    writeln!(out, "  {}", bar(screen, shares))?;
    for (i, share) in shares.iter().enumerate() {
        let what = if share.element == "edge" { "over " } else { "" };
        let figures = format!(
            "{:>8}  {:>6}",
            duration(share.mean_ns),
            percent(share.fraction)
        );
        let room = screen.width.saturating_sub(26 + what.len()).max(8);
        writeln!(
            out,
            "    {} {figures}  {what}{}",
            screen.series(i, &letter(i)),
            fit(&share.name, room)
        )?;
    }
    Ok(())
}

fn letter(i: usize) -> String {
    char::from(LETTERS[i % LETTERS.len()]).to_string()
}

fn bar(screen: &Screen, shares: &[Share]) -> String {
    let width = (screen.width - 6).min(94) as f64;
    let mut text = String::from("[");
    let (mut end, mut drawn) = (0.0, 0usize);
    for (i, share) in shares.iter().enumerate() {
        end += share.fraction.clamp(0.0, 1.0);
        let until = ((end.min(1.0) * width).round() as usize).max(drawn);
        if until > drawn {
            text.push_str(&screen.series(i, &letter(i).repeat(until - drawn)));
        }
        drawn = until;
    }
    text.push(']');
    text
}
