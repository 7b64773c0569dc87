//! The receiving thread of an output, which takes items as they arrive.

use super::{ShaperError, Shared, TICK_NS};
use crate::notifier::Notifier;
use crate::rcl::{Holding, Item, Subscription};
use onbeat_time::clock::monotonic_ns;
use rtrb::{Consumer, Producer};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

pub(crate) struct Receiver {
    pub(crate) shared: Arc<Shared>,
    pub(crate) subscription: Subscription,
    pub(crate) holding: Option<Holding>,
    pub(crate) empty: Consumer<Item>,
    pub(crate) filled: Producer<Item>,
    pub(crate) data: Arc<Notifier>,
    pub(crate) space: Arc<Notifier>,
    pub(crate) done: Arc<AtomicBool>,
}

impl Receiver {
    pub(crate) fn run(mut self) -> Result<(), ShaperError> {
        let result = self.receive();
        self.done.store(true, Ordering::Release);
        self.data.notify();
        result
    }

    fn receive(&mut self) -> Result<(), ShaperError> {
        let mut spare: Option<Item> = None;
        loop {
            // The flag is read before waiting, so items that arrived before the end are still
            // taken.
            let last = self.shared.ending.load(Ordering::Relaxed);
            let wait = if last { 0 } else { TICK_NS as i64 };
            self.subscription.wait(wait)?;
            loop {
                let seen = self.space.count();
                let Some(mut item) = spare.take().or_else(|| self.empty.pop().ok()) else {
                    // If the sender has ended, no memory comes back.
                    if self.filled.is_abandoned() {
                        return Ok(());
                    }
                    // All memory is in use. Further items wait in the middleware's history.
                    self.space.wait(seen, monotonic_ns() + TICK_NS);
                    continue;
                };
                if !self.subscription.take(&mut item)? {
                    spare = Some(item);
                    break;
                }
                if let Some(holding) = &self.holding {
                    holding.begin(&item);
                }
                // The ring has a place for each item, so the push cannot fail.
                let _ = self.filled.push(item);
                self.data.notify();
            }
            if last {
                return Ok(());
            }
        }
    }
}
