//! The timing model as a document: its schema, its distributions, the evidence of runs that it is
//! concluded from, merging, reading and writing. Values in, values out: no clock, no thread, no
//! environment.
#[doc(hidden)]
pub mod conclude;
pub mod cuts;
pub mod dist;
#[doc(hidden)]
pub mod evidence;
pub mod file;
pub mod merge;
pub mod presence;
pub mod schema;
pub mod stated;
pub mod text;
pub mod titles;

pub use dist::Dist;
pub use merge::merge;
pub use schema::Model;
pub use stated::StatedJunction;
