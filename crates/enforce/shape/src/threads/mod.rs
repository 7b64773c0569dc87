//! Threads of a session: the servers that they are assigned to, and the middleware's CPU.

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
