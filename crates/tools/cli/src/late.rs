//! Says what late executions of chains have in common, for commands that show chains of a model.

use crate::model::pass;
use onbeat_document::schema::Chain;
use onbeat_document::Model;
use onbeat_synth::SynthOptions;
use onbeat_terminal::traces::{run_of, warn};
use onbeat_terminal::{files, CliError};
use onbeat_why::lost::Losses;
use onbeat_why::{compare, Choice, Explanation, Question, Target, Why};
use std::path::Path;

pub struct Wanted {
    pub id: String,
    /// The latency above which an execution of the chain is late, in ns. With `None`, the longest
    /// 1 % of the executions are late. If there are fewer than 1000 executions, up to 5 % are late.
    pub over_ns: Option<u64>,
    /// The number of executions whose stretches are kept, the longest ones.
    pub kept: usize,
}

/// Explanations of chains in a recording.
pub struct Explained {
    /// The recording's own model.
    pub model: Model,
    /// One for each wanted chain. `None` if the recording does not show the chain.
    pub of: Vec<Option<Explanation>>,
}

/// Returns for each wanted chain a sentence about what its late executions in the recording have in
/// common. Returns `None` for a chain if the recording does not show the chain, or if none or all
/// of its executions are late.
///
/// # Errors
///
/// Fails if the trace cannot be read.
pub fn sentences(
    path: &Path,
    option: &str,
    wanted: &[Wanted],
) -> Result<Vec<Option<String>>, CliError> {
    if wanted.is_empty() {
        let reader = files::open_trace(path, option, "")?;
        warn(path, reader.warnings());
        return Ok(Vec::new());
    }
    let explained = explained(path, option, wanted)?;
    let said = explained.of.into_iter().map(|explanation| {
        let comparison = explanation?.comparison?;
        Some(comparison.sentence())
    });
    Ok(said.collect())
}

/// Explains the wanted chains in one recording.
///
/// # Errors
///
/// Fails if the trace cannot be read.
pub fn explained(path: &Path, option: &str, wanted: &[Wanted]) -> Result<Explained, CliError> {
    let mut reader = files::open_trace(path, option, "")?;
    warn(path, reader.warnings());
    let mut options = SynthOptions::new(run_of(&reader, None));
    options.shortened = !reader.has_beginning();
    let synth = pass(&mut reader, options.clone(), "chains");
    let model = synth.clone().finish();
    options.ids = synth.into_ids();
    let known: Vec<Option<Question>> = wanted
        .iter()
        .map(|wanted| {
            let chain = model.chains.iter().find(|c| c.id == wanted.id)?;
            Some(question(chain, Choice::Worst(wanted.kept), wanted.over_ns))
        })
        .collect();
    let mut why = Why::of_all(options, known.iter().flatten().cloned().collect());
    crate::why::feed(&mut reader, "causes", |event| why.push(event));
    let mut explained = why.finish_all().into_iter();
    let of = known
        .iter()
        .map(|question| question.as_ref().and_then(|_| explained.next()));
    Ok(Explained {
        of: of.collect(),
        model,
    })
}

/// Returns the items that a recording shows as lost, with their causes. If `path` is not a trace,
/// the error message names the command line option `option`.
pub fn losses(path: &Path, option: &str) -> Result<Losses, CliError> {
    let mut reader = files::open_trace(path, option, "")?;
    let mut options = SynthOptions::new(run_of(&reader, None));
    options.shortened = !reader.has_beginning();
    Ok(crate::why::losses(&mut reader, options, None))
}

/// Returns a question for `onbeat why`: why are executions of the chain late? `over_ns` is the
/// latency above which an execution is late. With `None`, the longest 1 % of the executions are
/// late. If there are fewer than 1000 executions, up to 5 % are late.
pub(crate) fn question(chain: &Chain, choice: Choice, over_ns: Option<u64>) -> Question {
    let latency = &chain.figures.latency_ns;
    Question {
        target: Target::chain(chain, &[]),
        choice,
        limit_ns: over_ns.unwrap_or_else(|| compare::late_limit(latency)),
        longest_ns: latency.max(),
    }
}
