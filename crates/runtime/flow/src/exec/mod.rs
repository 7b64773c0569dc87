//! Executors: when a task runs, and the threads that run it.
//!
//! Each module uses those above it only:
//!
//! | module | job |
//! |---|---|
//! | `timer` | one-shot timers |
//! | `schedule` | time as an input: periods, slots, one-shot timers |
//! | `activation` | decides when a task is ready |
//! | `probe` | shows tasks to `onbeat record` |
//! | `options` | how a task is activated and watched |
//! | `execution` | one task's activation, executions and counters |
//! | `task` | a task with its code and state |
//! | `thread` | policy, priority, CPUs and memory of a thread |
//! | `dot` | drawings for graphviz |
//! | `chain` | executor: one thread, fixed order |
//! | `program` | tasks and connections before they are on threads |
//! | `edge` | a connection between two threads |
//! | `state` | the state that the threads of an executor share |
//! | `worker` | one thread's tasks |
//! | `wiring` | makes workers from a program |
//! | `pool` | starts and stops the threads |
//! | `order` | circles, and list scheduling |
//! | `graph` | executor: several threads, fixed order |
//! | `priority` | executor: several threads, by priority |

pub mod activation;
pub mod chain;
mod dot;
mod edge;
mod execution;
pub mod graph;
mod options;
mod order;
mod pool;
pub mod priority;
pub mod probe;
mod program;
mod schedule;
mod state;
pub mod task;
pub mod thread;
mod timer;
mod wiring;
mod worker;

pub use pool::{Panicked, Running};
pub use program::TaskId;
