//! A reservation server: as the caller describes it, and as it runs.

use onbeat_time::Slot;

/// The highest priority of a server. Threads of the middleware run above it, and the dispatcher
/// runs above the middleware.
pub const MAX_PRIORITY: u8 = 90;

/// A reservation server (thesis, Definition 4.1.1): its threads run only within its slots.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// The name, unique among the servers of a reservation. The user wrote it, so it is untrusted.
    pub name: String,
    pub cpu: u16,
    /// The real-time priority of the server's threads, 1 to [`MAX_PRIORITY`]. 0 means SCHED_OTHER.
    pub priority: u8,
    /// The slots within the cycle, in any order. A slot starts within the cycle. Its end may lie
    /// beyond the cycle's end and then wraps around. Without slots, the server's threads may run at
    /// any time.
    pub slots: Vec<Slot>,
}

pub(crate) struct RunningServer {
    pub(crate) name: String,
    pub(crate) cpu: u16,
    pub(crate) priority: u8,
    /// Whether the server's gate closes at times, because the slots do not cover the whole cycle.
    pub(crate) is_gated: bool,
}

impl RunningServer {
    pub(crate) fn new(server: &Server, is_gated: bool) -> RunningServer {
        RunningServer {
            name: server.name.clone(),
            cpu: server.cpu,
            priority: server.priority,
            is_gated,
        }
    }
}
