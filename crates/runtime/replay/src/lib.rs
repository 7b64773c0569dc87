//! Plays recorded traffic again: no item is lost, and each item leaves at its recorded time
//! (Konheiser et al., Figure 1). Sources read recordings and sinks play them. Network calculus
//! gives the size of the buffer between them.
//!
//! ```text
//! Source -> Chain -> loader thread -> buffer (credits) -> player thread -> Sink
//!           filters  time-sharing     locked memory       SCHED_FIFO       device under test
//! ```
//!
//! | module | job |
//! |---|---|
//! | [`item`] | streams, items, the trait of sources |
//! | [`source`] | readers of recordings |
//! | [`writer`] | writers of recordings, for conversions |
//! | [`database`] | names of CAN messages from DBC files |
//! | [`contents`] | what a recording has |
//! | [`bus`] | the load of CAN buses, and the state of CAN interfaces |
//! | [`chain`] | which items, under which names, how often |
//! | [`curves`] | bounds of buffers by network calculus |
//! | [`requests`] | service events, whose requests can be sent again |
//! | [`sizing`] | the size of the buffer, from curves |
//! | [`remote`] | a recording from one host to another |
//! | [`sink`] | the trait of sinks, and those of the kernel's devices |
//! | [`route`] | which sink plays which stream |
//! | [`control`] | requests to a running replay, and how far it is |
//! | `memory` | memory that stays in memory |
//! | `buffer` | the playback buffer: blocks of a channel |
//! | `loader`, `player` | its two ends |
//! | `interface` | sockets of network interfaces |
//! | `pattern` | names with `*` |
//! | `pace` | the axis of time, sleeping |
//! | [`ledger`] | lateness of every output |
//! | [`session`] | the threads, from start to figures |
//! | [`observe`] | what the device publishes during a replay |
//! | [`definition`] | definitions of message types |
//! | [`compare`] | what the device published, held against a recording |
//! | [`picture`] | lateness over time as SVG and HTML |

mod buffer;
pub mod bus;
pub mod chain;
pub mod compare;
pub mod contents;
pub mod control;
pub mod curves;
pub mod database;
pub mod definition;
mod interface;
pub mod item;
pub mod ledger;
mod loader;
mod memory;
pub mod observe;
mod pace;
mod pattern;
pub mod picture;
mod player;
pub mod remote;
pub mod requests;
pub mod route;
pub mod session;
pub mod sink;
pub mod sizing;
pub mod source;
#[cfg(test)]
mod testing;
pub mod writer;

pub use buffer::LEAST_BYTES;
pub use player::Pace;
