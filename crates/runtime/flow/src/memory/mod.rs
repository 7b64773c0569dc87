//! The memory that holds channels, and the atomics that the whole crate uses.
//!
//! Each module uses those above it only:
//!
//! | module | job |
//! |---|---|
//! | `atomics` | the machine's atomics, or loom's |
//! | `region` | the bytes of a channel, and the places of its participants |
//! | `words` | checked access to words and payloads of a region |

pub(crate) mod atomics;
pub mod region;
mod words;

pub(crate) use words::Memory;
