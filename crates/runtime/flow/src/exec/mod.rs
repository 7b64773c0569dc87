//! Executors: what activates a task, and threads that run tasks.

pub mod activation;
pub mod chain;
pub mod graph;
pub(crate) mod pool;
pub mod priority;
pub mod probe;
pub mod task;
pub mod thread;
