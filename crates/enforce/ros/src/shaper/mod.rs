//! The shaper process: takes items from held topics, and publishes each one when there is *data AND
//! slot*.
//!
//! Each output has two threads. The receiver waits for the middleware and takes items as they
//! arrive, at any priority. The sender sleeps until a slot begins, or within a slot until an item
//! arrives, and publishes it. It has the server's CPU and priority. Items move between them through
//! two lock-free rings, one for filled items and one for empty ones. Nothing is allocated on the
//! way, and only the middleware copies an item's bytes. The main thread finds publishers of held
//! topics and watches the owner.

mod error;
mod offers;
mod receiver;
mod sender;
mod shared;
mod threads;

pub use error::ShaperError;
use shared::Shared;

use crate::config::Config;
use crate::page::MAX_OUTPUTS;
use crate::process;
use crate::rcl::{Node, Rcl};
use onbeat_flow::thread;
use onbeat_time::clock::monotonic_ns;
use shared::Slots;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use threads::Running;

/// The name of the ROS 2 node under which the shaper runs.
pub const NODE: &str = "onbeat_shaper";
/// The longest time between two reads of the page by a waiting thread, in ns. A change of the page
/// takes effect within this time.
pub const POLL_NS: u64 = 50_000_000;
/// The time in ns after which a shaper without an owner ends, if its held topics have no publisher
/// during all of this time.
pub const ORPHAN_NS: u64 = 5_000_000_000;
const RECEIVE_DEPTH: usize = 1000;
const TICK_NS: u64 = 100_000_000;
const SEARCH_TICK_NS: u64 = 20_000_000;

/// The reason why a shaper ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// A signal asked the shaper to end, and it has passed on all items.
    Asked,
    /// No process needs the shaper any more: all held topics lost their publishers, and the owner
    /// is dead or has stopped shaping.
    Orphaned,
}

/// Shapes until SIGTERM asks the shaper to end, or until no process needs it any more. Without an
/// owner, SIGINT has the same effect as SIGTERM. The caller must be the only code in its process:
/// `run` blocks these signals, locks memory and starts ROS 2.
///
/// # Errors
///
/// Returns a [`ShaperError`] if the configuration is invalid, ROS 2 fails, or a thread ends.
pub fn run(config: &Config) -> Result<Ended, ShaperError> {
    if config.outputs.is_empty() || config.outputs.len() > MAX_OUTPUTS {
        return Err(ShaperError::Outputs(config.outputs.len()));
    }
    for o in &config.outputs {
        let fits = |n: usize| (1..=100_000).contains(&n);
        if o.topic == o.held_topic || !fits(o.capacity) || !fits(o.depth) {
            return Err(ShaperError::Output {
                topic: o.topic.clone(),
                held: o.held_topic.clone(),
            });
        }
    }
    let owned = config.page_fd.is_some() || config.report_fd.is_some();
    // The signals are blocked before any thread starts, so that all threads inherit it.
    process::block_signals();
    let shared = Arc::new(Shared::new(config)?);
    // Only used memory is locked, because the middleware's threads have large stacks.
    process::lock_memory();
    // The middleware's threads inherit these options.
    thread::apply(&threads::options(
        "onbeat-shaper",
        config.middleware.as_ref(),
    ))?;
    let rcl = Rcl::load(&config.rcl, &config.folders)?;
    let mut shaper = Shaper {
        config,
        shared,
        node: Node::new(rcl, NODE)?,
        running: config.outputs.iter().map(|_| None).collect(),
        owned,
    };
    let result = shaper.watch();
    shaper.shared.ending.store(true, Ordering::Relaxed);
    let ended: Vec<_> = shaper
        .running
        .into_iter()
        .flatten()
        .map(Running::join)
        .collect();
    let failed = ended.into_iter().find_map(Result::err);
    match (result, failed) {
        // The thread's own error says more than the error that it ended.
        (Err(ShaperError::Worker { .. }) | Ok(_), Some(e)) => Err(e),
        (result, _) => result,
    }
}

struct Shaper<'c> {
    config: &'c Config,
    shared: Arc<Shared>,
    node: Arc<Node>,
    /// The threads of each output. An entry is `None` until the held topic has a publisher.
    running: Vec<Option<Running>>,
    /// Whether an owner exists: another process writes the page or reads the reports.
    owned: bool,
}

impl Shaper<'_> {
    fn watch(&mut self) -> Result<Ended, ShaperError> {
        let mut seen_ns = monotonic_ns();
        loop {
            if self.config.application_fd.is_some_and(process::has_ended) {
                return Ok(Ended::Orphaned);
            }
            self.start_found()?;
            let searching = self.running.iter().any(Option::is_none);
            let tick = if searching { SEARCH_TICK_NS } else { TICK_NS };
            match process::wait_for_signal(tick) {
                Some(libc::SIGTERM) => return Ok(Ended::Asked),
                Some(_) if !self.owned => return Ok(Ended::Asked),
                _ => {}
            }
            if let Some(output) = self.running.iter().flatten().find(|o| o.has_ended()) {
                return Err(ShaperError::Worker {
                    topic: output.topic.clone(),
                    reason: "a thread ended".into(),
                });
            }
            let now_ns = monotonic_ns();
            if !self.passes(now_ns) || self.has_publishers()? {
                seen_ns = now_ns;
            } else if now_ns.saturating_sub(seen_ns) > ORPHAN_NS {
                return Ok(Ended::Orphaned);
            }
        }
    }

    fn start_found(&mut self) -> Result<(), ShaperError> {
        let config = self.config;
        for (i, (running, output)) in self.running.iter_mut().zip(&config.outputs).enumerate() {
            if running.is_some() {
                continue;
            }
            if let Some((type_name, offered)) = offers::find(&self.node, &output.held_topic)? {
                *running = Some(Running::start(
                    &self.shared,
                    &self.node,
                    (i, output),
                    config.middleware.as_ref(),
                    (&type_name, offered),
                )?);
            }
        }
        Ok(())
    }

    /// Reports whether items pass at once. Items pass at once if the owner is dead, if the owner
    /// requested it, or if shaping was stopped. Wakes up the senders if the answer has changed.
    fn passes(&self, now_ns: u64) -> bool {
        let orphan = self.shared.reporter.owner_is_gone()
            || match &self.shared.slots {
                Slots::Page(page) => page.passes(now_ns, self.config.silence_ns),
                Slots::Fixed(_) => false,
            };
        if self.shared.passing.swap(orphan, Ordering::Relaxed) != orphan {
            self.running.iter().flatten().for_each(Running::notify);
        }
        orphan || self.shared.stopped.load(Ordering::Relaxed)
    }

    fn has_publishers(&self) -> Result<bool, ShaperError> {
        for output in &self.config.outputs {
            if self.node.publishers(&output.held_topic)? > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
