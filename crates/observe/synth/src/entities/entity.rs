//! The entities: timers, subscriptions, publishers, services, clients and tasks.

use crate::ids::{NodeId, ProcessIndex};
use crate::index::{NameId, VertexId};
use crate::values::Gid;
use onbeat_document::schema::qos::Qos;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum EntityKind {
    Timer,
    Subscription,
    Publisher,
    Service,
    Client,
    Task,
}

#[derive(Debug, Clone)]
pub(crate) enum Role {
    Timer(Timer),
    Topic {
        /// The depth of the endpoint's queue, or 0 if unknown.
        depth: u64,
    },
    Service(ServiceNames),
    Client {
        names: ServiceNames,
        gid: Option<ClientGid>,
        /// The sequence number of the first request that the recording shows of this client.
        asked_from: Option<i64>,
    },
    Task,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Timer {
    pub(super) due: Option<u64>,
    /// The current period. The field `looks` of the entity contains the period with which the timer
    /// was created.
    pub(super) period_ns: Option<u64>,
    /// The address of the timer's clock, or 0 if unknown.
    pub(super) clock: u64,
    pub(super) time: TimeBase,
    pub(super) cancelled: bool,
    pub(super) ran: bool,
    pub(super) unseen_calls: bool,
}

impl Timer {
    /// Reports whether the timer ran and was then cancelled, as far as events show. A later timer
    /// with the same properties takes the place of such a timer.
    pub(super) fn is_spent(&self) -> bool {
        (self.ran || self.unseen_calls) && self.cancelled
    }
}

/// The clock of a timer: how its time passes, compared with CLOCK_MONOTONIC, the clock of the
/// recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum TimeBase {
    /// It is unknown which clock the timer uses. The time of the timer is assumed to pass at the
    /// rate of CLOCK_MONOTONIC.
    #[default]
    Unknown,
    Steady,
    /// The machine's system time. It passes at the rate of CLOCK_MONOTONIC, except when somebody
    /// sets the machine's clock.
    System,
    Simulated,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ServiceNames {
    /// The service's name with `/request` appended, as the name of its requests.
    pub(crate) request: NameId,
    pub(crate) response: NameId,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientGid {
    pub(crate) gid: Gid,
    /// A recorded request or response contained this identifier. Services then use the identifier
    /// for the client.
    pub(crate) seen: bool,
}

/// The properties of an entity that are part of its id. Entities of one process with equal
/// properties differ in their [slots](Entity::slot).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Looks {
    pub(crate) kind: EntityKind,
    pub(crate) node: Option<NodeId>,
    pub(crate) name: Option<NameId>,
    pub(crate) period_ns: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ActionPart {
    Goal,
    Cancel,
    Result,
    Feedback,
    Status,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OfAction {
    pub(crate) action: NameId,
    pub(crate) part: ActionPart,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Nests {
    /// A callback of the entity ran an executor and then ended normally. Callbacks of that executor
    /// were therefore nested in it.
    pub(crate) spins: bool,
    /// A callback of another entity polls this subscription or client with `take()`. The items of
    /// this entity count as inputs of that callback.
    pub(crate) polled: bool,
    pub(crate) ends: bool,
    /// A callback of the service began again, or the service responded, although no end of the
    /// earlier callback was recorded.
    pub(crate) endless: bool,
}

impl Nests {
    /// Reports whether callbacks of a service return without an event of their end. In rclcpp
    /// before Kilted, this concerns callbacks that respond later.
    pub(crate) fn returns_silently(self) -> bool {
        self.endless && !self.ends
    }
}

/// The number of an entity among the entities of its process that have equal [`Looks`]. It is the
/// lowest number that was free when the entity was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot {
    pub(crate) number: u32,
    /// All properties that the entity's id shows were known when the entity got its number. The
    /// number is then the same in every run.
    pub(crate) sure: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Entity {
    pub(crate) looks: Looks,
    pub(crate) process: ProcessIndex,
    pub(crate) role: Role,
    pub(crate) action: Option<OfAction>,
    pub(crate) infrastructure: bool,
    /// The entity's callbacks have events of their start and end: the entity announced a callback,
    /// or ran one between `callback_start` and `callback_end`.
    pub(crate) exact: bool,
    pub(crate) nests: Nests,
    pub(crate) live: bool,
    /// The number of the onbeat-link link that has this entity as an end. All ends of the link have
    /// the same number.
    pub(crate) link: Option<u64>,
    pub(crate) qos: Option<Qos>,
    pub(crate) slot: Slot,
    pub(crate) symbol: Option<NameId>,
    /// The callback that the entity runs, once known. A service has one vertex per caller instead,
    /// in `callers`.
    pub(crate) vertex: Option<VertexId>,
    pub(crate) callers: Vec<(Option<NodeId>, VertexId)>,
}

impl Looks {
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

    pub(super) fn vertices(&self) -> impl Iterator<Item = VertexId> + '_ {
        let of_callers = self.callers.iter().map(|caller| caller.1);
        self.vertex.into_iter().chain(of_callers)
    }

    pub(crate) fn name(&self) -> Option<NameId> {
        self.looks.name
    }

    pub(super) fn timer_mut(&mut self) -> Option<&mut Timer> {
        match &mut self.role {
            Role::Timer(timer) => Some(timer),
            _ => None,
        }
    }

    pub(crate) fn is_spent(&self) -> bool {
        matches!(&self.role, Role::Timer(timer) if timer.is_spent())
    }

    pub(crate) fn depth(&self) -> u64 {
        match self.role {
            Role::Topic { depth } => depth,
            _ => 0,
        }
    }

    /// Returns a value that stands for the source time stamp of an item on an onbeat-link link. The
    /// value is computed from the link's number and the item's `number`, so it is the same at all
    /// ends.
    pub(crate) fn link_item(&self, number: u64) -> i64 {
        self.link.unwrap_or_default().wrapping_add(number) as i64
    }

    pub(crate) fn service_names(&self) -> Option<ServiceNames> {
        match self.role {
            Role::Service(names) | Role::Client { names, .. } => Some(names),
            Role::Timer(_) | Role::Topic { .. } | Role::Task => None,
        }
    }

    pub(crate) fn gid(&self) -> Option<ClientGid> {
        match self.role {
            Role::Client { gid, .. } => gid,
            _ => None,
        }
    }

    pub(crate) fn asks(&mut self, sequence: i64) {
        if let Role::Client { asked_from, .. } = &mut self.role {
            asked_from.get_or_insert(sequence);
        }
    }

    /// Reports whether the client sent the request with this sequence number before the first of
    /// its requests that the recording shows.
    pub(crate) fn asked_unseen(&self, sequence: i64) -> bool {
        match self.role {
            Role::Client { asked_from, .. } => asked_from.is_none_or(|first| sequence < first),
            _ => false,
        }
    }

    pub(crate) fn gid_seen(&self) -> bool {
        self.gid().is_some_and(|g| g.seen)
    }
}

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
