//! Reads and writes `plan.yaml`; faults of a file are reported in one line.

use crate::check::validate;
use crate::fault::{name, PlanFault};
use crate::schema::{Ms, Plan};
use onbeat_model::text::{shorten, visible};

/// Longest file that is read. A plan of a large system has a hundredth of it.
pub const MAX_BYTES: usize = 1 << 20;

/// Why a text is not a usable plan.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanFileError {
    /// Nothing but blanks and comments.
    #[error("the plan file is empty: make one with `onbeat plan MODEL`")]
    Empty,
    /// Longer than any plan.
    #[error("{bytes} bytes are no plan file: at most {MAX_BYTES} are read")]
    TooLong {
        /// Size.
        bytes: usize,
    },
    /// Not UTF-8.
    #[error("not a plan file: byte {at} is no UTF-8; plans are made with `onbeat plan MODEL`")]
    NotText {
        /// Where.
        at: usize,
    },
    /// Not YAML, or a wrong key or value.
    #[error("{}{what}", line(*.at))]
    Yaml {
        /// Line.
        at: Option<u64>,
        /// The YAML reader's message.
        what: String,
    },
    /// The YAML writer failed.
    #[error("the plan cannot be written as YAML: {what}")]
    Write {
        /// The YAML writer's message.
        what: String,
    },
    /// The plan has a fault.
    #[error("{}{fault}", line(*.at))]
    Fault {
        /// Line, if it could be found.
        at: Option<u64>,
        /// The fault.
        fault: PlanFault,
    },
}

/// The line number at the beginning of a message.
fn line(at: Option<u64>) -> String {
    at.map_or(String::new(), |at| format!("line {at}: "))
}

/// Reads and checks the text of a plan file.
pub fn read(bytes: &[u8]) -> Result<Plan, PlanFileError> {
    if bytes.len() > MAX_BYTES {
        return Err(PlanFileError::TooLong { bytes: bytes.len() });
    }
    let text = std::str::from_utf8(bytes).map_err(|e| PlanFileError::NotText {
        at: e.valid_up_to(),
    })?;
    if text
        .lines()
        .map(str::trim)
        .all(|l| l.is_empty() || l.starts_with('#'))
    {
        return Err(PlanFileError::Empty);
    }
    let options = serde_saphyr::options! {
        with_snippet: false,
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::Error,
        budget: serde_saphyr::budget! {
            max_depth: 16,
            flow_nesting_limit: 16,
            max_documents: 1,
            max_nodes: 100_000,
            max_events: 300_000,
            // Plans have no anchors, so that no input can grow by them.
            max_anchors: 0,
            max_aliases: 0,
            max_merge_keys: 0,
        },
    };
    let plan: Plan = serde_saphyr::from_str_with_options(text, options).map_err(|e| {
        let at = e.location().map(|l| l.line()).filter(|&l| l > 0);
        let options = serde_saphyr::render_options! {
            snippets: serde_saphyr::SnippetMode::Off
        };
        let said = one_line(&e.without_snippet().render_with_options(options));
        let there = at.and_then(|at| text.lines().nth(usize::try_from(at - 1).ok()?));
        PlanFileError::Yaml {
            at,
            what: match there.map(str::trim).filter(|l| !l.is_empty()) {
                Some(there) => format!(
                    "{} in '{}'",
                    shorten(&said, 120),
                    shorten(&visible(there), 60)
                ),
                None => shorten(&said, 120),
            },
        }
    })?;
    validate(&plan).map_err(|fault| PlanFileError::Fault {
        at: fault.near().and_then(|word| find(text, word)),
        fault,
    })?;
    Ok(plan)
}

/// The reader's message without the position that it appends.
fn one_line(said: &str) -> String {
    let said = visible(&said.split_whitespace().collect::<Vec<_>>().join(" "));
    match said.rfind(" at line ") {
        Some(end) => said[..end].to_string(),
        None => said,
    }
}

/// The line of a name: where a server of that name begins, or where the name first occurs.
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

/// The plan as text: comments that explain it, then the plan.
pub fn write(plan: &Plan) -> Result<String, PlanFileError> {
    let options = serde_saphyr::ser_options! {
        prefer_block_scalars: false,
    };
    let yaml =
        serde_saphyr::to_string_with_options(plan, options).map_err(|e| PlanFileError::Write {
            what: name(&one_line(&e.to_string())),
        })?;
    Ok(head(plan) + &yaml)
}

/// The comments that a reader needs before changing something.
fn head(plan: &Plan) -> String {
    let Ms(cycle) = plan.cycle_ms;
    format!(
        "\
# A reservation plan of onbeat (docs/plan-format.md). Times are milliseconds.
# Every {} ms, from the release of `origin` on, the slots of all servers begin anew. A server's
# threads run only within its slots ([start, end]), on its CPU; without slots they run at any time.
# Where slots on one CPU overlap, the higher priority runs; 0 is a normal thread.
# `outputs` leave only within the slots of their server. What is promised holds as long as what is
# assumed does: both are for readers, and change nothing.
# It may be edited: `onbeat plan --check FILE` says what is wrong with it.
",
        cycle as f64 / 1e6
    )
}
