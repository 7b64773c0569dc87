//! Channels of `onbeat-flow` between processes of one machine, found by name, and links between
//! machines.
//!
//! ```
//! use onbeat_flow::{Options, Policy};
//!
//! // The same line in both processes. The first one creates the channel.
//! # let scans = &format!("doc/{}", std::process::id());
//! let channel = onbeat_link::channel(scans, Options::new(Policy::Credit { credits: 4 }, 64))?;
//! let consumer = channel.consumer()?;
//! channel.producer()?.send(b"ahead")?;
//! assert_eq!(*consumer.receive().expect("it was sent"), *b"ahead");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **What stays behind.** Nothing. The memory has no file. Other processes find it through the
//! descriptors of its participants. The kernel frees it when the last participant ends, in whatever
//! way.
//!
//! **Access.** A process may attach if it has the same user, pid namespace, network namespace and
//! capabilities as the others. A process with more capabilities (for example by `setcap
//! cap_sys_nice`) hides its descriptors from the others, which then create a channel of their own.
//! Grant real-time rights by RLIMIT_RTPRIO instead, or pass descriptors on ([`descriptor`],
//! [`open`]).
//!
//! **Death.** Each participant has a lock on a byte of the memory, which the kernel releases when
//! the process ends. The lock tells a dead participant from a silent one. A participant that waits
//! checks the others' locks every 100 ms. The channel reclaims the payloads of a dead one, and
//! [`onbeat_flow::OnDeath`] says how the others continue. A fork without exec shares the locks of
//! its parent: do not fork participants.
//!
//! **Between machines.** [`interface`] is one interface to links between processes ([`Shm`]) and
//! between machines ([`Tcp`]): messages with credits, and the latest value.
//!
//! Each module uses those above it only:
//!
//! | module | job |
//! |---|---|
//! | `error` | errors of channels between processes |
//! | `name` | finding channels by name |
//! | `shared` | a channel's memory and its locks |
//! | `quiet` | writing without SIGPIPE |
//! | `helper` | threads that work for a link |
//! | this one | channels across processes |
//! | `pi` | a lock with priority inheritance |
//! | [`interface`] | the interface of all backends |
//! | [`bound`] | the longest latency of channels that share a port |
//! | `steps` | how long the steps of a link's threads take |
//! | [`status`] | what links are doing, for `onbeat link status` |
//! | `shm` | the interface over channels in shared memory |
//! | [`resume`] | what two ends agree on after a broken connection |
//! | [`port`] | who sends next of all that share a network interface |
//! | `sealed` | small records through a connection |
//! | [`tcp`] | the interface over TCP |
//! | `verbs` | the interface over RDMA (feature `verbs`) |
//! | [`auto`] | the fastest backend that both ends have |
//! | [`qos`] | promises on messages over any of these, checked |
//! | [`channels`] | channels of `onbeat-flow` between hosts |
//! | [`wire`] | the bytes that a chunk needs on the wire besides its content |
//! | [`mod@bench`] | measuring the round trips and the rate of a link |
pub mod auto;
pub mod bench;
pub mod bound;
pub mod channels;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod helper;
pub mod interface;
mod name;
mod pi;
pub mod port;
pub mod qos;
mod quiet;
pub mod resume;
mod sealed;
mod shared;
mod shm;
pub mod status;
mod steps;
pub mod tcp;
#[cfg(feature = "verbs")]
pub mod verbs;
#[cfg_attr(not(feature = "verbs"), allow(dead_code))]
#[path = "verbs/wire.rs"]
mod verbs_wire;
pub mod wire;

use onbeat_flow::events::LinkId;
use onbeat_flow::region::Region;
use onbeat_flow::{Channel, Medium, OpenError, Options};
use shared::SharedMemory;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

pub use auto::Auto;
pub use channels::{Links, LinksError};
pub use error::LinkError;
pub use qos::Qos;
pub use shm::Shm;
pub use tcp::{Key, KeyError, Tcp};
#[cfg(feature = "verbs")]
pub use verbs::Verbs;

const CREATION_LIMIT: Duration = Duration::from_secs(1);
const POLL_PERIOD: Duration = Duration::from_millis(1);

/// Opens the channel of that name. The first call creates it, and later calls check that their
/// options are the same. Not real-time safe: searches all processes of the machine.
pub fn channel(name: &str, options: Options) -> Result<Channel, LinkError> {
    let creation = name::Creation::begin(name)?;
    match attach_now(name, Some(options)) {
        Err(LinkError::NotThere { .. }) => create_as(&creation, options),
        other => other,
    }
}

/// Creates a channel. Fails if a channel of that name exists.
pub fn create(name: &str, options: Options) -> Result<Channel, LinkError> {
    let creation = name::Creation::begin(name)?;
    if let Some(found) = name::find(name)? {
        return Err(LinkError::Exists {
            name: name.into(),
            pid: found.pid,
        });
    }
    create_as(&creation, options)
}

/// Attaches to the channel of that name. If `options` are given, they must equal the channel's
/// options. Waits up to 1 s for a process that is creating the channel.
pub fn attach(name: &str, options: Option<Options>) -> Result<Channel, LinkError> {
    let since = Instant::now();
    loop {
        match attach_now(name, options) {
            Err(
                LinkError::Unsealed { .. }
                | LinkError::Open {
                    reason: OpenError::Unfinished,
                    ..
                },
            ) if since.elapsed() < CREATION_LIMIT => std::thread::sleep(POLL_PERIOD),
            other => return other,
        }
    }
}

/// Attaches to a channel by a file descriptor from another participant, for example in a container.
pub fn open(descriptor: BorrowedFd<'_>, options: Option<Options>) -> Result<Channel, LinkError> {
    let name = "(a descriptor)";
    open_memory(name, descriptor, options)
}

/// Returns a file descriptor of the channel. Pass it to a process that cannot find the name; that
/// process calls [`open`].
pub fn descriptor(name: &str) -> Result<OwnedFd, LinkError> {
    match name::find(name)? {
        Some(found) => Ok(found.file.into()),
        None => Err(LinkError::NotThere { name: name.into() }),
    }
}

fn attach_now(name: &str, options: Option<Options>) -> Result<Channel, LinkError> {
    let Some(found) = name::find(name)? else {
        return Err(LinkError::NotThere { name: name.into() });
    };
    open_memory(name, found.file.as_fd(), options)
}

fn open_memory(
    name: &str,
    descriptor: BorrowedFd<'_>,
    options: Option<Options>,
) -> Result<Channel, LinkError> {
    let expected = options.and_then(|o| o.memory_bytes().ok());
    let region = SharedMemory::open(name, descriptor, expected)?;
    let link = LinkId::new(region.number(), name);
    let region: Box<dyn Region> = Box::new(region);
    let channel = Channel::open(region, options).map_err(|reason| LinkError::Open {
        name: name.into(),
        reason,
    })?;
    Ok(channel.known_as(link))
}

fn create_as(creation: &name::Creation, options: Options) -> Result<Channel, LinkError> {
    let refused = |reason| LinkError::Create {
        name: creation.name().into(),
        reason,
    };
    let size = options.memory_bytes().map_err(refused)?;
    let region = SharedMemory::create(creation.name(), size)?;
    let link = LinkId::new(region.number(), creation.name());
    let channel = Channel::format(Box::new(region), options).map_err(refused)?;
    Ok(channel.known_as(link))
}

/// A [`Medium`] that connects the processes of this machine. It calls [`channel`] with names that
/// begin with the system's name.
#[derive(Debug, Clone)]
pub struct Machine {
    system: String,
}

impl Machine {
    /// Makes a medium for the system of that name. Two systems that run at once need different
    /// names.
    pub fn new(system: &str) -> Machine {
        Machine {
            system: system.into(),
        }
    }
}

impl Medium for Machine {
    type Error = LinkError;

    fn channel(&self, name: &str, options: Options) -> Result<Channel, LinkError> {
        channel(&format!("{}/{name}", self.system), options)
    }
}
