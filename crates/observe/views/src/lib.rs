//! The views of a timing model: the layout of its graph, the report, pictures, and exports for
//! other tools. The functions are pure: they use no clock, no thread and no environment.
pub mod export;
pub mod layout;
pub mod report;
