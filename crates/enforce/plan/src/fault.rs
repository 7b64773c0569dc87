//! The faults that a plan can have, each in one line.

use crate::schema::{Ms, Slot, MAX_HELD, MAX_SLOTS, SCHEMA};
use onbeat_document::text::{shorten, visible};

/// Longest cycle: an hour.
pub(crate) const MAX_CYCLE_NS: u64 = 3_600_000_000_000;

/// Most entries in any list of a plan: far more than any system needs, and quickly checked.
pub const MAX_ENTRIES: usize = 1000;

/// A fault of a plan. Names in the texts have no control characters.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanFault {
    /// Another format.
    #[error("a plan of schema '{}', and this onbeat reads '{SCHEMA}': make it again with this version's `onbeat plan`", name(found))]
    Schema {
        /// The value in the file.
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
    /// The cycle is not between 0 and an hour.
    #[error("cycle_ms is {cycle}: it must lie between 0 and an hour")]
    Cycle {
        /// The value in the file.
        cycle: Ms,
    },
    /// A chain begins with another callback than the origin.
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
        /// Kind of thing: server, output, input.
        what: &'static str,
        /// The name, as the plan has it.
        twice: String,
    },
    /// A priority out of range.
    #[error("priority {priority} of {} is out of range: {low} to {high}", name(of))]
    Priority {
        /// The server, or what else has the value.
        of: String,
        /// The value in the file.
        priority: u8,
        /// Least.
        low: u8,
        /// Highest.
        high: u8,
    },
    /// A slot that ends before it starts, or lies outside the cycle.
    #[error("slot [{}, {}] of server '{}' must start within the cycle of {cycle}, and end after that, at most a cycle later", slot.0.0 as f64 / 1e6, slot.1.0 as f64 / 1e6, name(server))]
    Slot {
        /// The server, or what else has the value.
        server: String,
        /// The slot.
        slot: Slot,
        /// Cycle.
        cycle: Ms,
    },
    /// Slots of one server overlap or are out of order.
    #[error("slots [{}, {}] and [{}, {}] of server '{}' overlap or are out of order", a.0.0 as f64 / 1e6, a.1.0 as f64 / 1e6, b.0.0 as f64 / 1e6, b.1.0 as f64 / 1e6, name(server))]
    Order {
        /// The server, or what else has the value.
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
        /// Start of the overlap in the cycle.
        at: Ms,
    },
    /// No server has this name.
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
    /// No server has this callback.
    #[error("callbacks: '{}' is in no server", name(callback))]
    NoCallback {
        /// The callback.
        callback: String,
    },
    /// A callback need not appear, but a chain goes through it.
    #[error(
        "callbacks: '{}' is not required, but chain '{}' goes through it",
        name(callback),
        name(chain)
    )]
    Required {
        /// The callback.
        callback: String,
        /// The chain.
        chain: String,
    },
    /// The server of an output has no slots.
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
    /// More slots than a shaper's table has room for.
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
    /// The held topic does not fit the mechanism that holds it back.
    #[error("'{}' is held by {hold}: held_topic must {must}", name(topic))]
    Held {
        /// Topic.
        topic: String,
        /// `republish` or `publisher_thread`.
        hold: &'static str,
        /// The condition for a valid one.
        must: &'static str,
    },
    /// Promised shares or times that contradict themselves.
    #[error("promises: {what}")]
    Promise {
        /// What.
        what: String,
    },
    /// A CPU would be used for more than all of its time.
    #[error("CPU {cpu} would be used for {:.1} % at the worst: at most 100 % can hold", share * 100.0)]
    Utilisation {
        /// CPU.
        cpu: u16,
        /// Share, 1 is all.
        share: f64,
    },
}

/// A name as messages show it: shortened, without control characters.
pub(crate) fn name(text: &str) -> String {
    shorten(&visible(text), 80)
}

impl PlanFault {
    /// A word of the file that stands near the fault.
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
