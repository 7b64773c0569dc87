//! `onbeat why`: shows what single executions of a chain spent their time on, and what the late ones
//! have in common.

mod instant;
mod show;

use crate::advise::place;
use crate::model::{cuts_of, pass, Statements};
use instant::Clock;
use onbeat_document::cuts::{self, Ends};
use onbeat_document::schema::Chain;
use onbeat_document::text::duration;
use onbeat_document::titles::titles;
use onbeat_document::Model;
use onbeat_synth::SynthOptions;
use onbeat_terminal::progress::Progress;
use onbeat_terminal::term;
use onbeat_terminal::traces::{run_of, warn};
use onbeat_terminal::units::parse_duration;
use onbeat_terminal::CliError;
use onbeat_terminal::{files, ExitStatus};
use onbeat_trace::Reader;
use onbeat_why::{compare, Choice, Explanation, Target, Why};
use show::Shown;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Show what made executions of a chain late, each one to the nanosecond
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat why trace                                     the five worst executions of the longest chain
  onbeat why trace --chain 664e --over 50ms            a chain by its id (`onbeat chains`)
  onbeat why trace --from /lidar --to /objects         a part of a chain
  onbeat why trace --callback '/fusion:timer(100ms)' --worst 3
  onbeat why trace --chain 664e --at 14:03:07          the executions at this time of day (UTC)
  onbeat why trace --chain 664e --at 12.5s             or by the time since the recording began
  onbeat why trace --chain 664e --all --json | jq '.executions[0].stretches'

The latency of each execution is cut into stretches that follow one another. They add up to the
latency that `onbeat model` computes. What the recording does not show is 'unknown', with the reason.

Late executions are those above --over, or else above the 99th percentile (at least ten, but at most
5 %). The first sentence says by which causes they differ from the others. Of two numbers such as
'12 of 12 late ones, 3 of 588 others', each counts executions in which the cause took longer than the
middle between its means in late and in other executions.

Exit codes: 0 done; 1 failed; 2 wrong command line; 3 no execution was found.")]
pub struct Args {
    /// Trace directory
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Explain this chain: its id, or the beginning of the id. Without it, the chain with the longest
    /// latency is explained
    #[arg(long, value_name = "ID", conflicts_with = "callback")]
    chain: Option<String>,
    /// Explain the part of chains that begins at this callback, at the first one of this node, or
    /// where this topic is taken
    #[arg(long, value_name = "NAME", conflicts_with = "callback")]
    from: Option<String>,
    /// End that part at the output of this callback, at the output of the last one of this node, or
    /// at this topic
    #[arg(long, value_name = "NAME", conflicts_with = "callback")]
    to: Option<String>,
    /// Explain the executions of this callback instead: its id, or the end of the id. Each one
    /// counts from when its item was published, or its timer was due
    #[arg(long, value_name = "ID")]
    callback: Option<String>,
    /// Show this number of executions, the longest first [default: 5]
    #[arg(long, value_name = "N", conflicts_with_all = ["at", "all"])]
    worst: Option<usize>,
    /// Show executions that took longer, and count those as late
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    over: Option<Duration>,
    /// Show the executions that ran at this time: since the recording's start (12.5s), or the time
    /// of day in UTC (14:03:07)
    #[arg(long, value_name = "TIME", conflicts_with = "all")]
    at: Option<String>,
    /// Show all executions
    #[arg(long)]
    all: bool,
    /// Show each stretch, in place of the sums within each callback's share
    #[arg(long)]
    stretches: bool,
    #[command(flatten)]
    stated: Statements,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Names are compared up to this length, in bytes.
const LIKENESS_MAX: usize = 200;

pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    let path = args.trace.as_path();
    let hint = "; record one with `onbeat record`";
    let mut reader = files::open_trace(path, "`onbeat why`", hint)?;
    let options = args.stated.options()?;
    let mut options = options(run_of(&reader, None));
    options.shortened = !reader.has_beginning();
    let clock = Clock::of(&mut reader);
    let choice = choice(&args, &clock)?;
    let model = model(&mut reader, &args, &mut options)?;
    let Some(subject) = subject(&model, &args)? else {
        return Err(CliError::InFile {
            path: path.into(),
            what: "no chain was followed. Explain a callback with --callback (`onbeat model` and `onbeat show` list them)".into(),
        });
    };
    let limit_ns = match args.over {
        Some(over) => ns(over),
        None => subject.limit_ns(),
    };
    let of = (limit_ns, subject.longest_ns());
    let cut_to: Vec<&str> = options
        .cuts
        .iter()
        .filter_map(|c| c.to.as_deref())
        .collect();
    let target = match &subject {
        Subject::Chain { chain, .. } => Target::chain(chain, &cut_to),
        Subject::Callback(callback) => Target::Callback(callback.id.clone()),
    };
    let explanation = explain(&mut reader, Why::new(options.clone(), target, choice, of));
    warn(path, reader.warnings());
    let shown = Shown {
        subject: &subject,
        clock: &clock,
        over: args.over.is_some(),
        each: args.stretches,
        explanation: &explanation,
    };
    if args.json {
        shown.write_json()?;
    } else {
        shown.write(choice)?;
    }
    Ok(match explanation.executions.is_empty() {
        true => ExitStatus::NothingFound,
        false => ExitStatus::Success,
    })
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn choice(args: &Args, clock: &Clock) -> Result<Choice, CliError> {
    Ok(match (&args.at, args.over, args.worst) {
        (Some(at), ..) => Choice::At(clock.parse(at)?),
        _ if args.all => Choice::All,
        (None, Some(over), None) => Choice::Over(ns(over)),
        (None, _, worst) => Choice::Worst(worst.unwrap_or(5)),
    })
}

/// Makes the model, and completes the options so that another pass follows the same chains.
fn model(reader: &mut Reader, args: &Args, options: &mut SynthOptions) -> Result<Model, CliError> {
    let ends = ends(args);
    let mut synth = pass(reader, options.clone(), "model");
    if !ends.is_empty() || !options.links.is_empty() {
        // Links and cuts name callbacks by ids, which are known only after all events.
        if !ends.is_empty() {
            options.cuts = cuts_of(&args.trace, &synth.clone().finish(), &ends)?;
        }
        options.ids = synth.into_ids();
        synth = pass(reader, options.clone(), "model of the part");
    }
    let model = synth.clone().finish();
    options.ids = synth.into_ids();
    Ok(model)
}

fn ends(args: &Args) -> Ends {
    Ends {
        from: args.from.clone(),
        to: args.to.clone(),
        through: Vec::new(),
    }
}

/// The chain or callback that is explained.
enum Subject<'m> {
    Chain {
        chain: &'m Chain,
        title: String,
        /// The number of chains from which this one was chosen.
        of: usize,
    },
    Callback(&'m onbeat_document::schema::Callback),
}

impl Subject<'_> {
    fn limit_ns(&self) -> u64 {
        compare::late_limit(match self {
            Subject::Chain { chain, .. } => &chain.figures.latency_ns,
            Subject::Callback(callback) => &callback.figures.response_ns,
        })
    }

    fn longest_ns(&self) -> u64 {
        match self {
            Subject::Chain { chain, .. } => chain.figures.latency_ns.max(),
            Subject::Callback(callback) => {
                let figures = &callback.figures;
                figures.response_ns.max() + figures.interarrival_ns.max()
            }
        }
    }
}

/// Finds the chain or callback that the user asks for. Returns `None` if the model has no chain.
fn subject<'m>(model: &'m Model, args: &Args) -> Result<Option<Subject<'m>>, CliError> {
    if let Some(asked) = &args.callback {
        return callback(model, asked, &args.trace).map(|c| Some(Subject::Callback(c)));
    }
    let mut titles = titles(model);
    let ends = ends(args);
    let wanted: Vec<usize> = match (&args.chain, ends.is_empty()) {
        (Some(asked), _) => vec![place(model, asked, &args.trace)?],
        (None, true) => (0..model.chains.len()).collect(),
        (None, false) => {
            let ways = cuts::ways(model, &ends).map_err(CliError::in_file(&args.trace))?;
            let is_one = |i: &usize| ways.iter().any(|w| w.is(&model.chains[*i]));
            (0..model.chains.len()).filter(is_one).collect()
        }
    };
    let longest = |&&i: &&usize| model.chains[i].figures.latency_ns.max();
    let chosen = wanted.iter().rev().max_by_key(longest);
    Ok(chosen.map(|&i| Subject::Chain {
        chain: &model.chains[i],
        title: std::mem::take(&mut titles[i]),
        of: wanted.len(),
    }))
}

/// Returns the callback whose id is, or else the only one whose id ends with, `asked`.
fn callback<'m>(
    model: &'m Model,
    asked: &str,
    path: &Path,
) -> Result<&'m onbeat_document::schema::Callback, CliError> {
    let all = || model.callbacks.iter();
    if let Some(exact) = all().find(|c| c.id == asked) {
        return Ok(exact);
    }
    let fit: Vec<_> = all().filter(|c| c.id.ends_with(asked)).collect();
    let list = |names: &[&str]| {
        let some: Vec<String> = names.iter().take(5).map(|n| term::one_line(n)).collect();
        let more = names.len().saturating_sub(some.len());
        match more {
            0 => some.join(", "),
            more => format!("{} and {more} more", some.join(", ")),
        }
    };
    let asked_shown = term::fit(asked, 80);
    let what = match fit.as_slice() {
        [one] => return Ok(one),
        [] => {
            let mut near: Vec<&str> = all().map(|c| c.id.as_str()).collect();
            near.sort_by_cached_key(|id| std::cmp::Reverse(likeness(asked, id)));
            let near = list(&near);
            format!("no callback has the id '{asked_shown}'. Name one of these: {near}")
        }
        several => {
            let ids: Vec<&str> = several.iter().map(|c| c.id.as_str()).collect();
            let (n, ids) = (ids.len(), list(&ids));
            format!("'{asked_shown}' fits {n} callbacks: {ids}. Write more of the id")
        }
    };
    Err(CliError::InFile {
        path: path.into(),
        what,
    })
}

/// Returns the length of the longest part that two names share, without regard to case.
fn likeness(a: &str, b: &str) -> usize {
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut longest = 0;
    let mut before = vec![0; b.len() + 1];
    for x in a.iter().take(LIKENESS_MAX) {
        let mut row = vec![0; b.len() + 1];
        for (i, _) in b.iter().enumerate().filter(|(_, y)| *y == x) {
            row[i + 1] = before[i] + 1;
            longest = longest.max(row[i + 1]);
        }
        before = row;
    }
    longest
}

fn explain(reader: &mut Reader, mut why: Why) -> Explanation {
    let written = &reader.manifest().written;
    let (events, bytes) = (written.events, written.bytes);
    let mut progress = Progress::new(format!("{}, causes", reader.path().display()));
    for (i, event) in reader.events().enumerate() {
        why.push(&event);
        if i % 8192 == 0 {
            progress.update(i as u64, events, bytes);
        }
    }
    why.finish()
}

/// Formats a limit for a sentence.
fn above(limit_ns: u64) -> String {
    format!("above {}", duration(limit_ns as f64))
}
