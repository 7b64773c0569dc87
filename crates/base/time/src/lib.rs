//! Cycles, slots and clocks: the time arithmetic that all crates share.
//!
//! A [`Cycle`] repeats forever, with a period and an origin. A [`Slot`] is an interval of each
//! cycle (a reservation server's, Definition 4.1.1 of the thesis, or an output's, Definition
//! 4.3.3). An [`Opening`] is the slot of one certain cycle. Everything is a pure function of its
//! arguments; only [`clock`] reads the time.
//!
//! ```
//! use onbeat_time::{Cycle, Slot};
//!
//! let cycle = Cycle::new(100, 1_000).expect("a period above 0");
//! let slots = [Slot::new(10, 20), Slot::new(90, 105)];
//! // At 1102 ns the second slot of cycle 0 is still open: it ends in the next cycle.
//! let open = cycle.open_slot(&slots, 1_102u64).expect("open");
//! assert_eq!((open.cycle, open.slot, open.end_ns), (0, 1, 1_105));
//! assert_eq!(cycle.next_opening(&slots, 1_102u64).map(|o| o.start_ns), Some(1_110));
//! assert_eq!(cycle.position(1_102u64).offset_ns, 2);
//! ```
//!
//! Instants are nanoseconds of one clock, CLOCK_MONOTONIC unless something else is said. The
//! methods take an instant as `u64` (how [`clock::monotonic_ns`] returns it) or as `i64` (which may
//! lie before 0). They return `i64`, and limit results that do not fit to half of its range.
//!
//! Real-time safety: no function here allocates, blocks or enters the kernel with a lock. The
//! functions on slots take one step per slot.

pub mod clock;
mod cycle;
mod lead;
mod overshoot;
mod slot;

pub use cycle::{Cycle, Position};
pub use lead::Lead;
pub use overshoot::Overshoot;
pub use slot::{Opening, Slot};

/// The largest number of slots per cycle of one output. A shaper's table of slots has this limit,
/// so that the shaper finds the next slot in a bounded time.
pub const MAX_SLOTS: usize = 16;

/// The longest cycle that a table of slots accepts, and the latest end of a slot: 24 hours, in ns.
pub const MAX_CYCLE_NS: u64 = 24 * 3600 * 1_000_000_000;
