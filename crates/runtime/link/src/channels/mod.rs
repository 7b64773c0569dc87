//! Channels of `onbeat-flow` between hosts: [`Links`] is a [`Medium`] over any backend of
//! [`crate::interface`].
//!
//! Each host has a channel of its own. A *relay* connects the two: an item that is sent into the
//! sending host's channel comes out of the receiving host's, once, for all consumers there. So a
//! task receives what came over a link like any other input: as data, in its slots, by *all* or
//! *any*, on the thread and with the priority that its executor gives it.
//!
//! **Credits** are end to end. With [`Policy::Credit`] the relay keeps an item at the sending host
//! until all consumers of the receiving host have *consumed* it, so that the producer there waits
//! for the slowest consumer here. With the other policies nobody waits: an item takes the link when
//! the link has room, and what was replaced meanwhile is a gap in the numbers of the items.
//! [`Policy::Swap`] is refused.
//!
//! **When the link ends.** A peer that closes is a regular end of its producer or consumers. A link
//! that broke, or was not resumed in time, *severs* both channels: receiving returns
//! [`onbeat_flow::ReceiveError::Severed`] after the last item, and sending
//! [`onbeat_flow::SendError::Severed`].
//!
//! **Costs.** Two threads on each host per channel, and a connection per channel. The payload is
//! copied once on each host, between the channel's slot and the link's. `shm://` has neither: both
//! processes use one channel.
//!
//! **Time.** [`onbeat_flow::Item::sent_ns`] is when the item came to this host, on this host's
//! clock.
//!
//! Each module uses those above it only:
//!
//! | module | job |
//! |---|---|
//! | `error` | why there is no channel between hosts |
//! | `place` | where the other host is |
//! | `message` | what a relay's messages mean |
//! | `terms` | what both hosts must agree on |
//! | `control` | what a relay's threads share |
//! | `sending`, `receiving` | a relay's threads on the two hosts |
//! | `relay` | a relay: set up, stopped |
//! | this one | channels by name |

mod control;
mod error;
mod message;
mod place;
mod receiving;
mod relay;
mod sending;
mod terms;

use crate::interface::Backend;
use onbeat_flow::clock::now_ns;
use onbeat_flow::{Channel, Medium, Options};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

pub use error::{LinksError, PlaceError};
pub use place::Place;
pub use relay::Relay;
pub use terms::Direction;

/// What makes the backend of the channel of this name, which is the so-manyth one.
type Connector = Box<dyn Fn(&str, u16) -> Result<Box<dyn Backend>, LinksError> + Send + Sync>;

/// A channel that was asked for.
struct Opened {
    /// The options as they were given.
    options: Options,
    channel: Channel,
    /// None if the channel itself reaches the other host.
    _relay: Option<Relay>,
}

/// Channels from this host to another, or from another to this one.
///
/// Both hosts ask for the same channels in the same order. Dropping this value ends the channels:
/// what was sent still leaves, if the other host takes it.
pub struct Links {
    direction: Direction,
    connector: Connector,
    /// The processes of one machine need no relays.
    machine: Option<crate::Machine>,
    within: Duration,
    opened: Mutex<HashMap<String, Opened>>,
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<String> = self.lock().keys().cloned().collect();
        write!(f, "Links, {}: {names:?}", self.direction)
    }
}

impl Links {
    /// Channels whose producers are on this host. It listens at `place`: see [`Place`].
    ///
    /// # Errors
    /// The place is none, or its key file cannot be read.
    pub fn sending(place: &str) -> Result<Links, LinksError> {
        Links::at(place, Direction::Sending)
    }

    /// Channels whose consumers are on this host. It connects to `place`, where the sending host
    /// listens.
    ///
    /// # Errors
    /// The place is none, or its key file cannot be read.
    pub fn receiving(place: &str) -> Result<Links, LinksError> {
        Links::at(place, Direction::Receiving)
    }

    /// Channels over backends of your own making: `connector` gets a channel's name and its number,
    /// from 0.
    pub fn over(
        direction: Direction,
        connector: impl Fn(&str, u16) -> Result<Box<dyn Backend>, LinksError> + Send + Sync + 'static,
    ) -> Links {
        Links {
            direction,
            connector: Box::new(connector),
            machine: None,
            within: Duration::from_secs(30),
            opened: Mutex::default(),
        }
    }

    /// How long [`Medium::channel`] waits for the other host to ask for the same channel; 30 s by
    /// default.
    pub fn wait_for_peer(mut self, time: Duration) -> Links {
        self.within = time;
        self
    }

    fn at(place: &str, direction: Direction) -> Result<Links, LinksError> {
        let place: Place = place.parse()?;
        let machine = place.machine();
        let ends = place.ends(direction)?;
        let links = Links::over(direction, move |_, number| ends.backend(number));
        Ok(Links { machine, ..links })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Opened>> {
        self.opened.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn open(&self, name: &str, number: usize, options: Options) -> Result<Opened, LinksError> {
        if let Some(machine) = &self.machine {
            let channel = machine.channel(name, options)?;
            return Ok(Opened {
                options,
                channel,
                _relay: None,
            });
        }
        let number = u16::try_from(number).map_err(|_| LinksError::TooMany)?;
        let channel = self.direction.local(name, options)?;
        let backend = (self.connector)(name, number)?;
        let deadline_ns = now_ns().saturating_add(self.within.as_nanos() as u64);
        let terms = terms::Terms::new(name, self.direction, options);
        let relay = Relay::start(&*backend, &channel, &terms, deadline_ns)?;
        Ok(Opened {
            options,
            channel,
            _relay: Some(relay),
        })
    }
}

impl Medium for Links {
    type Error = LinksError;

    /// The channel of that name; waits until the other host has asked for it too. `expected` counts
    /// consumers at the receiving host.
    fn channel(&self, name: &str, options: Options) -> Result<Channel, LinksError> {
        let mut opened = self.lock();
        if let Some(before) = opened.get(name) {
            if before.options != options {
                return Err(LinksError::Opened {
                    channel: name.into(),
                    before: Box::new(before.options),
                });
            }
            return Ok(before.channel.clone());
        }
        let channel = self.open(name, opened.len(), options)?;
        let local = channel.channel.clone();
        opened.insert(name.into(), channel);
        Ok(local)
    }
}
