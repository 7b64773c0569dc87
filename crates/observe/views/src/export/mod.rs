//! A model in the forms that other tools read.
pub mod caret;
pub mod csv;
pub mod dot;
pub mod executions;
pub mod perfetto;
pub mod svg;
