//! Timers and endpoints: subscriptions, publishers, services and clients.

use super::OfAction;
use crate::index::{NameId, VertexId};
use crate::synth::ids::{NodeId, ProcessIndex};
use crate::synth::values::Gid;

/// Which kind of entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::synth) enum EntityKind {
    Timer,
    Subscription,
    Publisher,
    Service,
    Client,
    /// A task of rclpy's executor.
    Task,
}

/// What only one kind of entity has.
#[derive(Debug, Clone)]
pub(in crate::synth) enum Role {
    Timer(Timer),
    /// A subscription or publisher.
    Topic {
        /// Depth of its queue; 0 when unknown.
        depth: u64,
    },
    Service(ServiceNames),
    Client {
        names: ServiceNames,
        gid: Option<ClientGid>,
        /// The number of its first request that was seen.
        asked_from: Option<i64>,
    },
    Task,
}

/// What is known of a timer's releases.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::synth) struct Timer {
    /// When it is next due; none while unknown.
    pub(super) due: Option<u64>,
    /// Its period now; the one it was made with is among its [`Looks`].
    pub(super) period_ns: Option<u64>,
    /// Address of its clock; 0 while unknown.
    pub(super) clock: u64,
    pub(super) time: TimeBase,
    pub(super) cancelled: bool,
    /// It was called at least once.
    pub(super) ran: bool,
    /// It may have been called without being seen.
    pub(super) unseen_calls: bool,
}

impl Timer {
    /// It ran, as far as can be told, and was cancelled: a later one that is alike takes its place.
    pub(super) fn is_spent(&self) -> bool {
        (self.ran || self.unseen_calls) && self.cancelled
    }
}

/// How the time of a clock passes, compared with that of the recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::synth) enum TimeBase {
    /// Not known: taken to pass at the same rate.
    #[default]
    Unknown,
    /// At the same rate.
    Steady,
    /// At the same rate, until the machine's clock is set.
    System,
    /// As a publisher of simulated time says.
    Simulated,
}

/// The two topics of a service.
#[derive(Debug, Clone, Copy)]
pub(in crate::synth) struct ServiceNames {
    /// The service's name with `/request`.
    pub(in crate::synth) request: NameId,
    /// The service's name with `/response`.
    pub(in crate::synth) response: NameId,
}

/// The identifier of a client.
#[derive(Debug, Clone, Copy)]
pub(in crate::synth) struct ClientGid {
    pub(in crate::synth) gid: Gid,
    /// A request or response carried it, so it is the one that services see.
    pub(in crate::synth) seen: bool,
}

/// What an id shows of an entity. Their [slots](Entity::slot) distinguish entities of one process
/// with equal looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::synth) struct Looks {
    pub(in crate::synth) kind: EntityKind,
    pub(in crate::synth) node: Option<NodeId>,
    /// Topic or service; none for timers.
    pub(in crate::synth) name: Option<NameId>,
    /// Of a timer, as it was made, as far as known.
    pub(in crate::synth) period_ns: Option<u64>,
}

/// How a callback nests with others, as far as seen.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::synth) struct Nests {
    /// Its callback reached its end after an executor had run in it.
    pub(in crate::synth) spins: bool,
    /// Of a subscription or client: another entity's callback takes from it. Its items go there.
    pub(in crate::synth) polled: bool,
}

/// The number of an entity among those of its process that look alike: the lowest one that was
/// free when it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::synth) struct Slot {
    pub(in crate::synth) number: u32,
    /// All that an id shows of the entity was known by then, so that its number is the same in
    /// every run.
    pub(in crate::synth) sure: bool,
}

/// A timer, subscription, publisher, service or client, or a task of rclpy's executor.
#[derive(Debug, Clone)]
pub(in crate::synth) struct Entity {
    pub(in crate::synth) looks: Looks,
    pub(in crate::synth) process: ProcessIndex,
    pub(in crate::synth) role: Role,
    /// The action that it belongs to.
    pub(in crate::synth) action: Option<OfAction>,
    /// It belongs to what every node has, whatever the application does.
    pub(in crate::synth) infrastructure: bool,
    /// It announced a callback or ran one between `callback_start` and `callback_end`.
    pub(in crate::synth) exact: bool,
    pub(in crate::synth) nests: Nests,
    pub(in crate::synth) live: bool,
    /// Of an end of a link of onbeat-link: the number by which all its ends know it.
    pub(in crate::synth) link: Option<u64>,
    /// Its number among those that looked alike when it was made.
    pub(in crate::synth) slot: Slot,
    /// The callback's symbol.
    pub(in crate::synth) symbol: Option<NameId>,
    /// The callback that it runs, once that is known. A service has one per caller instead.
    pub(in crate::synth) vertex: Option<VertexId>,
    /// Of a service: the callback for each calling node.
    pub(in crate::synth) callers: Vec<(Option<NodeId>, VertexId)>,
}

impl Looks {
    /// Whether everything is known that an id shows.
    pub(super) fn are_known(&self) -> bool {
        self.node.is_some() && (self.kind != EntityKind::Timer || self.period_ns.is_some())
    }
}

impl Entity {
    pub(in crate::synth) fn kind(&self) -> EntityKind {
        self.looks.kind
    }

    pub(in crate::synth) fn node(&self) -> Option<NodeId> {
        self.looks.node
    }

    pub(in crate::synth) fn name(&self) -> Option<NameId> {
        self.looks.name
    }

    /// A timer's releases.
    pub(super) fn timer_mut(&mut self) -> Option<&mut Timer> {
        match &mut self.role {
            Role::Timer(timer) => Some(timer),
            _ => None,
        }
    }

    /// Whether a later one that looks alike takes its place though it is not destroyed.
    pub(in crate::synth) fn is_spent(&self) -> bool {
        matches!(&self.role, Role::Timer(timer) if timer.is_spent())
    }

    /// Queue depth of a subscription or publisher; 0 when unknown.
    pub(in crate::synth) fn depth(&self) -> u64 {
        match self.role {
            Role::Topic { depth } => depth,
            _ => 0,
        }
    }

    /// What stands for the source time stamp of a link's item: link and number, which are the same at
    /// all ends.
    pub(in crate::synth) fn link_item(&self, number: u64) -> i64 {
        self.link.unwrap_or_default().wrapping_add(number) as i64
    }

    /// The topics of a service or client.
    pub(in crate::synth) fn service_names(&self) -> Option<ServiceNames> {
        match self.role {
            Role::Service(names) | Role::Client { names, .. } => Some(names),
            Role::Timer(_) | Role::Topic { .. } | Role::Task => None,
        }
    }

    /// The identifier of a client.
    pub(in crate::synth) fn gid(&self) -> Option<ClientGid> {
        match self.role {
            Role::Client { gid, .. } => gid,
            _ => None,
        }
    }

    /// A client sends a request of this number.
    pub(in crate::synth) fn asks(&mut self, sequence: i64) {
        if let Role::Client { asked_from, .. } = &mut self.role {
            asked_from.get_or_insert(sequence);
        }
    }

    /// Whether a client's request of this number was sent before any that was seen.
    pub(in crate::synth) fn asked_unseen(&self, sequence: i64) -> bool {
        match self.role {
            Role::Client { asked_from, .. } => asked_from.is_none_or(|first| sequence < first),
            _ => false,
        }
    }

    /// Whether a client's identifier is known from a request or response.
    pub(in crate::synth) fn gid_seen(&self) -> bool {
        self.gid().is_some_and(|g| g.seen)
    }
}

/// Whether a topic or service is one that every node has, whatever the application does.
pub(in crate::synth) fn is_infrastructure(kind: EntityKind, name: &str) -> bool {
    const TOPICS: &[&str] = &["/rosout", "/parameter_events"];
    const SERVICES: &[&str] = &[
        "/describe_parameters",
        "/get_parameter_types",
        "/get_parameters",
        "/list_parameters",
        "/set_parameters",
        "/set_parameters_atomically",
        "/get_type_description",
        "/get_logger_levels",
        "/set_logger_levels",
    ];
    match kind {
        EntityKind::Timer | EntityKind::Task => false,
        EntityKind::Service | EntityKind::Client => SERVICES.iter().any(|s| name.ends_with(s)),
        EntityKind::Subscription | EntityKind::Publisher => TOPICS.contains(&name),
    }
}
