//! `onbeat-flow` and `onbeat-link` for C and C++: channels, tasks and links behind one header,
//! `include/onbeat.h`, which a test compares with these sources.
//!
//! **What holds for every function.** It returns an [`OnbeatCode`]. Null pointers, wrong lengths and
//! numbers without a meaning are refused by code. No panic passes to C. A handle has a mark that it
//! is in use, so that a second thread, or a callback that calls back, is refused instead of racing.
//! What C alone can get wrong is a handle that was closed, and a pointer that leads nowhere.
//!
//! **Real-time.** Sending and receiving allocate nothing and take no lock beyond those of the crates
//! below: one atomic exchange more for the handle, and two copies less with the callbacks.
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
//! | `link` | keys, ways to a peer, links |
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
