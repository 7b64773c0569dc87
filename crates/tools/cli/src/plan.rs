//! `onbeat plan`: a model's chain becomes a plan; the words of the command line, handed to the planner.

use crate::error::CliError;
use crate::term::{fit, Align, Screen, Table};
use crate::{files, Outcome};
use onbeat_model::text::percent;
use onbeat_plan::request::{ThrottleRequest, DEFAULT_PRIORITY};
use onbeat_plan::schema::{Hold, Ms, Overshoot, Promises, Slot};
use onbeat_plan::{compare, file, plan, Plan, PlanError, Request, Strategy};
use serde_json::json;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Make a plan for a chain: servers, slots and latency bands, and what they promise.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat plan                                           one band for the model's only chain
  onbeat plan model.json --chain 664e --bands auto -o plan.yaml
  onbeat plan model.json --chain 664e --compare         what each strategy would promise
  onbeat plan model.json --chain 664e --strategy server-per-callback --cpu 1 --cpu /fusion=2
  onbeat plan model.json --chain 664e --throttle /lidar/points@/rosbag2_player --cycle 100
  onbeat plan --check plan.yaml                         is it still right after editing?

Times are milliseconds. What is not asked for comes from the model: --epsilon is 1 % of the worst case,
at least 0.5 ms; --slot is how long a message took to its executor (99th percentile), from 0.5 to 2 ms.

Exit codes: 0 done; 1 failed, or such a plan cannot hold; 2 wrong command line.")]
pub struct Args {
    /// Model file
    #[arg(value_name = "MODEL", default_value = "model.json")]
    pub model: PathBuf,
    /// Chain: its id, or a part from its beginning; again for more sinks of a graph [default: the only one]
    #[arg(long, value_name = "ID")]
    pub chain: Vec<String>,
    /// How the chain is to be run
    #[arg(long, value_enum, default_value_t = Way::Bands)]
    pub strategy: Way,
    /// Number of latency bands (1: all executions alike), or `auto`: as many as bring something
    #[arg(long, value_name = "K", value_parser = bands)]
    pub bands: Option<Bands>,
    /// Put the slots at random instead of where the average is least
    #[arg(long)]
    pub random: bool,
    /// Seed for --random
    #[arg(long, value_name = "N", default_value_t = 1, requires = "random")]
    pub seed: u64,
    /// How an output is held: by a shaper that republishes it, or in the middleware's publisher thread
    #[arg(long, value_enum, default_value_t = Design::Sync)]
    pub design: Design,
    /// CPU for all, or CALLBACK-OR-NODE=CPU; repeatable [default: the highest in the model]
    #[arg(long, value_name = "[NAME=]N", value_parser = cpu)]
    pub cpu: Vec<Cpu>,
    /// CPU of the middleware's threads [default: one in the model that no server has]
    #[arg(long, value_name = "N")]
    pub middleware_cpu: Option<u16>,
    /// Real-time priority of the chain, 1 to 89
    #[arg(long, value_name = "P", default_value_t = DEFAULT_PRIORITY)]
    pub priority: u8,
    /// Buffer behind the measured worst case
    #[arg(long, value_name = "MS", value_parser = time)]
    pub epsilon: Option<u64>,
    /// Length of a slot in which an output leaves
    #[arg(long, value_name = "MS", value_parser = time)]
    pub slot: Option<u64>,
    /// Largest distance of neighbouring bands: how long the output's data stays alive
    #[arg(long, value_name = "MS", value_parser = time)]
    pub liveliness: Option<u64>,
    /// What happens to an output that misses its last slot
    #[arg(long, value_enum, default_value_t = Late::Carry)]
    pub overshoot: Late,
    /// Let this input through once per cycle, for chains that start with an event; @NODE: its publisher
    #[arg(long, value_name = "TOPIC[@NODE]")]
    pub throttle: Vec<String>,
    /// Cycle, with --throttle [default: how far apart the input typically comes]
    #[arg(long, value_name = "MS", value_parser = time)]
    pub cycle: Option<u64>,
    /// Callback or node that gets what is left of the CPU; repeatable
    #[arg(long, value_name = "NAME")]
    pub background: Vec<String>,
    /// File to write; `-` is the standard output
    #[arg(short, long, value_name = "FILE", default_value = "plan.yaml")]
    pub output: PathBuf,
    /// Only show what every strategy would promise
    #[arg(long, conflicts_with_all = ["output", "strategy", "bands", "random"])]
    pub compare: bool,
    /// Only check this plan file, and show it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["compare", "chain", "output"])]
    pub check: Option<PathBuf>,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

/// A strategy by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// High priority, no slots: the baseline to measure first
    Fifo,
    /// A slot for every callback, one after the other
    ServerPerCallback,
    /// One slot for the whole chain
    ServerPerChain,
    /// One slot for the chain, and slots in which its output leaves
    Bands,
    /// Every callback's output leaves at the start of the next cycle
    LetPerCallback,
    /// The chain's output leaves at the start of the next cycle
    LetPerChain,
}

/// How an output is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Design {
    /// Republished by a shaper (any middleware)
    Sync,
    /// By the middleware's publisher thread (asynchronous publishing)
    Async,
}

/// What happens to a late output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Late {
    /// It leaves in the next cycle
    Carry,
    /// It is dropped
    Drop,
    /// Shaping ends
    Stop,
}

/// A number of bands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bands {
    /// The knee.
    Auto,
    /// So many.
    Count(usize),
}

fn bands(text: &str) -> Result<Bands, String> {
    match text {
        "auto" => Ok(Bands::Auto),
        _ => text
            .parse()
            .map(Bands::Count)
            .map_err(|_| "a number, or auto".into()),
    }
}

/// A CPU, for one name or for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpu(Option<String>, u16);

fn cpu(text: &str) -> Result<Cpu, String> {
    let (name, number) = match text.rsplit_once('=') {
        Some((name, number)) => (Some(name.to_string()), number),
        None => (None, text),
    };
    let number = number
        .parse()
        .map_err(|_| "a number of a CPU, or NAME=CPU")?;
    Ok(Cpu(name, number))
}

/// Milliseconds in nanoseconds.
fn time(text: &str) -> Result<u64, String> {
    match text.parse::<f64>() {
        Ok(ms) if (0.0..=3_600_000.0).contains(&ms) => Ok((ms * 1e6).round() as u64),
        _ => Err("milliseconds, e.g. 0.5, up to an hour".into()),
    }
}

/// Runs it.
pub fn run(args: Args) -> Result<Outcome, CliError> {
    let mut out = BufWriter::new(io::stdout().lock());
    if let Some(path) = &args.check {
        let plan = load(path)?;
        return show(&mut out, &plan, args.json).map(|()| Outcome::Done);
    }
    let request = request(&args)?;
    let model = files::load_model(&args.model, "`onbeat plan`")?;
    let refused = |source: PlanError| CliError::Plan {
        path: args.model.clone(),
        source,
    };
    if args.compare {
        // What is wrong with the request itself is said once.
        plan(
            &model,
            &Request {
                strategy: Strategy::Fifo,
                ..request.clone()
            },
        )
        .map_err(refused)?;
        write_comparison(&mut out, &compare(&model, &request), args.json)?;
        return Ok(Outcome::Done);
    }
    let plan = plan(&model, &request).map_err(refused)?;
    let text = file::write(&plan).map_err(|source| CliError::PlanFile {
        path: args.output.clone(),
        source,
    })?;
    files::write_whole(&args.output, |out| out.write_all(text.as_bytes()))?;
    if args.output == Path::new("-") {
        return Ok(Outcome::Done);
    }
    show(&mut out, &plan, args.json)?;
    if !args.json {
        let written = format!("written to {}", args.output.display());
        writeln!(out, "{}", crate::term::one_line(&written)).map_err(CliError::Stdout)?;
    }
    out.flush().map_err(CliError::Stdout)?;
    Ok(Outcome::Done)
}

/// What the words ask for.
fn request(args: &Args) -> Result<Request, CliError> {
    let strategy = match (
        args.strategy,
        args.bands.unwrap_or(Bands::Count(1)),
        args.random,
    ) {
        (Way::Bands, Bands::Auto, false) => Strategy::AutoBands,
        (Way::Bands, Bands::Count(count), false) => Strategy::Bands(count),
        (Way::Bands, Bands::Count(bands), true) => Strategy::RandomBands {
            bands,
            seed: args.seed,
        },
        (Way::Bands, Bands::Auto, true) => {
            return Err(CliError::Usage("--random needs a number of --bands".into()))
        }
        (_, _, true) => {
            return Err(CliError::Usage(
                "--random goes with --strategy bands only".into(),
            ))
        }
        _ if args.bands.is_some() => {
            return Err(CliError::Usage(
                "--bands goes with --strategy bands only".into(),
            ))
        }
        (Way::Fifo, ..) => Strategy::Fifo,
        (Way::ServerPerCallback, ..) => Strategy::ServerPerCallback,
        (Way::ServerPerChain, ..) => Strategy::ServerPerChain,
        (Way::LetPerCallback, ..) => Strategy::LetPerCallback,
        (Way::LetPerChain, ..) => Strategy::LetPerChain,
    };
    let throttle = |text: &String| match text.split_once('@') {
        Some((topic, node)) => ThrottleRequest {
            topic: topic.into(),
            node: Some(node.into()),
        },
        None => ThrottleRequest {
            topic: text.clone(),
            node: None,
        },
    };
    Ok(Request {
        chains: args.chain.clone(),
        strategy,
        cpu: args.cpu.iter().rev().find(|c| c.0.is_none()).map(|c| c.1),
        cpu_of: args
            .cpu
            .iter()
            .filter_map(|c| Some((c.0.clone()?, c.1)))
            .collect(),
        middleware_cpu: args.middleware_cpu,
        hold: match args.design {
            Design::Sync => Hold::Republish,
            Design::Async => Hold::PublisherThread,
        },
        epsilon_ns: args.epsilon,
        slot_ns: args.slot,
        liveliness_ns: args.liveliness,
        overshoot: match args.overshoot {
            Late::Carry => Overshoot::Carry,
            Late::Drop => Overshoot::Drop,
            Late::Stop => Overshoot::Stop,
        },
        throttles: args.throttle.iter().map(throttle).collect(),
        cycle_ns: args.cycle,
        background: args.background.clone(),
        priority: args.priority,
    })
}

/// Reads a plan file.
pub fn load(path: &Path) -> Result<Plan, CliError> {
    let bytes = files::read_at_most(path, file::MAX_BYTES)?;
    file::read(&bytes).map_err(|source| CliError::PlanFile {
        path: path.into(),
        source,
    })
}

/// Milliseconds for a table.
fn ms(ms: Ms) -> String {
    let text = format!("{:.3}", ms.0 as f64 / 1e6);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

fn slot(slot: &Slot) -> String {
    format!("[{}, {}]", ms(slot.0), ms(slot.1))
}

fn show(out: &mut dyn Write, plan: &Plan, for_programs: bool) -> Result<(), CliError> {
    if for_programs {
        return serde_json::to_writer_pretty(&mut *out, plan)
            .map_err(|e| CliError::Stdout(e.into()))
            .and_then(|()| writeln!(out).map_err(CliError::Stdout))
            .and_then(|()| out.flush().map_err(CliError::Stdout));
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
    let mut table = Table::new()
        .names("server", 1)
        .column("cpu", Align::Right)
        .column("priority", Align::Right)
        .names("slots, ms", 2)
        .names("callbacks and outputs", 3);
    for server in &plan.servers {
        let inputs = plan
            .inputs
            .iter()
            .map(|i| (&i.server, format!("{} in", i.topic)));
        let outputs = plan
            .outputs
            .iter()
            .map(|o| (&o.server, format!("{} out", o.topic)));
        let mut holds: Vec<String> = server.callbacks.clone();
        holds.extend(
            inputs
                .chain(outputs)
                .filter(|x| *x.0 == server.name)
                .map(|x| x.1),
        );
        let slots: Vec<String> = server.slots_ms.iter().map(slot).collect();
        let rows = holds.len().max(slots.len()).max(1);
        for i in 0..rows {
            let first = |text: String| if i == 0 { text } else { String::new() };
            table.row(vec![
                first(server.name.clone()),
                first(server.cpu.to_string()),
                first(server.priority.to_string()),
                match slots.get(i) {
                    Some(slot) => slot.clone(),
                    None => first("any time".into()),
                },
                holds.get(i).cloned().unwrap_or_default(),
            ]);
        }
    }
    table.write(out, &screen)?;
    let mut say = |text: String| writeln!(out, "{text}").map_err(CliError::Stdout);
    let p = &plan.promises;
    say(format!(
        "promises: average {} ms, worst {} ms, jitter {} ms{}",
        ms(p.average_ms),
        ms(p.worst_ms),
        ms(p.jitter_ms),
        if p.bands.len() > 1 { " per band" } else { "" }
    ))?;
    for band in &p.bands {
        say(format!(
            "  {:>6} of executions within {} ms",
            percent(band.share),
            slot(&band.latency_ms)
        ))?;
    }
    for (cpu, share) in &p.utilisation {
        say(format!(
            "  CPU {cpu} used for {} at the worst",
            percent(*share)
        ))?;
    }
    say(format!(
        "middleware on CPU {}, priority {}",
        plan.middleware.cpu, plan.middleware.priority
    ))?;
    for sentence in &plan.assumes {
        for line in wrap(
            &format!("assumes: {}", crate::term::one_line(sentence)),
            screen.width,
        ) {
            say(screen.dim(&line))?;
        }
    }
    out.flush().map_err(CliError::Stdout)
}

/// Lines of at most `width` columns, the later ones indented.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        let line = &mut lines[last];
        if !line.trim().is_empty()
            && crate::term::width(line) + 1 + crate::term::width(word) > width
        {
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
            if crate::term::width(&l) > width {
                fit(&l, width)
            } else {
                l
            }
        })
        .collect()
}

fn write_comparison(
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
        return serde_json::to_writer_pretty(&mut *out, &json!({ "strategies": rows }))
            .map_err(|e| CliError::Stdout(e.into()))
            .and_then(|()| writeln!(out).map_err(CliError::Stdout))
            .and_then(|()| out.flush().map_err(CliError::Stdout));
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
