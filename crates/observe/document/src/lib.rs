//! The timing model as a document: schema, distributions, evidence of runs, conclusions, merging,
//! reading and writing. The functions are pure: they use no clock, no thread and no environment.
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
