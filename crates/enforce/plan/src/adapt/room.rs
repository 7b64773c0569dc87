//! Finds how far a plan lets its bands move.

use crate::schema::{Hold, Ms, Plan, Server, Slot};

/// The reason why the bands of a plan cannot follow the load. The messages explain the fields.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdaptError {
    #[error("the plan has no latency bands that can follow the load. Plan with --strategy bands.")]
    NoBands,
    #[error("the middleware holds {0} back, so the time at which an output is ready is unknown. Plan with --design sync.")]
    PublisherThread(String),
    #[error("outputs leave in slots of the servers {0} and {1}, but bands can follow the load only if all outputs leave in slots of one server. Change the plan so that one server has all these slots.")]
    Servers(String, String),
    #[error("{0} is held back before the end of its chain, so the time at which the chain is done is unknown. Plan the chain up to this output with --to.")]
    Before(String),
    #[error("the slots of server {0} cannot be used as latency bands, for example because their lengths differ or because they overlap. Make the plan again with --strategy bands.")]
    Slots(String),
    #[error("the last slot ends at {last}, after the deadline of {deadline}. Plan with fewer bands, or choose a later deadline.")]
    Deadline { last: Ms, deadline: Ms },
}

#[derive(Debug, Clone)]
pub(super) struct Room {
    pub(super) server: usize,
    pub(super) slot_ns: u64,
    /// The earliest start of the first slot, in ns. An output that leaves before this time would
    /// count as a late output of the previous cycle.
    pub(super) first_start_ns: u64,
    pub(super) last_start_ns: u64,
    pub(super) liveliness_ns: Option<u64>,
    pub(super) miss: Option<f64>,
}

impl Room {
    pub(super) fn of(plan: &Plan, deadline_ns: Option<u64>) -> Result<Room, AdaptError> {
        let server = output_server_index(plan)?;
        let delta = &plan.servers[server];
        let wrong = || AdaptError::Slots(delta.name.clone());
        let first = delta.slots_ms.first().ok_or(AdaptError::NoBands)?;
        let last = delta.slots_ms.last().ok_or(AdaptError::NoBands)?;
        let slot_ns = first.1 .0 - first.0 .0;
        let earliest = plan.outputs.iter().map(|o| o.earliest_ms.0).max();
        let deadline = deadline_ns.unwrap_or(plan.cycle_ms.0).min(plan.cycle_ms.0);
        if last.1 .0 > plan.cycle_ms.0 {
            return Err(wrong());
        }
        let last_start_ns = deadline.checked_sub(slot_ns);
        let last_start_ns = last_start_ns.filter(|&start| start >= last.0 .0);
        let room = Room {
            server,
            slot_ns,
            first_start_ns: earliest.unwrap_or(0),
            last_start_ns: last_start_ns
                .ok_or(AdaptError::Deadline {
                    last: last.1,
                    deadline: Ms(deadline),
                })?
                // The slots must not begin after the end of the chain's slot: what still runs then
                // is late.
                .min(chain_end(plan).max(last.0 .0)),
            liveliness_ns: plan.promises.liveliness_ms.map(|ms| ms.0),
            miss: plan.promises.miss.map(|miss| miss.rate),
        };
        let ends: Vec<u64> = delta.slots_ms.iter().map(|slot| slot.1 .0).collect();
        match room.allowed_slots(&ends) {
            Some(slots) if slots == delta.slots_ms => Ok(room),
            _ => Err(wrong()),
        }
    }

    pub(super) fn allowed_slots(&self, ends: &[u64]) -> Option<Vec<Slot>> {
        let start = |end: &u64| end.checked_sub(self.slot_ns);
        let starts: Vec<u64> = ends.iter().map(start).collect::<Option<_>>()?;
        let apart = |w: &[u64]| {
            let way = w[1].saturating_sub(w[0]);
            way > self.slot_ns && self.liveliness_ns.is_none_or(|most| way <= most)
        };
        let is_inside =
            *starts.first()? >= self.first_start_ns && *starts.last()? <= self.last_start_ns;
        let slot = |(start, end): (u64, &u64)| Slot(Ms(start), Ms(*end));
        let slots = || starts.iter().copied().zip(ends).map(slot).collect();
        (is_inside && ends.windows(2).all(apart)).then(slots)
    }
}

fn output_server_index(plan: &Plan) -> Result<usize, AdaptError> {
    let Some(first) = plan
        .outputs
        .first()
        .filter(|_| !plan.promises.bands.is_empty())
    else {
        return Err(AdaptError::NoBands);
    };
    for output in &plan.outputs {
        if output.hold == Hold::PublisherThread {
            return Err(AdaptError::PublisherThread(output.topic.clone()));
        }
        if output.server != first.server {
            let (one, other) = (first.server.clone(), output.server.clone());
            return Err(AdaptError::Servers(one, other));
        }
        let mut chains = plan.chains.iter();
        if !chains.any(|c| c.output.as_ref() == Some(&output.topic)) {
            return Err(AdaptError::Before(output.topic.clone()));
        }
    }
    let server = plan.servers.iter().position(|s| s.name == first.server);
    server.ok_or(AdaptError::NoBands)
}

/// Returns the time in ns from the start of a cycle until the slots of the chains' callbacks end.
/// If the ends differ between servers, the earliest one counts.
fn chain_end(plan: &Plan) -> u64 {
    let of_chain = |id: &String| plan.chains.iter().any(|c| c.callbacks.contains(id));
    let runs = |server: &&Server| server.callbacks.iter().any(of_chain);
    let end = |server: &Server| {
        server
            .slots_ms
            .last()
            .map_or(plan.cycle_ms.0, |slot| slot.1 .0)
    };
    let last = plan.servers.iter().filter(runs).map(end).min();
    last.unwrap_or(plan.cycle_ms.0)
}
