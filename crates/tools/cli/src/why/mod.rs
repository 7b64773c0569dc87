//! `onbeat why`: shows what single executions of a chain spent their time on, and what the late
//! ones have in common.

mod instant;
mod lost;
mod show;
mod subject;

use crate::model::{cuts_of, pass, Statements};
use instant::Clock;
pub(crate) use lost::losses;
use onbeat_document::cuts::Ends;
use onbeat_document::text::duration;
use onbeat_document::titles::titles;
use onbeat_document::Model;
use onbeat_synth::SynthOptions;
use onbeat_terminal::progress::Progress;
use onbeat_terminal::traces::{run_of, warn};
use onbeat_terminal::units::parse_duration;
use onbeat_terminal::CliError;
use onbeat_terminal::{files, ExitStatus};
use onbeat_trace::manifest::Scheduling;
use onbeat_trace::{Event, Reader};
use onbeat_why::once::{Once, Seen};
use onbeat_why::{Choice, Explanation, Question, Target, Why};
use show::Shown;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use subject::{Asked, Subject};
use tempfile::SpooledTempFile;

/// The size in bytes up to which `onbeat why` keeps its temporary data in memory. Larger data go to
/// a file without a name.
const IN_MEMORY_MAX: usize = 8 << 20;

/// Show what made executions of a chain late, with the exact time of each cause
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat why trace                                     the five worst executions of a chain
  onbeat why trace --chain 664e --over 50ms            a chain by its id (`onbeat chains`)
  onbeat why trace --from /lidar --to /objects         a part of a chain
  onbeat why trace --callback '/fusion:timer(100ms)' --worst 3
  onbeat why trace --chain 664e --at 14:03:07          the executions at this time of day (UTC)
  onbeat why trace --chain 664e --at 12.5s             or by the time since the recording began
  onbeat why trace --chain 664e --all --json | jq '.executions[0].stretches'
  onbeat why trace --chain 664e --html                 a page of all executions: why.html
  onbeat why trace --lost /scan                        why items of a topic were not executed

The latency of each execution is cut into stretches that follow one another. They add up to the
latency that `onbeat model` computes. What the recording does not show is 'unknown', with a reason.

Late executions are those above --over, or else above the 99th percentile (at least ten, but at most
5 %). The first sentences say by which causes they differ from the others. 'Long in 12 of 12 late
executions and in 3 of 588 others' counts executions in which the cause took longer than the middle
between its means in late and in other executions.

Exit codes: 0 done; 1 failed; 2 wrong command line; 3 no execution was found.")]
pub struct Args {
    /// Trace directory, made by onbeat record
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Explain this chain: its id, the beginning of the id, or FROM..TO with parts of its first and
    /// last callback. Without this option, onbeat explains the chain with the longest latency
    #[arg(long, value_name = "CHAIN", conflicts_with = "callback")]
    chain: Option<String>,
    /// Explain the part of chains that begins at this callback, at the first callback of this node,
    /// or where this topic is taken
    #[arg(long, value_name = "NAME", conflicts_with = "callback")]
    from: Option<String>,
    /// End the part of chains at the output of this callback, at the output of the last callback of
    /// this node, or at this topic
    #[arg(long, value_name = "NAME", conflicts_with = "callback")]
    to: Option<String>,
    /// Explain the executions of this callback, not of a chain: its id, or the end of the id. The
    /// latency of an execution counts from the publication of its item, or from the time at which
    /// its timer was due
    #[arg(long, value_name = "ID")]
    callback: Option<String>,
    /// Show this number of executions, the longest first [default: 5]
    #[arg(long, value_name = "N", conflicts_with_all = ["at", "all"])]
    worst: Option<usize>,
    /// Show executions that took longer than this, and count them as late
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    over: Option<Duration>,
    /// Show the executions that ran at this time: a time since the recording's start (12.5s), or a
    /// time of day in UTC (14:03:07)
    #[arg(long, value_name = "TIME", conflicts_with = "all")]
    at: Option<String>,
    /// Show all executions, not only the longest
    #[arg(long)]
    all: bool,
    /// Instead of late executions, show why items of this topic were not executed, or why requests
    /// of this service were not answered. Without a name, all topics and services are shown. With
    /// --over, responses that took longer count as late
    #[arg(
        long,
        value_name = "TOPIC",
        num_args = 0..=1,
        conflicts_with_all = ["chain", "callback", "from", "to", "worst", "at", "all", "stretches", "html"]
    )]
    lost: Option<Option<String>>,
    /// Show each stretch of an execution, in place of the sums for each callback
    #[arg(long)]
    stretches: bool,
    #[command(flatten)]
    stated: Statements,
    /// Print the result as JSON, for programs
    #[arg(long)]
    json: bool,
    /// Write an HTML page of all executions, or of those chosen by --worst. It loads nothing from
    /// elsewhere ('-': standard output) [default FILE: why.html]
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "why.html", conflicts_with = "json")]
    html: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    let path = args.trace.as_path();
    let hint = "; record a trace with `onbeat record`";
    let mut reader = files::open_trace(path, "`onbeat why`", hint)?;
    let options = args.stated.options()?;
    let mut options = options(run_of(&reader, None));
    options.shortened = !reader.has_beginning();
    let clock = Clock::of(&mut reader);
    if let Some(topic) = &args.lost {
        let asked = lost::Asked {
            topic: topic.as_deref(),
            late_above_ns: args.over.map(ns),
            json: args.json,
        };
        return asked.run(&mut reader, options, &clock);
    }
    let at_ns = args.at.as_deref().map(|at| clock.parse(at)).transpose()?;
    let choice = choice(&args, at_ns);
    let seen = see(&mut reader, &args, &mut options)?;
    let model = &seen.model;
    let asked = Asked {
        chain: args.chain.as_deref(),
        callback: args.callback.as_deref(),
        ends: ends(&args),
        path,
    };
    let Some(subject) = asked.find(model)? else {
        return Err(CliError::InFile {
            path: path.into(),
            what: "onbeat found no chain in this trace. Name a callback with --callback instead (`onbeat model` and `onbeat show` list the callbacks)".into(),
        });
    };
    let limit_ns = match args.over {
        Some(over) => ns(over),
        None => subject.limit_ns(&seen),
    };
    let longest_ns = subject.longest_ns(&seen);
    let cut_to: Vec<&str> = options
        .cuts
        .iter()
        .filter_map(|c| c.to.as_deref())
        .collect();
    let target = match &subject {
        Subject::Chain { chain, .. } => Target::chain(chain, &cut_to),
        Subject::Callback(callback) => Target::Callback(callback.id.clone()),
    };
    let question = Question {
        target,
        choice,
        limit_ns,
        longest_ns,
    };
    let explanation = match seen.spooled.explain(vec![question.clone()]) {
        Ok(explained) => explained.into_iter().next().unwrap_or_default(),
        // The spool could not be written, for example because the disk is full.
        Err(_) => explain(&mut reader, Why::of_all(options.clone(), vec![question])),
    };
    warn(path, reader.warnings());
    let shown = Shown {
        subject: &subject,
        clock: &clock,
        over: args.over.is_some(),
        each: args.stretches,
        scheduling: reader.manifest().observed.means.scheduling,
        explanation: &explanation,
    };
    match (&args.html, args.json) {
        (Some(file), _) => write_page(&shown, file, at_ns)?,
        (None, true) => shown.write_json()?,
        (None, false) => shown.write(Some(choice))?,
    }
    Ok(match explanation.executions.is_empty() {
        true => ExitStatus::NothingFound,
        false => ExitStatus::Success,
    })
}

/// Makes pages for chains of a recording.
pub(crate) struct Pages<'a> {
    clock: Clock,
    scheduling: Scheduling,
    model: &'a Model,
    titles: Vec<String>,
}

impl<'a> Pages<'a> {
    /// Begins to make pages. `model` is the recording's own model.
    pub(crate) fn of(trace: &Path, model: &'a Model) -> Result<Pages<'a>, CliError> {
        let mut reader = files::open_trace(trace, "--trace", "")?;
        Ok(Pages {
            clock: Clock::of(&mut reader),
            scheduling: reader.manifest().observed.means.scheduling,
            model,
            titles: titles(model),
        })
    }

    /// Returns the page of a chain, or `None` if the recording does not show the chain.
    pub(crate) fn page(
        &self,
        id: &str,
        explanation: &Explanation,
    ) -> Result<Option<String>, CliError> {
        let Some(at) = self.model.chains.iter().position(|c| c.id == id) else {
            return Ok(None);
        };
        let subject = Subject::Chain {
            chain: &self.model.chains[at],
            title: self.titles[at].clone(),
            of: 1,
        };
        let shown = Shown {
            subject: &subject,
            clock: &self.clock,
            over: false,
            each: false,
            scheduling: self.scheduling,
            explanation,
        };
        shown.page(None).map(Some).map_err(CliError::failed)
    }
}

fn write_page(shown: &Shown, file: &Path, at_ns: Option<u64>) -> Result<(), CliError> {
    files::write_whole(file, |out| out.write_all(shown.page(at_ns)?.as_bytes()))?;
    if file.as_os_str() != "-" {
        shown.write(None)?;
        let _ = writeln!(std::io::stderr(), "{}", file.display());
    }
    Ok(())
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn choice(args: &Args, at_ns: Option<u64>) -> Choice {
    let has_page = args.html.is_some() && args.worst.is_none();
    match (at_ns, args.over, args.worst) {
        _ if args.all || has_page => Choice::All,
        (Some(at), ..) => Choice::At(at),
        (None, Some(over), None) => Choice::Over(ns(over)),
        (None, _, worst) => Choice::Worst(worst.unwrap_or(5)),
    }
}

fn see(reader: &mut Reader, args: &Args, options: &mut SynthOptions) -> Result<Seen, CliError> {
    let ends = ends(args);
    let mut which = "model";
    if !ends.is_empty() || !options.links.is_empty() {
        // Links and cuts name callbacks by ids, which are known only after all events.
        let synth = pass(reader, options.clone(), which);
        if !ends.is_empty() {
            options.cuts = cuts_of(&args.trace, &synth.clone().finish(), &ends)?;
        }
        options.ids = synth.into_ids();
        which = "second pass over the trace";
    }
    let room = Box::new(SpooledTempFile::new(IN_MEMORY_MAX));
    let mut once = Once::new(options.clone(), room, args.callback.is_some());
    with_progress(reader, which, |reader, progress| {
        once.read(reader, progress)
    });
    let seen = once.finish();
    options.ids.clone_from(&seen.ids);
    Ok(seen)
}

fn ends(args: &Args) -> Ends {
    Ends {
        from: args.from.clone(),
        to: args.to.clone(),
        through: Vec::new(),
    }
}

fn explain(reader: &mut Reader, mut why: Why) -> Explanation {
    feed(reader, "causes", |event| why.push(event));
    why.finish()
}

/// Calls `push` with each event of the trace, and shows the progress.
pub(crate) fn feed(reader: &mut Reader, which: &str, mut push: impl FnMut(&Event)) {
    with_progress(reader, which, |reader, progress| {
        for (i, event) in reader.events().enumerate() {
            push(&event);
            if i % 8192 == 0 {
                progress(i as u64);
            }
        }
    });
}

/// Calls `work` with the trace and with a function that shows the number of events so far.
fn with_progress(
    reader: &mut Reader,
    which: &str,
    work: impl FnOnce(&mut Reader, &mut dyn FnMut(u64)),
) {
    let written = &reader.manifest().written;
    let (events, bytes) = (written.events, written.bytes);
    let mut shown = Progress::new(format!("{}, {which}", reader.path().display()));
    work(reader, &mut |count| shown.update(count, events, bytes));
}

fn above(limit_ns: u64) -> String {
    format!("above {}", duration(limit_ns as f64))
}
