//! The heartbeats of dispatcher and guard, and the lease that lets the dispatcher close gates. Both
//! are words in memory that the two processes share.
//!
//! The dispatcher closes gates only while it holds a lease. A lease lasts one cycle. The dispatcher
//! renews it each time it wakes, at least four times per cycle. When a lease has expired, the guard
//! revokes it and opens all gates. State and end of the lease share one word, so that revoking and
//! renewing exclude each other:
//!
//! ```text
//!           dispatcher renews                guard: it has run out
//! None ---------------------------> Held --------------------------> Revoked <---+
//!                                    ^                                  |        |
//!                 guard opens, grants|        dispatcher is back, asks  |        |
//!                                    +------------- Asked <-------------+        |
//!                                                     |  guard: it has run out   |
//!                                                     +--------------------------+
//! ```
//!
//! - *Revoked*, *Asked*: the guard opens all gates again and again. A dispatcher that was stopped
//!   on its way into the kernel may still close a gate. That gate stays closed until the guard's
//!   next look.
//! - The guard makes the step from *Asked* to *Held* and opens no gate afterwards. It therefore
//!   never opens a gate that the dispatcher has closed with its new lease.
//! - The dispatcher checks its lease again after each gate that it has closed.
//!
//! The guard beats too, because the dispatcher must not close gates while no guard watches.

use crate::sys::SharedWords;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// The least number of times per cycle that the dispatcher checks the guard, and that the guard
/// checks a dispatcher without a lease.
const CHECKS_PER_CYCLE: u64 = 4;
/// The number of times per cycle that the guard checks a dispatcher with a lease. The guard also
/// checks when the lease ends.
const LEASED_CHECKS_PER_CYCLE: u64 = 2;

/// The state of the dispatcher's permission to close gates. It takes the last two bits of the word
/// that stores the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    None = 0,
    Held = 1,
    Revoked = 2,
    /// The guard still keeps all gates open, and the dispatcher has asked for a new lease.
    Asked = 3,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lease {
    state: State,
    /// The end of the lease, CLOCK_MONOTONIC. The last two bits are 0, because the word that stores
    /// the lease has its state there.
    end_ns: u64,
}

impl Lease {
    fn word(self) -> u64 {
        self.end_ns & !3 | self.state as u64
    }

    fn of(word: u64) -> Lease {
        let state = match word & 3 {
            0 => State::None,
            1 => State::Held,
            2 => State::Revoked,
            _ => State::Asked,
        };
        Lease {
            state,
            end_ns: word & !3,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    Watch,
    Open,
    /// The dispatcher works again: the guard must open all gates, then call [`Heartbeat::grant`].
    OpenAndGrant,
}

/// The heartbeats of dispatcher and guard, and the lease. Real-time safe: no method waits,
/// allocates memory or makes a system call.
pub(crate) struct Heartbeat {
    words: SharedWords<2>,
    cycle_ns: u64,
}

impl Heartbeat {
    pub(crate) fn new(cycle_ns: u64, now_ns: u64) -> io::Result<Heartbeat> {
        let words = SharedWords::new()?;
        let heartbeat = Heartbeat { words, cycle_ns };
        heartbeat.guard_beats(now_ns);
        Ok(heartbeat)
    }

    pub(crate) fn look_ns(&self) -> u64 {
        self.cycle_ns / CHECKS_PER_CYCLE
    }

    fn lease_word(&self) -> &AtomicU64 {
        &self.words[0]
    }

    fn lease(&self) -> Lease {
        Lease::of(self.lease_word().load(SeqCst))
    }

    fn change_lease(&self, from: Lease, state: State, end_ns: u64) -> bool {
        let to = Lease { state, end_ns }.word();
        let stepped = self
            .lease_word()
            .compare_exchange(from.word(), to, SeqCst, SeqCst);
        stepped.is_ok()
    }

    /// Renews the dispatcher's lease, or asks for a new one if the guard has withdrawn it. Returns
    /// true if the dispatcher may close gates.
    pub(crate) fn renew(&self, now_ns: u64) -> bool {
        // The guard takes at most one step between two attempts: from Held or from Asked.
        for _ in 0..3 {
            let lease = self.lease();
            let state = match lease.state {
                State::None | State::Held => State::Held,
                State::Revoked | State::Asked => State::Asked,
            };
            if self.change_lease(lease, state, now_ns + self.cycle_ns) {
                return state == State::Held;
            }
        }
        false
    }

    pub(crate) fn is_leased(&self, now_ns: u64) -> bool {
        let lease = self.lease();
        lease.state == State::Held && now_ns < lease.end_ns
    }

    /// Returns whether the guard has not checked the dispatcher for a whole cycle.
    pub(crate) fn guard_is_silent(&self, now_ns: u64) -> bool {
        let since_ns = now_ns.saturating_sub(self.words[1].load(SeqCst));
        since_ns > self.cycle_ns
    }

    pub(crate) fn guard_beats(&self, now_ns: u64) {
        self.words[1].store(now_ns, SeqCst);
    }

    /// Returns the guard's current duty, and revokes a lease that has expired.
    pub(crate) fn duty(&self, now_ns: u64) -> Duty {
        let lease = self.lease();
        match lease.state {
            State::None => Duty::Watch,
            State::Revoked => Duty::Open,
            _ if lease.end_ns <= now_ns => {
                match self.change_lease(lease, State::Revoked, lease.end_ns) {
                    true => Duty::Open,
                    // The dispatcher has just renewed the lease. The next look sees the result.
                    false => Duty::Watch,
                }
            }
            State::Held => Duty::Watch,
            State::Asked => Duty::OpenAndGrant,
        }
    }

    /// Gives the dispatcher a new lease if it has asked for one. The guard must have opened all
    /// gates before.
    pub(crate) fn grant(&self) {
        let lease = self.lease();
        if lease.state == State::Asked {
            // If the dispatcher has asked again meanwhile, the next look grants the lease.
            self.change_lease(lease, State::Held, lease.end_ns);
        }
    }

    pub(crate) fn next_look_ns(&self, now_ns: u64) -> u64 {
        let soon_ns = now_ns + self.look_ns();
        let lease = self.lease();
        match lease.state {
            State::Held if lease.end_ns > now_ns => {
                (now_ns + self.cycle_ns / LEASED_CHECKS_PER_CYCLE).min(lease.end_ns)
            }
            State::Asked if lease.end_ns > now_ns => soon_ns.min(lease.end_ns),
            _ => soon_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CYCLE_NS: u64 = 100_000;

    fn heartbeat() -> Heartbeat {
        Heartbeat::new(CYCLE_NS, 0).unwrap()
    }

    #[test]
    fn a_dispatcher_that_renews_its_lease_in_time_keeps_it() {
        let heart = heartbeat();
        assert_eq!(heart.duty(5 * CYCLE_NS), Duty::Watch, "it has not begun");
        assert!(!heart.is_leased(0));
        for look in 0..100 {
            let now_ns = look * heart.look_ns();
            assert!(heart.renew(now_ns));
            assert!(heart.is_leased(now_ns));
            assert_eq!(heart.duty(now_ns + CYCLE_NS - 4), Duty::Watch);
            assert!(heart.next_look_ns(now_ns) <= now_ns + CYCLE_NS / 2);
        }
    }

    #[test]
    fn the_guard_grants_an_expired_lease_again_only_on_request() {
        let heart = heartbeat();
        assert!(heart.renew(0));
        let end_ns = CYCLE_NS;
        assert!(!heart.is_leased(end_ns));
        assert_eq!(heart.duty(end_ns), Duty::Open);
        assert_eq!(heart.duty(end_ns + 1), Duty::Open, "again and again");
        heart.grant();
        assert_eq!(heart.duty(end_ns + 2), Duty::Open, "nobody has asked");
        let now_ns = 7 * CYCLE_NS;
        assert!(!heart.renew(now_ns));
        assert!(!heart.is_leased(now_ns));
        assert_eq!(heart.duty(now_ns), Duty::OpenAndGrant);
        assert!(!heart.renew(now_ns + 4), "not granted yet");
        heart.grant();
        assert!(heart.renew(now_ns + 8) && heart.is_leased(now_ns + 8));
        assert_eq!(heart.duty(now_ns + 8), Duty::Watch);
        // A dispatcher that asks and is then stopped again gets no lease.
        assert_eq!(heart.duty(9 * CYCLE_NS), Duty::Open);
        assert!(!heart.renew(10 * CYCLE_NS));
        assert_eq!(heart.duty(12 * CYCLE_NS), Duty::Open);
        heart.grant();
        assert!(!heart.is_leased(10 * CYCLE_NS));
    }

    #[test]
    fn a_guard_that_misses_a_check_by_half_a_cycle_counts_as_silent() {
        let heart = heartbeat();
        heart.guard_beats(CYCLE_NS);
        assert!(!heart.guard_is_silent(CYCLE_NS / 2), "no time went by");
        assert!(!heart.guard_is_silent(CYCLE_NS + CYCLE_NS / 2));
        assert!(!heart.guard_is_silent(2 * CYCLE_NS));
        assert!(heart.guard_is_silent(2 * CYCLE_NS + 1));
    }

    proptest! {
        /// Dispatcher and guard act in any order. When the dispatcher has not acted for a whole
        /// cycle, the guard opens a shut gate at its next check at the latest. The guard never
        /// opens a gate that was closed under a lease that still runs.
        #[test]
        fn the_guard_opens_a_shut_gate_at_its_first_check_after_a_cycle_without_the_dispatcher(
            steps in proptest::collection::vec((0..4u8, 1..CYCLE_NS), 1..200)
        ) {
            let heart = heartbeat();
            let (mut now_ns, mut last_ns, mut shut) = (0, 0, false);
            for (who, after_ns) in steps {
                // The guard looks whenever a look is due.
                let until_ns = now_ns + after_ns;
                while heart.next_look_ns(now_ns) <= until_ns {
                    now_ns = heart.next_look_ns(now_ns);
                    let leased = heart.is_leased(now_ns);
                    let duty = heart.duty(now_ns);
                    if duty != Duty::Watch {
                        prop_assert!(!leased);
                        shut = false;
                    }
                    if duty == Duty::OpenAndGrant {
                        heart.grant();
                    }
                    prop_assert!(!shut || now_ns < last_ns + CYCLE_NS);
                }
                now_ns = until_ns;
                match who {
                    0 => {
                        last_ns = now_ns;
                        shut |= heart.renew(now_ns);
                    }
                    1 => shut |= heart.is_leased(now_ns),
                    _ => {}
                }
            }
        }
    }
}
