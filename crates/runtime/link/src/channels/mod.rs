//! Channels of `onbeat-flow` between hosts: [`Links`] is a [`Medium`] over any backend of
//! [`crate::interface`].
//!
//! Each host has a separate channel. A *relay* connects the two: an item that is sent into the
//! sending host's channel comes out of the receiving host's, once, for all consumers there. So a
//! task gets items from a link like any other input: as data, in its slots, by *all* or *any*, on
//! the thread and with the priority that its executor gives it.
//!
//! **Priorities.** A channel's priority ([`Links::priority`]) holds at both ends. At the sending
//! host it is the priority of the connection on a port ([`Links::on_port`]): between chunks the
//! most urgent goes first. At the receiving host it is the priority of the channel's receive tasks
//! ([`Priorities::receive`](onbeat_flow::priority::Priorities::receive)). Items are handed over one
//! by one, the most urgent first, and among equals in the order of arrival. The relays' own threads
//! only put items into channels. The order in which these threads wake up does not matter.
//!
//! ```no_run
//! # use onbeat_flow::{priority::Priorities, task::TaskResult, thread::ThreadOptions};
//! # use onbeat_flow::{Medium, Options, Policy};
//! # use onbeat_link::Links;
//! let links = Links::receiving("tcp://10.0.0.2:7400?key=link.key")?.priority("stop", 200);
//! let options = Options::new(Policy::Credit { credits: 4 }, 64);
//! let mut tasks = Priorities::new("fusion", vec![ThreadOptions::new("receive")]);
//! for name in ["scans", "stop"] {
//!     let channel = links.channel(name, options)?;
//!     tasks.receive(0, links.priority_of(name).into(), name, &channel, move |item| {
//!         println!("{name}: {} bytes", item.len());
//!         TaskResult::Nothing
//!     })?;
//! }
//! let mut running = tasks.start()?;
//! # running.stop()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Credits** are end to end. With [`Policy::Credit`](onbeat_flow::Policy::Credit) the relay keeps
//! an item at the sending host until all consumers of the receiving host have *consumed* it. So the
//! producer waits for the slowest consumer on the other host. With the other policies the producer
//! does not wait. An item takes the link when the link has room, and replaced items leave gaps in
//! the numbers. [`Policy::Swap`](onbeat_flow::Policy::Swap) is refused.
//!
//! **Several receiving hosts** ([`Links::and_to`]): each host has a separate transfer and separate
//! relays. The slowest host sets the pace of a lossless channel. A host whose link broke does not
//! delay the others any more. The producer's channel is severed with the last host.
//! [`Links::hosts`] returns the state of each.
//!
//! **Lost items** of the policies without waiting are counted where they are replaced. The sending
//! host counts those replaced before they leave ([`HostStatus::lost`], at both hosts, and in
//! `onbeat link status`). At the receiving host each consumer counts its own. The sum is the number
//! of gaps that a consumer sees.
//!
//! **When the link ends.** A peer that closes is a regular end of its producer or consumers. A link
//! that broke, or was not resumed in time, *severs* both channels: receiving returns
//! [`onbeat_flow::ReceiveError::Severed`] after the last item, and sending
//! [`onbeat_flow::SendError::Severed`].
//!
//! **Costs.** Each channel has a connection, and two threads on each host. Each host copies the
//! payload once, between the channel's slot and the link's. With `shm://` there are neither threads
//! nor copies: both processes use one channel.
//!
//! **Time.** [`onbeat_flow::Item::sent_ns`] is the time at which the item came to this host, on
//! this host's clock.
//!
//! Each module uses those above it only:
//!
//! | module | job |
//! |---|---|
//! | `error` | errors of channels between hosts |
//! | `place` | addresses of links |
//! | `message` | messages between relays |
//! | `terms` | the terms that both hosts must agree on |
//! | `control` | the state that a relay's threads share |
//! | `sending`, `receiving` | a relay's threads on the two hosts |
//! | `relay` | starting and stopping a relay |
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
use crate::port::Port;
use onbeat_flow::clock::now_ns;
use onbeat_flow::{Channel, Medium, Options};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use control::Hosts;
use place::{Backends, Egress};

pub use control::HostState;
pub use error::{LinksError, PlaceError};
pub use place::Place;
pub use relay::Relay;
pub use terms::Direction;

type Connector = Box<dyn Fn(&str, u16) -> Result<Box<dyn Backend>, LinksError> + Send + Sync>;

enum Route {
    Place(Backends),
    Custom(Connector),
}

impl Route {
    fn backend(
        &self,
        name: &str,
        number: u16,
        egress: Egress<'_>,
    ) -> Result<Box<dyn Backend>, LinksError> {
        match self {
            Route::Place(backends) => backends.backend(number, egress),
            Route::Custom(_) if egress.is_in_chunks() => Err(PlaceError::NoPort.into()),
            Route::Custom(connector) => connector(name, number),
        }
    }
}

struct OpenChannel {
    requested_options: Options,
    channel: Channel,
    /// One relay to each other host. Empty if the producer and the consumers share one channel in
    /// memory.
    relays: Vec<Relay>,
}

/// The state of a channel's connection to another host.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostStatus {
    pub state: HostState,
    /// The number of items that newer items replaced before they left the sending host, as the
    /// channel's policy allows. Items that a slow consumer at the receiving host has missed count
    /// in [`onbeat_flow::ConsumerStats::dropped`] instead. The sum of both counts is the number of
    /// items that this consumer misses.
    pub lost: u64,
}

/// A set of channels from this host to another, or from another to this one.
///
/// Both hosts open the same channels in the same order. Dropping this value ends the channels.
/// Items that were sent still leave if the other host takes them.
pub struct Links {
    direction: Direction,
    routes: Vec<Route>,
    priorities: HashMap<String, u8>,
    port: Option<Port>,
    chunk: Option<usize>,
    machine: Option<crate::Machine>,
    peer_wait: Duration,
    opened: Mutex<HashMap<String, OpenChannel>>,
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<String> = self.lock().keys().cloned().collect();
        write!(f, "Links, {}: {names:?}", self.direction)
    }
}

impl Links {
    /// Makes channels whose producers are on this host. This host listens at `place`; see
    /// [`Place`].
    ///
    /// # Errors
    /// `place` is not the address of a link, or its key file cannot be read.
    pub fn sending(place: &str) -> Result<Links, LinksError> {
        Links::at(place, Direction::Sending)
    }

    /// Makes channels whose consumers are on this host. This host connects to `place`, where the
    /// sending host listens.
    ///
    /// # Errors
    /// `place` is not the address of a link, or its key file cannot be read.
    pub fn receiving(place: &str) -> Result<Links, LinksError> {
        Links::at(place, Direction::Receiving)
    }

    /// Makes channels over backends that the caller provides. `connector` gets a channel's name and
    /// its number, counted from 0.
    pub fn over(
        direction: Direction,
        connector: impl Fn(&str, u16) -> Result<Box<dyn Backend>, LinksError> + Send + Sync + 'static,
    ) -> Links {
        Links::of(direction, Route::Custom(Box::new(connector)))
    }

    fn of(direction: Direction, route: Route) -> Links {
        Links {
            direction,
            routes: vec![route],
            priorities: HashMap::new(),
            port: None,
            chunk: None,
            machine: None,
            peer_wait: Duration::from_secs(30),
            opened: Mutex::default(),
        }
    }

    /// Sets the priority of a channel; 0 by default. Larger numbers are more urgent. Both hosts
    /// must set the same priority. At the sending host the priority orders the channel's chunks on
    /// the port. At the receiving host, give the receive tasks the same priority
    /// ([`Links::priority_of`]).
    pub fn priority(mut self, channel: &str, priority: u8) -> Links {
        self.priorities.insert(channel.into(), priority);
        self
    }

    /// Returns the priority of a channel, for a receive task:
    /// [`Priorities::receive`](onbeat_flow::priority::Priorities::receive).
    pub fn priority_of(&self, channel: &str) -> u8 {
        self.priorities.get(channel).copied().unwrap_or(0)
    }

    /// Sends the channels over `tcp://` and `verbs://` through this port, each with its priority.
    /// The other host needs a port with chunks of the same size, or [`Links::chunk_bytes`].
    pub fn on_port(mut self, port: &Port) -> Links {
        self.port = Some(port.clone());
        self
    }

    /// Sets the chunk size of channels over `tcp://` and `verbs://` for a host without a port.
    /// `bytes` must equal the chunk size of the other host's port
    /// ([`Settings::chunk`](crate::port::Settings::chunk)).
    pub fn chunk_bytes(mut self, bytes: usize) -> Links {
        self.chunk = Some(bytes);
        self
    }

    /// Sends the same channels to one more host. That host connects to `place`, an address of this
    /// host with separate port numbers. onbeat sends each item once to each host, regardless of the
    /// number of consumers there.
    ///
    /// # Errors
    /// `place` is not the address of a link, or its key file cannot be read. This host receives the
    /// channels instead of sending them. One of the addresses is `shm://`, which already reaches all
    /// processes of this machine.
    pub fn and_to(mut self, place: &str) -> Result<Links, LinksError> {
        let place: Place = place.parse()?;
        let is_machine = self.machine.is_some() || place.machine().is_some();
        if self.direction == Direction::Receiving || is_machine {
            return Err(PlaceError::SecondHost.into());
        }
        self.routes
            .push(Route::Place(place.backends(self.direction)?));
        Ok(self)
    }

    /// Sends the same channels to one more host like [`Links::and_to`], over custom backends
    /// ([`Links::over`]).
    ///
    /// # Errors
    /// The errors of [`Links::and_to`].
    pub fn and_over(
        mut self,
        connector: impl Fn(&str, u16) -> Result<Box<dyn Backend>, LinksError> + Send + Sync + 'static,
    ) -> Result<Links, LinksError> {
        if self.direction == Direction::Receiving || self.machine.is_some() {
            return Err(PlaceError::SecondHost.into());
        }
        self.routes.push(Route::Custom(Box::new(connector)));
        Ok(self)
    }

    /// Returns the state of an open channel's connection to each other host, in the order in which
    /// the hosts were added. Empty for `shm://`.
    pub fn hosts(&self, channel: &str) -> Vec<HostStatus> {
        let opened = self.lock();
        let relays = opened.get(channel).into_iter().flat_map(|o| &o.relays);
        let status = |relay: &Relay| HostStatus {
            state: relay.state(),
            lost: relay.lost(),
        };
        relays.map(status).collect()
    }

    /// Sets how long [`Medium::channel`] waits until the other host opens the same channel; 30 s by
    /// default.
    pub fn wait_for_peer(mut self, time: Duration) -> Links {
        self.peer_wait = time;
        self
    }

    fn at(place: &str, direction: Direction) -> Result<Links, LinksError> {
        let place: Place = place.parse()?;
        let machine = place.machine();
        let backends = place.backends(direction)?;
        let links = Links::of(direction, Route::Place(backends));
        Ok(Links { machine, ..links })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, OpenChannel>> {
        self.opened.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn open(&self, name: &str, number: usize, options: Options) -> Result<OpenChannel, LinksError> {
        let priority = self.priority_of(name);
        let egress = Egress {
            priority,
            port: self.port.as_ref(),
            chunk: self.chunk,
        };
        if let Some(machine) = &self.machine {
            if egress.is_in_chunks() {
                return Err(PlaceError::NoPort.into());
            }
            let channel = machine.channel(name, options)?;
            return Ok(OpenChannel {
                requested_options: options,
                channel,
                relays: Vec::new(),
            });
        }
        let number = u16::try_from(number).map_err(|_| LinksError::TooMany)?;
        let channel = self
            .direction
            .local_channel(name, options, self.routes.len())?;
        // All ends listen before the first of them waits for its peer.
        let backends = self.routes.iter();
        let backends = backends.map(|route| route.backend(name, number, egress));
        let backends = backends.collect::<Result<Vec<_>, _>>()?;
        let deadline_ns = now_ns().saturating_add(self.peer_wait.as_nanos() as u64);
        let terms = terms::Terms::new(name, self.direction, priority, options);
        let hosts = Hosts::new(backends.len());
        let relays = backends.iter();
        let relays =
            relays.map(|backend| Relay::start(&**backend, &channel, &terms, &hosts, deadline_ns));
        let relays = relays.collect::<Result<Vec<_>, _>>()?;
        Ok(OpenChannel {
            requested_options: options,
            channel,
            relays,
        })
    }
}

impl Medium for Links {
    type Error = LinksError;

    /// Opens the channel of that name. Waits until each other host has opened the channel too.
    /// `expected` is the number of consumers at each receiving host.
    fn channel(&self, name: &str, options: Options) -> Result<Channel, LinksError> {
        let mut opened = self.lock();
        if let Some(before) = opened.get(name) {
            if before.requested_options != options {
                return Err(LinksError::Opened {
                    channel: name.into(),
                    before: Box::new(before.requested_options),
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
