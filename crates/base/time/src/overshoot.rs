//! The policy for late outputs.

/// The policy for an execution whose output is not ready by the end of its last slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Overshoot {
    /// The output leaves in the next slot, which belongs to a later execution.
    #[default]
    Carry,
    /// The output is discarded and reported. The next execution is in phase again.
    Drop,
    /// The output leaves at once and shaping ends. The application continues as before.
    Stop,
}
