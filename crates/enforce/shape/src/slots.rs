//! Converts a plan's slots, which are in ms, into slots of a cycle.

use onbeat_time::Slot;

pub(crate) fn slots(server: &onbeat_plan::schema::Server) -> Vec<Slot> {
    let slots = server.slots_ms.iter();
    slots.map(|s| Slot::new(s.0 .0, s.1 .0)).collect()
}
