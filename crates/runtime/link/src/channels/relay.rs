//! A relay between a channel of this host and one of another host.

use super::control::{Control, HostState, Hosts};
use super::error::LinksError;
use super::terms::{Direction, Terms};
use super::{receiving, sending};
use crate::helper;
use crate::interface::{Backend, Memory};
use onbeat_flow::events::LinkId;
use onbeat_flow::Channel;
use std::sync::Arc;
use std::thread::JoinHandle;

/// A relay between a channel of this host and one of another host. Dropping the relay ends it.
/// Items that were sent before are still delivered if the other host takes them within 10 s.
#[derive(Debug)]
pub struct Relay {
    control: Arc<Control>,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    pub(super) fn start(
        backend: &dyn Backend,
        channel: &Channel,
        terms: &Terms,
        hosts: &Arc<Hosts>,
        deadline_ns: u64,
    ) -> Result<Relay, LinksError> {
        let setup = |reason| LinksError::Setup {
            channel: terms.name.clone(),
            reason,
        };
        let failed = |reason: String| LinksError::Relay {
            channel: terms.name.clone(),
            reason,
        };
        let halves = backend.initialize(terms.sizes(), Memory::Allot, Some(deadline_ns));
        let mut halves = halves.map_err(setup)?;
        // A recorder sees the messages as items of the channel, which both hosts know by the same
        // number.
        let (sent, received) = (halves.0.unseen(), halves.1.unseen());
        let link = match terms.direction {
            Direction::Sending => sent,
            Direction::Receiving => received,
        };
        if let Some(link) = link {
            let link = LinkId::new(link.number, &terms.name);
            let _ = channel.clone().known_as(link);
        }
        terms.exchange_and_compare(&mut halves, deadline_ns)?;
        let page = halves.0.page();
        let control = Arc::new(Control::new(channel.progress(), Arc::clone(hosts), page));
        let mut relay = Relay {
            control,
            threads: Vec::new(),
        };
        let (out, incoming) = halves;
        let outer = channel.clone();
        match terms.direction {
            Direction::Sending => relay
                .run("link-out", move |c| sending::send_items(&outer, out, c))
                .and_then(|()| {
                    relay.run("link-in", move |c| sending::receive_reports(incoming, c))
                }),
            Direction::Receiving => {
                let mut producer = channel.producer().map_err(|e| failed(e.to_string()))?;
                producer.set_unseen();
                relay
                    .run("link-in", move |c| {
                        receiving::receive_items(producer, incoming, c)
                    })
                    .and_then(|()| {
                        relay.run("link-out", move |c| receiving::send_reports(&outer, out, c))
                    })
            }
        }
        .map_err(|e| failed(e.to_string()))?;
        Ok(relay)
    }

    pub(super) fn state(&self) -> HostState {
        self.control.state()
    }

    pub(super) fn lost(&self) -> u64 {
        self.control.lost()
    }

    fn run(
        &mut self,
        name: &str,
        work: impl FnOnce(&Control) + Send + 'static,
    ) -> std::io::Result<()> {
        let control = Arc::clone(&self.control);
        self.threads
            .push(helper::start(name, move || work(&control))?);
        Ok(())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.control.stop();
        for thread in self.threads.drain(..) {
            // A thread that panicked needs no clean-up.
            let _ = thread.join();
        }
    }
}
