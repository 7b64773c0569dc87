//! Runs a plan: finds the threads of its callbacks, follows the chain's phase, keeps reservations and
//! shapers going, and judges what comes of it.
//!
//! What a recording shows becomes sights ([`watch`]), these executions ([`executions`]) and the place
//! of the cycles in time ([`phase`]); [`isolation`] holds the kernel's switches against the slots.
pub mod awake;
pub mod executions;
pub mod isolation;
pub mod launch;
pub mod middleware;
pub mod overrun;
pub mod phase;
pub mod roles;
pub mod run;
pub mod shaper;
pub mod verdict;
pub mod watch;
