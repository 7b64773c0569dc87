//! A reservation server: as the caller describes it, and as it runs.

use onbeat_time::Slot;

/// Highest priority of a server. Above are the middleware's threads, and above these the
/// dispatcher.
pub const MAX_PRIORITY: u8 = 90;

/// A reservation server (thesis, Definition 4.1.1): its threads run only within its slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Unique among the servers of a reservation. As the user wrote it; untrusted.
    pub name: String,
    /// The CPU that its threads run on.
    pub cpu: u16,
    /// Real-time priority of its threads, 1 to [`MAX_PRIORITY`]; 0: SCHED_OTHER.
    pub priority: u8,
    /// Slots within the cycle, in any order. A slot starts within the cycle; its end may lie beyond
    /// the cycle's and then wraps around. Empty: its threads may run at any time.
    pub slots: Vec<Slot>,
}

/// A server of a running reservation.
pub(crate) struct RunningServer {
    pub(crate) name: String,
    pub(crate) cpu: u16,
    pub(crate) priority: u8,
    /// Whether it has a gate that ever closes.
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
