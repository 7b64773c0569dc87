//! Timers and endpoints: subscriptions, publishers, services and clients.

use crate::ids::{NodeId, ProcessIndex};
use crate::index::{NameId, VertexId};
use crate::values::Gid;

/// Which kind of entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum EntityKind {
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
pub(crate) enum Role {
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
pub(crate) struct Timer {
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
pub(crate) enum TimeBase {
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
pub(crate) struct ServiceNames {
    /// The service's name with `/request`.
    pub(crate) request: NameId,
    /// The service's name with `/response`.
    pub(crate) response: NameId,
}

/// The identifier of a client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientGid {
    pub(crate) gid: Gid,
    /// A request or response carried it, so it is the one that services see.
    pub(crate) seen: bool,
}

/// What an id shows of an entity. Their [slots](Entity::slot) distinguish entities of one process
/// with equal looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Looks {
    pub(crate) kind: EntityKind,
    pub(crate) node: Option<NodeId>,
    /// Topic or service; none for timers.
    pub(crate) name: Option<NameId>,
    /// Of a timer, as it was made, as far as known.
    pub(crate) period_ns: Option<u64>,
}

/// What an endpoint is to its action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ActionPart {
    Goal,
    Cancel,
    Result,
    Feedback,
    Status,
}

/// An action's endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OfAction {
    /// The action's name.
    pub(crate) action: NameId,
    pub(crate) part: ActionPart,
}

/// How a callback nests with others, as far as seen.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Nests {
    /// Its callback reached its end after an executor had run in it.
    pub(crate) spins: bool,
    /// Of a subscription or client: another entity's callback takes from it. Its items go there.
    pub(crate) polled: bool,
}

/// The number of an entity among those of its process that look alike: the lowest one that was
/// free when it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot {
    pub(crate) number: u32,
    /// All that an id shows of the entity was known by then, so that its number is the same in
    /// every run.
    pub(crate) sure: bool,
}

/// A timer, subscription, publisher, service or client, or a task of rclpy's executor.
#[derive(Debug, Clone)]
pub(crate) struct Entity {
    pub(crate) looks: Looks,
    pub(crate) process: ProcessIndex,
    pub(crate) role: Role,
    /// The action that it belongs to.
    pub(crate) action: Option<OfAction>,
    /// It belongs to what every node has, whatever the application does.
    pub(crate) infrastructure: bool,
    /// It announced a callback or ran one between `callback_start` and `callback_end`.
    pub(crate) exact: bool,
    pub(crate) nests: Nests,
    pub(crate) live: bool,
    /// Of an end of a link of onbeat-link: the number by which all its ends know it.
    pub(crate) link: Option<u64>,
    /// Its number among those that looked alike when it was made.
    pub(crate) slot: Slot,
    /// The callback's symbol.
    pub(crate) symbol: Option<NameId>,
    /// The callback that it runs, once that is known. A service has one per caller instead.
    pub(crate) vertex: Option<VertexId>,
    /// Of a service: the callback for each calling node.
    pub(crate) callers: Vec<(Option<NodeId>, VertexId)>,
}

impl Looks {
    /// Whether everything is known that an id shows.
    pub(super) fn are_known(&self) -> bool {
        self.node.is_some() && (self.kind != EntityKind::Timer || self.period_ns.is_some())
    }
}

impl Entity {
    pub(crate) fn kind(&self) -> EntityKind {
        self.looks.kind
    }

    pub(crate) fn node(&self) -> Option<NodeId> {
        self.looks.node
    }

    pub(crate) fn name(&self) -> Option<NameId> {
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
    pub(crate) fn is_spent(&self) -> bool {
        matches!(&self.role, Role::Timer(timer) if timer.is_spent())
    }

    /// Queue depth of a subscription or publisher; 0 when unknown.
    pub(crate) fn depth(&self) -> u64 {
        match self.role {
            Role::Topic { depth } => depth,
            _ => 0,
        }
    }

    /// What stands for the source time stamp of a link's item: link and number, which are the same at
    /// all ends.
    pub(crate) fn link_item(&self, number: u64) -> i64 {
        self.link.unwrap_or_default().wrapping_add(number) as i64
    }

    /// The topics of a service or client.
    pub(crate) fn service_names(&self) -> Option<ServiceNames> {
        match self.role {
            Role::Service(names) | Role::Client { names, .. } => Some(names),
            Role::Timer(_) | Role::Topic { .. } | Role::Task => None,
        }
    }

    /// The identifier of a client.
    pub(crate) fn gid(&self) -> Option<ClientGid> {
        match self.role {
            Role::Client { gid, .. } => gid,
            _ => None,
        }
    }

    /// A client sends a request of this number.
    pub(crate) fn asks(&mut self, sequence: i64) {
        if let Role::Client { asked_from, .. } = &mut self.role {
            asked_from.get_or_insert(sequence);
        }
    }

    /// Whether a client's request of this number was sent before any that was seen.
    pub(crate) fn asked_unseen(&self, sequence: i64) -> bool {
        match self.role {
            Role::Client { asked_from, .. } => asked_from.is_none_or(|first| sequence < first),
            _ => false,
        }
    }

    /// Whether a client's identifier is known from a request or response.
    pub(crate) fn gid_seen(&self) -> bool {
        self.gid().is_some_and(|g| g.seen)
    }
}

/// Whether a topic or service is one that every node has, whatever the application does.
pub(crate) fn is_infrastructure(kind: EntityKind, name: &str) -> bool {
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
