//! A timing model to look at: the layout of its graph, the report, pictures, and exports for other
//! tools. Values in, values out: no clock, no thread, no environment.
pub mod export;
pub mod layout;
pub mod report;
