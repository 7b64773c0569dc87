//! A model in the forms that other tools read.
pub mod svg;
