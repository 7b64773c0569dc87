//! Exports a model in the formats of other tools.
pub mod caret;
pub mod csv;
pub mod dot;
pub mod executions;
pub mod perfetto;
pub mod svg;
