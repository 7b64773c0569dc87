//! Heartbeats of dispatcher and guard, and the lease that lets the dispatcher close gates: words in
//! memory that both processes see.
//!
//! The dispatcher closes gates only while it holds a lease. A lease lasts a cycle; the dispatcher
//! renews it each time it wakes, four times in a cycle at least. When a lease has run out, the guard
//! takes it away and opens all gates. State and end of the lease are one word, so that taking it away
//! and renewing it exclude one another:
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
//! - *Revoked*, *Asked*: the guard opens all gates again and again. A dispatcher that was stopped on
//!   its way into the kernel may still close one; that lasts until the guard's next look.
//! - *Asked* to *Held* is the guard's step, after which it opens nothing: so it never opens a gate
//!   that the dispatcher has closed with its new lease.
//! - The dispatcher looks again after each gate that it closed.
//!
//! The guard beats too: who closes gates while nobody watches does what the lease is there against.

use crate::sys::SharedWords;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Both sides look this often in a cycle, at least.
const LOOKS: u64 = 4;

/// State of a lease: the last bits of its word. The others are its end, in units of 4 ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The dispatcher has not begun.
    None = 0,
    /// The dispatcher may close gates until the lease ends.
    Held = 1,
    /// The guard has opened all gates, and goes on doing so.
    Revoked = 2,
    /// The same, and the dispatcher is back.
    Asked = 3,
}

/// A lease as it is in its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lease {
    state: State,
    /// CLOCK_MONOTONIC; the last two bits are 0.
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

/// What the guard has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Nothing: the dispatcher is well, or has not begun.
    Watch,
    /// Open all gates.
    Open,
    /// Open all gates, then [`Heartbeat::grant`]: the dispatcher is back.
    OpenAndGrant,
}

/// Heartbeats and lease. Real-time safe: no method waits, allocates or calls the system.
pub(crate) struct Heartbeat {
    words: SharedWords<2>,
    cycle_ns: u64,
}

impl Heartbeat {
    /// Nobody has a lease. The guard counts as heard at `now_ns`.
    pub(crate) fn new(cycle_ns: u64, now_ns: u64) -> io::Result<Heartbeat> {
        let words = SharedWords::new()?;
        let heartbeat = Heartbeat { words, cycle_ns };
        heartbeat.guard_beats(now_ns);
        Ok(heartbeat)
    }

    /// Longest time between two looks of either side.
    pub(crate) fn look_ns(&self) -> u64 {
        self.cycle_ns / LOOKS
    }

    fn lease_word(&self) -> &AtomicU64 {
        &self.words[0]
    }

    fn lease(&self) -> Lease {
        Lease::of(self.lease_word().load(SeqCst))
    }

    /// One side's step. False if the other was faster.
    fn step(&self, from: Lease, state: State, end_ns: u64) -> bool {
        let to = Lease { state, end_ns }.word();
        let stepped = self
            .lease_word()
            .compare_exchange(from.word(), to, SeqCst, SeqCst);
        stepped.is_ok()
    }

    /// The dispatcher is awake: it renews its lease, or asks for it back. True if it may close
    /// gates.
    pub(crate) fn renew(&self, now_ns: u64) -> bool {
        // The guard takes one step at most between two of these: from Held or from Asked.
        for _ in 0..3 {
            let lease = self.lease();
            let state = match lease.state {
                State::None | State::Held => State::Held,
                State::Revoked | State::Asked => State::Asked,
            };
            if self.step(lease, state, now_ns + self.cycle_ns) {
                return state == State::Held;
            }
        }
        false
    }

    /// Whether the dispatcher has a lease that has not run out.
    pub(crate) fn is_leased(&self, now_ns: u64) -> bool {
        let lease = self.lease();
        lease.state == State::Held && now_ns < lease.end_ns
    }

    /// Whether the guard has missed two of its looks.
    pub(crate) fn guard_is_silent(&self, now_ns: u64) -> bool {
        let since_ns = now_ns.saturating_sub(self.words[1].load(SeqCst));
        since_ns > self.look_ns() * (LOOKS - 1)
    }

    /// The guard is awake.
    pub(crate) fn guard_beats(&self, now_ns: u64) {
        self.words[1].store(now_ns, SeqCst);
    }

    /// What the guard has to do now. Takes away a lease that has run out.
    pub(crate) fn duty(&self, now_ns: u64) -> Duty {
        let lease = self.lease();
        match lease.state {
            State::None => Duty::Watch,
            State::Revoked => Duty::Open,
            _ if lease.end_ns <= now_ns => match self.step(lease, State::Revoked, lease.end_ns) {
                true => Duty::Open,
                // It was renewed just now. The next look finds what came of it.
                false => Duty::Watch,
            },
            State::Held => Duty::Watch,
            State::Asked => Duty::OpenAndGrant,
        }
    }

    /// The guard has opened all gates, and gives the lease back to a dispatcher that has asked.
    pub(crate) fn grant(&self) {
        let lease = self.lease();
        if lease.state == State::Asked {
            // If the dispatcher has asked again meanwhile, the next look grants it.
            self.step(lease, State::Held, lease.end_ns);
        }
    }

    /// When the guard has to look again, CLOCK_MONOTONIC.
    pub(crate) fn next_look_ns(&self, now_ns: u64) -> u64 {
        let soon_ns = now_ns + self.look_ns();
        let lease = self.lease();
        match lease.state {
            State::Held | State::Asked if lease.end_ns > now_ns => soon_ns.min(lease.end_ns),
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
    fn a_dispatcher_that_beats_keeps_its_lease() {
        let heart = heartbeat();
        assert_eq!(heart.duty(5 * CYCLE_NS), Duty::Watch, "it has not begun");
        assert!(!heart.is_leased(0));
        for look in 0..100 {
            let now_ns = look * heart.look_ns();
            assert!(heart.renew(now_ns));
            assert!(heart.is_leased(now_ns));
            assert_eq!(heart.duty(now_ns + CYCLE_NS - 4), Duty::Watch);
            assert!(heart.next_look_ns(now_ns) <= now_ns + heart.look_ns());
        }
    }

    #[test]
    fn a_lease_that_ran_out_is_given_back_after_it_was_asked_for() {
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
        // Who asks and is stopped again has nothing.
        assert_eq!(heart.duty(9 * CYCLE_NS), Duty::Open);
        assert!(!heart.renew(10 * CYCLE_NS));
        assert_eq!(heart.duty(12 * CYCLE_NS), Duty::Open);
        heart.grant();
        assert!(!heart.is_leased(10 * CYCLE_NS));
    }

    #[test]
    fn a_guard_that_misses_two_looks_is_silent() {
        let heart = heartbeat();
        heart.guard_beats(CYCLE_NS);
        assert!(!heart.guard_is_silent(CYCLE_NS / 2), "no time went by");
        assert!(!heart.guard_is_silent(CYCLE_NS + CYCLE_NS / 2));
        assert!(heart.guard_is_silent(2 * CYCLE_NS - 1));
    }

    proptest! {
        /// Whatever both do in whatever order: a gate that is shut is opened by the guard within a
        /// cycle and its own look, counted from the dispatcher's last step; and the guard never
        /// opens one that was closed under a lease that still runs.
        #[test]
        fn a_gate_stays_shut_for_a_cycle_at_most(
            steps in proptest::collection::vec((0..4u8, 1..CYCLE_NS), 1..200)
        ) {
            let heart = heartbeat();
            let (mut now_ns, mut last_ns, mut shut) = (0, 0, false);
            for (who, after_ns) in steps {
                // The guard looks when it has to.
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
