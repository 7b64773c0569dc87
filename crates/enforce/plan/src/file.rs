//! Reads and writes `plan.yaml`.

use crate::check::validate;
use crate::fault::{name, PlanFault};
use crate::schema::{Ms, Plan};
use onbeat_document::text::{shorten, visible};
use onbeat_yaml::YamlError;

pub use onbeat_yaml::MAX_BYTES;

#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanFileError {
    #[error("the plan file is empty. Make one with `onbeat plan MODEL`.")]
    Empty,
    #[error("this is not a plan file: it has {bytes} bytes, but a plan has at most {MAX_BYTES}. Make a plan with `onbeat plan MODEL`.")]
    TooLong { bytes: usize },
    #[error(
        "this is not a plan file: byte {at} is not UTF-8. Make a plan with `onbeat plan MODEL`."
    )]
    NotText { at: usize },
    #[error("{}{what}", line(*.at))]
    Yaml {
        /// The line of the plan file with the mistake, if known.
        at: Option<u64>,
        what: String,
    },
    #[error("the plan cannot be written as YAML: {what}")]
    Write { what: String },
    #[error("{}{fault}", line(*.at))]
    Fault {
        /// The line of the plan file with the fault, if known.
        at: Option<u64>,
        fault: PlanFault,
    },
}

fn line(at: Option<u64>) -> String {
    at.map_or(String::new(), |at| format!("line {at}: "))
}

/// Reads and checks the text of a plan file.
pub fn read(bytes: &[u8]) -> Result<Plan, PlanFileError> {
    let plan: Plan = onbeat_yaml::read(bytes).map_err(|e| match e {
        YamlError::Empty => PlanFileError::Empty,
        YamlError::TooLong { bytes } => PlanFileError::TooLong { bytes },
        YamlError::NotText { at } => PlanFileError::NotText { at },
        YamlError::Content { at, said, there } => {
            let said = shorten(&visible(&said), 120);
            let what = match there {
                Some(there) => format!("{said} in '{}'", shorten(&visible(&there), 60)),
                None => said,
            };
            PlanFileError::Yaml { at, what }
        }
    })?;
    let text = String::from_utf8_lossy(bytes);
    validate(&plan).map_err(|fault| PlanFileError::Fault {
        at: fault.near().and_then(|word| find(&text, word)),
        fault,
    })?;
    Ok(plan)
}

/// Returns the number of the line where the server `word` begins. If the text has no such server,
/// returns the first line that contains `word`.
fn find(text: &str, word: &str) -> Option<u64> {
    let unquote = |s: &str| s.trim().trim_matches(['"', '\'']).to_string();
    let begins = |l: &str| {
        let l = l.trim_start().trim_start_matches("- ");
        l.strip_prefix("name:")
            .is_some_and(|rest| unquote(rest) == word)
    };
    let stands = |l: &str| !l.trim_start().starts_with('#') && l.contains(word);
    let lines = || text.lines().zip(1u64..);
    lines()
        .find(|(l, _)| begins(l))
        .or_else(|| lines().find(|(l, _)| stands(l)))
        .map(|(_, n)| n)
}

/// Returns the text of a plan file: comments that explain the plan, then the plan as YAML.
pub fn write(plan: &Plan) -> Result<String, PlanFileError> {
    let yaml =
        onbeat_yaml::write(plan).map_err(|what| PlanFileError::Write { what: name(&what) })?;
    Ok(head(plan) + &yaml)
}

fn head(plan: &Plan) -> String {
    let Ms(cycle) = plan.cycle_ms;
    format!(
        "\
# A reservation plan of onbeat (docs/plan-format.md). Times are milliseconds.
# A cycle takes {} ms and begins with a release of `origin`. In each cycle, the threads of a server
# run only within its slots ([start, end]), on its CPU. Without slots they run at any time.
# Where slots on one CPU overlap, the higher priority runs. Priority 0 is a normal thread.
# `outputs` leave only within the slots of their server. The promises hold as long as the assumptions
# do. Both are for readers, and change nothing.
# The file may be edited. `onbeat plan --check FILE` reports what is wrong with it.
",
        cycle as f64 / 1e6
    )
}
