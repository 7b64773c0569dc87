//! Traces and models of many runs in a directory or an object store (thesis section 3.6, Figure 3.7): what is in
//! it, which of it fits a query, and the model of all that fits, merged step by step.
//!
//! ```text
//! onbeat-store.json           what this is
//! objects/ab/ab12...          files, named by the SHA-256 of their bytes: models, files of traces, lists of these
//! index/12ab....parquet       what is in the store: a row for each run of each model and trace; parts, only added
//! tables/callbacks/ab12....parquet    figures of the model ab12...; also edges, chains
//! merges/ab/ab12...           merges that were made before, named by what they were made of
//! ```
//!
//! Every name is made of fixed words and digits: nothing that a recording says becomes a path. A file is
//! there whole or not at all, and one that has a name never changes, so writers need not know of one another.
//! The functions wait for disks and networks and allocate: none is for real-time paths.

mod backend;
mod columns;
mod error;
mod files;
mod guard;
mod id;
mod index;
mod merge;
mod put;
mod query;
mod store;
mod tables;
mod upkeep;

pub use error::StoreError;
pub use files::{get, Got};
pub use id::Id;
pub use index::{decode, encode, Kind, Row};
pub use merge::{merge, Merged};
#[doc(hidden)]
pub use put::put_by;
pub use put::{put, Put};
pub use query::{Found, Query};
pub use store::{Index, Store, Variables};
pub use upkeep::{check, tidy, Checked, Tidied};
