//! `onbeat model`: makes a timing model from traces.

use onbeat_document::cuts::{self, Cut, Ends};
use onbeat_document::schema::{Junction, Run};
use onbeat_document::stated::{JunctionParseError, StatedJunction};
use onbeat_document::Model;
use onbeat_synth::links::Link;
use onbeat_synth::mode_rules::{ModeRule, ModeRuleError};
use onbeat_synth::naming::{NameRule, NameRuleError};
use onbeat_synth::{Synth, SynthOptions};
use onbeat_terminal::progress::Progress;
use onbeat_terminal::traces::{run_of, warn};
use onbeat_terminal::CliError;
use onbeat_terminal::{files, summary, term, ExitStatus};
use onbeat_trace::Reader;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Make the timing model of one or more recorded runs
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat model trace
  onbeat model run1 run2 run3 -o model.json          three runs, merged
  onbeat model urban1 --mode urban -o urban1.json
  onbeat model trace --mode parked@0s.. --mode driving,parked@/mode
  onbeat model trace --mode driving@/planner=active
  onbeat model trace --link '/filter:subscription(/in) -> /filter:timer(100ms)'
  onbeat model trace --junction '/fusion -> /fused = and'
  onbeat model trace --ignore /tf,/clock             chains pass /diagnostics and /bond, too
  onbeat model trace --normalise '/worker_[0-9]+=/worker'
  onbeat model trace --input /lidar/points           chains begin at the filter, not at the driver
  onbeat model front arm --join                      two hosts, recorded at one time
  onbeat model trace --from /lidar --to /objects     a part of a chain as a chain of its own
  onbeat model trace --policy policy.yaml            parts that `onbeat redact` hides, measured

A link states that data passes through a node's memory from one callback to another. A trace does
not show this, so the model marks everything that depends on it as assumed.

A junction states whether a node waits for several inputs before it publishes a topic ('= and'), or
publishes on one input alone ('= or'). It settles a junction that the model calls ambiguous. To name
the inputs: '/fusion(/lidar/front, /lidar/rear) -> /fused = and'.

Exit codes: 0 done; 1 failed; 2 wrong command line; 3 done, but no callback ran in the trace.")]
pub struct Args {
    /// Trace directories to read, one per run
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// File to write the result to ('-': standard output)
    #[arg(short, long, default_value = "model.json", value_name = "FILE")]
    pub output: PathBuf,
    /// Set the mode of all runs, in place of the recorded one. Repeat the option with '@' if modes
    /// change within a run: 'NAME@FROM..TO' by the time since the start of the run,
    /// 'NAME@NODE=STATE' while a lifecycle node is in a state. With 'NAME,NAME@TOPIC', each message
    /// on the topic begins the next of these modes
    #[arg(long, value_name = "NAME[@WHEN]")]
    pub mode: Vec<String>,
    #[command(flatten)]
    pub stated: Statements,
    /// Measure a part of chains as a chain of its own. The part begins at this callback, at the
    /// first callback of this node, or where this topic is taken
    #[arg(long, value_name = "NAME")]
    pub from: Option<String>,
    /// End the part of chains at the output of this callback, at the output of the last callback of
    /// this node, or at this topic
    #[arg(long, value_name = "NAME")]
    pub to: Option<String>,
    /// Treat the traces as one run that several hosts recorded at the same time. The offsets of
    /// their clocks are computed from the messages between them
    #[arg(long, conflicts_with_all = ["link", "from", "to", "policy"])]
    pub join: bool,
    /// Measure the parts of chains that `onbeat redact` hides by this policy
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "to"])]
    pub policy: Option<PathBuf>,
}

/// The user's statements about the application, for every command that makes a model of a trace.
#[derive(clap::Args)]
pub struct Statements {
    /// State that data passes from callback A to callback B through memory: "A -> B"
    #[arg(long, value_name = "A -> B")]
    pub link: Vec<String>,
    /// State that a node waits for all inputs before it publishes a topic, or publishes on each
    /// one: "NODE -> TOPIC = and", "NODE -> TOPIC = or"
    #[arg(long, value_name = "NODE -> TOPIC = and")]
    pub junction: Vec<String>,
    /// Begin chains where this topic is taken, even if its publisher (a driver, a bag) was
    /// recorded, too
    #[arg(long, value_name = "TOPIC")]
    pub input: Vec<String>,
    /// Leave these topics out of chains, in place of /bond,/clock,/diagnostics,/tf,/tf_static ('':
    /// none)
    #[arg(long, value_name = "TOPIC,TOPIC")]
    pub ignore: Option<String>,
    /// Rewrite node names that differ from run to run: 'REGEX=REPLACEMENT', e.g.
    /// '/worker_[0-9]+=/worker'. Even without this option, onbeat removes process ids and addresses
    /// of a usual form from node names
    #[arg(long, value_name = "REGEX=REPLACEMENT")]
    pub normalise: Vec<String>,
    /// Keep /rosout, /parameter_events and the parameter services in the model
    #[arg(long)]
    pub infrastructure: bool,
}

impl Statements {
    /// Checks what the user stated about links, junctions and names. Returns a function that makes
    /// the options of synthesis for a run from these statements.
    pub fn options(&self) -> Result<impl Fn(Run) -> SynthOptions + '_, CliError> {
        let links = self.link.iter().map(|text| text.parse());
        let links = links
            .collect::<Result<Vec<Link>, _>>()
            .map_err(|e: onbeat_synth::links::LinkParseError| CliError::Usage(e.to_string()))?;
        let junctions = self.junction.iter().map(|text| text.parse());
        let junctions = junctions
            .collect::<Result<Vec<StatedJunction>, _>>()
            .map_err(|e: JunctionParseError| CliError::Usage(e.to_string()))?;
        let names = self.normalise.iter().map(|text| text.parse());
        let names = names
            .collect::<Result<Vec<NameRule>, _>>()
            .map_err(|e: NameRuleError| CliError::Usage(e.to_string()))?;
        Ok(move |run| {
            let mut options = SynthOptions::new(run);
            options.infrastructure = self.infrastructure;
            options.links.clone_from(&links);
            options.junctions.clone_from(&junctions);
            options.names.clone_from(&names);
            options.inputs.clone_from(&self.input);
            if let Some(ignore) = &self.ignore {
                options.ignore = ignore.split(',').map(|t| t.trim().to_string()).collect();
            }
            options
        })
    }
}

const FIRST_FORMAT_WITH_APPROXIMATE: u16 = 3;

pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    let (mode, modes) = modes_of(&args.mode)?;
    let stated = args.stated.options()?;
    let options = |run| SynthOptions {
        modes: modes.clone(),
        ..stated(run)
    };
    let policy = args.policy.as_deref().map(crate::redact::read_policy);
    let policy = policy.transpose()?;
    let mut models = Vec::new();
    if args.join {
        models.push(crate::hosts::model(&args.traces, mode, &options)?);
    }
    for path in args.traces.iter().filter(|_| !args.join) {
        models.push(of_trace((path, mode), &args, policy.as_ref(), &options)?);
    }
    let model = onbeat_document::merge::merge(models)?;
    files::write_model(&args.output, &model)?;
    summary::print(&args.output, &model)?;
    Ok(ExitStatus::of_model(&model))
}

fn modes_of(texts: &[String]) -> Result<(Option<&str>, Vec<ModeRule>), CliError> {
    let (rules, names): (Vec<&String>, Vec<&String>) = texts.iter().partition(|t| t.contains('@'));
    let rules = rules.into_iter().map(|text| text.parse());
    let rules: Result<Vec<ModeRule>, ModeRuleError> = rules.collect();
    let rules = rules.map_err(|e| CliError::Usage(e.to_string()))?;
    match names.as_slice() {
        [] => Ok((None, rules)),
        [name] => Ok((Some(name), rules)),
        [a, b, ..] => Err(CliError::Usage(format!(
            "--mode {a} --mode {b}: a run has one mode. Use '@' to say when each mode begins (--mode {a}@0s..30s)"
        ))),
    }
}

fn of_trace(
    (path, mode): (&Path, Option<&str>),
    args: &Args,
    policy: Option<&onbeat_redact::Policy>,
    options: &impl Fn(Run) -> SynthOptions,
) -> Result<Model, CliError> {
    let hint = "; merge models with `onbeat merge`";
    let mut reader = files::open_trace(path, "`onbeat model`", hint)?;
    let manifest = reader.manifest().clone();
    let mut options = options(run_of(&reader, mode));
    options.shortened = !reader.has_beginning();
    let ends = Ends {
        from: args.from.clone(),
        to: args.to.clone(),
        through: Vec::new(),
    };
    if !options.links.is_empty() || !ends.is_empty() || policy.is_some() {
        // Links and cuts name callbacks by ids, which are known only after all events.
        let first = pass(&mut reader, options.clone(), "first pass");
        if !ends.is_empty() {
            let model = first.clone().finish();
            options.cuts = cuts_of(path, &model, &ends)?;
        }
        if let Some(policy) = policy {
            options.cuts = onbeat_redact::cuts(&first.clone().finish(), policy);
        }
        options.ids = first.into_ids();
    }
    let synth = pass(&mut reader, options, "");
    warn(path, reader.warnings());
    let mut model = synth.finish();
    model.coverage.extend(manifest.coverage);
    model.coverage.extend(manifest.not_recovered);
    if reader.stats().damaged_blocks > 0 {
        model.coverage.push(format!(
            "Run {}: {} blocks of the trace were damaged and are missing.",
            manifest.id,
            reader.stats().damaged_blocks
        ));
    }
    model.coverage.sort();
    model.coverage.dedup();
    let format = reader.format();
    model
        .assumptions
        .extend(exact_or_approximate(format, &model.junctions));
    model.assumptions.sort();
    Ok(model)
}

pub(crate) fn cuts_of(path: &Path, model: &Model, ends: &Ends) -> Result<Vec<Cut>, CliError> {
    let ways = cuts::ways(model, ends).map_err(CliError::in_file(path))?;
    let cuts: BTreeSet<Cut> = ways.iter().map(|w| w.cut(ends)).collect();
    let topics: BTreeSet<&String> = cuts.iter().filter_map(|c| c.to.as_ref()).collect();
    if topics.len() > 1 {
        let topics: Vec<String> = topics.iter().map(|t| term::one_line(t)).collect();
        return Err(CliError::Usage(format!(
            "--to: '{}' publishes several topics. Name one of them: {}",
            term::one_line(ends.to.as_deref().unwrap_or_default()),
            topics.join(", ")
        )));
    }
    Ok(cuts.into_iter().collect())
}

/// Returns a sentence about synchronisers that are assumed not to join by approximate time, because
/// the trace's format does not show this. Returns `None` if there are none.
fn exact_or_approximate(format: Option<u16>, junctions: &[Junction]) -> Option<String> {
    let open = |j: &&Junction| j.criterion == "message_filters" && j.matching.is_in_turn();
    let open: Vec<&str> = junctions
        .iter()
        .filter(open)
        .map(|j| j.callback.as_str())
        .collect();
    let older = format.filter(|f| *f < FIRST_FORMAT_WITH_APPROXIMATE && !open.is_empty())?;
    let (first, n) = (open.first()?, open.len());
    Some(format!(
        "Traces of format {older} do not show which synchronisers join by approximate time. The {n} synchronisers of this trace ({first}{}) are assumed to join the items that came together. If one of them joins by approximate time, latencies through it are too short. In this case, give --junction 'NODE -> TOPIC = approximate', or record again.",
        if n > 1 { " ..." } else { "" }
    ))
}

pub(crate) fn pass(reader: &mut Reader, options: SynthOptions, which: &str) -> Synth {
    let (events, bytes) = (
        reader.manifest().written.events,
        reader.manifest().written.bytes,
    );
    let name = reader.path().display();
    let mut progress = Progress::new(match which {
        "" => name.to_string(),
        which => format!("{name}, {which}"),
    });
    let mut synth = Synth::new(options);
    for (i, event) in reader.events().enumerate() {
        synth.push(&event);
        if i % 8192 == 0 {
            progress.update(i as u64, events, bytes);
        }
    }
    synth
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_document::schema::{JunctionKind, JunctionState, Matching};

    #[test]
    fn an_older_trace_gives_an_assumption_about_approximate_synchronisers() {
        let junction = |criterion: &str, matching| Junction {
            callback: "/f:sync(/out)".into(),
            kind: JunctionKind::And,
            inputs: Vec::new(),
            criterion: criterion.into(),
            confidence: 1.0,
            state: JunctionState::Decided,
            matching,
            readings: Vec::new(),
            settle: String::new(),
        };
        let seen = [junction("message_filters", Matching::InTurn)];
        let said = exact_or_approximate(Some(2), &seen).unwrap();
        assert!(
            said.starts_with("Traces of format 2 do not show "),
            "{said}"
        );
        assert!(
            said.contains("synchronisers of this trace (/f:sync(/out)) are"),
            "{said}"
        );
        assert_eq!(exact_or_approximate(Some(3), &seen), None);
        let stated = [junction("message_filters", Matching::Nearest)];
        assert_eq!(exact_or_approximate(Some(2), &stated), None);
        let inferred = [junction("data_flow", Matching::InTurn)];
        assert_eq!(exact_or_approximate(Some(2), &inferred), None);
    }
}
