//! Stores traces and models of many runs in a directory or an object store (thesis section 3.6,
//! Figure 3.7).
//!
//! The crate lists the content of a store, finds objects that fit a query, and merges models
//! incrementally.
//!
//! ```text
//! onbeat-store.json           the format of the store
//! objects/ab/ab12...          files, named by the SHA-256 of their bytes: models, files of traces, lists of these
//! index/12ab....parquet       the content of the store: a row for each run of each object; parts are only added
//! tables/callbacks/ab12....parquet    figures of the model ab12...; also edges, chains
//! merges/ab/ab12...           earlier merges, named by the models that they contain
//! ```
//!
//! All names consist of fixed words and digits, so no text from a recording becomes a path. A file
//! appears complete or not at all, and never changes afterwards. Writers therefore need not know of
//! each other.
//!
//! The functions wait for disks and networks, and allocate. Do not call them on real-time paths.

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
