//! What can be wrong with a plan, as one line each.

use crate::schema::{Ms, Slot, MAX_HELD, MAX_SLOTS, SCHEMA};
use onbeat_model::text::{shorten, visible};

/// Longest cycle: an hour.
pub(crate) const MAX_CYCLE_NS: u64 = 3_600_000_000_000;

/// Most of anything in a plan: far beyond any system, and little work to check.
pub const MAX_ENTRIES: usize = 1000;

/// What is wrong with a plan. Names in the texts cannot act on a terminal.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanFault {
    /// Another format.
    #[error("a plan of schema '{}', and this onbeat reads '{SCHEMA}': make it again with this version's `onbeat plan`", name(found))]
    Schema {
        /// What stands there.
        found: String,
    },
    /// A list that needs an entry has none.
    #[error("{what} is empty")]
    Empty {
        /// Which.
        what: &'static str,
    },
    /// Too many entries.
    #[error("{count} entries in {what}: at most {MAX_ENTRIES} are read")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        count: usize,
    },
    /// The cycle cannot be.
    #[error("cycle_ms is {cycle}: it must lie between 0 and an hour")]
    Cycle {
        /// What stands there.
        cycle: Ms,
    },
    /// A chain begins elsewhere.
    #[error(
        "chain '{}' does not start with the origin '{}'",
        name(chain),
        name(origin)
    )]
    Origin {
        /// Chain.
        chain: String,
        /// The plan's origin.
        origin: String,
    },
    /// A name is used twice.
    #[error("{what} '{}' stands in it twice", name(twice))]
    Twice {
        /// Kind of thing.
        what: &'static str,
        /// Its name.
        twice: String,
    },
    /// A priority out of range.
    #[error("priority {priority} of {} is out of range: {low} to {high}", name(of))]
    Priority {
        /// Whose.
        of: String,
        /// What stands there.
        priority: u8,
        /// Least.
        low: u8,
        /// Highest.
        high: u8,
    },
    /// A slot that ends before it starts, or lies outside the cycle.
    #[error("slot [{}, {}] of server '{}' must start within the cycle of {cycle}, and end after that, at most a cycle later", slot.0.0 as f64 / 1e6, slot.1.0 as f64 / 1e6, name(server))]
    Slot {
        /// Whose.
        server: String,
        /// The slot.
        slot: Slot,
        /// Cycle.
        cycle: Ms,
    },
    /// Slots of one server overlap or are out of order.
    #[error("slots [{}, {}] and [{}, {}] of server '{}' overlap or are out of order", a.0.0 as f64 / 1e6, a.1.0 as f64 / 1e6, b.0.0 as f64 / 1e6, b.1.0 as f64 / 1e6, name(server))]
    Order {
        /// Whose.
        server: String,
        /// One.
        a: Slot,
        /// The next.
        b: Slot,
    },
    /// Two servers would compete.
    #[error("servers '{}' and '{}' both have priority {priority} on CPU {cpu}, and their slots overlap at {at}: give them different priorities, or move a slot", name(a), name(b))]
    Overlap {
        /// One.
        a: String,
        /// The other.
        b: String,
        /// Priority of both.
        priority: u8,
        /// CPU of both.
        cpu: u16,
        /// Where, in the cycle.
        at: Ms,
    },
    /// A server that does not exist.
    #[error(
        "'{}' leaves in slots of server '{}', and there is none of that name",
        name(topic),
        name(server)
    )]
    NoServer {
        /// Topic.
        topic: String,
        /// Server.
        server: String,
    },
    /// Nothing can leave in the slots of a server without slots.
    #[error(
        "'{}' leaves in slots of server '{}', which has none",
        name(topic),
        name(server)
    )]
    NoSlots {
        /// Topic.
        topic: String,
        /// Server.
        server: String,
    },
    /// More slots than a shaper holds.
    #[error(
        "'{}' leaves in slots of server '{}', which has {count}: at most {MAX_SLOTS} can be kept",
        name(topic),
        name(server)
    )]
    ManySlots {
        /// Topic.
        topic: String,
        /// Server.
        server: String,
        /// How many.
        count: usize,
    },
    /// More topics than a shaper serves.
    #[error("{count} topics are held back or throttled: at most {MAX_HELD} can be")]
    ManyHeld {
        /// How many.
        count: usize,
    },
    /// The held topic does not fit how it is held.
    #[error("'{}' is held by {hold}: held_topic must {must}", name(topic))]
    Held {
        /// Topic.
        topic: String,
        /// `republish` or `publisher_thread`.
        hold: &'static str,
        /// What is right.
        must: &'static str,
    },
    /// Promised shares or times that cannot be.
    #[error("promises: {what}")]
    Promise {
        /// What.
        what: String,
    },
    /// More is asked of a CPU than it has.
    #[error("CPU {cpu} would be used for {:.1} % at the worst: at most 100 % can hold", share * 100.0)]
    Utilisation {
        /// CPU.
        cpu: u16,
        /// Share, 1 is all.
        share: f64,
    },
}

/// A name for a message.
pub(crate) fn name(text: &str) -> String {
    shorten(&visible(text), 80)
}

impl PlanFault {
    /// A word of the file near which the fault is.
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
            | PlanFault::Held { topic: text, .. } => Some(text),
            PlanFault::ManyHeld { .. } => Some("outputs"),
            PlanFault::Promise { .. } => Some("promises"),
            PlanFault::Utilisation { .. } => Some("utilisation"),
        }
    }
}
