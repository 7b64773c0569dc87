//! The memory that channels lie in, and the atomics that everything here uses.
//!
//! Each module uses those above it only:
//!
//! | module | job |
//! |---|---|
//! | `atomics` | the machine's atomics, or loom's |
//! | `region` | where the bytes come from, and who takes part |
//! | `words` | checked access to words and payloads of a region |

pub(crate) mod atomics;
pub mod region;
mod words;

pub(crate) use words::Memory;
