//! The policy for late outputs.

/// The policy for an output that is not ready by the end of its last slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Overshoot {
    /// An output that misses its last slot leaves in the next slot, although this slot belongs to a
    /// later execution.
    #[default]
    Carry,
    /// An output that misses its last slot is discarded and reported. Later outputs leave in their
    /// own cycles again.
    Drop,
    /// An output that misses its last slot leaves at once, and shaping ends. The application goes
    /// on without shaping.
    Stop,
}
