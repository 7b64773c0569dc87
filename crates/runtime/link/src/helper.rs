//! Starts the threads that work for a link. The caller waits until the thread runs, because a
//! starting thread allocates memory. A link that is connected to its peer must not allocate.

use std::io::Result;
use std::sync::mpsc::sync_channel;
use std::thread::{Builder, JoinHandle};

/// Starts a thread that works for a link. `name` has at most 15 bytes.
pub(crate) fn start(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let (running, runs) = sync_channel(1);
    let thread = Builder::new().name(name.into()).spawn(move || {
        let _ = running.send(());
        drop(running);
        run();
    })?;
    // An error means that the thread has ended already.
    let _ = runs.recv();
    Ok(thread)
}
