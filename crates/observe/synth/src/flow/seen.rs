//! Reports executions and items in detail, for a caller that asked for them.

use super::graph::{Hop, Route};
use super::Flow;
use crate::detail::{Details, Ended, Fate, ItemSeen};
use crate::events::Ending;
use crate::index::{NameId, VertexId};
use crate::outcomes::{ItemOutcome, Outcome, RequestOutcome};
use crate::values::ThreadId;

/// The edge that an item takes. Its start `from` and its `route` are `None` if they are unknown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    pub(super) from: Option<VertexId>,
    pub(super) to: VertexId,
    pub(super) name: NameId,
    pub(super) route: Option<Route>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ItemTimes {
    pub(super) published: Option<u64>,
    pub(super) source_ns: Option<i64>,
    pub(super) available: Option<u64>,
}

impl Details {
    pub(super) fn item(&mut self, way: Way, times: ItemTimes, fate: Fate) {
        self.items.push(ItemSeen {
            from: way.from.map(|v| v.index() as u32),
            to: way.to.index() as u32,
            name: way.name.index() as u32,
            intra_process: way.route == Some(Route::Intra),
            published_ns: times.published,
            source_ns: times.source_ns,
            available_ns: times.available,
            fate,
        });
    }
}

impl Flow {
    pub(super) fn outcome(
        &mut self,
        (from, hop): (Option<VertexId>, Hop),
        time: u64,
        outcome: Outcome,
    ) {
        if let Some(outcomes) = &mut self.outcomes {
            outcomes.items.push(ItemOutcome {
                from: from.map(|v| v.index() as u32),
                to: hop.to.index() as u32,
                name: hop.name.index() as u32,
                published_ns: time,
                found_ns: self.now,
                outcome,
            });
        }
    }

    pub(super) fn request_outcome(&mut self, outcome: impl FnOnce() -> RequestOutcome) {
        if let Some(outcomes) = &mut self.outcomes {
            outcomes.requests.push(outcome());
        }
    }
}

pub(super) fn taken(thread: ThreadId, time_ns: u64) -> Fate {
    Fate::Taken {
        time_ns,
        pid: thread.pid,
        tid: thread.tid,
    }
}

impl From<Ending> for Ended {
    fn from(how: Ending) -> Ended {
        match how {
            Ending::Exact => Ended::Exact,
            Ending::Inferred => Ended::Inferred,
            Ending::Shared => Ended::Shared,
            Ending::Unshown => Ended::Unshown,
            Ending::Aborted => Ended::Aborted,
            Ending::CutOff => Ended::CutOff,
            Ending::Unfinished => Ended::Unfinished,
        }
    }
}
