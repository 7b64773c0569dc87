//! The C and C++ interface of `onbeat-flow` and `onbeat-link`: channels, tasks and links behind one
//! header, `include/onbeat.h`. A test compares the header with these sources.
//!
//! **Rules for every function.** It returns an [`OnbeatCode`]. It refuses null pointers, wrong
//! lengths and numbers without a meaning, with a code. No panic passes to C. A handle has a mark
//! while it is in use. So a second thread, or a callback that calls back, is refused instead of
//! racing. Two mistakes in C remain possible: using a handle after closing it, and passing a
//! pointer to memory that is not valid.
//!
//! **Real-time.** Sending and receiving allocate nothing and take no lock beyond those of the
//! crates below. They cost one more atomic exchange for the handle. The functions with callbacks
//! save a copy.
//!
//! Each module uses those above it only:
//!
//! | module | job |
//! |---|---|
//! | `error` | codes, texts, no panics |
//! | `handle` | opaque handles that one thread uses at a time |
//! | `arguments` | pointers, texts and deadlines from C |
//! | `channel` | channels and their options |
//! | `ends` | producers and consumers of channels |
//! | `tasks` | tasks on one thread |
//! | `link` | keys, ends, links |
//! | `halves` | sending to and receiving from a peer |

mod arguments;
mod channel;
mod ends;
mod error;
mod halves;
mod handle;
mod link;
mod tasks;

pub use arguments::*;
pub use channel::*;
pub use ends::*;
pub use error::{onbeat_code_text, onbeat_last_error, OnbeatCode};
pub use halves::*;
pub use link::*;
pub use tasks::*;
