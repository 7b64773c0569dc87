//! The threads of a session: assigns them to servers, and places the middleware's threads on their
//! CPU.

mod awake;
mod middleware;
mod placement;
mod servers;
mod waits;

pub(crate) use awake::Awake;
pub(crate) use middleware::job as middleware_job;
pub(crate) use placement::{Placement, Thread, MIDDLEWARE};
pub(crate) use servers::{guarded, is_gated, Servers};
pub(crate) use waits::WhoWaits;
