//! Explains single executions of a chain: what each part of the latency was spent on, and by whose
//! doing.
//!
//! [`Why`] reads the events of a recording once, beside a synthesis. The caller knows the chain
//! from an earlier pass, which made the model. Each execution's latency is cut into [`Stretch`]es.
//! They follow one another without gap or overlap from the start of the first callback to the
//! output, so they add up to the model's latency exactly. [`compare`] then finds what the late
//! executions have in common.
//!
//! - `history` keeps what each thread did lately.
//! - `cut` cuts one execution into stretches.
//! - `drops` remembers when sockets were full.
//! - `follow` keeps ended executions until they can be cut.
//! - [`every`] cuts the executions of all chains, for tables.
//! - `explain` collects executions, and keeps those that the caller asked for.
//! - `compare` compares late executions with the others, and reports the result in a sentence.
//! - `fisher` says whether chance alone explains a difference.
//! - `together` finds causes that make executions late only together.
//! - [`once`] explains executions of a chain that is known only after the pass. The pass writes to a
//!   `spool`, which [`once`] reads afterwards.
//! - `overview` keeps the latency of every execution in bounded memory.
//! - [`lost`] finds out why items were not executed and requests not answered.
//! - `lines` sums up stretches for tables.
//! - `page` shows all of that as an HTML page.

pub mod compare;
mod cut;
mod drops;
pub mod every;
mod explain;
mod facts;
mod fisher;
mod follow;
mod history;
mod kind;
pub mod lines;
pub mod lost;
pub mod once;
mod overview;
pub mod page;
mod spool;
mod stretch;
mod together;

pub use compare::{Comparison, Finding};
pub use explain::{leads_along, Choice, Explanation, Question, Target, Why};
pub use kind::{Kind, Reason};
pub use overview::{Bin, Overview};
pub use stretch::{title as component_title, Culprit, During, Execution, Stretch};
pub use together::Together;
