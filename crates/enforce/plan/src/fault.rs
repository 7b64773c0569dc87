//! Defines the faults that a plan can have. Each is one line.

use crate::schema::{Ms, Slot, MAX_HELD, MAX_SLOTS, SCHEMA};
use onbeat_document::text::{shorten, visible};

pub(crate) const MAX_CYCLE_NS: u64 = 3_600_000_000_000;

/// The most entries in any list of a plan. It is far more than any system needs, and keeps the
/// check fast.
pub const MAX_ENTRIES: usize = 1000;

/// A fault of a plan. Names in its text contain no control characters. The messages explain the
/// fields.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanFault {
    #[error("the plan has schema '{}', but this onbeat reads '{SCHEMA}'. Make the plan again with this version's `onbeat plan`.", name(found))]
    Schema { found: String },
    #[error(
        "'{what}' is empty in the plan. Fill it in, or make the plan again with `onbeat plan`."
    )]
    Empty { what: &'static str },
    #[error("the plan's list '{what}' has {count} entries, but onbeat reads at most {MAX_ENTRIES}. Shorten the list.")]
    TooMany { what: &'static str, count: usize },
    #[error(
        "the plan's cycle of {cycle} is out of range. Give a cycle_ms above 0 and up to one hour."
    )]
    Cycle { cycle: Ms },
    #[error(
        "chain '{}' starts with another callback than the plan's origin '{}'. All cycles begin with the origin: put it first in the chain, or correct `origin`.",
        name(chain),
        name(origin)
    )]
    Origin { chain: String, origin: String },
    #[error(
        "{what} '{}' occurs twice in the plan. Remove or rename one of the two.",
        name(twice)
    )]
    Twice { what: &'static str, twice: String },
    #[error(
        "the plan gives '{}' priority {priority}, which is out of range. Choose {low} to {high}.",
        name(of)
    )]
    Priority {
        of: String,
        priority: u8,
        low: u8,
        high: u8,
    },
    #[error("slot [{}, {}] ms of server '{}' does not fit the cycle of {cycle}. Let it start within the cycle, and end after its start, at most one cycle later.", slot.0.0 as f64 / 1e6, slot.1.0 as f64 / 1e6, name(server))]
    Slot {
        server: String,
        slot: Slot,
        cycle: Ms,
    },
    #[error("slots [{}, {}] and [{}, {}] ms of server '{}' overlap or are out of order. Sort the server's slots by their start, and join slots that overlap.", a.0.0 as f64 / 1e6, a.1.0 as f64 / 1e6, b.0.0 as f64 / 1e6, b.1.0 as f64 / 1e6, name(server))]
    Order { server: String, a: Slot, b: Slot },
    #[error("servers '{}' and '{}' both have priority {priority} on CPU {cpu}, and their slots overlap at {at}. Give them different priorities, or move a slot.", name(a), name(b))]
    Overlap {
        a: String,
        b: String,
        priority: u8,
        cpu: u16,
        at: Ms,
    },
    #[error(
        "topic '{}' is held back until a slot of server '{}', but the plan has no server of that name. Correct the name, or add the server.",
        name(topic),
        name(server)
    )]
    NoServer { topic: String, server: String },
    #[error("the plan's list `callbacks` names '{}', but no server contains this callback. Add it to a server, or remove it from the list.", name(callback))]
    NoCallback { callback: String },
    #[error(
        "the plan says that callback '{}' is not required, but chain '{}' goes through it. Set `required: true` for it.",
        name(callback),
        name(chain)
    )]
    Required { callback: String, chain: String },
    #[error(
        "topic '{}' is held back until a slot of server '{}', but this server has no slots. Give it a slot.",
        name(topic),
        name(server)
    )]
    NoSlots { topic: String, server: String },
    #[error(
        "topic '{}' is held back until a slot of server '{}', which has {count} slots. A shaper holds at most {MAX_SLOTS}: remove some.",
        name(topic),
        name(server)
    )]
    ManySlots {
        topic: String,
        server: String,
        count: usize,
    },
    #[error("the plan holds back or throttles {count} topics, but a shaper serves at most {MAX_HELD}. Remove some from `outputs` or `inputs`.")]
    ManyHeld { count: usize },
    #[error(
        "the plan has a wrong held_topic for topic '{}'. With {hold}, {must}.",
        name(topic)
    )]
    Held {
        topic: String,
        /// The mechanism that holds the topic back: `republish`, `publisher_thread` or `the
        /// throttler`.
        hold: &'static str,
        must: &'static str,
    },
    #[error("a promise of the plan is impossible: {what}. Correct the promise, or make the plan again with `onbeat plan`.")]
    Promise { what: String },
    #[error("CPU {cpu} would be busy for {:.1} % of the time in the worst case, which is more than 100 %. Move a server to another CPU.", share * 100.0)]
    Utilisation { cpu: u16, share: f64 },
}

/// Shortens a name for messages and removes its control characters.
pub(crate) fn name(text: &str) -> String {
    shorten(&visible(text), 80)
}

impl PlanFault {
    pub(crate) fn near(&self) -> Option<&str> {
        match self {
            PlanFault::Schema { .. } => Some("schema"),
            PlanFault::Empty { what } | PlanFault::TooMany { what, .. } => Some(what),
            PlanFault::Cycle { .. } => Some("cycle_ms"),
            PlanFault::Origin { chain: text, .. }
            | PlanFault::Twice { twice: text, .. }
            | PlanFault::Priority { of: text, .. }
            | PlanFault::Slot { server: text, .. }
            | PlanFault::Order { server: text, .. }
            | PlanFault::Overlap { b: text, .. }
            | PlanFault::NoServer { topic: text, .. }
            | PlanFault::NoSlots { topic: text, .. }
            | PlanFault::ManySlots { topic: text, .. }
            | PlanFault::Held { topic: text, .. }
            | PlanFault::NoCallback { callback: text }
            | PlanFault::Required { callback: text, .. } => Some(text),
            PlanFault::ManyHeld { .. } => Some("outputs"),
            PlanFault::Promise { .. } => Some("promises"),
            PlanFault::Utilisation { .. } => Some("utilisation"),
        }
    }
}
