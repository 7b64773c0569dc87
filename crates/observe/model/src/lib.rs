//! Events to timing model; merge, export, report. Values in, values out: no clock, no thread, no
//! environment.
mod chains;
mod conclude;
pub mod cuts;
pub mod dist;
mod evidence;
pub mod export;
pub mod file;
pub mod hosts;
mod index;
pub mod layout;
pub mod links;
pub mod merge;
pub mod modes;
pub mod naming;
pub mod presence;
pub mod report;
pub mod schema;
pub mod stated;
pub mod synth;
pub mod text;
pub mod titles;

pub use dist::Dist;
pub use links::Link;
pub use merge::merge;
pub use naming::NameRule;
pub use schema::Model;
pub use stated::StatedJunction;
pub use synth::{Synth, SynthOptions};
