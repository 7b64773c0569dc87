//! Threads that work for a link. Whoever starts one waits until it runs: a thread's start takes memory,
//! and a link that has met its peer must take none.

use std::io::Result;
use std::sync::mpsc::sync_channel;
use std::thread::{Builder, JoinHandle};

/// Starts a thread and returns when it runs. `name` has at most 15 bytes.
///
/// # Errors
/// The kernel gives no thread.
pub(crate) fn start(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let (running, runs) = sync_channel(1);
    let thread = Builder::new().name(name.into()).spawn(move || {
        let _ = running.send(());
        drop(running);
        run();
    })?;
    // An error says that the thread is over already.
    let _ = runs.recv();
    Ok(thread)
}
