//! Recorded traffic, played again: nothing is lost, and every item leaves at its time (HIL paper,
//! Figure 1). Sources in, sinks out; the buffer between them is sized by network calculus.

pub mod item;
pub mod source;
